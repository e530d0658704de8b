"""Login to a board with asyncssh: first by its configuration, keys and agents, then by passphrases and passwords."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import termios
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import asyncssh

from profagent.errors import ProfagentError, RefusedError, UsageError
from profagent.limits import ALIVE_S, CONNECT_S, LONGEST_ANSWER_BYTES, MOST_PROMPTS, SSH_CLOSE_S
from profagent.ssh.remote import Remote, connecting

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence


_TERMINAL = "/dev/tty"
_LOCAL_FLAGS = 3


class Asker(Protocol):
    """An interface for questions to a person. The answer None means that nobody can be asked."""

    async def confirm(self, question: str) -> bool | None:
        """Return the answer to a yes-or-no question."""

    async def secret(self, prompt: str) -> str | None:
        """Return a password or passphrase."""


class Person:
    """The person at the terminal of this process; secrets may also come from SSH_ASKPASS, as for `ssh`.

    SSH_ASKPASS_REQUIRE is `force` or `prefer` to use the program always, `never` to use the terminal only.
    """

    async def confirm(self, question: str) -> bool | None:
        """Return the answer typed at the terminal; SSH_ASKPASS is not used for it."""
        answer = await _typed(question, is_secret=False)
        return None if answer is None else answer.strip().lower() in ("yes", "y")

    async def secret(self, prompt: str) -> str | None:
        """Return a secret, typed without echo or from SSH_ASKPASS. Raises UsageError if that cannot be run."""
        program = os.environ.get("SSH_ASKPASS", "")
        wish = os.environ.get("SSH_ASKPASS_REQUIRE", "").lower()
        if program and wish in ("force", "prefer"):
            return await _from_program(program, prompt)
        answer = await _typed(prompt, is_secret=True)
        return await _from_program(program, prompt) if answer is None and program and wish != "never" else answer


class PasswordAsker:
    """An asker that knows the board's password, and passes all other questions on to a person."""

    def __init__(self, password: str, person: Asker) -> None:
        self._password = password
        self._person = person

    async def confirm(self, question: str) -> bool | None:
        """Return the person's answer."""
        return await self._person.confirm(question)

    async def secret(self, prompt: str) -> str | None:
        """Return the password; for any other secret, such as a key's passphrase, the person's answer."""
        if "password" not in prompt.lower():
            return await self._person.secret(prompt)
        return self._password


async def _typed(prompt: str, *, is_secret: bool) -> str | None:
    try:
        terminal = os.open(_TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        with _without_echo(terminal) if is_secret else nullcontext():
            os.write(terminal, prompt.encode())
            line = await _line(terminal)
        if is_secret:
            os.write(terminal, b"\n")
    finally:
        os.close(terminal)
    return line


@contextmanager
def _without_echo(terminal: int) -> Iterator[None]:
    was = termios.tcgetattr(terminal)
    silent = [*was]
    silent[_LOCAL_FLAGS] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSAFLUSH, silent)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, was)


async def _line(terminal: int) -> str | None:
    """Return a typed line, None at the terminal's end.

    The event loop runs meanwhile, so that Ctrl-C is handled.
    """
    loop = asyncio.get_running_loop()
    typed = asyncio.Event()
    loop.add_reader(terminal, typed.set)
    try:
        await typed.wait()
    finally:
        loop.remove_reader(terminal)
    line = os.read(terminal, LONGEST_ANSWER_BYTES)
    return line.decode("utf-8", "surrogateescape").rstrip("\r\n") if line else None


async def _from_program(program: str, prompt: str) -> str | None:
    try:
        ended = await asyncio.to_thread(subprocess.run, [program, prompt], stdout=subprocess.PIPE, check=False)
    except OSError as error:
        raise UsageError(
            f"SSH_ASKPASS: cannot run {program}: {error.strerror}", hint="name a program that prints the password"
        ) from error
    lines = ended.stdout.decode("utf-8", "surrogateescape").splitlines()
    return lines[0] if ended.returncode == 0 and lines else None


_URL = re.compile(r"ssh://(?:(?P<user>[^@/]+)@)?(?P<host>\[[^\]]+\]|[^:/\[\]]+)(?::(?P<port>\d{1,5}))?/?")
_PLAIN = re.compile(r"(?:(?P<user>.+)@)?(?P<host>[^@\s/-][^@\s/]*)(?P<port>(?!))?")
_LAST_PORT = 65535


