# Files of a board in directories that other users may write to. POSIX sh, with what BusyBox and toybox have.
# Whoever has a path resolved stands in the directory of its last name from then on, and works on names there: what
# becomes of the path meanwhile leads nowhere else.
fail() { echo "$*" >&2; exit 1; }
runs() { tr "\\000" "\\n" 2>/dev/null <"/proc/$1/cmdline" | grep -q "$2"; }
owner() { set -- $(ls -ldn "$1" 2>/dev/null); echo "$3"; }

# toybox's id fails for a user of whom /etc/passwd knows nothing.
me() { owner "/proc/$$"; }

# The physical path, $real, and the owners of links that lead to it, $links. The last name's link is followed where
# $2 says so.
resolve() { # PATH [follow]
    rest=$1 real= links= hops=0
    case $1 in /*) ;; *) rest=$(pwd -P)/$1 ;; esac
    while [ -n "$rest" ]; do
        part=${rest%%/*}
        case $rest in */*) rest=${rest#*/} ;; *) rest= ;; esac
        case $part in
        '' | .) continue ;;
        ..) real=${real%/*} && continue ;;
        esac
        if [ ! -L "$real/$part" ] || { [ -z "$rest" ] && [ -z "$2" ]; }; then
            real=$real/$part
            continue
        fi
        hops=$((hops + 1)) links="$links $(owner "$real/$part")"
        [ "$hops" -le 40 ] || fail "$1: too many links"
        to=$(readlink "$real/$part") || fail "$1: a link changes"
        case $to in /*) real= ;; esac
        rest=$to${rest:+/$rest}
    done
}

# Go to the directory in which PATH is, as $base. A link is root's, this user's, or its target's owner's: any other
# may have been planted.
enter() { # PATH [follow]
    resolve "$1" "$2"
    base=${real##*/} real=${real%/*}
    cd "$real/" && [ "$(pwd -P)" = "${real:-/}" ] || fail "$1: cannot enter ${real:-/}"
    set -- "$1" "$(me)" "$(owner .)"
    for each in $links; do
        case $each in 0 | "$2" | "$3") ;; *) fail "$1: a link of user $each leads to what is not his" ;; esac
    done
}

# Go to a directory of this user's own, to which no link leads.
into() { # DIRECTORY
    cd "$1" && [ "$(pwd -P)" = "$1" ] && [ "$(owner .)" = "$(me)" ] || fail "$1 is not this user's own: remove it"
}

# Have a file take a name here. A directory of that name is not moved into, even where it comes at this moment.
take() { # FROM NAME
    case $(mv --help 2>&1) in
    *-T,* | *inT*) mv -fT "./$1" "./$2" ;;
    *) [ ! -d "./$2" ] && mv -f "./$1" "./$2" ;;
    esac
}

# Replace a file by what comes, whole or not at all. Its name until then is nobody's, and stands in no argument before
# there is a file; owner and mode go to the open file, whatever its name leads to. ksh hands no descriptor above 2 down.
replace() ( # PATH SIZE MODE [OWNER [follow]]
    umask 077
    enter "$1" "$5"
    read -r name </proc/sys/kernel/random/uuid || fail "no /proc/sys/kernel/random/uuid"
    name=.profagent-$name
    set -C
    exec 3>"./$name" || exit
    set +C
    trap 'rm -f "./$name"' EXIT
    cat >&3 || exit
    [ "$(wc -c <"./$name")" -eq "$2" ] || fail "not all of it came"
    # Who is not root gives nothing away, and some file systems have neither owners nor modes.
    [ -z "$4" ] || chown "$4" /proc/self/fd/1 >&3 2>/dev/null
    chmod "$3" /proc/self/fd/1 >&3 2>/dev/null || case $3 in *[4-7]) ;; *) fail "its mode cannot be $3" ;; esac
    exec 3>&-
    take "$name" "$base"
)

# Print how `ls` shows a file, then what it holds. Exit status 3: there is none.
look() { # PATH
    [ -e "$1" ] || exit 3
    enter "$1" follow
    [ -f "./$base" ] || fail "$1: no file"
    exec 3<"./$base" || exit
    [ "$(readlink /proc/self/fd/0 <&3)" = "$real/$base" ] || fail "$1: it changes while it is read"
    ls -lnL /proc/self/fd/0 <&3 && cat <&3
}
