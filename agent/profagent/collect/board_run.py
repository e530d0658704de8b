"""Run of a program on a board: held, started, followed over lost links, and stopped.

On the board, keeper.sh and follower.sh do the work.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import shlex
import socket
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from profagent.collect.explain import LOST
from profagent.errors import ProfagentError, RefusedError, UnreachableError
from profagent.limits import (
    ABANDONED_S,
    GRACE_S,
    HOST_SILENCE_S,
    MOST_COMPLAINT_BYTES,
    MOST_OUTPUT_BYTES,
    PIPE_PIECE_BYTES,
)
from profagent.link.backoff import Backoff
from profagent.ssh.connection import connect
from profagent.ssh.remote import RanCommand, connected, safely, shell_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from profagent.collect.look import Place
    from profagent.ssh.connection import Asker
    from profagent.ssh.remote import Program, Remote

T = TypeVar("T")
# A device runs one profiling task (manual, constraints of use). Runs of root share a lock in the first of these
# directories that can be written; runs of each other user share one in /tmp.
LOCK, LOCKS = "profagent-collect.lock", "/var/run /dev"
_PACKAGE = "profagent.collect"
# Reads by the keeper that make one piece of a stream of the program's output.
PIECE_READS = 1024
# Exit statuses of follower.sh, where they stand as numbers: the run or its keeper is gone; the next output was dropped.
GONE, OUTPUT_DROPPED = 7, 9
# The keeper's output is read until it is ready, and not to the end of the pipe, which some shells keep open. If the
# link is lost, nobody reads the rest.
_MINDER = """safely={safely}
eval "$safely"
with=
command -v setsid >/dev/null && with=setsid
exec 5<&0
{{ $with {keeper} </dev/null 5<&- & }} | {{
trap '' PIPE
while read -r said; do
echo "$said"
[ "$said" != ready ] || break
done 2>/dev/null
[ "$said" = ready ] || exit 1
into {run}
while read -r word <&5; do true >alive; done
[ -e go ] || true >leave
}}
"""


@asynccontextmanager
async def patient_ssh(target: str, asker: Asker, tell: Callable[[str], None]) -> AsyncIterator[PatientSsh]:
    """Connect to a board, for a context. Raises UsageError, UnreachableError, RefusedError."""
    async with AsyncExitStack() as stack:
        remote = await stack.enter_async_context(connect(target, asker))
        yield PatientSsh(target, asker, tell, stack, remote)


@dataclass(slots=True)
class PatientSsh:
    """Connection to a board that is made again when it is lost; `remote` is the latest one."""

    target: str
    asker: Asker
    tell: Callable[[str], None]
    stack: AsyncExitStack
    remote: Remote
    # Two tasks that lose the connection at the same time must not both replace it.
    making: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def persist(self, action: Callable[[Remote], Awaitable[T]]) -> T:
        """Run a repeatable action until it succeeds, on a new connection whenever one is lost, however long that takes.

        Raises RefusedError, and everything that the action raises except UnreachableError.
        """
        backoff = Backoff()
        lost: Remote | None = None
        while True:
            remote = self.remote
            try:
                if remote is lost:
                    remote = await self._replacement(remote)
                return await action(remote)
            except RefusedError:
                raise
            except UnreachableError as error:
                lost = remote
                await backoff.pause(str(error), self.tell)

    async def _replacement(self, lost: Remote) -> Remote:
        async with self.making:
            if self.remote is lost:
                await self.stack.aclose()
                self.remote = await self.stack.enter_async_context(connect(self.target, self.asker))
            return self.remote


@dataclass(frozen=True, slots=True)
class RunEnd:
    """End of a program: its exit status, 128 + n for a signal, and `why` it was not started or was ended, if known.

    LOST in `why`: the board was restarted, or the keeper killed, and the program's end is unknown.
    """

    status: int
    why: str
    complaint: str
    """Last part of the program's output to stderr."""