@dataclass(frozen=True, slots=True)
class SshTarget:
    """A host, or an alias for one, with user and port if they were named."""

    host: str
    user: str | None = None
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the target that a text on the command line names. Raises UsageError."""
        match = (_URL if text.startswith("ssh://") else _PLAIN).fullmatch(text)
        if match is None or int(match["port"] or 0) > _LAST_PORT:
            raise UsageError(
                f"{text!r} is not an SSH target",
                hint="write USER@HOST, ssh://USER@HOST:PORT, or a Host of ~/.ssh/config",
            )
        return cls(match["host"].strip("[]"), match["user"], int(match["port"]) if match["port"] else None)


_USER, _GLOBAL = ["~/.ssh/known_hosts"], ["/etc/ssh/ssh_known_hosts"]
_FOLDER_MODE, _FILE_MODE = 0o700, 0o600


_FILES = ("~/.ssh/config", "/etc/ssh/ssh_config")


@asynccontextmanager
async def connect(target: str, asker: Asker) -> AsyncIterator[Remote]:
    """Log in to a board and yield it; its connection, and those to jump hosts, are closed with the context.

    Raises UsageError, UnreachableError, RefusedError.
    """
    login = await asyncio.to_thread(_Login.read, SshTarget.parse(target))
    connection = await login.connected(asker)
    try:
        yield Remote(connection, login.options.host)
    finally:
        await _close(connection)


class _Login(asyncssh.SSHClient):
    """A login to one board, by the SSH configuration; answers the server's prompts once it has an asker."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.options = asyncssh.SSHClientConnectionOptions(**arguments)
        self._arguments = arguments
        self._login = f"{self.options.username}@{self.options.orig_host}"
        config = self.options.config
        files = (*(config.get("UserKnownHostsFile") or _USER), *config.get("GlobalKnownHostsFile", _GLOBAL))  # type: ignore[misc]
        paths = [Path(file).expanduser() for file in files]
        self._known_file = paths[0]
        self._known = asyncssh.read_known_hosts([str(path) for path in paths if path.is_file()])
        # The board's name in known_hosts, and its known keys, of the latest attempt.
        self._name = ""
        self._trusted: Sequence[asyncssh.SSHKey] = []
        # The unknown key that the board showed in the latest attempt.
        self._seen: asyncssh.SSHKey | None = None
        # None in the first attempt, which asks nobody.
        self._asker: Asker | None = None
        # The number of secrets asked for, over all attempts: it is bounded by MOST_PROMPTS.
        self._prompts = 0
        # True once the latest attempt has passed the jump hosts.
        self._is_reached = False

    @classmethod
    def read(cls, target: SshTarget) -> Self:
        """Return a login by the configuration files. Raises UsageError if one cannot be read."""
        named = {"username": target.user, "port": target.port}
        files = [path for path in (Path(file).expanduser() for file in _FILES) if path.is_file()]
        try:
            return cls({"host": target.host, "config": files, **{key: each for key, each in named.items() if each}})
        except (ValueError, OSError, asyncssh.Error) as error:
            raise UsageError(
                f"the SSH configuration for {target.host}: {error}",
                hint="correct ~/.ssh/config, or the keys and known_hosts in that folder",
            ) from error

    async def connected(self, asker: Asker) -> asyncssh.SSHClientConnection:
        """Return the connection: a first attempt asks nobody, and a second asks the person if that was denied."""
        with connecting(self.options, lambda: self._is_reached):
            try:
                return await self._with_known_host(asker)
            except asyncssh.PermissionDenied:
                self._asker = asker
                return await self._with_known_host(asker)

    async def _with_known_host(self, asker: Asker) -> asyncssh.SSHClientConnection:
        while True:
            self._is_reached = False
            try:
                return await asyncssh.connect(
                    **self._arguments,
                    client_factory=lambda: self,
                    known_hosts=self._match,
                    passphrase=_passphrases(self._asker) if self._asker else None,
                    connect_timeout=None if self._asker else self.options.connect_timeout or CONNECT_S,
                    keepalive_interval=self.options.keepalive_interval or ALIVE_S,
                )
            except asyncssh.HostKeyNotVerifiable as error:
                if not self._is_reached:
                    raise
                await self._judge(error.reason, asker)

    def _match(self, host: str, _addr: str, port: int | None) -> Any:
        """Return the known host keys under the name and its port, never the address.

        Addresses change hands, and each forwarded port is a board of its own.
        """
        self._name = f"[{host.lower()}]:{port}" if port else host.lower()
        self._seen = None
        matches = self._known.match(self._name, "", None)
        self._trusted = matches[0]
        return matches

    async def _judge(self, reason: str, asker: Asker) -> None:
        """Ask whether to accept the key that was seen, and remember it; raise RefusedError unless it is accepted."""
        if self._seen is None:
            raise RefusedError(
                f"the host key of {self._name} is refused: {reason}", hint=f"see its lines in {self._known_file}"
            )
        shown = f"{self._seen.get_algorithm()} {self._seen.get_fingerprint()}"
        if self._trusted:
            raise RefusedError(
                f"the host key of {self._name} has changed: {shown} is not the known"
                f" {', '.join(sorted(key.get_fingerprint() for key in self._trusted))}",
                hint="somebody may intercept the connection; if the board was installed again, forget the old key with"
                f" `ssh-keygen -R '{self._name}' -f '{self._known_file}'`",
            )
        answer = await asker.confirm(
            f"The host {self._name} is not known. Its key's fingerprint is\n  {shown}\nIs that the board's? (yes/no) "
        )
        if not answer:
            why = "is not known, and there is no terminal to ask at" if answer is None else "was not accepted"
            raise RefusedError(
                f"the host key of {self._name} {why}: {shown}",
                hint="compare the fingerprint with `ssh-keygen -lf /etc/ssh/ssh_host_…_key.pub` on the board, then log"
                f" in once with `ssh ssh://{self._login}:{self.options.port}` and answer yes",
            )
        line = f"{self._name} {self._seen.export_public_key().decode().strip()}\n"
        self._known.load(line)
        await asyncio.to_thread(_remember, self._known_file, line)

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:  # noqa: ARG002 - asyncssh's interface
        """Note that the board is reached: a failure from now on is not one of a jump host."""
        self._is_reached = True

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:  # noqa: ARG002 - as above
        """Refuse an unknown key, which ends this connection: no question keeps the server waiting."""
        self._seen = key
        return False

    async def password_auth_requested(self) -> str | None:
        """Return the password; None without an asker, or after MOST_PROMPTS prompts."""
        return await self._secret(f"{self._login}'s password: ")

    def kbdint_auth_requested(self) -> str | None:
        """Return an empty list of methods, so that the server chooses; None without an asker."""
        return None if self._asker is None else ""

    async def kbdint_challenge_received(
        self,
        name: str,
        instructions: str,
        lang: str,  # noqa: ARG002 - as above
        prompts: Sequence[tuple[str, bool]],
    ) -> list[str] | None:
        """Return the answer to each prompt of the server; None if any has no answer."""
        said = "".join(f"{_shown(text)}\n" for text in (name, instructions) if text)
        answers: list[str] = []
        for prompt, _ in prompts:
            answer = await self._secret(f"{said}({self._login}) {_shown(prompt)}")
            if answer is None:
                return None
            answers.append(answer)
            said = ""
        return answers

    async def _secret(self, prompt: str) -> str | None:
        if self._asker is None or self._prompts == MOST_PROMPTS:
            return None
        self._prompts += 1
        return await self._asker.secret(prompt)


