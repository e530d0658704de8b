"""Access to boards over SSH (`--via ssh`): a tunnel to the daemon there, or to a temporary one."""

from __future__ import annotations

import asyncio
import secrets
import shlex
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from profagent.boards.daemon_tree import chosen_version
from profagent.boards.layout import Layout
from profagent.boards.survey import check_room, survey
from profagent.cli.running import interrupted_by
from profagent.errors import ProfagentError, RefusedError, UnreachableError, UsageError
from profagent.limits import DAEMON_END_S, DAEMON_START_S, HOST_SILENCE_S, SHOWN_OUTPUT_LINES
from profagent.link.addresses import DEFAULT_PORT, KnownBoard, full_address, host_of, is_local
from profagent.link.backoff import Backoff
from profagent.link.boards_file import BoardsFile
from profagent.ssh.connection import Person, connect
from profagent.ssh.remote import socket_folder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

    from profagent.boards.daemon_tree import DaemonTree
    from profagent.link.credentials import Access
    from profagent.ssh.connection import Asker
    from profagent.ssh.remote import Program, Remote


_SERVING = b" serving "
# The directory is removed when standard input ends before the word `go`, or when the daemon ends. An upload that is
# still unpacking into it ends with the link as well, but perhaps later, so the removal is repeated.
_KEEPER = """umask 077
mkdir {folder} && mkdir {folder}/tree || exit 1
echo made
while read -r word && [ -z "$word" ]; do :; done
[ "$word" = go ] && {folder}/tree/bin/profagentd {arguments}
for _ in 1 2 3 4 5; do rm -rf {folder} && break; sleep 1; done
"""


@asynccontextmanager
async def temporary_daemon(
    remote: Remote,
    roots: Sequence[str],
    bundle: Path | None,
    tell: Callable[[str], None],
    settings: Sequence[str] = (),
) -> AsyncIterator[tuple[str, asyncio.Task[str]]]:
    """Serve `roots` by a daemon in a private directory of the board's /tmp, which is removed at the end.

    Yields the daemon's address on the board, and a task that ends with the daemon and returns its last messages. The
    directory is also removed when the link is lost: at once if the board notices, else after HOST_SILENCE_S seconds.
    The daemon runs with the bundle's Python, or with the board's own, and with `settings` as further arguments. Raises
    ProfagentError, UnreachableError.
    """
    folder = f"/tmp/profagentd-{secrets.token_hex(8)}"  # noqa: S108 - `mkdir` fails where somebody has made it
    tree = await _tree(remote, folder, bundle)
    command = _KEEPER.format(folder=folder, arguments=_arguments(folder, roots, settings))
    async with remote.attended(command) as program:
        try:
            await _expect(program, b"made", remote.host)
            tell(
                f"bringing a daemon to {remote.host}: {tree.size_bytes / 1e6:.0f} MB, for as long as this command runs"
            )
            # An upload that unpacks after the removal must not create the directory again.
            await remote.unpack(tree.tar(), f"{folder}/tree", must_exist=True)
            program.stdin.write(b"go\n")
            # The bound is for the start alone: the upload before takes as long as the link needs.
            async with asyncio.timeout(DAEMON_START_S):
                line = await _expect(program, _SERVING, remote.host)
            ended = asyncio.create_task(_last_words(program))
            try:
                yield line.rpartition(_SERVING)[2].decode(), ended
            finally:
                ended.cancel()
                await asyncio.wait([ended])
        finally:
            await _let_go(program)


async def _tree(remote: Remote, folder: str, bundle: Path | None) -> DaemonTree:
    """Return the version to upload. Raises ProfagentError if it would not run there or has no room."""
    facts = await survey(remote, folder)
    tree = await chosen_version(facts, "bundled" if bundle else "system", bundle, None)
    check_room(facts, tree.size_bytes)
    return tree


def _arguments(folder: str, roots: Sequence[str], settings: Sequence[str]) -> str:
    chosen = [argument for root in roots for argument in ("--root", root)]
    fixed = ("--listen", "127.0.0.1:0", "--state", f"{folder}/state", "--stdin-timeout", f"{HOST_SILENCE_S}")
    return shlex.join([*fixed, "--log-level", "warning", *chosen, *settings])


