"""A mistake in what the daemon was told: where it stands, what it is, and what to write instead."""

from __future__ import annotations

from dataclasses import dataclass

from profagentd.errors import DaemonError


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
