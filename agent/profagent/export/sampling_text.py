"""How well a capture was sampled, and what was kept of it, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from profagent.export.columns import UNKNOWN
from profagent.formats.sampling import FROM_FILE

if TYPE_CHECKING:
    from collections.abc import Mapping


def share_text(sampled: int, due: int | None) -> str:
    """`96 of 100 due`."""
    return f"{sampled:,} of {UNKNOWN if due is None else format(due, ',')} due"


def sampling_line(sampling: Mapping[str, Any]) -> str:
    """`captured 96 of 100 due (interval 10, from acl.json)`, with what came late."""
    interval = UNKNOWN if sampling["interval"] is None else sampling["interval"]
    origin = sampling["interval_from"]
    source = "" if origin is None else f", from {FROM_FILE}" if origin == FROM_FILE else f", {origin}"
    late = f"; {sampling['late']:,} late" if sampling["late"] else ""
    return f"captured {share_text(sampling['sampled'], sampling['due'])} (interval {interval}{source}){late}"


def keeping_line(sampling: Mapping[str, Any]) -> str | None:
    """`kept 30 of 1,000 inferences (every 10)`; None where nothing was passed over on purpose."""
    if sampling["keeping"] is None and not sampling["passed_over"]:
        return None
    chosen = sampling["keeping"] or "by an earlier session"
    return f"kept {sampling['kept']:,} of {sampling['sampled']:,} inferences ({chosen})"


def sampling_lines(sampling: Mapping[str, Any]) -> list[str]:
    """Both, as far as there is something to say."""
    kept = keeping_line(sampling)
    return [sampling_line(sampling), *([] if kept is None else [kept])]
