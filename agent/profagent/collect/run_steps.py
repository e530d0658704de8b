"""The board's part of a run, for a POSIX sh with what BusyBox has.

A keeper holds the board's lock, changes acl.json and puts it back, and runs the program: it is nobody's child, so a
link that drops ends neither. A follower shows the program's output from where it was seen last. A redirection of `:`
that fails would end the shell, that of `true` does not.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from profagent.collect.place import Place

__all__ = ["ABANDONED_S", "GONE", "LOCK", "follower", "keeper", "left", "main_script", "minder", "stopped"]

# One device, one profiling task (manual, constraints of use): one lock for all users of a board, in its /tmp.
LOCK = "profagent-collect.lock"
# Before the program is started the keeper leaves after so long without a word of the host; afterwards it ends the
# program after so long, for nobody would empty the board's disk.
LEASH_S, ABANDONED_S = 60, 900
GRACE_S = 10
# The follower's exit status when the keeper is gone without having told how the program ended.
GONE = 7
REPLACED = 8
# An acl.json is kept beside itself: under the first name, or, where there was none, as an empty file of the second.
BEFORE, NONE_BEFORE = ".before-profagent", ".none-before-profagent"
_NOW = "read -r now rest </proc/uptime; now=${now%%.*}"
# When a process began, in ticks since the boot: a number alone may be another's by then.
_BEGUN = """begun() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20; }"""
_KEEPER = """umask 077
lock=${TMPDIR:-/tmp}/$1 own=$2 who=$3 leash=$4 abandoned=$5 grace=$6
run=$own/run
read -r boot </proc/sys/kernel/random/boot_id
@BEGUN@
lives() { [ "$3" = "$boot" ] && [ -n "$2" ] && [ "$(begun "$1")" = "$2" ]; }
put_back() {
    [ -n "$1" ] || return 0
    if [ -e "$1@BEFORE@" ] || [ -L "$1@BEFORE@" ]; then mv -f "$1@BEFORE@" "$1"
    elif [ -e "$1@NONE@" ]; then rm -f "$1" "$1@NONE@"
    fi
}
unlock() {
    read -r holder rest 2>/dev/null <"$lock/owner" && [ "$holder" = "$$" ] && rm -rf "$lock"
}
refuse() { echo "$how $(cat "$lock/owner" 2>/dev/null)"; exit 1; }
keep() { if [ -e "$1" ] || [ -L "$1" ]; then mv "$1" "$1@BEFORE@"; else true >"$1@NONE@"; fi; }
how=held
if ! mkdir "$lock" 2>/dev/null; then
    [ -s "$lock/owner" ] || sleep 1
    seen=$(cat "$lock/owner" 2>/dev/null)
    lives $seen && refuse
    how=stale
    mv "$lock" "$lock.$$" 2>/dev/null || refuse
    how=held
    if [ "$(cat "$lock.$$/owner" 2>/dev/null)" != "$seen" ]; then mv "$lock.$$" "$lock"; refuse; fi
    put_back "$(cat "$lock.$$/acl" 2>/dev/null)"
    rm -rf "$lock.$$"
    mkdir "$lock" 2>/dev/null || refuse
fi
echo "$$ $(begun $$) $boot $who" >"$lock/owner" || { rmdir "$lock"; exit 1; }
trap 'unlock' EXIT
mkdir -p "$own" || exit 1
put_back "$(cat "$own/acl" 2>/dev/null)"
rm -rf "$run"
mkdir "$run" && echo "$$ $(begun $$) $boot" >"$run/keeper" || exit 1
echo ready
exec >"$run/keeper.log" 2>&1
heard() {
    @NOW@
    if [ -e "$run/alive" ]; then rm -f "$run/alive"; last=$now; fi
    [ $((now - last)) -lt "$1" ]
}
nap() { sleep 0.2 2>/dev/null || sleep 1; }
@NOW@
last=$now
while [ ! -e "$run/go" ]; do
    if [ -e "$run/leave" ] || ! heard "$leash"; then rm -rf "$run"; exit; fi
    nap
