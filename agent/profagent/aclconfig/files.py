"""An acl.json on this host, or on a board that SSH reaches."""

from __future__ import annotations

import asyncio
import os
import shlex
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from profagent.errors import ProfagentError, UsageError
from profagent.files import write_atomically
from profagent.link.boards_file import BoardsFile
from profagent.ssh.connection import connect
from profagent.ssh.passwords import Person

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from profagent.ssh.remote import Remote


# The exit status that says that there is no such file.
MISSING = 3


def read_file(path: str) -> str:
    """Prints the file; exit status MISSING where there is none."""
    name = shlex.quote(path)
    return f"[ -e {name} ] || exit {MISSING}; cat {name}"


def write_file(path: str) -> str:
    """Writes standard input into the file, whole or not at all: owner and mode stay, and a link leads on to it."""
    return (
        f"target=$(readlink -f {shlex.quote(path)}) && part=$target.part"
        ' && { [ ! -e "$target" ] || cp -p "$target" "$part"; } && { cat >"$part" && mv -f "$part" "$target"; }'
        ' || { rm -f "$part"; exit 1; }'
    )


def directory_state(path: str) -> str:
    """Prints `directory`, `not a directory` or `missing`."""
    name = shlex.quote(path)
    return (
        f"if [ -d {name} ]; then echo directory; elif [ -e {name} ]; then echo not a directory; else echo missing; fi"
    )


DEFAULT_MODE = 0o644


class AclFile(Protocol):
    """The file; `shown` is what messages call it."""

    shown: str

    async def read(self) -> bytes | None:
        """What it holds; None where there is none. Raises UsageError for one that cannot be read."""

    async def write(self, data: bytes) -> None:
        """Write it whole or not at all; its mode stays. Raises ProfagentError."""

    async def output_state(self, output: str) -> str:
        """What `output` is, as `acl_json_section` takes it; empty where that cannot be told."""


@asynccontextmanager
async def opened_acl_json(path: str, board: str | None) -> AsyncIterator[AclFile]:
    """The file here, or on a board by its name or as `ssh` calls it. Raises UsageError, UnreachableError."""
    if board is None:
        yield _Local(Path(path))
        return
    async with connect(await asyncio.to_thread(BoardsFile().login, board), Person()) as remote:
        yield BoardAclFile(remote, path, f"{path} on {board}")


class _Local:
    def __init__(self, path: Path) -> None:
        self.shown = str(path)
        self._path = path

    async def read(self) -> bytes | None:
        try:
            return await asyncio.to_thread(self._path.read_bytes)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageError(f"cannot read {self.shown}: {error.strerror}", hint="name an acl.json") from error

    async def write(self, data: bytes) -> None:
        await asyncio.to_thread(self._write, data)

    async def output_state(self, output: str) -> str:  # noqa: ARG002 - it is a directory of the board
        return ""

    def _write(self, data: bytes) -> None:
        target = Path(os.path.realpath(self._path))
        mode = target.stat().st_mode & 0o7777 if target.exists() else DEFAULT_MODE
        write_atomically(target, [data])
        target.chmod(mode)


class BoardAclFile:
    """A file of a board."""

    def __init__(self, remote: Remote, path: str, shown: str) -> None:
        self.shown = shown
        self._remote = remote
        self._path = path

    async def read(self) -> bytes | None:
        """As AclFile; UnreachableError, too."""
        ran = await self._remote.run(read_file(self._path))
        if ran.status == MISSING:
            return None
        if ran.status != 0:
            raise UsageError(f"cannot read {self.shown}: {ran.complaint}", hint="name an acl.json")
        return ran.stdout

    async def write(self, data: bytes) -> None:
        """As AclFile; UnreachableError, too."""
        ran = await self._remote.run(write_file(self._path), data)
        if ran.status != 0:
            raise ProfagentError(
                f"cannot write {self.shown}: {ran.complaint}", hint="check its directory, and the free space there"
            )

    async def output_state(self, output: str) -> str:
        """As AclFile. Raises UnreachableError."""
        return (await self._remote.run(directory_state(output))).text
