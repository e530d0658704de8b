"""A loss that a board's daemon keeps, as a line of text: what, how much, and when by the board's clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from profagent.ingest.changes import KeptLoss

UNKNOWN = "N/A"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def kept_loss_fields(loss: KeptLoss) -> dict[str, Any]:
    """A kept loss as values for JSON, named as the columns of the view `kept_losses`."""
    return {
        "job": loss.job or None,
        "reason": loss.entry.reason,
        "detail": loss.entry.detail,
        "lost_logs": loss.lost_logs,
        "lost_bytes": loss.lost_bytes,
        "from_us": loss.from_us,
        "to_us": loss.to_us,
    }


def kept_loss_line(loss: Mapping[str, Any]) -> str:
    """One line; a figure that is not known is N/A."""
    about = loss["job"] or "the board"
    logs, size = (UNKNOWN if loss[name] is None else loss[name] for name in ("lost_logs", "lost_bytes"))
    when = f"{_moment(loss['from_us'])} to {_moment(loss['to_us'])}"
    return f"loss: {about}: {loss['reason']}: {logs} logs, {size} bytes, {when}: {loss['detail']}"


def _moment(time_us: int | None) -> str:
    if time_us is None:
        return UNKNOWN
    try:
        return (_EPOCH + timedelta(microseconds=time_us)).strftime("%Y-%m-%d %H:%M:%S UTC")
    except OverflowError:
        return UNKNOWN