done
acl=$(cat "$run/acl")
finish() { put_back "$acl"; rm -f "$own/acl"; unlock; }
runs() { [ -n "$since" ] && [ "$(begun "$pid")" = "$since" ]; }
end() { runs && { kill "-$1" "-$pid" 2>/dev/null || kill "-$1" "$pid" 2>/dev/null; }; }
if [ -n "$acl" ]; then
    put_back "$acl"
    echo "$acl" >"$own/acl" && cp "$own/acl" "$lock/acl" && keep "$acl" && cp "$run/acl.json" "$acl.part" &&
        chmod 644 "$acl.part" && mv -f "$acl.part" "$acl" || {
        rm -f "$acl.part"
        finish
        tail -n 1 "$run/keeper.log" >"$run/failure"
        echo 125 >"$run/status"
    }
fi
if [ ! -e "$run/status" ]; then
    # At least as strict as the manual wants it.
    umask 027
    with=
    command -v setsid >/dev/null && with=setsid
    $with sh "$run/main.sh" </dev/null >"$run/stdout" 2>"$run/stderr" &
    pid=$!
    umask 077
    since=$(begun "$pid")
    echo "$pid $since" >"$run/pid"
    trap 'end TERM; finish; exit 143' TERM INT HUP
    ( trap - TERM EXIT
    while sleep 5 && runs; do
        if [ ! -e "$run/stop" ]; then
            heard "$abandoned" && continue
            true >"$run/abandoned"
        fi
        end TERM
        sleep "$grace"
        end KILL
    done ) &
    minding=$!
    wait "$pid"
    status=$?
    kill "$minding" 2>/dev/null
    finish
    echo "$status" >"$run/status.part" && mv "$run/status.part" "$run/status"
fi
@NOW@
last=$now
while [ ! -e "$run/leave" ] && [ ! -e "$run/stop" ] && heard "$abandoned"; do
    read -r holder rest 2>/dev/null <"$run/keeper" && [ "$holder" = "$$" ] || exit
    sleep 1
done
rm -rf "$run"
"""
_FOLLOWER = """run=$1
cd "$run" 2>/dev/null || exit @GONE@
read -r keeper begun boot <keeper
read -r booted </proc/sys/kernel/random/boot_id
echo "$$" >follower
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
exec 3<stdout 4<stderr
tail -c "+$2" <&3
tail -c "+$3" <&4 >&2
last=
while :; do
    cat <&3
    cat <&4 >&2
    [ -z "$last" ] || exit 0
    if [ -e status ]; then last=1; continue; fi
    read -r who <follower && [ "$who" = "$$" ] || exit @REPLACED@
    [ "$boot" = "$booted" ] && [ -d "/proc/$keeper" ] || [ -e status ] || exit @GONE@
    sleep 0.5 2>/dev/null || sleep 1
done
"""


def keeper(place: Place, who: str) -> str:
    """Starts the keeper; prints `ready`, or `held` (`stale` for one that cannot be taken) `PID BEGUN BOOT WHO`."""
    text = (
        _KEEPER.replace("@BEFORE@", BEFORE)
        .replace("@NONE@", NONE_BEFORE)
        .replace("@NOW@", _NOW)
        .replace("@BEGUN@", _BEGUN)
    )
    given = ("keeper", LOCK, place.own, who, str(LEASH_S), str(ABANDONED_S), str(GRACE_S))
    return (
        "with=; command -v setsid >/dev/null && with=setsid;"
        f" $with sh -c {shlex.quote(text)} {shlex.join(given)} </dev/null &"
    )


def follower(place: Place, stdout: int, stderr: int) -> str:
    """Shows the output from these offsets on, until the program has ended.

    Lines on standard input keep that going; a line `stop` has the keeper end it.
    """
    text = _FOLLOWER.replace("@GONE@", str(GONE)).replace("@REPLACED@", str(REPLACED))
    return f"exec sh -c {shlex.quote(text)} {shlex.join(('follower', place.run, str(stdout + 1), str(stderr + 1)))}"


def minder(place: Place) -> str:
    """Tells the keeper, a line of standard input at a time, that somebody prepares the run; has it leave at the end."""
    return f"cd {shlex.quote(place.run)} && while read -r word; do true >alive; done; [ -e go ] || true >leave"


def main_script(place: Place, arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """What the keeper runs."""
    exports = "".join(f"export {shlex.quote(f'{name}={value}')}\n" for name, value in environment.items())
    return f"{exports}cd {shlex.quote(place.main_directory)} || exit 126\nexec {shlex.join((place.main, *arguments))}\n"


def stopped(place: Place) -> str:
    """Ends the program: asks it to, and makes it after a grace. Where it was not started it never is."""
    return f"""cd {shlex.quote(place.run)} 2>/dev/null || exit 0
