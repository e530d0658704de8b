# Holds a board for a run, changes the acl.json and restores it, and runs the program. POSIX sh with the tools of
# BusyBox, after safely.sh. The keeper has no parent that ends it: a lost link ends neither it nor the program. Output is
# stored in pieces, files STREAM.NUMBER.OFFSET, and the oldest pieces are deleted. `true` is redirected instead of `:`,
# because a failed redirection of `:` would end the shell. `1<>` writes in place, which works on a full disk. The working
# directory is that of the run, whatever happens to its path.
umask 077
name=$1 locks=$2 own=$3 who=$4 silence=$5 abandoned=$6 grace=$7 most=$8 reads=$9
before=.before-profagent none=.none-before-profagent
uid=$(me)

there() { [ -e "./$1" ] || [ -L "./$1" ]; }
put_back() ( # ACL_JSON
    [ -n "$1" ] || exit 0
    enter "$1"
    if there "$base$before"; then take "$base$before" "$base"
    elif [ -e "./$base$none" ]; then rm -f "./$base" "./$base$none"
    fi
)
keep() ( # ACL_JSON
    enter "$1"
    rm -f "./$base$none"
    if there "$base"; then take "$base" "$base$before"
    else set -C; true >"./$base$none"
    fi
)
holder() { read -r holder rest 2>/dev/null <"$1/owner" && runs "$holder" "$name"; }
unlock() { read -r holder rest 2>/dev/null <"$lock/owner" && [ "$holder" = "$$" ] && rm -rf "$lock"; }
refuse() { echo "held $(cat "$1/owner" 2>/dev/null)"; exit 1; }
nap() { sleep 0.2 2>/dev/null || sleep 1; }
now_s() { cut -d . -f 1 /proc/uptime; }
heard() { # SECONDS
    if [ -e alive ]; then rm -f alive; last=$(now_s); fi
    [ $(($(now_s) - last)) -lt "$1" ]
}

# Root's lock lies where only root can create names. Each other user has a lock of their own, which cannot exclude
# others from the board; all users respect root's lock.
lock=
for each in $locks; do
    [ "$uid" = 0 ] || ! holder "$each/$name" || refuse "$each/$name"
    [ -n "$lock" ] || ! (umask 022 && mkdir -p "$each") 2>/dev/null || [ ! -w "$each" ] || lock=$each/$name
done
[ "$uid" = 0 ] || lock=${TMPDIR:-/tmp}/$name.$uid
[ -n "$lock" ] || fail "none of $locks can be written"
if ! mkdir "$lock" 2>/dev/null; then
    [ ! -L "$lock" ] && [ "$(owner "$lock")" = "$uid" ] || fail "$lock is not this user's: remove it"
    [ -s "$lock/owner" ] || sleep 1
    ! holder "$lock" || refuse "$lock"
    # If several keepers find an abandoned lock, only one of them can move it.
    mv "$lock" "$lock.$$" 2>/dev/null && rm -rf "$lock.$$" && mkdir "$lock" 2>/dev/null || refuse "$lock"
fi
echo "$$ $who" >"$lock/owner" && chmod 755 "$lock" && chmod 644 "$lock/owner" || { rm -rf "$lock"; exit 1; }
trap unlock EXIT
ls -ldn /proc/[0-9]* 2>/dev/null | {
    told=
    while read -r mode count its group rest; do
        case " 0 $uid $told " in *" $its "*) continue ;; esac
        ! runs "${rest##*/}" "$name" || { echo "beside ${rest##*/} $its"; told="$told $its"; }
    done
}
mkdir -p "$own" && into "$own" && put_back "$(cat acl 2>/dev/null)" && rm -rf acl run && mkdir run && into "$own/run" || exit 1
mkfifo "$lock/stdout" "$lock/stderr" && echo 000 >code.part && echo "$$" >follower || exit 1
echo "$$" >keeper || exit 1
gone() { cd -P .. && rm -rf run; }
echo ready
exec >keeper.log 2>&1

last=$(now_s)
while [ ! -e go ]; do
    if [ -e leave ] || ! heard "$silence"; then gone; exit; fi
    nap
done
acl=$(cat acl)
finish() { put_back "$acl"; rm -f ../acl; unlock; }
save() { # STREAM
    trap - TERM EXIT
    number=1 at=0 oldest=1 gone=0
    while :; do
        piece=$1.$number.$at
        dd bs=8192 count="$reads" of="$piece" 2>/dev/null
        size=$(wc -c <"$piece") && [ "$size" -gt 0 ] || break
        number=$((number + 1)) at=$((at + size))
        while [ $((at - gone)) -gt "$most" ]; do
            for each in "$1.$oldest".*; do
                gone=$((gone + $(wc -c <"$each")))
                rm -f "$each"
            done
            oldest=$((oldest + 1))
        done
    done
    true >"$1-saved"
    # The disk may be full: the program continues, and its output is dropped.
    cat >/dev/null
}
end() { # SIGNAL
    read -r pid <pid && { kill "-$1" "-$pid" 2>/dev/null || kill "-$1" "$pid" 2>/dev/null; }
}
wait_for() { # FILE NAPS
    left=$2
    while [ ! -e "$1" ] && [ "$left" -gt 0 ]; do nap; left=$((left - 1)); done
}

if [ -n "$acl" ]; then
    put_back "$acl"
    echo "$acl" >../acl && keep "$acl" && replace "$acl" "$(wc -c <acl.json)" 644 <acl.json || {
        finish
        tail -n 1 keeper.log >failure
        echo 125 >code
    }
fi
if [ ! -e code ]; then
    for each in stdout stderr; do
        true >"$each.1.0"
        save "$each" <"$lock/$each" &
    done
    trap 'end TERM; finish; exit 143' TERM INT HUP
    (
        trap - TERM INT HUP EXIT
        # The manual's umask, or a stricter one.
        umask 027
        with=
        command -v setsid >/dev/null && with=setsid
        $with sh main.sh </dev/null >"$lock/stdout" 2>"$lock/stderr"
        printf '%03d\n' "$?" 1<>code.part && mv code.part code
    ) &
    while [ ! -e code ]; do
        nap
        if [ ! -e stop ]; then
            heard "$abandoned" && continue
            true >abandoned
        fi
        end TERM
        wait_for code $((grace * 5))
        [ -e code ] || end KILL
    done
    finish
    # Processes that the program started may hold its output open for longer.
    wait_for stdout-saved 10
    wait_for stderr-saved 10
fi
mv code status
last=$(now_s)
while [ ! -e leave ] && heard "$abandoned"; do
    read -r holder 2>/dev/null <keeper && [ "$holder" = "$$" ] || exit
    nap
done
gone
