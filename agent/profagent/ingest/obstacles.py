"""What keeps a mirror from being written, as errors that say whose fault it is and what to do."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

from profagent.errors import ProfagentError, ProtocolError, StoreError
from profagent.files import disk_full, is_full, stands

if TYPE_CHECKING:
    from collections.abc import Collection

_ON_THE_BOARD = "remove what is odd from the JOB directory on the board"
_NO_DIRECTORY = frozenset({errno.ENOTDIR, errno.EEXIST})


class Translated:
    """Lets what the disk that `place` is on refuses raise StoreError, DiskFullError, or ProtocolError.

    `folders`: those that the board's logs are known to stand in; a directory above none of them is not the board's.
    """

    __slots__ = ("_folders", "_place", "_what")

    def __init__(self, what: str, place: Path, folders: Collection[str] = ()) -> None:
        self._what = what
        self._place = place
        self._folders = folders

    def __enter__(self) -> None:
        """What follows is tried."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise what an error of the system means."""
        if isinstance(error, OSError):
            if is_full(error):
                raise disk_full(self._place) from error
            raise _explained(self._what, error, self._folders) from error


def refuse_links(base: Path, path: str) -> None:
    """Raise StoreError when `base`, or a folder between it and the file, is a symbolic link."""
    folders = [base, *(base / above for above in Path(path).parents)]
    for folder in folders:
        if folder.is_symlink():
            raise StoreError(
                f"{folder} is a symbolic link: nothing is written through it",
                hint="remove the link there, on this host; what the board has of its files is fetched again",
            )


def _explained(what: str, error: OSError, folders: Collection[str]) -> ProfagentError:
    if error.errno == errno.ENAMETOOLONG:
        return ProtocolError(f"{what}: this host's file system takes no such long name", hint=_ON_THE_BOARD)
    if error.errno == errno.EISDIR:
        at = str(error.filename2 or error.filename)
        if any(f"{folder}/".startswith(f"{at}/") for folder in folders):
            why = "the board has logs below this name, and names it as a log, too"
            return ProtocolError(f"{what}: {why}", hint=_ON_THE_BOARD)
        return ProtocolError(f"{what}: a directory stands at {at}", hint="remove it there, on this host")
    if error.errno in _NO_DIRECTORY:
        file = Path(error.filename2 or error.filename)
        at = str(next(each for each in (file, *file.parents) if stands(each)))
        hint = f"remove it there, on this host; where the board has a log of this name, {_ON_THE_BOARD}"
        return ProtocolError(f"{what}: {at} stands where its directory should be", hint=hint)
    return StoreError(
        f"{what}: {error.strerror}", hint="check the disk, its free space and the permissions of the workspace"
    )
