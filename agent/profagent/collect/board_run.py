"""A program's run on a board: held, started, followed over lost links, stopped."""

from __future__ import annotations

import asyncio
import getpass
import os
import shlex
import socket
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from profagent.collect.explain import LOST
from profagent.collect.run_steps import ABANDONED_S, LOCK, how_it_ended, keeper, left, main_script, stopped
from profagent.errors import ProfagentError, UnreachableError
from profagent.ssh.failures import connected
from profagent.ssh.remote import Ran

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from profagent.collect.patient_ssh import PatientSsh
    from profagent.collect.place import Place
    from profagent.ssh.remote import Program, Remote


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


# The keeper's leash is several times as long.
_SPEAK_S = 5.0
_READ_BYTES = 1 << 16
_KEPT_BYTES = 8192


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a program ended: its exit status, 128 + n for a signal. `why` it was not started, or was ended, if known.

    LOST in `why`: the board was restarted, or the keeper killed, and how it ended is not known.
    """

    status: int
    why: str
    complaint: str
    """The last of what it wrote to stderr."""


class BoardRun:
    """One run. `show` is given what the program writes, and whether to stderr."""

    def __init__(self, ssh: PatientSsh, place: Place, show: Callable[[bytes, bool], None]) -> None:
        self._ssh = ssh
        self._place = place
        self._show = show
        self._shown = [0, 0]
        self._complaint = b""

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Have the board to itself. What is not started when the context, or the link, ends never is.

        Raises ProfagentError for a board that is held by another, UnreachableError.
        """
        remote = self._ssh.remote
        async with remote.stream(keeper(self._place, _who())) as program:
            speaking = asyncio.create_task(_speak(program))
            try:
                await _take(program, remote.host)
                yield
            finally:
                speaking.cancel()
                await asyncio.wait([speaking])

    async def start(
        self, arguments: Sequence[str], environment: Mapping[str, str], acl_json: str, text: str | None
    ) -> None:
        """Start the program, with this text in its acl.json while it runs. Raises ProfagentError, UnreachableError."""
        remote, run = self._ssh.remote, self._place.run
        await remote.put(main_script(self._place, arguments, environment).encode(), f"{run}/main.sh")
        if text is not None:
            await remote.put(text.encode("utf-8", "surrogateescape"), f"{run}/acl.json")
        await remote.put((acl_json if text is not None else "").encode(), f"{run}/acl")
        await remote.put(b"", f"{run}/go")

    async def followed(self) -> RunEnd:
        """Show what it writes until it has ended, over links that are lost. Raises ProfagentError, RefusedError."""
        return await self._ssh.persist(self._follow)

    async def stop(self) -> None:
        """End it: asked first, made to after a grace. Raises ProfagentError, RefusedError."""
        await self._ssh.persist(lambda remote: remote.run(stopped(self._place)))

    async def leave(self, end: RunEnd) -> None:
        """Have the board forget the run; where its keeper is gone, another one puts right what that left."""
        if end.why == LOST:
            with suppress(ProfagentError):
                async with self.held():
                    pass
            return
        await self._ssh.persist(lambda remote: remote.run(left(self._place)))

    async def _follow(self, remote: Remote) -> RunEnd:
        while (status := await self._shown_by(remote)) == NOT_KEPT:
            await self._pass_over(remote)
        if status == GONE:
            return RunEnd(1, LOST, self._complaint.decode("utf-8", "replace"))
        if status != 0:
            raise _lost_sight(remote.host, status)
        told = (await remote.must(how_it_ended(self._place))).text.split("\n", 1)
        return RunEnd(int(told[0]), told[1] if len(told) > 1 else "", self._complaint.decode("utf-8", "replace"))

    async def _pass_over(self, remote: Remote) -> None:
        """Go on with what is kept, and say how much is not."""
        kept = (await remote.must(kept_from(self._place))).text.split()
        for stream, offset in enumerate(map(int, kept)):
            if offset > self._shown[stream]:
                missing, self._shown[stream] = offset - self._shown[stream], offset
                self._show(f"[{missing} bytes of output came too fast, and are not kept]\n".encode(), True)

    async def _shown_by(self, remote: Remote) -> int:
        """The exit status of a follower that shows what there is."""
        async with remote.stream(follower(self._place, *self._shown)) as program:
            speaking = asyncio.create_task(_speak(program))
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._pass_on(program, remote.host, is_stderr=False))
                    group.create_task(self._pass_on(program, remote.host, is_stderr=True))
                status = await program.wait()
            except asyncio.CancelledError:
                _give_up(program)
                raise
            except BaseExceptionGroup as failures:
                if not isinstance(failures.exceptions[0], UnreachableError):
                    _give_up(program)
                raise failures.exceptions[0] from None
            finally:
                speaking.cancel()
                await asyncio.wait([speaking])
        return status

    async def _pass_on(self, program: Program, host: str, *, is_stderr: bool) -> None:
        pipe = program.stderr if is_stderr else program.stdout
        while True:
            with connected(host):
                piece = await pipe.read(_READ_BYTES)
            if not piece:
                return
            self._shown[is_stderr] += len(piece)
            if is_stderr:
                self._complaint = (self._complaint + piece)[-_KEPT_BYTES:]
            self._show(piece, is_stderr)


async def _take(program: Program, host: str) -> None:
    said = b""
    while line := await program.read_line():
        if line == b"ready\n":
            return
        said = line
    complaint = await program.complaint()
    status = await program.wait()
    raise _not_held(host, Ran(said, complaint.encode(), status))


async def _speak(program: Program) -> None:
    while True:
        with suppress(OSError):
            program.stdin.write(b"\n")
        await asyncio.sleep(_SPEAK_S)


def _give_up(program: Program) -> None:
    """Whoever leaves has no time to wait for the program's end; the keeper has."""
    with suppress(OSError):
        program.stdin.write(b"stop\n")


def _who() -> str:
    with suppress(OSError, KeyError):
        return f"{getpass.getuser()}@{socket.gethostname()} pid {os.getpid()}"
    return f"{socket.gethostname()} pid {os.getpid()}"


def _not_held(host: str, ran: Ran) -> ProfagentError:
    word, _, rest = ran.text.partition(" ")
    pid, _, more = rest.partition(" ")
    who = more.split(" ", 2)[2] if more.count(" ") > 1 else "nobody knows who"
    if word == "held":
        return ProfagentError(
            f"{host} is taken: another collect runs there ({who}; keeper {pid} on the board)",
            hint="one profiling task at a time on a device: wait for it, or end it there with Ctrl-C; one whose host is"
            f" gone is ended after {ABANDONED_S // 60} minutes, or at once by `kill {pid}` on the board",
        )
    if word == "stale":
        return ProfagentError(
            f"{host} has the lock of a collect that is no more ({who}), and another user's",
            hint=f"on the board, as its owner or root: rm -r /tmp/{LOCK}",
        )
    return ProfagentError(
        f"{host} cannot hold a run: {ran.complaint}", hint="check that /tmp and the project's directory can be written"
    )


def _lost_sight(host: str, status: int) -> ProfagentError:
    return ProfagentError(
        f"following the program on {host} ended with status {status}",
        hint="another profagent may follow it; or look there whether it has tail, cat and sed",
    )