if ! read -r pid since 2>/dev/null <pid; then true >leave; exit 0; fi
{_BEGUN}
end() {{
    [ -n "$since" ] && [ "$(begun "$pid")" = "$since" ] || return 0
    kill "-$1" "-$pid" 2>/dev/null || kill "-$1" "$pid" 2>/dev/null
}}
[ -e status ] || end TERM
left={GRACE_S}
while [ ! -e status ] && [ "$left" -gt 0 ]; do sleep 1; left=$((left - 1)); done
[ -e status ] || end KILL
:"""


def left(place: Place) -> str:
    """Has the keeper leave, and take away what it kept of the run."""
    return f"[ ! -d {shlex.quote(place.run)} ] || true >{shlex.quote(place.run)}/leave"


def how_it_ended(place: Place) -> str:
    """Prints the exit status and, where it is known, why the program was not started or was ended."""
    return (
        f"cd {shlex.quote(place.run)} && cat status && {{ [ ! -e abandoned ] || echo abandoned;"
        " [ ! -e failure ] || cat failure; }"
    )


def settled(directory: str) -> str:
    """Makes the project's directory; prints its path without links, and the machine."""
    name = shlex.quote(directory) if not directory.startswith("~/") else f'"$HOME"/{shlex.quote(directory[2:])}'
    return f"mkdir -p {name} && cd {name} && pwd -P && uname -m"


def looked(place: Place) -> str:
    """Prints of the program `missing`, `directory`, `closed` (not executable) or `program`, then the first acl.json."""
    main = shlex.quote(place.main)
    candidates = " ".join(shlex.quote(path) for path in place.acl_candidates)
    return f"""if [ ! -e {main} ]; then echo missing; elif [ -d {main} ]; then echo directory
elif [ ! -x {main} ]; then echo closed; else echo program; fi
for each in {candidates}; do [ ! -e "$each" ] || {{ echo "$each"; break; }}; done"""


def program_bytes(place: Place, size: int) -> str:
    """Prints the program's file up to so many bytes, a multiple of 1024."""
    return f"dd if={shlex.quote(place.main)} bs=1024 count={size // 1024} 2>/dev/null"


def made_output(place: Place) -> str:
    """Makes the output directory, as the manual's umask has it; prints the JOBs that are there."""
    output = shlex.quote(place.output)
    return f"(umask 027; mkdir -p {output}) && [ -w {output} ] && {jobs_in(place.output)}"


def jobs_in(directory: str) -> str:
    """Prints the names of the JOBs in a directory."""
    return f'cd {shlex.quote(directory)} && for each in JOB*; do [ ! -d "$each" ] || echo "$each"; done'


def facts_after(place: Place) -> str:
    """Prints, as lines `KEY=VALUE`, what is on the board when the program has ended."""
    run, output = shlex.quote(place.run), shlex.quote(place.output)
    here = shlex.quote(place.main_directory)
    return f"""[ ! -e /dev/svp_npu ] || echo npu=yes
for each in {here}/JOB* {output}/JOB*; do
    [ ! -d "$each" ] || [ ! "$each" -nt {run}/go ] || echo "job=$each"
done
df -Pk {output} | tail -n 1 | sed -n 's/.* \\([0-9][0-9]*\\)  *[0-9][0-9]*% .*/free_kib=\\1/p'
for each in /proc/[0-9]*/fd; do
    case $(ls -l "$each" 2>/dev/null) in
    */dev/svp_npu*) echo "user=$(cat "${{each%/fd}}/comm" 2>/dev/null) ${{each%/fd}}" ;;
    esac
done"""


def released(directory: str, jobs: Sequence[str]) -> str:
    """Deletes JOBs."""
    return f"cd {shlex.quote(directory)} && rm -rf {shlex.join(jobs)}" if jobs else ":"