async def _expect(program: Program, wanted: bytes, host: str) -> bytes:
    """Return the next line, which must contain `wanted`; else raise ProfagentError with the program's complaint."""
    line = await program.read_line()
    if wanted in line:
        return line.rstrip(b"\n")
    complaint = (await program.complaint()).strip().splitlines() or ["it ended without a word"]
    # The daemon prints the error first and its hint below, so the last line would not be the cause.
    reason = next((text for text in complaint if text.startswith("profagentd:")), complaint[-1])
    raise ProfagentError(
        f"the temporary daemon on {host} does not start: {reason}",
        hint="check --root, and that the board's /tmp has free space and is not mounted noexec",
    )


async def _last_words(program: Program) -> str:
    lines = (await program.complaint()).strip().splitlines()
    return "\n".join(lines[-SHOWN_OUTPUT_LINES:])


async def _let_go(program: Program) -> None:
    """Close the program's input, and wait until it has tidied up; a lost link or a timeout is no error."""
    with suppress(OSError):
        program.stdin.write_eof()
    with suppress(TimeoutError, UnreachableError):
        async with asyncio.timeout(DAEMON_END_S):
            await program.rest()
            await program.wait()


# In HTTP/2 both sides begin with a SETTINGS frame, so its nine-byte header tells plain text from TLS. One of the nine
# bytes is the frame's type.
_SETTINGS = b"\4"
_FRAME_TYPE, _FRAME_BYTES = 3, 9
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0" + _SETTINGS + b"\0\0\0\0\0"


@dataclass(frozen=True, slots=True)
class OverSsh:
    """Way to boards through SSH tunnels; with `roots`, to a temporary daemon that serves these directories.

    The temporary daemon runs with the bundle's Python, or with the board's own, and with `settings` as further
    arguments. With `is_own` it is started even if a daemon listens there already. `asker` answers the questions of a
    login.
    """

    roots: tuple[str, ...] = ()
    bundle: Path | None = None
    settings: tuple[str, ...] = ()
    is_own: bool = False
    asker: Asker = field(default_factory=Person)


@asynccontextmanager
async def access_to(
    boards: Sequence[str], access: Access, over: OverSsh | None, tell: Callable[[str], None], stop: asyncio.Event
) -> AsyncIterator[Access]:
    """Yield the access by which boards are reached: through tunnels that last as long as the context.

    Without `over` a tunnel is made only to boards that need one. A failure of the first tunnel to a board raises
    UsageError, UnreachableError, RefusedError or ProfagentError; a tunnel that is lost later is made again. Of several
    boards, one that is away delays no other.
    """
    behind = [] if over else BoardsFile().behind_ssh(boards)
    for entry in behind:
        tell(f"{entry.name} listens at {entry.address} of its own: an SSH tunnel to {entry.ssh} leads there")
    tunnelled = list(dict.fromkeys(boards)) if over else [entry.name for entry in behind]
    if not tunnelled:
        yield access
        return
    over = over or OverSsh()
    if access.insecure:
        raise UsageError(
            "--insecure has no meaning for an SSH tunnel", hint="leave it out: SSH already protects this connection"
        )
    if access.keys and over.roots:
        raise UsageError("--keys has no meaning for a temporary daemon", hint="leave it out with --root")
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(socket_folder())
        # The tunnels write to this copy: each one learns at every connection which daemon it leads to.
        known = dict(access.known)
        by_tunnel = replace(access, known=known)
        async with interrupted_by(stop, "the board was reached"):
            for number, board in enumerate(tunnelled):
                tunnel = Tunnel(board, folder / str(number), over, by_tunnel, tell)
                known[board] = tunnel.board
                await stack.enter_async_context(tunnel.held_open(known, is_patient=len(boards) > 1))
        yield by_tunnel


