"""The error that the daemon reports to people: one line, and what to do next."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


ARGUMENTS = "the arguments"


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


class Fault(enum.Enum):
    """The kinds of refusal; the wire has a status code for each."""

    INVALID = "invalid"  # against the conversation's rules
    EXHAUSTED = "exhausted"  # over a limit
    INCOMPATIBLE = "incompatible"  # another major version
    DAMAGED = "damaged"  # a message was damaged on the way
    AWAY = "away"  # a root does not answer
    SILENT = "silent"  # no sign of life
    NOT_FOUND = "not found"  # what it asks about is not there
    UNTRUSTED = "untrusted"  # its certificate is revoked


class Refusal(Exception):  # noqa: N818 - the client's fault, told to it and not raised to people
    """Ends a stream; the text goes to the client."""

    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(text)
        self.fault = fault


class DaemonError(Exception):
    """Something that a person must put right; `hint` says what to do next."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint
