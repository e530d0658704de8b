"""The error that the daemon reports to people: one line, and what to do next."""

from __future__ import annotations


class DaemonError(Exception):
    """Something that a person must put right; `hint` says what to do next."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint
