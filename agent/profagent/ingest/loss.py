"""Ledger entries for what a board reports of the way: losses that it told, logs that it removed."""

from __future__ import annotations

from profagent.errors import UnsupportedBoardError
from profagent.ingest.changes import Entry

# Nothing that existed as bytes of a log is gone in these cases.
_NOTES = frozenset({"not-a-file"})


def loss_entry(reason: str, detail: str, lost_bytes: int) -> Entry:
    """An entry for a Loss of the wire; what took no byte of a log is a note."""
    return Entry("note" if reason in _NOTES else "loss", reason, detail, count=max(lost_bytes, 1))


def removal_entry(sent: int, size: int) -> list[Entry]:
    """An entry for a log that was removed from the board before all of it was sent; none when it was."""
    if size <= sent:
        return []
    detail = f"removed from the board after {sent} of {size} bytes were sent"
    return [Entry("loss", "removed", detail, sent, size, size - sent)]


def refusal(job: str, error: UnsupportedBoardError) -> tuple[UnsupportedBoardError, Entry]:
    """The error and the entry for a JOB that is of another SoC."""
    named = UnsupportedBoardError(f"{job}: {error}", hint=error.hint)
    return named, Entry("note", "unsupported-soc", f"{error}: not read any further")