class Tunnel:
    """Tunnel to one board, which ends in a socket of this host."""

    def __init__(self, board: str, socket: Path, over: OverSsh, access: Access, tell: Callable[[str], None]) -> None:
        entry = BoardsFile().entries().get(board)
        address = full_address(entry.address) if entry else f"127.0.0.1:{DEFAULT_PORT}"
        self._target = board if entry is None else entry.ssh or host_of(address)
        # The daemon's address as seen on the board, where the tunnel ends.
        self._daemon = address if is_local(address) else f"127.0.0.1:{address.rpartition(':')[2]}"
        # The certificate names the host by which others call the daemon. If that is loopback, the name for SSH is used.
        self._tls_name = "" if is_local(address) else host_of(address)
        self._over = over
        self._prefix = entry.prefix if entry else ""
        self._access = access
        self._tell = tell
        # End of the tunnel on this host; the same path after every reconnection, so channels need not know of it.
        self._socket = socket
        known = entry.known if entry else KnownBoard(board, address)
        # Where this host's channels connect: the socket in place of the board's address.
        self.board = replace(known, address=f"unix:{socket}", tls_name=self._target if access.keys else "")

    @asynccontextmanager
    async def held_open(self, known: dict[str, KnownBoard], *, is_patient: bool) -> AsyncIterator[None]:
        """Hold the tunnel open, and open it again when it is lost; the board it leads to is written to `known`.

        If `is_patient`, a board that is away at first is tried again in the background.
        """
        # Done once the first attempt has succeeded, or failed in a way that is tried again.
        opened = asyncio.get_running_loop().create_future()
        keeping = asyncio.create_task(self._keep(opened, known, is_patient=is_patient))
        try:
            # The first attempt's result is awaited, so that its error is raised here and not later in the background.
            await asyncio.wait([opened, keeping], return_when=asyncio.FIRST_COMPLETED)
            if keeping.done():
                await keeping
            yield
        finally:
            opened.cancel()
            keeping.cancel()
            await asyncio.wait([keeping])

    async def _keep(self, opened: asyncio.Future[None], known: dict[str, KnownBoard], *, is_patient: bool) -> None:
        backoff = Backoff()
        while True:
            try:
                async with self._open() as (board, lost):
                    known[board.name] = board
                    backoff.reset()
                    if not opened.done():
                        opened.set_result(None)
                    why = await lost()
            except ProfagentError as error:
                is_away = isinstance(error, UnreachableError) and not isinstance(error, RefusedError)
                # At first a mistake of the user must end the command; later, every failure may pass.
                if not opened.done() and not (is_patient and is_away):
                    raise
                why = str(error)
            if not opened.done():
                opened.set_result(None)
            await backoff.pause(f"no tunnel to {self.board.name}: {why}", self._tell)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[tuple[KnownBoard, Callable[[], Awaitable[str]]]]:
        """Open the tunnel once, and yield the board it leads to, and a function that waits until it is lost.

        The function returns the reason.
        """
        async with connect(self._target, self._over.asker) as remote, AsyncExitStack() as stack:
            lost: Callable[[], Awaitable[str]] = remote.lost
            address, tls_name = self._daemon, ""
            if self._over.is_own or not await remote.answers(self._daemon):
                if not self._over.roots:
                    raise UnreachableError(
                        f"no daemon listens at {self._daemon} of {self.board.name}",
                        hint="start profagentd there; or have a temporary one serve JOBs: --via ssh --root DIR",
                    )
                # Daemons of a private prefix keep their identity there, where the temporary daemon does not look.
                settings = (*self._over.settings, *await self._identity(remote))
                serving = temporary_daemon(remote, self._over.roots, self._over.bundle, self._tell, settings)
                address, ended = await stack.enter_async_context(serving)
                # Shielded: who stops waiting must not cancel the task, which temporary_daemon owns.
                lost = partial(asyncio.shield, ended)
            elif self._over.roots:
                raise UsageError(
                    f"a daemon listens at {self._daemon} of {self.board.name} already, with roots of its own",
                    hint="leave --root out",
                )
            else:
                tls_name = await self._tls(remote)
            await stack.enter_async_context(remote.forward(address, self._socket))
            yield replace(self.board, tls_name=tls_name), lost

    async def _identity(self, remote: Remote) -> tuple[str, ...]:
        if not self._prefix:
            return ()
        written = (await remote.run(f"cat {Layout(self._prefix).board_id}")).text.strip()
        return ("--identity", written) if written else ()

    async def _tls(self, remote: Remote) -> str:
        """Return the host name that the daemon's certificate must have; empty if the daemon speaks plain text.

        Raises UsageError if keys were named for plain text, RefusedError if keys are needed and missing.
        """
        answer = await remote.first_words(self._daemon, _GREETING, _FRAME_BYTES)
        if answer[_FRAME_TYPE : _FRAME_TYPE + 1] == _SETTINGS:
            if self._access.keys:
                raise UsageError(
                    f"the daemon at {self._daemon} of {self.board.name} speaks plain text", hint="leave --keys out"
                )
            return ""
        name = self._tls_name or remote.host
        try:
            await asyncio.to_thread(self._access.credentials, replace(self.board, tls_name=name))
        except UsageError as error:
            raise RefusedError(
                f"what listens at {self._daemon} of {self.board.name} speaks no plain text, a daemon with TLS, say:"
                f" {error}",
                hint="name this host's keys with --keys DIR (docs/reference/security.md), or have the daemon"
                " listen on loopback alone: `profagent deploy … --listen 127.0.0.1:50151`",
            ) from error
        return name
