"""The keys to log in with, in the order of `ssh`: an agent's that the settings name, its others, those of files."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import asyncssh

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from pathlib import Path

    from profagent.ssh.passwords import Asker
    from profagent.ssh.settings import Settings

__all__ = ["Identities", "identities"]

_MOST_PASSPHRASES = 3
# How asyncssh's words begin for a key that needs a passphrase; it has no error of its own for that.
_LOCKED = "Passphrase"


@asynccontextmanager
async def identities(settings: Settings, asker: Asker | None, unusable: list[str]) -> AsyncIterator[Identities]:
    """The keys, as long as the agent is connected. Those with a passphrase are among them if there is an asker.

    To `unusable` is added why files hold no key that can be used.
    """
    async with AsyncExitStack() as stack:
        held: Sequence[asyncssh.SSHKeyPair] = ()
        # An agent that is away, or is none, is no reason not to try files.
        with suppress(OSError, ValueError):
            if settings.agent:
                agent = await stack.enter_async_context(asyncssh.connect_agent(settings.agent))
                held = await agent.get_keys()
        offered = Identities(settings, held, asker, unusable)
        await offered.load()
        yield offered


class Identities:
    """Keys, each given once; a file whose key nobody can tell without its passphrase is opened when its turn comes."""

    def __init__(
        self, settings: Settings, held: Sequence[asyncssh.SSHKeyPair], asker: Asker | None, unusable: list[str]
    ) -> None:
        self._settings = settings
        self._agent = {pair.public_data: pair for pair in held}
        self._asker = asker
        self._unusable = unusable
        self._waiting: list[asyncssh.SSHKeyPair | Path] = []

    async def load(self) -> None:
        """Read the files."""
        loop = asyncio.get_running_loop()
        self._waiting = await asyncio.to_thread(lambda: [*self._of_agent(), *self._of_files(loop)])

    async def next(self) -> asyncssh.SSHKeyPair | None:
        """The next key; None when there is none left."""
        while self._waiting:
            found = self._waiting.pop(0)
            if isinstance(found, asyncssh.SSHKeyPair):
                return found
            if secret := await self._passphrase(found):
                self._waiting[:0] = await asyncio.to_thread(self._pairs, found, secret)
        return None

    def _of_agent(self) -> Iterator[asyncssh.SSHKeyPair]:
        named = [data for file in self._settings.keys for data in _public(file)]
        named += [certificate.public_data for certificate in self._certificates()]
        chosen = [data for data in dict.fromkeys(named) if data in self._agent]
        others = [] if self._settings.only_named_keys else [data for data in self._agent if data not in chosen]
        return (self._agent[data] for data in (*chosen, *others))

    def _of_files(self, loop: asyncio.AbstractEventLoop) -> Iterator[asyncssh.SSHKeyPair | Path]:
        for file in self._settings.keys:
            for found in self._of_file(file, loop):
                if not isinstance(found, asyncssh.SSHKeyPair) or found.public_data not in self._agent:
                    yield found

    def _of_file(self, file: Path, loop: asyncio.AbstractEventLoop) -> Sequence[asyncssh.SSHKeyPair | Path]:
        try:
            return self._pairs(file, None)
        except FileNotFoundError:
            return ()
        except (OSError, ValueError) as error:
            is_locked = str(error).startswith(_LOCKED)
            is_public = not is_locked and any(_public(file))
            if not is_locked and not is_public:
                self._unusable.append(f"{file}: {error}")
            if not is_locked or self._asker is None:
                return ()
        # Where the public half is known, the server is asked first whether it takes the key.
        return self._pairs(file, lambda _: self._passphrase(file), loop) if any(_public(file)) else (file,)

    def _pairs(
        self, file: Path, passphrase: Any, loop: asyncio.AbstractEventLoop | None = None
    ) -> Sequence[asyncssh.SSHKeyPair]:
        return asyncssh.load_keypairs(file, passphrase, self._certificates(), loop=loop)

    def _certificates(self) -> Sequence[asyncssh.SSHCertificate]:
        found: list[asyncssh.SSHCertificate] = []
        for file in self._settings.certificates:
            with suppress(OSError, ValueError):
                found += asyncssh.load_certificates(file)
        return found

    async def _passphrase(self, file: Path) -> str:
        """One that opens the key, else an empty one."""
        assert self._asker is not None, "nobody waits for locked keys else"
        for _ in range(_MOST_PASSPHRASES):
            secret = await self._asker.secret(f"Passphrase of the key {file}: ")
            if not secret:
                break
            if await asyncio.to_thread(_opens, file, secret):
                return secret
        return ""


def _public(file: Path) -> Iterator[bytes]:
    """What can be told of a key without opening it: of its certificate, its public half, or where it is one itself."""
    with suppress(OSError, ValueError):
        yield asyncssh.read_certificate(f"{file}-cert.pub").public_data
    for name in (f"{file}.pub", file):
        with suppress(OSError, ValueError):
            yield asyncssh.read_public_key(name).public_data
            return


def _opens(file: Path, secret: str) -> bool:
    try:
        asyncssh.read_private_key(file, secret)
    except (OSError, ValueError):
        return False
    return True
