"""An acl.json on this host, or on a board that SSH reaches."""

from __future__ import annotations

import asyncio
import os
import shlex
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from profagent.errors import ProfagentError, UsageError
from profagent.files import write_atomically
from profagent.link.boards_file import BoardsFile
from profagent.ssh.connection import Person, connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from profagent.ssh.remote import Remote

# The exit status that says that there is no such file.
_MISSING = 3
_NEW_MODE = 0o644


@asynccontextmanager
async def opened_acl_json(path: str, board: str | None) -> AsyncIterator[LocalAclFile | BoardAclFile]:
    """The file here, or on a board by its name or as `ssh` calls it. Raises UsageError, UnreachableError."""
    if board is None:
        yield LocalAclFile(path)
        return
    async with connect(await asyncio.to_thread(BoardsFile().login, board), Person()) as remote:
        yield BoardAclFile(remote, path, f"{path} on {board}")


class LocalAclFile:
    """A file of this host; `shown` is what messages call it."""

    def __init__(self, path: str) -> None:
        self.shown = path

    async def read(self) -> bytes | None:
        """What it holds; None where there is none. Raises UsageError for one that cannot be read."""
        try:
            return await asyncio.to_thread(Path(self.shown).read_bytes)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageError(f"cannot read {self.shown}: {error.strerror}", hint="name an acl.json") from error

    async def write(self, data: bytes) -> None:
        """Write it whole or not at all; its mode stays. Raises ProfagentError."""
        await asyncio.to_thread(self._write, data)

    def _write(self, data: bytes) -> None:
        target = Path(os.path.realpath(self.shown))
        mode = target.stat().st_mode & 0o7777 if target.exists() else _NEW_MODE
        write_atomically(target, [data])
        target.chmod(mode)

    async def output_state(self, _output: str) -> str:
        """What `output` is, as `acl_json_section` takes it: it is a directory of a board, of which nothing is known."""
        return ""


class BoardAclFile:
    """The same of a board; everything raises UnreachableError, too."""

    def __init__(self, remote: Remote, path: str, shown: str) -> None:
        self.shown = shown
        self._remote = remote
        self._path = shlex.quote(path)

    async def read(self) -> bytes | None:
        """As LocalAclFile."""
        ran = await self._remote.run(f"[ -e {self._path} ] || exit {_MISSING}; cat {self._path}")
        if ran.status == _MISSING:
            return None
        if ran.status != 0:
            raise UsageError(f"cannot read {self.shown}: {ran.complaint}", hint="name an acl.json")
        return ran.stdout

    async def write(self, data: bytes) -> None:
        """As LocalAclFile: owner and mode stay, and a link leads on to the file."""
        ran = await self._remote.run(
            f"target=$(readlink -f {self._path}) && part=$target.part"
            ' && { [ ! -e "$target" ] || cp -p "$target" "$part"; } && { cat >"$part" && mv -f "$part" "$target"; }'
            ' || { rm -f "$part"; exit 1; }',
            data,
        )
        if ran.status != 0:
            raise ProfagentError(
                f"cannot write {self.shown}: {ran.complaint}", hint="check its directory, and the free space there"
            )

    async def output_state(self, output: str) -> str:
        """`directory`, `not a directory` or `missing`."""
        name = shlex.quote(output)
        kinds = f"if [ -d {name} ]; then echo directory; elif [ -e {name} ]; then echo not a directory"
        return (await self._remote.run(f"{kinds}; else echo missing; fi")).text