class BoardRun:
    """One run. `show` is called with the program's output, and True if that went to stderr."""

    def __init__(self, ssh: PatientSsh, place: Place, show: Callable[[bytes, bool], None]) -> None:
        self._ssh = ssh
        self._place = place
        self._run = shlex.quote(place.run)
        self._show = show
        # Bytes of stdout and stderr that were shown: a new follower continues behind them.
        self._shown = [0, 0]
        # Last bytes of stderr, for the explanation of a failure.
        self._complaint = b""

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Hold the board for a context. A program that is not started when the context or the link ends never is.

        Raises ProfagentError for a board that is held by another run, UnreachableError.
        """
        remote = self._ssh.remote
        async with remote.attended(keeper(self._place)) as program:
            await _wait_until_ready(program, remote.host, self._ssh.tell)
            yield

    async def start(
        self, arguments: Sequence[str], environment: Mapping[str, str], acl_json: str, text: str | None
    ) -> None:
        """Start the program, with this text in its acl.json while it runs. Raises ProfagentError, UnreachableError."""
        remote, run, place = self._ssh.remote, self._place.run, self._place
        exports = "".join(f"export {shlex.quote(f'{name}={value}')}\n" for name, value in environment.items())
        command = shlex.join((place.main, *arguments))
        # The keeper starts it in the run's directory.
        script = f"echo $$ >pid\n{exports}cd {shlex.quote(place.main_directory)} || exit 126\nexec {command}\n"
        await remote.put(script.encode(), f"{run}/main.sh")
        if text is not None:
            await remote.put(text.encode("utf-8", "surrogateescape"), f"{run}/acl.json")
        await remote.put((acl_json if text is not None else "").encode(), f"{run}/acl")
        # The keeper waits for this file, so it comes last.
        await remote.put(b"", f"{run}/go")

    async def followed(self) -> RunEnd:
        """Show the program's output until its end, over lost links. Raises ProfagentError, RefusedError."""
        return await self._ssh.persist(self._follow)

    async def stop(self) -> None:
        """End the program: a signal first, and force after a grace. Raises ProfagentError, RefusedError."""
        await self._run_if_held("[ -e go ] || true >leave; true >stop")

    async def leave(self, end: RunEnd) -> None:
        """Remove the run from the board; if its keeper is gone, another keeper cleans up."""
        if end.why == LOST:
            with suppress(ProfagentError):
                async with self.held():
                    pass
            return
        await self._run_if_held("true >leave")

    async def _run_if_held(self, command: str) -> None:
        script = safely(f"[ -d {self._run} ] || exit 0; into {self._run}; {command}")
        await self._ssh.persist(lambda remote: remote.run(script))

    async def _follow(self, remote: Remote) -> RunEnd:
        while (status := await self._run_follower(remote)) == OUTPUT_DROPPED:
            await self._skip_dropped_output(remote)
        complaint = self._complaint.decode("utf-8", "replace")
        if status == GONE:
            return RunEnd(1, LOST, complaint)
        if status != 0:
            raise ProfagentError(
                f"the shell that follows the program on {remote.host} ended with status {status}",
                hint="check that no other profagent follows the program, and that the board has tail, cat and grep",
            )
        why = "{ [ ! -e abandoned ] || echo abandoned; [ ! -e failure ] || cat failure; }"
        lines = (await remote.must(f"cd {self._run} && cat status && {why}")).text.split("\n", 1)
        return RunEnd(int(lines[0]), lines[1] if len(lines) > 1 else "", complaint)

    async def _skip_dropped_output(self, remote: Remote) -> None:
        least = "for each in $stream.*.*; do echo ${each##*.}; done | sort -n | head -n 1"
        oldest = await remote.must(f"cd {self._run} && for stream in stdout stderr; do {least}; done")
        for stream, offset in enumerate(map(int, oldest.text.split())):
            if offset > self._shown[stream]:
                missing, self._shown[stream] = offset - self._shown[stream], offset
                self._show(f"[{missing} bytes of output came too fast, and are not kept]\n".encode(), True)

    async def _run_follower(self, remote: Remote) -> int:
        arguments = ("follower.sh", LOCK, self._place.run, *map(str, self._shown))
        text = safely(shell_text(_PACKAGE, "follower.sh"))
        async with remote.attended(f"exec sh -c {shlex.quote(text)} {shlex.join(arguments)}") as program:
            try:
                async with asyncio.TaskGroup() as group:
                    # Both streams are read at once: a full pipe of one would stop the other.
                    group.create_task(self._show_stream(program, remote.host, is_stderr=False))
                    group.create_task(self._show_stream(program, remote.host, is_stderr=True))
                return await program.wait()
            except (asyncio.CancelledError, BaseExceptionGroup) as error:
                failed = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error
                # A cancelled caller cannot wait for the end of the program, so the keeper is told to stop it.
                if not isinstance(failed, UnreachableError):
                    with suppress(OSError):
                        program.stdin.write(b"stop\n")
                raise failed from None

    async def _show_stream(self, program: Program, host: str, *, is_stderr: bool) -> None:
        pipe = program.stderr if is_stderr else program.stdout
        while True:
            with connected(host):
                piece = await pipe.read(PIPE_PIECE_BYTES)
            if not piece:
                return
            self._shown[is_stderr] += len(piece)
            if is_stderr:
                self._complaint = (self._complaint + piece)[-MOST_COMPLAINT_BYTES:]
            self._show(piece, is_stderr)


