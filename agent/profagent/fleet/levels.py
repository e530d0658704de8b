"""Changes of level in the answer to `fleet trend`: since which night a latency or a layer is another, and why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from profagent.lake.engines import Answer
from profagent.stats.levels import level_changes
from profagent.stats.nights import OWN_LABELS
from profagent.stats.trend import FLOOR, causes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from profagent.stats.levels import LevelChange

# Columns that the answer gets: the level of a night, and in the first night of a level its change and what changed too.
COLUMNS = ("level", "percent", "uncertainty_percent", "changed_with_it")
_SERIES = ("model", "layer", "type", "unit", "measure")


class NightFacts(NamedTuple):
    """Facts of the sessions of all boards in one night: each has the values of all of them in one text."""

    date: str
    facts: Mapping[str, str]


def facts_by_night(names: Sequence[str], sessions: Iterable[Sequence[Any]]) -> list[NightFacts]:
    """Return the labels and facts of each night from rows of a lake's sessions, the oldest night first."""
    found: dict[str, dict[str, set[str]]] = {}
    for row in sessions:
        cells = dict(zip(names, row, strict=True))
        night = found.setdefault(cells["date"], {})
        labels = json.loads(cells.get("labels_json") or "{}")
        # A lake that an earlier version filled has no column of facts.
        facts = json.loads(cells.get("facts_json") or "{}").get("run", {})
        for name, value in labels.items():
            if name not in OWN_LABELS:
                night.setdefault(f"label {name}", set()).add(str(value))
        for name, values in facts.items():
            night.setdefault(name, set()).update(values)
    return [
        NightFacts(date, {name: "+".join(sorted(values)) for name, values in facts.items()})
        for date, facts in sorted(found.items())
    ]


def with_levels(answer: Answer, nights: Sequence[NightFacts]) -> Answer:
    """Return the answer with COLUMNS; each series of medians is searched by itself."""
    place = {name: answer.names.index(name) for name in (*_SERIES, "date", "median")}
    series: dict[tuple[Any, ...], list[int]] = {}
    for number, row in enumerate(answer.rows):
        if row[place["median"]] is not None:
            series.setdefault(tuple(row[place[name]] for name in _SERIES), []).append(number)
    more: dict[int, tuple[Any, ...]] = {}
    for numbers in series.values():
        numbers.sort(key=lambda number: answer.rows[number][place["date"]])
        medians = [float(answer.rows[number][place["median"]]) for number in numbers]
        dates = [str(answer.rows[number][place["date"]]) for number in numbers]
        changes = level_changes(medians, floor=FLOOR, series=len(series))
        more |= dict(zip(numbers, _cells(dates, changes, nights), strict=True))
    rows = [(*row, *more.get(number, (None,) * len(COLUMNS))) for number, row in enumerate(answer.rows)]
    return Answer((*answer.names, *COLUMNS), rows)


def percents(change: LevelChange) -> tuple[float, float] | None:
    """Return the size of a change in % with half the width of its 95 % interval, None if the level was 0."""
    if not change.before:
        return None
    share = 100 / abs(change.before)
    return (change.after - change.before) * share, change.uncertainty * share


def _cells(dates: Sequence[str], changes: Sequence[LevelChange], nights: Sequence[NightFacts]) -> list[tuple[Any, ...]]:
    """Return the cells of COLUMNS for each night of a series; a series without a change of level has none."""
    cells: list[tuple[Any, ...]] = [(None,) * len(COLUMNS)] * len(dates)
    known = dict(nights)
    own = [(number, known.get(date, {})) for number, date in enumerate(dates)]
    starts = [0, *(change.index for change in changes), len(dates)]
    for change, first, start, end in zip(changes, starts, starts[1:], starts[2:], strict=False):
        if not first:
            cells[:start] = [(change.before, None, None, None)] * start
        cells[start:end] = [(change.after, None, None, None)] * (end - start)
        causes = [
            f"{cause.fact}: {cause.before or 'none'} -> {cause.after or 'none'}"
            + ("" if cause.session == start else f" ({dates[cause.session]})")
            for cause in causes_of(own, first, start, end)
        ]
        size = percents(change) or (None, None)
        cells[start] = (change.after, *size, ", ".join(causes) or "nothing that is known")
    return cells
