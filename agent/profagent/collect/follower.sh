# Shows the output of a run from two offsets on until its program has ended. Lines on standard input tell the keeper that
# the host is alive; a line `stop` makes the keeper end the program and leave. POSIX sh with the tools of BusyBox, after
# safely.sh. Arguments: NAME RUN STDOUT_OFFSET STDERR_OFFSET.
# Exit status: 7 if the keeper is gone without a result, 8 if another follower has taken over, 9 if the next output was
# deleted already.
name=$1
[ -d "$2" ] || exit 7
into "$2"
read -r keeper <keeper
echo "$$" 1<>follower
trap 'kill "$reader" 2>/dev/null' EXIT
exec 5<&0
( while read -r word <&5; do true >alive; [ "$word" != stop ] || { true >stop; true >leave; }; done; kill "$$" ) >/dev/null 2>&1 &
reader=$!
exec 5<&- </dev/null
true >alive
lives() { runs "$keeper" "$name"; }
while [ ! -e pid ] && [ ! -e status ]; do
    lives || exit 7
    sleep 0.2 2>/dev/null || sleep 1
done
[ -e pid ] || exit 0
seek() { # DESCRIPTOR STREAM OFFSET
    number=
    for each in "$2".*.*; do
        start=${each##*.}
        [ "$start" -le "$3" ] || continue
        rest=${each#*.}
        [ -z "$number" ] || [ "${rest%%.*}" -gt "$number" ] || continue
        number=${rest%%.*} from=$start
    done
    [ -n "$number" ] || exit 9
    eval "n$1=$number; exec $1<$2.$number.$from"
    tail -c "+$(($3 - from + 1))" <&"$1"
}
advance() { # DESCRIPTOR STREAM
    eval "number=\$n$1"
    set -- "$1" "$2" "$2.$((number + 1))".*
    cat <&"$1"
    if [ -e "$3" ]; then
        eval "n$1=$((number + 1)); exec $1<$3"
        more=1
    else
        set -- "$1" "$2" "$2.$number".*
        [ -e "$3" ] || exit 9
    fi
}
seek 3 stdout "$3"
seek 4 stderr "$4" >&2
while :; do
    last= more=
    [ ! -e status ] || last=1
    advance 3 stdout
    advance 4 stderr >&2
    [ -z "$more" ] || continue
    [ -z "$last" ] || exit 0
    read -r who <follower && [ "$who" = "$$" ] || exit 8
    lives || [ -e status ] || exit 7
    sleep 0.2 2>/dev/null || sleep 1
done
