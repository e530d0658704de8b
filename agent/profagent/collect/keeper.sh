# Holds a board for a run, changes its acl.json and puts that back, and runs the program. POSIX sh with what BusyBox has.
# It is nobody's child: a link that drops ends neither. Output is kept in pieces, files STREAM.NUMBER.OFFSET, of which the
# oldest go. A redirection of `:` that fails would end the shell, that of `true` does not; what `1<>` writes in place
# takes no room of a full disk.
umask 077
name=$1 lock=${TMPDIR:-/tmp}/$1 own=$2 who=$3 unprepared=$4 abandoned=$5 grace=$6 most=$7 reads=$8
run=$own/run
before=.before-profagent none=.none-before-profagent

put_back() { # ACL_JSON
    [ -n "$1" ] || return 0
    if [ -e "$1$before" ] || [ -L "$1$before" ]; then mv -f "$1$before" "$1"
    elif [ -e "$1$none" ]; then rm -f "$1" "$1$none"
    fi
}
keep() { if [ -e "$1" ] || [ -L "$1" ]; then mv "$1" "$1$before"; else true >"$1$none"; fi; }
unlock() { read -r holder rest 2>/dev/null <"$lock/owner" && [ "$holder" = "$$" ] && rm -rf "$lock"; }
refuse() { echo "held $(cat "$lock/owner" 2>/dev/null)"; exit 1; }
nap() { sleep 0.2 2>/dev/null || sleep 1; }
now_s() { cut -d . -f 1 /proc/uptime; }
heard() { # SECONDS
    if [ -e "$run/alive" ]; then rm -f "$run/alive"; last=$(now_s); fi
    [ $(($(now_s) - last)) -lt "$1" ]
}

if ! mkdir "$lock" 2>/dev/null; then
    [ -s "$lock/owner" ] || sleep 1
    read -r holder rest 2>/dev/null <"$lock/owner"
    ! grep -q "$name" "/proc/$holder/cmdline" 2>/dev/null || refuse
    # Of several that find it left behind one moves it.
    mv "$lock" "$lock.$$" 2>/dev/null && rm -rf "$lock.$$" && mkdir "$lock" 2>/dev/null || refuse
fi
echo "$$ $who" >"$lock/owner" || { rmdir "$lock"; exit 1; }
trap unlock EXIT
mkdir -p "$own" && put_back "$(cat "$own/acl" 2>/dev/null)" && rm -rf "$own/acl" "$run" && mkdir "$run" || exit 1
mkfifo "$lock/stdout" "$lock/stderr" && echo 000 >"$run/code.part" && echo "$$" >"$run/follower" || exit 1
echo "$$" >"$run/keeper" || exit 1
echo ready
exec >"$run/keeper.log" 2>&1

last=$(now_s)
while [ ! -e "$run/go" ]; do
    if [ -e "$run/leave" ] || ! heard "$unprepared"; then rm -rf "$run"; exit; fi
    nap
done
acl=$(cat "$run/acl")
finish() { put_back "$acl"; rm -f "$own/acl"; unlock; }
save() { # STREAM
    trap - TERM EXIT
    number=1 at=0 oldest=1 gone=0
    while :; do
        piece=$run/$1.$number.$at
        dd bs=8192 count="$reads" of="$piece" 2>/dev/null
        size=$(wc -c <"$piece") && [ "$size" -gt 0 ] || break
        number=$((number + 1)) at=$((at + size))
        while [ $((at - gone)) -gt "$most" ]; do
            for each in "$run/$1.$oldest".*; do
                gone=$((gone + $(wc -c <"$each")))
                rm -f "$each"
            done
            oldest=$((oldest + 1))
        done
    done
    true >"$run/$1-saved"
    # The disk may be full: the program goes on.
    cat >/dev/null
}
end() { # SIGNAL
    read -r pid <"$run/pid" && { kill "-$1" "-$pid" 2>/dev/null || kill "-$1" "$pid" 2>/dev/null; }
}
wait_for() { # FILE NAPS
    left=$2
    while [ ! -e "$1" ] && [ "$left" -gt 0 ]; do nap; left=$((left - 1)); done
}

if [ -n "$acl" ]; then
    put_back "$acl"
    echo "$acl" >"$own/acl" && keep "$acl" && cp "$run/acl.json" "$acl.part" && chmod 644 "$acl.part" &&
        mv -f "$acl.part" "$acl" || {
        rm -f "$acl.part"
        finish
        tail -n 1 "$run/keeper.log" >"$run/failure"
        echo 125 >"$run/code"
    }
fi
if [ ! -e "$run/code" ]; then
    for each in stdout stderr; do
        true >"$run/$each.1.0"
        save "$each" <"$lock/$each" &
    done
    trap 'end TERM; finish; exit 143' TERM INT HUP
    (
        trap - TERM INT HUP EXIT
        # At least as strict as the manual wants it.
        umask 027
        with=
        command -v setsid >/dev/null && with=setsid
        $with sh "$run/main.sh" </dev/null >"$lock/stdout" 2>"$lock/stderr"
        printf '%03d\n' "$?" 1<>"$run/code.part" && mv "$run/code.part" "$run/code"
    ) &
    while [ ! -e "$run/code" ]; do
        nap
        if [ ! -e "$run/stop" ]; then
            heard "$abandoned" && continue
            true >"$run/abandoned"
        fi
        end TERM
        wait_for "$run/code" $((grace * 5))
        [ -e "$run/code" ] || end KILL
    done
    finish
    # What it started may have its output open for longer.
    wait_for "$run/stdout-saved" 10
    wait_for "$run/stderr-saved" 10
fi
mv "$run/code" "$run/status"
last=$(now_s)
while [ ! -e "$run/leave" ] && heard "$abandoned"; do
    read -r holder 2>/dev/null <"$run/keeper" && [ "$holder" = "$$" ] || exit
    nap
done
rm -rf "$run"