def keeper(place: Place) -> str:
    """Return a command that starts the keeper and watches it: it prints `ready`, or `held PID WHO` and fails.

    Each line on its standard input means that the run is still being prepared. At the end of the input, a keeper
    without a started program leaves.
    """
    limits = (HOST_SILENCE_S, ABANDONED_S, GRACE_S, MOST_OUTPUT_BYTES, PIECE_READS)
    arguments = ("keeper.sh", LOCK, LOCKS, place.own, _who(), *map(str, limits))
    # The text of the helpers is sent once, because Dropbear accepts commands of at most 9,000 bytes.
    script = f'sh -c "$safely"{shlex.quote(shell_text(_PACKAGE, "keeper.sh"))} {shlex.join(arguments)}'
    return _MINDER.format(safely=shlex.quote(safely("")), keeper=script, run=shlex.quote(place.run))


async def _wait_until_ready(program: Program, host: str, tell: Callable[[str], None]) -> None:
    said = b""
    while line := await program.read_line():
        if line == b"ready\n":
            return
        if line.startswith(b"beside "):
            _, pid, user = line.decode("ascii", "replace").split()
            tell(
                f"a collect of user {user} runs on {host}, too (process {pid}): the two may spoil each other's records"
            )
        said = line
    complaint = await program.complaint()
    ran = RanCommand(said, complaint.encode(), await program.wait())
    word, _, rest = ran.text.partition(" ")
    pid, _, who = rest.partition(" ")
    if word == "held":
        raise ProfagentError(
            f"{host} is busy: another collect runs there ({who or 'its user is unknown'}; keeper {pid} on the board)",
            hint="one profiling task at a time on a device: wait for it, or end it there with Ctrl-C; one whose host is"
            f" gone is ended after {ABANDONED_S // 60} minutes, or at once by `kill {pid}` on the board",
        )
    raise ProfagentError(
        f"{host} cannot hold a run: {ran.complaint}",
        hint="check that /var/run or /dev, for root, /tmp, and the project's directory can be written",
    )


def _who() -> str:
    with suppress(OSError, KeyError):
        return f"{getpass.getuser()}@{socket.gethostname()} pid {os.getpid()}"
    return f"{socket.gethostname()} pid {os.getpid()}"
