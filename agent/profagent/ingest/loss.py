"""Ledger entries for what a board reports of the way: losses that it told, logs that it removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.errors import UnsupportedBoardError
from profagent.formats.names import display_text, is_job_name
from profagent.ingest import reasons
from profagent.ingest.changes import Entry, KeptLoss, LinkLedger
from profagent.ingest.mirror import checked_path

if TYPE_CHECKING:
    from profagent.ingest.changes import Change
    from profagent.link.messages import Happened, Loss

LONGEST_REASON = 64
LONGEST_DETAIL = 1000
# More than any board's disk holds; sums of what is lost stay numbers of the database.
LARGEST_FIGURE = 2**48
LARGEST_TIME_US = 2**62


def loss_entry(reason: str, detail: str, lost_bytes: int) -> Entry:
    """An entry for a Loss of the wire; what took no byte of a log is a note."""
    return Entry(reasons.grade_of(reason), reason, detail, count=_known(lost_bytes) or 1)


def told_loss(happened: Happened, loss: Loss) -> tuple[str, Change]:
    """What a Loss of the wire means, and the JOB that it belongs to: a kept loss belongs to the board itself."""
    if loss.id:
        return "", _kept(loss)
    path = None if happened.log is None else checked_path(happened.log.path)
    return happened.job, LinkLedger(path, loss_entry(loss.reason, loss.detail, loss.lost_bytes))


def removal_entry(sent: int, size: int) -> list[Entry]:
    """An entry for a log that was removed from the board before all of it was sent; none when it was."""
    if size <= sent:
        return []
    detail = f"removed from the board after {sent} of {size} bytes were sent"
    return [reasons.entry(reasons.REMOVED_UNREAD, detail, sent, size, size - sent)]


def unfollowed_removal(copied: int) -> Entry:
    """An entry for a log that was begun, and removed from the board while nobody followed it."""
    detail = f"removed from the board while nobody followed it: what was written after {copied} bytes is not here"
    return reasons.entry(reasons.REMOVED_UNREAD, detail, copied, copied)


def another_file(reason: str) -> Entry:
    """An entry for a file that is not the one that was copied before."""
    # Of a log that is not complete no digest is committed: which of the two was changed cannot be told.
    what = (
        "and its copy in the mirror differ" if reason == reasons.DIFFERENT else "is not the one that was copied before"
    )
    return reasons.entry(reason, f"the board's file {what}: copied anew, the earlier one is set aside")


def open_removal() -> Entry:
    """An entry for a JOB that was removed from the board before it was finished or quiet."""
    detail = "the JOB was removed from the board before it had ended: what its program wrote since then is not here"
    return reasons.entry(reasons.REMOVED_OPEN, detail)


def unfollowed_job_removal(incomplete_logs: int) -> Entry:
    """An entry for a JOB that was removed from the board before it had ended, and while nobody followed it."""
    detail = (
        f"the JOB was removed from the board while nobody followed it; {incomplete_logs} of its logs that were"
        " begun are not complete: what was not copied before is gone"
    )
    return reasons.entry(reasons.REMOVED_OPEN, detail, count=max(incomplete_logs, 1))


def refusal(job: str, error: UnsupportedBoardError) -> tuple[UnsupportedBoardError, Entry]:
    """The error and the entry for a JOB that is of another SoC."""
    named = UnsupportedBoardError(f"{job}: {error}", hint=error.hint)
    return named, reasons.entry(reasons.UNSUPPORTED_SOC, f"{error}: not read any further")


def _kept(loss: Loss) -> KeptLoss:
    """A figure that is 0, or more than can be, is not known."""
    reason, detail = display_text(loss.reason)[:LONGEST_REASON], display_text(loss.detail)[:LONGEST_DETAIL]
    entry = loss_entry(reason, detail, loss.lost_bytes)
    return KeptLoss(
        loss.id,
        entry,
        loss.job_name if is_job_name(loss.job_name) else "",
        lost_logs=_known(loss.lost_logs),
        lost_bytes=_known(loss.lost_bytes),
        from_us=_known(loss.from_wall_us, LARGEST_TIME_US),
        to_us=_known(loss.to_wall_us, LARGEST_TIME_US),
    )


def _known(figure: int, largest: int = LARGEST_FIGURE) -> int | None:
    return figure if 0 < figure <= largest else None
