"""What a row of `stats` has for columns, and all of an answer as one document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from profagent.cli.provenance import likely_counters
from profagent.formats.countermap import bound_mark
from profagent.stats.stats import KEYS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagent.cli.table import Cell
    from profagent.stats.stats import Row, Stats

FIGURES = ("count", "total", "share", "mean", "median", "mad", "p95", "max")
_WITHOUT_BOUND = ("aicpu", "api", "step")


def column_names(by: str) -> tuple[str, ...]:
    """The columns of an answer, without units: what `--sort` takes and JSON has for keys."""
    return (*KEYS[by], *FIGURES, *(() if by in _WITHOUT_BOUND else ("bound by",)))


def cells_of(by: str, row: Row, likely: Sequence[str] = ()) -> tuple[Cell, ...]:
    """A row's values in the order of the columns; what rests on `likely` counters is marked."""
    number, total, *others = row.figures
    bound = row.bound and row.bound + bound_mark(likely)
    return (*row.key, number, total, row.share, *others, *(() if by in _WITHOUT_BOUND else (bound,)))


def stats_document(answer: Stats, rows: Sequence[Row], skip: int | None) -> dict[str, Any]:
    """What `--json` prints."""
    names = column_names(answer.by)
    return {
        "by": answer.by,
        "unit": answer.unit,
        "simulated": answer.is_simulated,
        "rows": [dict(zip(names, cells_of(answer.by, row), strict=True)) for row in rows],
        "all_rows": len(answer.rows),
        "likely": likely_counters(answer.provenance),
        "skip": skip,
        "left_out": [each._asdict() for each in answer.left_out],
        "jobs": answer.provenance,
    }
