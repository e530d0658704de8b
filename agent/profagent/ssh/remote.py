"""Operations on a board after the login: they need only a shell, tar and cat, as some boards have no more."""

from __future__ import annotations

import asyncio
import shlex
import socket
import tempfile
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import IO, TYPE_CHECKING

import asyncssh

from profagent.errors import ProfagentError, RefusedError, UnreachableError, UsageError
from profagent.limits import (
    ALIVE_ANSWER_S,
    HOST_SILENCE_S,
    LARGEST_OUTPUT_BYTES,
    PIPE_PIECE_BYTES,
    PROGRAM_END_S,
    SHOWN_LETTERS,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator


# asyncssh raises ChannelOpenError with this text if the connection has ended, not the server refused the channel.
_CLOSED = "SSH connection closed"
_LATE = "no answer in time"
# Well below HOST_SILENCE_S: a lost packet or a busy board delays a few lines, but does not end the program.
_SPEAK_S = HOST_SILENCE_S / 12


@contextmanager
def connecting(options: asyncssh.SSHClientConnectionOptions, is_reached: Callable[[], bool]) -> Iterator[None]:
    """Turn errors up to the login into RefusedError or UnreachableError; they name the jump host that failed."""
    where = f"{options.host} port {options.port}"
    try:
        yield
    except (asyncssh.Error, OSError, UnicodeError) as error:
        is_refused = isinstance(error, asyncssh.PermissionDenied | asyncssh.HostKeyNotVerifiable)
        if options.tunnel and not is_reached():
            raise (RefusedError if is_refused else UnreachableError)(
                f"the jump host {options.tunnel} does not lead to {where}: {str(error) or _LATE}",
                hint="log in there with `ssh` first: it must be known, and let in without a password",
            ) from error
        if is_refused:
            raise RefusedError(
                f"{where} refuses {options.username}: it accepted no key and no password",
                hint=f"give it your public key with `ssh-copy-id {options.username}@{options.orig_host}`, name another"
                " with IdentityFile in ~/.ssh/config, or run at a terminal, where a password can be asked for; who has"
                " none is let in after `passwd` on the board's console",
            ) from error
        why, hint = _explained(options, where, error)
        raise UnreachableError(why, hint=hint) from error


def _explained(options: asyncssh.SSHClientConnectionOptions, where: str, error: Exception) -> tuple[str, str]:
    if options.proxy_command:
        return f"the ProxyCommand for {where} leads to no login: {str(error) or _LATE}", "run it by hand to see more"
    if isinstance(error, asyncssh.Error):
        hint = "check that an SSH server listens there, its log on the board, and with `ssh -v` what it wants"
        return f"{where} ended the connection before the login: {error.reason}", hint
    if isinstance(error, socket.gaierror | UnicodeError):
        hint = "check the spelling, `profagent boards`, /etc/hosts and the name server, or use the board's IP address"
        why = error.strerror if isinstance(error, socket.gaierror) else "a part of it is empty, or over 63 characters"
        return f"the name {options.host} does not resolve: {why}", hint
    if isinstance(error, ConnectionRefusedError):
        return f"nothing listens at {where}", "start the board's SSH server, or name its port: ssh://USER@HOST:PORT"
    hint = "check the address, the cable, the firewall, this host's routes, and that the board is on"
    reason = _LATE if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or error
    return f"cannot connect to {where}: {reason}", hint


@contextmanager
def connected(where: str) -> Iterator[None]:
    """Turn errors on an open connection into ProfagentError or UnreachableError."""
    try:
        yield
    except asyncssh.ChannelOpenError as error:
        if error.reason == _CLOSED:
            raise lost(where, error) from error
        raise ProfagentError(
            f"the SSH server of {where} refused to open a channel: {error.reason}",
            hint="check that something listens there, and the server's MaxSessions, AllowTcpForwarding, ForceCommand",
        ) from error
    except (asyncssh.Error, OSError) as error:
        raise lost(where, error) from error


def lost(where: str, error: BaseException) -> UnreachableError:
    """Return the error for a connection that ended too early."""
    why = str(error).rstrip(".") or "it has ended"
    return UnreachableError(
        f"the SSH connection to {where} is lost: {why}", hint="check the link and the board, then run the command again"
    )


# The last line of GNU tar after any error: it says nothing about the cause.
_TAR_FAILED = "tar: Exiting with failure status due to previous errors"


# The exit status of `look` if the file does not exist.
_NO_FILE = 3


@dataclass(frozen=True, slots=True)
class BoardFile:
    """The content of a file of a board, with its mode; `owner` is UID:GID."""

    data: bytes
    mode: int
    owner: str

    @classmethod
    def of(cls, output: bytes) -> BoardFile:
        """Return the file that a line of `ls -ln`, and the content after it, describe. Raises ValueError."""
        line, _, data = output.partition(b"\n")
        letters, _, uid, gid, *_ = line.decode("utf-8", "replace").split()
        bits = ("0" if letter in "-ST" else "1" for letter in letters[1:10])
        return cls(data, int("".join(bits), 2), f"{int(uid)}:{int(gid)}")


@cache
def shell_text(package: str, name: str) -> str:
    """Return a script of a package without its comments and indentation: a board may limit a command's length."""
    lines = (line.strip() for line in files(package).joinpath(name).read_text("utf-8").splitlines())
    return "".join(f"{line}\n" for line in lines if not line.startswith("#"))


def safely(command: str) -> str:
    """Return a script in which the functions of safely.sh are known."""
    return f"{shell_text('profagent.ssh', 'safely.sh')}{command}"


@dataclass(frozen=True, slots=True)
class RanCommand:
    """The result of a command that has ended; a status below 0 is a signal."""

    stdout: bytes
    stderr: bytes
    status: int

    @property
    def text(self) -> str:
        """The output without the last line's end."""
        return self.stdout.decode("utf-8", "replace").rstrip("\n")

    @property
    def complaint(self) -> str:
        """The last line on stderr, else the exit status."""
        lines = [line.strip() for line in self.stderr.decode("utf-8", "replace").split("\n")]
        said = (line for line in reversed(lines) if line and line != _TAR_FAILED)
        return next(said, f"exit status {self.status}")


class Program:
    """A command that runs on the board; its pipes carry bytes."""

    def __init__(self, process: asyncssh.SSHClientProcess[bytes], where: str) -> None:
        self._process = process
        self._where = where
        self.stdin = process.stdin
        self.stdout = process.stdout
        self.stderr = process.stderr

    async def read_line(self) -> bytes:
        """Return the next line of output, empty at its end. Raises UnreachableError."""
        with connected(self._where):
            return await self.stdout.readline()

    async def rest(self) -> bytes:
        """Return the rest of the output, after its end. Raises UnreachableError; ProfagentError if it is too long."""
        with connected(self._where):
            return await _read(self.stdout)

    async def complaint(self) -> str:
        """Return the rest of stderr as text, after its end; raise as `rest` does."""
        with connected(self._where):
            return (await _read(self.stderr)).decode("utf-8", "replace")

    async def wait(self) -> int:
        """Return the exit status, below 0 for a signal. Raises UnreachableError if the link is lost before."""
        with connected(self._where):
            await self._process.wait_closed()
        if self._process.exit_signal is not None:
            return -1
        if self._process.returncode is None:
            raise lost(self._where, ConnectionError("it ended while a command ran"))
        return self._process.returncode

    async def fed(self, pieces: AsyncIterator[bytes]) -> RanCommand:
        """Feed the input, and return the result at the end. Raises UnreachableError; ProfagentError for long output."""
        with connected(self._where):
            try:
                async with asyncio.TaskGroup() as group:
                    feeding = group.create_task(_feed(self, pieces))
                    reading = [group.create_task(_read(pipe)) for pipe in (self.stdout, self.stderr)]
                    await asyncio.wait(reading)
                    # Both pipes are at their end, so the command has ended and reads no more input.
                    feeding.cancel()
            except BaseExceptionGroup as failures:
                raise failures.exceptions[0] from None
        return RanCommand(reading[0].result(), reading[1].result(), await self.wait())

    async def keep_awake(self) -> None:
        """Send an empty line every _SPEAK_S until cancelled, which shows that this host is there."""
        while True:
            with suppress(OSError):
                self.stdin.write(b"\n")
            await asyncio.sleep(_SPEAK_S)

    async def end(self) -> None:
        """Close the input, and wait up to PROGRAM_END_S for the program to end."""
        with suppress(OSError):
            self.stdin.write_eof()
        self._process.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(PROGRAM_END_S):
                await self._process.wait_closed()


class Remote:
    """A board that is logged in to; `host` is the address by which it is reached."""

    def __init__(self, connection: asyncssh.SSHClientConnection, host: str) -> None:
        self._connection = connection
        self.host = host

    @property
    def host_key(self) -> str:
        """The fingerprint of the SSH server's key, `SHA256:…`."""
        key = self._connection.get_server_host_key()
        return "" if key is None else key.get_fingerprint()

    async def run(self, command: str, stdin: bytes = b"") -> RanCommand:
        """Return the result of a shell command. Raises UnreachableError; ProfagentError for too much output."""

        async def pieces() -> AsyncIterator[bytes]:
            yield stdin

        return await self._fed(command, pieces())

    async def must(self, command: str, stdin: bytes = b"") -> RanCommand:
        """Return the result as `run` does; ProfagentError with the last line of stderr unless the status is 0."""
        ran = await self.run(command, stdin)
        if ran.status != 0:
            raise ProfagentError(
                f"on {self.host}, `{_short(command)}` failed: {ran.complaint}",
                hint="log in and run it by hand to see more; what it lacks is in its message",
            )
        return ran

    async def unpack(
        self,
        tar: IO[bytes],
        directory: str,
        on_progress: Callable[[int], None] = lambda _: None,
        *,
        must_exist: bool = False,
    ) -> None:
        """Unpack an uncompressed tar into a directory; `on_progress` gets the number of bytes sent so far.

        The directory is created, unless it `must_exist`. Raises ProfagentError if not everything arrives; files that
        did arrive stay.
        """
        where = shlex.quote(directory)
        make = "" if must_exist else f"mkdir -p {where} && "

        async def counted() -> AsyncIterator[bytes]:
            sent = 0
            # A thread reads, as large files on a slow disk would block the event loop.
            while piece := await asyncio.to_thread(tar.read, PIPE_PIECE_BYTES):
                yield piece
                sent += len(piece)
                on_progress(sent)

        self._written(directory, await self._fed(f"{make}cd {where} && tar -xf -", counted()))

    async def put(
        self, data: bytes, path: str, mode: int = 0o644, *, owner: str = "", follows_link: bool = False
    ) -> None:
        """Replace a file atomically; a link at `path` is replaced, or followed if `follows_link`.

        A file or link that another user of the board may have planted there is never written through. Raises
        ProfagentError if the file cannot be written.
        """
        size, how = str(len(data)), "follow" if follows_link else ""
        self._written(path, await self.run(safely(shlex.join(("replace", path, size, f"{mode:o}", owner, how))), data))

    async def content(self, path: str) -> BoardFile | None:
        """Return a file, through a link if there is one; None if it does not exist. Raises UsageError if unreadable."""
        ran = await self.run(safely(shlex.join(("look", path))))
        if ran.status == _NO_FILE:
            return None
        try:
            if ran.status == 0:
                return BoardFile.of(ran.stdout)
            why = ran.complaint
        except ValueError as error:
            why = str(error)
        raise UsageError(
            f"cannot read {path} on {self.host}: {why}", hint="check that it is a file, and who may read it"
        )

    @asynccontextmanager
    async def stream(self, command: str) -> AsyncIterator[Program]:
        """Run a command as long as the context lasts; its input is closed when the context is left."""
        with connected(self.host):
            # The login shell of the user may not be a POSIX shell.
            process = await self._connection.create_process(f"sh -c {shlex.quote(command)}", encoding=None)
        program = Program(process, self.host)
        try:
            yield program
        finally:
            await program.end()

    @asynccontextmanager
    async def attended(self, command: str) -> AsyncIterator[Program]:
        """Run a command that ends by itself when this host is gone.

        The command reads lines from standard input; an empty one says only that the host is there. The end of the
        input, or HOST_SILENCE_S without a line, says that the host is gone.
        """
        async with self.stream(command) as program:
            speaking = asyncio.create_task(program.keep_awake())
            try:
                yield program
            finally:
                speaking.cancel()
                await asyncio.wait([speaking])

    @asynccontextmanager
    async def forward(self, remote_address: str, socket: Path | None = None) -> AsyncIterator[str]:
        """Yield `unix:PATH` of this host, for this user only, that leads to an address as the board sees it.

        The address is HOST:PORT or unix:PATH. The path is `socket`, in a folder that others cannot enter, or one in a
        new folder.
        """
        with socket_folder() as folder:
            path = socket or folder / "s"
            path.unlink(missing_ok=True)
            with connected(self.host):
                listener = await self._listener(str(path), remote_address)
            try:
                yield f"unix:{path}"
            finally:
                listener.close()
                await listener.wait_closed()

    async def lost(self) -> str:
        """Wait for the end of the connection, and return the reason."""
        await self._connection.wait_closed()
        return "the SSH connection has ended"

    async def answers(self, remote_address: str) -> bool:
        """Return True if something listens at HOST:PORT or unix:PATH of the board. Raises UnreachableError."""
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
        """Return the first `size` bytes of the answer to a greeting, or less if the peer closes or is late.

        Raises UnreachableError.
        """
        with connected(self.host):
            reader, writer = await self._opened(remote_address)
            try:
                writer.write(greeting)
                async with asyncio.timeout(ALIVE_ANSWER_S):
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

    async def _fed(self, command: str, pieces: AsyncIterator[bytes]) -> RanCommand:
        async with self.stream(command) as program:
            return await program.fed(pieces)

    def _written(self, path: str, ran: RanCommand) -> None:
        if ran.status != 0:
            raise ProfagentError(
                f"cannot write {path} on {self.host}: {ran.complaint}",
                hint="check the free space there (`df`), and that the user may write there",
            )


@contextmanager
def socket_folder() -> Iterator[Path]:
    """Yield a folder for its owner only, whose path is short enough for a socket in it."""
    with tempfile.TemporaryDirectory(prefix="profagent-ssh-", dir="/tmp") as folder:
        yield Path(folder)


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _short(command: str) -> str:
    return command if len(command) <= SHOWN_LETTERS else f"{command[:SHOWN_LETTERS]}…"


async def _feed(program: Program, pieces: AsyncIterator[bytes]) -> None:
    async for piece in pieces:
        try:
            program.stdin.write(piece)
            await program.stdin.drain()
        except (OSError, asyncssh.Error):
            # The command has ended early: its output and status give the reason.
            return
    with suppress(OSError):
        program.stdin.write_eof()


async def _read(pipe: asyncssh.SSHReader[bytes]) -> bytes:
    """Return everything up to the end of the pipe. Raises ProfagentError beyond LARGEST_OUTPUT_BYTES."""
    content = bytearray()
    while piece := await pipe.read(PIPE_PIECE_BYTES):
        content += piece
        if len(content) > LARGEST_OUTPUT_BYTES:
            raise ProfagentError(
                f"the board sends more than {LARGEST_OUTPUT_BYTES} bytes where a few were expected",
                hint="log in and check what the user's shell prints at login (.profile, .bashrc)",
            )
    return bytes(content)
