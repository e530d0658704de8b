"""`fleet budget --slo`: a verdict on an objective for each board, from the histograms and figures of a lake."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from profagent.errors import UsageError
from profagent.lake.aggregates import FRAMES, GAMMA
from profagent.tables.slo import FRAMED, LEAST_EXPLAINED, Guilt, Judged, decided

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from profagent.tables.slo import Objective

    Row = Mapping[str, Any]

# Columns of an answer.
COLUMNS = ("objective", "board", "model", "layer", "verdict", "value", "number", "missed", "share", "guilty", "why")
# How far the p99 of each latency and layer is above its median, in the mean of the chosen sessions.
TAILS = (
    "SELECT board, model, layer, avg(p99 - median) AS tail FROM layers"
    " WHERE measure = 'us' AND push IN (SELECT push FROM chosen) GROUP BY board, model, layer"
)


def subject_of(objective: Objective) -> tuple[str | None, str | None]:
    """Return the model and the layer that an objective is about, None for each. Raises UsageError for a rate."""
    if objective.is_rate:
        raise UsageError(f"{objective.text}: a lake has no rates", hint="ask for a time, such as frame.p99 < 33ms")
    if objective.subject in FRAMED:
        return FRAMES, objective.name
    return (objective.name, None) if objective.subject == "latency" else (None, objective.name)


def kind_of(objective: Objective) -> str:
    """Return the kind of the rows of a lake that an objective is about."""
    return "latency" if objective.subject in ("latency", "frame") else "layer"


def objective_view(objective: Objective) -> str:
    """Return the statement that creates the view `objective`: its quantile, and the bucket that contains its bound."""
    bucket = math.floor(math.log(objective.bound) / math.log(GAMMA)) if objective.bound > 0 else -(10**9)
    quantile = objective.quantile()
    return (
        "CREATE OR REPLACE TEMPORARY VIEW objective AS"
        f" SELECT {0.5 if quantile is None else quantile}e0 AS quantile, {bucket} AS bucket"
    )


def judged_rows(objective: Objective, rows: Iterable[Row], tails: Sequence[Row]) -> list[tuple[Judged, Row]]:
    """Return the verdict for each row of the query `slo`, the worst first."""
    is_below = objective.operator.startswith("<")
    figure = {"mean": "mean", "min": "least", "max": "most"}.get(objective.stat, "quantile")
    found = []
    for row in rows:
        # A model's latency is not a frame's, which the lake keeps as that of a model.
        if (row["model"] == FRAMES) is not (objective.subject in FRAMED):
            continue
        missed = int(row["longer"] if is_below else row["shorter"])
        each = decided(objective, row["board"], float(row[figure]), int(row["number"]), missed)
        if each.verdict == "exceeded" and is_below and kind_of(objective) == "latency":
            each = each._replace(guilty=_guilty(row, tails))
        found.append((each, row))
    return sorted(found, key=lambda pair: (pair[0].verdict != "exceeded", -(pair[0].share or 0.0)))


def _guilty(row: Row, tails: Sequence[Row]) -> Guilt | None:
    """Return the layer or stage whose tail is at least half of that of the whole."""
    ours = {
        each["layer"]: each["tail"] or 0.0
        for each in tails
        if each["board"] == row["board"] and each["model"] == row["model"]
    }
    whole = ours.pop(None, 0.0)
    part = max(ours, key=lambda name: ours[name], default=None)
    if part is None or whole <= 0 or ours[part] < LEAST_EXPLAINED * whole:
        return None
    return Guilt(part, min(1.0, ours[part] / whole))


def cells_of(judged: Judged, row: Row) -> tuple[Any, ...]:
    """Return the values of COLUMNS; the share is in %."""
    share = None if judged.share is None else 100 * judged.share
    guilty = judged.guilty and judged.guilty.part
    named = (judged.objective.text, row["board"], row["model"], row["layer"])
    return (*named, judged.verdict, judged.value, judged.number, judged.exceeded, share, guilty, judged.why or None)
