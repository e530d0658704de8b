"""A mistake in what the daemon was told: where it stands, what it is, and what to write instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagentd.errors import DaemonError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Mistake:
    """`place` is a file and its line, or the arguments; `hint` says what is right."""

    place: str
    text: str
    hint: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"

    def error(self) -> DaemonError:
        """The same, to be raised."""
        return DaemonError(str(self), hint=self.hint)


def not_utf8(path: Path, error: UnicodeDecodeError, hint: str) -> Mistake:
    """That a file, which was decoded as a whole, is no UTF-8, and on which line."""
    line = error.object.count(b"\n", 0, error.start) + 1
    return Mistake(f"{path}:{line}", f"{error.object[error.start]:#04x} is no UTF-8: {error.reason}", hint)
