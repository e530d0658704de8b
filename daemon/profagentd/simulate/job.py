"""The files of one JOB directory, written in the runtime library's order (format page, section 1)."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

DIRECTORY_MODE, FILE_MODE = 0o755, 0o666
"""What the library asks for; the umask takes its share."""

MARKER = "simulated"
"""A file beside info.json that the real library never writes: whoever copies the JOB still knows what it is."""

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_NAME_LETTERS = 29
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
_NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT))
_REWRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


class JobWriter:
    """One JOB directory. Every call opens, writes and closes one file, as the library does. Raises OSError.

    A full disk is no error: like the library it goes on, and what has no room is lost (format page, section 1).
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lost_bytes = 0  # there was no room for them
        self._data = str(directory / "data") + os.sep

    @classmethod
    def create(cls, root: Path, rng: Random) -> JobWriter:
        """Make `JOB` + 29 letters and its data/ under `root`; a name that is taken is drawn again."""
        while True:
            directory = root / job_name(rng)
            try:
                directory.mkdir(mode=DIRECTORY_MODE)
            except FileExistsError:
                continue
            (directory / "data").mkdir(mode=DIRECTORY_MODE)
            return cls(directory)

    def rewrite_beside(self, name: str, content: bytes) -> None:
        """A small file in the JOB's root directory."""
        self._write(str(self.directory / name), _REWRITE, content)

    def rewrite(self, name: str, content: bytes) -> None:
        """A small file in data/: created or truncated, then written with one write."""
        self._write(self._data + name, _REWRITE, content)

    def append(self, name: str, content: bytes) -> None:
        """Add to a data file in data/; without content the file is created all the same."""
        self._write(self._data + name, _APPEND, content)

    def _write(self, path: str, flags: int, content: bytes) -> None:
        try:
            descriptor = os.open(path, flags, FILE_MODE)
            try:
                while content:
                    content = content[os.write(descriptor, content) :]
            finally:
                os.close(descriptor)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            self.lost_bytes += len(content)


def job_name(rng: Random) -> str:
    """`JOB` and 29 letters A to Z."""
    return "JOB" + "".join(_LETTERS[int(rng.random() * len(_LETTERS))] for _ in range(_NAME_LETTERS))
