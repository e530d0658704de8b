"""What can be done on a board that is logged in to: with a shell, tar and cat, for some have no more."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import asyncssh

from profagent.errors import ProfagentError
from profagent.ssh.failures import connected
from profagent.ssh.program import Program

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from profagent.ssh.program import Ran

__all__ = ["Remote"]

_ANSWER_S = 10.0
_SHOWN_LETTERS = 60
# Of a socket's path, Linux takes no more.
_LONGEST_SOCKET_PATH = 107
_SOCKET = "s"


class Remote:
    """A board. `host` is the address by which it is reached."""

    def __init__(self, connection: asyncssh.SSHClientConnection, host: str) -> None:
        self._connection = connection
        self.host = host

    @property
    def host_key(self) -> str:
        """The fingerprint of its SSH server's key, `SHA256:…`."""
        key = self._connection.get_server_host_key()
        return "" if key is None else key.get_fingerprint()

    async def run(self, command: str, stdin: bytes = b"") -> Ran:
        """Run a shell command to its end. Raises UnreachableError; ProfagentError for too much output."""

        async def pieces() -> AsyncIterator[bytes]:
            yield stdin

        return await self._fed(command, pieces())

    async def must(self, command: str, stdin: bytes = b"") -> Ran:
        """The same; ProfagentError with the last line of stderr when the status is not 0."""
        ran = await self.run(command, stdin)
        if ran.status != 0:
            raise ProfagentError(
                f"on {self.host}, `{_short(command)}` failed: {ran.complaint}",
                hint="log in and run it by hand to see more; what it lacks is in its message",
            )
        return ran

    async def unpack(
        self,
        tar_stream: AsyncIterator[bytes],
        directory: str,
        on_progress: Callable[[int], None] = lambda _: None,
        *,
        must_exist: bool = False,
    ) -> None:
        """Unpack an uncompressed tar below a directory; `on_progress` is told the bytes sent so far.

        The directory is made, unless it `must_exist`. ProfagentError when not all arrives; what did arrive stays.
        """
        where = shlex.quote(directory)
        make = "" if must_exist else f"mkdir -p {where} && "

        async def counted() -> AsyncIterator[bytes]:
            sent = 0
            async for piece in tar_stream:
                yield piece
                sent += len(piece)
                on_progress(sent)

        self._written(directory, await self._fed(f"{make}cd {where} && tar -xf -", counted()))

    async def put(self, data: bytes, path: str, mode: int = 0o644) -> None:
        """Write a file whole or not at all: under another name, then renamed. ProfagentError when it cannot be."""
        part, target = shlex.quote(f"{path}.part"), shlex.quote(path)
        written = f"(umask 077; cat >{part}) && chmod {mode:o} {part} && mv -f {part} {target}"
        self._written(path, await self.run(f"{{ {written}; }} || {{ rm -f {part}; exit 1; }}", data))

    @asynccontextmanager
    async def stream(self, command: str) -> AsyncIterator[Program]:
        """A command that runs as long as the context, and is told the end of its input when that is left."""
        with connected(self.host):
            # The user's own shell may be another than a POSIX one.
            process = await self._connection.create_process(f"sh -c {shlex.quote(command)}", encoding=None)
        program = Program(process, self.host)
        try:
            yield program
        finally:
            await program.end()

    @asynccontextmanager
    async def forward(self, remote_address: str, socket: Path | None = None) -> AsyncIterator[str]:
        """`unix:PATH` on this host, for this user alone, that leads to HOST:PORT or unix:PATH as the board sees it.

        The path is `socket`, in a folder that others cannot enter, or one of a new folder.
        """
        folder = await asyncio.to_thread(_socket_folder)
        try:
            path = str(socket or folder / _SOCKET)
            await asyncio.to_thread(Path(path).unlink, missing_ok=True)
            with connected(self.host):
                listener = await self._listener(path, remote_address)
            try:
                yield f"unix:{path}"
            finally:
                listener.close()
                await listener.wait_closed()
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def lost(self) -> str:
        """Wait until the connection has ended; why."""
        await self._connection.wait_closed()
        return "the SSH connection has ended"

    async def answers(self, remote_address: str) -> bool:
        """Whether something listens at HOST:PORT or unix:PATH of the board. Raises UnreachableError."""
        with connected(self.host):
            try:
                _, writer = await self._opened(remote_address)
            except asyncssh.ChannelOpenError as error:
                if error.code != asyncssh.OPEN_CONNECT_FAILED or self._connection.is_closed():
                    raise
                return False
        writer.close()
        return True

    async def first_words(self, remote_address: str, greeting: bytes, size: int) -> bytes:
        """What answers a greeting there, up to its first `size` bytes; less if it hangs up. Raises UnreachableError."""
        with connected(self.host):
            reader, writer = await self._opened(remote_address)
            try:
                writer.write(greeting)
                async with asyncio.timeout(_ANSWER_S):
                    return await reader.readexactly(size)
            except (asyncio.IncompleteReadError, TimeoutError) as error:
                return getattr(error, "partial", b"")
            finally:
                writer.close()

    async def _opened(self, remote_address: str) -> tuple[asyncssh.SSHReader[bytes], asyncssh.SSHWriter[bytes]]:
        if remote_address.startswith("unix:"):
            return await self._connection.open_unix_connection(remote_address.removeprefix("unix:"))
        return await self._connection.open_connection(*_host_and_port(remote_address))

    async def _listener(self, path: str, remote_address: str) -> asyncssh.SSHListener:
        if remote_address.startswith("unix:"):
            return await self._connection.forward_local_path(path, remote_address.removeprefix("unix:"))
        return await self._connection.forward_local_path_to_port(path, *_host_and_port(remote_address))

    async def _fed(self, command: str, pieces: AsyncIterator[bytes]) -> Ran:
        async with self.stream(command) as program:
            return await program.fed(pieces)

    def _written(self, path: str, ran: Ran) -> None:
        if ran.status != 0:
            raise ProfagentError(
                f"cannot write {path} on {self.host}: {ran.complaint}",
                hint="check the free space there (`df`), and that the user may write there",
            )


def _socket_folder() -> Path:
    """A folder for its owner alone whose path is short enough for a socket in it."""
    folder = Path(tempfile.mkdtemp(prefix="profagent-"))
    if len(os.fsencode(folder / _SOCKET)) > _LONGEST_SOCKET_PATH:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="profagent-", dir="/tmp"))
    return folder


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _short(command: str) -> str:
    return command if len(command) <= _SHOWN_LETTERS else f"{command[:_SHOWN_LETTERS]}…"
