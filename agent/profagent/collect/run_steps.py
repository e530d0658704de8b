"""The board's part of a run, for a POSIX sh with what BusyBox has.

A keeper holds the board's lock, changes acl.json and puts it back, and runs the program: it is nobody's child, so a
link that drops ends neither. The program's output is kept in pieces, files STREAM.NUMBER.OFFSET, of which the oldest go
(output_steps shows it). A redirection of `:` that fails would end the shell, that of `true` does not; what `1<>` writes
in place takes no room of a full disk.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from profagent.collect.place import Place

__all__ = ["ABANDONED_S", "LOCK", "keeper", "left", "main_script", "stopped"]

# One device, one profiling task (manual, constraints of use): one lock for all users of a board, in its /tmp.
LOCK = "profagent-collect.lock"
# Before the program is started the keeper leaves after so long without a word of the host; afterwards it ends the
# program after so long, for nobody would empty the board's disk.
LEASH_S, ABANDONED_S = 60, 900
GRACE_S = 10
# Of each stream of the program's output so much is kept at most, beside the piece that grows.
OUTPUT_BYTES = 16 << 20
_READ_BYTES, PIECE_READS = 8192, 1024
# An acl.json is kept beside itself: under the first name, or, where there was none, as an empty file of the second.
BEFORE, NONE_BEFORE = ".before-profagent", ".none-before-profagent"
_NOW = "read -r now rest </proc/uptime; now=${now%%.*}"
# When a process began, in ticks since the boot: a number alone may be another's by then.
_BEGUN = """begun() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20; }"""
_KEEPER = """umask 077
lock=${TMPDIR:-/tmp}/$1 own=$2 who=$3 leash=$4 abandoned=$5 grace=$6 most=$7 reads=$8
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
put_back "$(cat "$own/acl" 2>/dev/null)" && rm -f "$own/acl"
rm -rf "$run"
mkdir "$run" && echo "$$ $(begun $$) $boot" >"$run/keeper" || exit 1
mkfifo "$lock/stdout" "$lock/stderr" && echo 000 >"$run/status.part" && echo "$$" >"$run/follower" || exit 1
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
ended() { printf '%03d\\n' "$1" 1<>"$run/status.part" && mv "$run/status.part" "$run/status"; }
save() {
    trap - TERM EXIT
    number=1 at=0 oldest=1 gone=0
    while :; do
        piece=$run/$1.$number.$at
        dd bs=@READ@ count="$reads" of="$piece" 2>/dev/null
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
runs() { [ -n "$since" ] && [ "$(begun "$pid")" = "$since" ]; }
end() { runs && { kill "-$1" "-$pid" 2>/dev/null || kill "-$1" "$pid" 2>/dev/null; }; }
if [ -n "$acl" ]; then
    put_back "$acl"
    echo "$acl" >"$own/acl" && cp "$own/acl" "$lock/acl" && keep "$acl" && cp "$run/acl.json" "$acl.part" &&
        chmod 644 "$acl.part" && mv -f "$acl.part" "$acl" || {
        rm -f "$acl.part"
        finish
        tail -n 1 "$run/keeper.log" >"$run/failure"
        ended 125
    }
fi
if [ ! -e "$run/status" ]; then
    for each in stdout stderr; do
        true >"$run/$each.1.0"
        save "$each" <"$lock/$each" &
    done
    # At least as strict as the manual wants it.
    umask 027
    with=
    command -v setsid >/dev/null && with=setsid
    $with sh "$run/main.sh" </dev/null >"$lock/stdout" 2>"$lock/stderr" &
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
    # What it started may have its output open for longer.
    left=10
    while [ "$left" -gt 0 ] && ! { [ -e "$run/stdout-saved" ] && [ -e "$run/stderr-saved" ]; }; do
        nap
        left=$((left - 1))
    done
    ended "$status"
fi
@NOW@
last=$now
while [ ! -e "$run/leave" ] && [ ! -e "$run/stop" ] && heard "$abandoned"; do
    read -r holder rest 2>/dev/null <"$run/keeper" && [ "$holder" = "$$" ] || exit
    sleep 1
done
rm -rf "$run"
"""
# What the keeper says is read until it is ready, for then it writes elsewhere. Where the link is gone nobody reads on.
_MINDER = """with=
command -v setsid >/dev/null && with=setsid
said=$(@STARTED@)
trap '' PIPE
echo "$said" 2>/dev/null
[ "$said" = ready ] && cd @RUN@ || exit 1
while read -r word; do true >alive; done
[ -e go ] || true >leave
"""


def keeper(place: Place, who: str) -> str:
    """Starts the keeper and minds it.

    Prints `ready`, or `held` (`stale` for one that cannot be taken) `PID BEGUN BOOT WHO` and fails. A line of
    standard input tells the keeper that somebody prepares the run; the end of them, however early, has it leave.
    """
    text = (
        _KEEPER.replace("@BEFORE@", BEFORE)
        .replace("@NONE@", NONE_BEFORE)
        .replace("@NOW@", _NOW)
        .replace("@BEGUN@", _BEGUN)
        .replace("@READ@", str(_READ_BYTES))
    )
    limits = (LEASH_S, ABANDONED_S, GRACE_S, OUTPUT_BYTES, PIECE_READS)
    given = ("keeper", LOCK, place.own, who, *map(str, limits))
    started = f"$with sh -c {shlex.quote(text)} {shlex.join(given)} </dev/null &"
    return _MINDER.replace("@RUN@", shlex.quote(place.run)).replace("@STARTED@", started)


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
    """Makes the output directory, as the manual's umask has it."""
    output = shlex.quote(place.output)
    return f"(umask 027; mkdir -p {output}) && [ -w {output} ]"


def jobs_in(*directories: str) -> str:
    """Prints the paths of the JOBs in these directories."""
    paths = " ".join(f"{shlex.quote(directory)}/JOB*" for directory in directories)
    return f'for each in {paths}; do [ ! -d "$each" ] || echo "$each"; done'


def written_after(place: Place) -> str:
    """Prints the paths of the JOBs in which a file was written when the program was gone."""
    since = shlex.quote(f"{place.run}/status")
    return f"""for each in {shlex.quote(place.output)}/JOB*; do
    [ -z "$(find "$each" -type f -newer {since} 2>/dev/null | head -n 1)" ] || echo "$each"
done"""


def facts_after(place: Place) -> str:
    """Prints, as lines `KEY=VALUE`, what is on the board when the program has ended."""
    output = shlex.quote(place.output)
    return f"""[ ! -e /dev/svp_npu ] || echo npu=yes
{jobs_in(place.main_directory, place.output)} | sed 's/^/job=/'
df -Pk {output} | tail -n 1 | sed -n 's/.* \\([0-9][0-9]*\\)  *[0-9][0-9]*% .*/free_kib=\\1/p'
for each in /proc/[0-9]*/fd; do
    case $(ls -l "$each" 2>/dev/null) in
    */dev/svp_npu*) echo "user=$(cat "${{each%/fd}}/comm" 2>/dev/null) ${{each%/fd}}" ;;
    esac
done"""


def released(directory: str, jobs: Sequence[str]) -> str:
    """Deletes JOBs."""
    return f"cd {shlex.quote(directory)} && rm -rf {shlex.join(jobs)}" if jobs else ":"