def _remember(file: Path, line: str) -> None:
    try:
        file.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        file.touch(_FILE_MODE)
        content = file.read_bytes()
        with file.open("ab") as known:
            known.write((b"" if not content or content.endswith(b"\n") else b"\n") + line.encode())
    except OSError as error:
        raise ProfagentError(
            f"cannot remember the host key in {file}: {error.strerror}", hint="check the file's owner and mode"
        ) from error


def _passphrases(asker: Asker) -> Any:
    """Return a callback that asyncssh calls, on a thread of its own, for the passphrase of a key."""
    loop = asyncio.get_running_loop()

    def ask(file: str) -> str | None:
        for half in (f"{file}.pub", file):
            with suppress(OSError, ValueError):
                asyncssh.read_public_key(half)
                break
        else:
            # asyncssh cannot use a passphrase without the public half of the key; this error makes it skip the key.
            raise asyncssh.KeyImportError("Passphrase")
        asking = asker.secret(f"Passphrase of the key {Path(file).expanduser()}: ")
        return asyncio.run_coroutine_threadsafe(asking, loop).result()

    return ask


def _shown(text: str) -> str:
    return "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text)


async def _close(connection: asyncssh.SSHClientConnection) -> None:
    """Close a connection in good order, or abort it after SSH_CLOSE_S: a dead link answers no farewell."""
    connection.close()
    try:
        async with asyncio.timeout(SSH_CLOSE_S):
            await connection.wait_closed()
    except TimeoutError:
        connection.abort()
