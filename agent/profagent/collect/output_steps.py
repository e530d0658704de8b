"""Showing the output of a program that a keeper runs (run_steps), for a POSIX sh with what BusyBox has.

It is in pieces, files STREAM.NUMBER.OFFSET: one is whole when there is the next, and the oldest go.
"""

from __future__ import annotations

import shlex
from functools import reduce
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profagent.collect.place import Place

__all__ = ["GONE", "NOT_KEPT", "follower", "kept_from"]

# The follower's exit status when the keeper is gone without having told how the program ended, when another follows,
# and when what comes next of the output is not kept.
GONE, REPLACED, NOT_KEPT = 7, 8, 9
_FOLLOWER = r"""run=$1
cd "$run" 2>/dev/null || exit @GONE@
read -r keeper begun boot <keeper
read -r booted </proc/sys/kernel/random/boot_id
echo "$$" 1<>follower
trap 'kill "$reader" 2>/dev/null' EXIT
exec 5<&0
( while read -r word <&5; do true >alive; [ "$word" != stop ] || true >stop; done; kill "$$" ) >/dev/null 2>&1 &
reader=$!
exec 5<&- </dev/null
true >alive
while [ ! -e pid ] && [ ! -e status ]; do
    [ "$boot" = "$booted" ] && [ -d "/proc/$keeper" ] || exit @GONE@
    sleep 0.2 2>/dev/null || sleep 1
done
[ -e pid ] || exit 0
seek() {
    number=
    for each in "$2".*.*; do
        start=${each##*.}
        [ "$start" -le "$3" ] || continue
        rest=${each#*.}
        [ -z "$number" ] || [ "${rest%%.*}" -gt "$number" ] || continue
        number=${rest%%.*} from=$start
    done
    [ -n "$number" ] || exit @NOT_KEPT@
    eval "n$1=$number; exec $1<$2.$number.$from"
    tail -c "+$(($3 - from + 1))" <&"$1"
}
advance() {
    eval "number=\$n$1"
    set -- "$1" "$2" "$2.$((number + 1))".*
    cat <&"$1"
    if [ -e "$3" ]; then
        eval "n$1=$((number + 1)); exec $1<$3"
        more=1
    else
        set -- "$1" "$2" "$2.$number".*
        [ -e "$3" ] || exit @NOT_KEPT@
    fi
}
seek 3 stdout "$2"
seek 4 stderr "$3" >&2
while :; do
    last= more=
    [ ! -e status ] || last=1
    advance 3 stdout
    advance 4 stderr >&2
    [ -z "$more" ] || continue
    [ -z "$last" ] || exit 0
    read -r who <follower && [ "$who" = "$$" ] || exit @REPLACED@
    [ "$boot" = "$booted" ] && [ -d "/proc/$keeper" ] || [ -e status ] || exit @GONE@
    sleep 0.5 2>/dev/null || sleep 1
done
"""


def follower(place: Place, stdout: int, stderr: int) -> str:
    """Shows the output from these offsets on, until the program has ended.

    Lines on standard input keep that going; a line `stop` has the keeper end it.
    """
    codes = {"@GONE@": GONE, "@REPLACED@": REPLACED, "@NOT_KEPT@": NOT_KEPT}
    text = reduce(lambda text, name: text.replace(name, str(codes[name])), codes, _FOLLOWER)
    return f"exec sh -c {shlex.quote(text)} {shlex.join(('follower', place.run, str(stdout), str(stderr)))}"


def kept_from(place: Place) -> str:
    """Prints from which offset on each stream of the output is kept."""
    return f"""cd {shlex.quote(place.run)} && for stream in stdout stderr; do
    least=
    for each in $stream.*.*; do
        [ -n "$least" ] && [ "${{each##*.}}" -ge "$least" ] || least=${{each##*.}}
    done
    echo "$least"
done"""
