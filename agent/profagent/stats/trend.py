"""`trend`: a model's latency, layers and metrics over the sessions of each board, and where their levels changed."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from profagent.cli.running import tell
from profagent.errors import UsageError
from profagent.formats.records import SINGLE_OPERATORS
from profagent.limits import MOST_HISTORY_NIGHTS, SHOWN_LEVEL_CHANGES
from profagent.stats.level_chart import chart_title, level_chart
from profagent.stats.levels import LEAST_NIGHTS, level_changes
from profagent.stats.nights import TEMPERATURE, night_of, sessions_of
from profagent.store.database import fetched, reading
from profagent.tables.comparability import Subject, model_differences, run_differences, verdict
from profagent.tables.table import counted, time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from profagent.stats.levels import LevelChange
    from profagent.stats.nights import NightModel, NightSession
    from profagent.store.sessions import Condition

# A change of a smaller share of the level is not told, however sure it is.
FLOOR = 0.01
# A fact that changed within this many nights of a change of level is a candidate for its cause: a place is that exact.
NEAR_NIGHTS = 2
# A fact that changes more often than in one of this many nights explains nothing.
RARE = 3
# A level is warmer than another if its median temperature differs by this many °C.
WARMER_C = 3.0
MINUTE = "%Y-%m-%d %H:%M"
_OPERATORS = (
    "SELECT layer.name FROM session_job JOIN model USING (job) JOIN layer USING (model)"
    " WHERE session = ? AND model.name = ?"
)
_DIGITS = re.compile(r"\d+")
Kind = Literal["latency", "layer", "metric"]


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """One session of a trend: the median of `count` durations and their MAD (or None), in `unit`, and its facts.

    `time` names the durations: `latency from call` or `records`, `layers` if no latency is known, or `layer`. `apart`
    says why the session is not compared with the newest one; it is empty if it is.
    """

    session: int
    started_us: int
    count: int
    median: float
    mad: float | None
    unit: str
    time: str
    losses: int
    facts: Mapping[str, str]
    apart: str = ""


@dataclass(frozen=True, slots=True)
class TrendCause:
    """A candidate for the cause of a change of level: a fact, its values before and after, and the session of these."""

    fact: str
    before: str
    after: str
    session: int

    def text(self, session: int) -> str:
        """Return the fact with its values, and its session if that is another one than that of the change."""
        where = "" if session == self.session else f" (session {self.session})"
        return f"{self.fact}: {self.before or 'none'} -> {self.after or 'none'}{where}"


@dataclass(frozen=True, slots=True)
class TrendChange:
    """A change of level of a latency, layer or metric: its first session, the levels, and candidates for the cause.

    `uncertainty` is half the width of the 95 % interval of the difference of the levels.
    """

    kind: Kind
    name: str
    unit: str
    session: int
    started_us: int
    before: float
    after: float
    uncertainty: float
    causes: tuple[TrendCause, ...]

    @property
    def percent(self) -> float:
        """The change of the level in %, positive if it became slower or larger."""
        return 100 * (self.after / self.before - 1) if self.before else float("inf")

    @property
    def size(self) -> str:
        """The change in % with its uncertainty, or in the unit if the level was 0."""
        if not self.before:
            return f"{self.after - self.before:+.3f} ± {self.uncertainty:.3f} {self.unit}"
        return f"{self.percent:+.1f} ± {100 * self.uncertainty / abs(self.before):.1f} %"

    def line(self) -> str:
        """Return the finding: session, levels, size and candidates."""
        causes = ", ".join(each.text(self.session) for each in self.causes) or "nothing that is known"
        return (
            f"from session {self.session} ({time_text(self.started_us, MINUTE)}) on:"
            f" {self.before:.3f} -> {self.after:.3f} {self.unit}, {self.size}; changed with it: {causes}"
        )


@dataclass(slots=True)
class BoardTrend:
    """The sessions of one board, oldest first, and the changes of level among them: those of `layer`, or of all.

    `nights` are those of the model's latency, or of the layer unless it is None.
    """

    board: str
    hostname: str
    model: str
    layer: str | None
    nights: list[TrendPoint] = field(default_factory=list)
    changes: list[TrendChange] = field(default_factory=list)

    @property
    def own_changes(self) -> list[TrendChange]:
        """Changes of the series that `nights` has."""
        return self.changes if self.layer is not None else [each for each in self.changes if each.kind == "latency"]

    @property
    def alike(self) -> list[TrendPoint]:
        """Nights that are compared."""
        return [night for night in self.nights if not night.apart]

    @property
    def can_tell(self) -> bool:
        """True if there are enough nights for a change of level."""
        return len(self.alike) >= 2 * LEAST_NIGHTS

    def verdict_lines(self) -> Iterator[str]:
        """Yield the changes of the series as lines, or that there is none; a drift has a line of its own."""
        for change in self.own_changes:
            yield change.line()
        if drift := drift_line(self.own_changes):
            yield drift
        if not self.can_tell:
            to_compare = counted(len(self.alike), "session")
            yield f"cannot tell: {to_compare}, and a level takes {LEAST_NIGHTS}, a change of level {2 * LEAST_NIGHTS}"
        elif not self.own_changes:
            yield f"the level did not change in {counted(len(self.alike), 'session')}"

    @property
    def _values(self) -> list[float | None]:
        return [None if night.apart else night.median for night in self.nights]

    def title(self) -> str:
        """Return the title of the chart."""
        newest = self.nights[-1]
        return chart_title(f"{self.model}, {self.layer or newest.time}", newest.unit, self._values)

    def chart(self) -> str:
        """Return an SVG chart of the nights with their levels."""
        numbers = [night.session for night in self.nights]
        changes = [(numbers.index(change.session), change) for change in self.own_changes]
        return level_chart(self.title(), self._values, changes)

    def finding_lines(self) -> Iterator[str]:
        """Yield the changes of the latency, its drift, and the changes of layers and metrics, each with its name."""
        named = [f"{change.name} of {self.model} {change.line()}" for change in self.own_changes]
        drift = drift_line(self.own_changes)
        yield from (*named, *([f"{self.model}: {drift}"] if drift else []), *self.other_lines())

    def other_lines(self) -> Iterator[str]:
        """Yield the changes of layers and metrics as lines, the largest of each first."""
        for kind in () if self.layer is not None else ("layer", "metric"):
            found = [each for each in self.changes if each.kind == kind]
            yield from (f"{kind} {each.name} {each.line()}" for each in found[:SHOWN_LEVEL_CHANGES])
            if (more := len(found) - SHOWN_LEVEL_CHANGES) > 0:
                yield f"and {counted(more, 'change')} of other {kind}s: `trend --json` has all"


def newest_run(changes: Sequence[TrendChange]) -> list[TrendChange]:
    """Return the newest changes of a series that go in one direction, oldest first."""
    found: list[TrendChange] = []
    for change in reversed(changes):
        if found and (change.after > change.before) is not (found[0].after > found[0].before):
            break
        found.insert(0, change)
    return found


def summed(changes: Sequence[TrendChange]) -> TrendChange:
    """Return successive changes of a series as one, which begins with the first of them."""
    first, last = changes[0], changes[-1]
    return replace(first, after=last.after, uncertainty=math.hypot(first.uncertainty, last.uncertainty))


def drift_line(changes: Sequence[TrendChange]) -> str:
    """Return a line on a drift: the newest changes go in one direction; empty for fewer than two."""
    run = newest_run(changes)
    return f"a drift: {len(run)} changes in one direction, in all {summed(run).size}" if len(run) > 1 else ""


class _Series(NamedTuple):
    """Values of one kind by night, NaN where a night has none."""

    kind: Kind
    name: str
    unit: str
    values: Sequence[float]


async def trend(
    database: Path,
    model: str,
    layer: str | None,
    since_us: int | None,
    conditions: Sequence[Condition],
    allowed: Collection[str] = (),
) -> list[BoardTrend]:
    """Return the trend of a model, or of one of its layers, on each board, over sessions that fit all conditions.

    Rules of comparability whose codes are `allowed` block nothing. Raises UsageError if no session has it, StoreError.
    """
    boards: dict[str, list[NightSession]] = {}
    for row in await sessions_of(database, conditions, since_us):
        boards.setdefault(row["board"], []).append(await night_of(database, row))
    found = {board: own for board, nights in boards.items() if (own := having(nights, model, layer))}
    if not found:
        what = model if layer is None else f"layer {layer} of {model}"
        hint = "`profagent stats SESSION --by model`, or --by layer, lists the names"
        raise UsageError(f"no session has {what}", hint=hint)
    if model == SINGLE_OPERATORS and layer is None:
        found = {board: await _of_one_program(database, nights) for board, nights in found.items()}
    return [board_trend(nights, model, layer, allowed) for nights in found.values()]


async def history(
    database: Path,
    session: int,
    *,
    chosen: Callable[[Mapping[str, Any]], bool] = lambda _row: True,
    most_inferences: float = math.inf,
    allowed: Collection[str] = (),
) -> list[BoardTrend]:
    """Return the trends of a session's models over the chosen sessions of its board up to it, at most the newest 30.

    Sessions are read from the newest on while they have at most `most_inferences` together. Trends with too few
    sessions for a change of level are left out. Raises StoreError.
    """
    rows = await sessions_of(database, (), None)
    (last,) = [row for row in rows if row["session"] == session]
    own = [row for row in rows if row["board"] == last["board"] and (row is last or chosen(row))]
    nights: list[NightSession] = []
    for row in reversed(own[: own.index(last) + 1][-MOST_HISTORY_NIGHTS:]):
        most_inferences -= row["inferences"]
        if nights and most_inferences < 0:
            break
        nights.insert(0, await night_of(database, row))
    found = {model: having(nights, model) for model in nights[-1].models}
    trends = [board_trend(each, model, None, allowed) for model, each in found.items() if each]
    return [each for each in trends if each.can_tell]


def having(nights: Sequence[NightSession], model: str, layer: str | None = None) -> list[NightSession]:
    """Return the nights in which the model, or the layer, has a time."""
    return [night for night in nights if model in night.models and _point(night, model, layer) is not None]


def board_trend(
    nights: Sequence[NightSession], model: str, layer: str | None = None, allowed: Collection[str] = ()
) -> BoardTrend:
    """Return the trend over nights of one board, which all have the model or the layer, with the changes of level."""
    row = nights[-1].row
    points = [point for night in nights if (point := _point(night, model, layer)) is not None]
    apart = _apart(nights, model, Subject.LAYERS if layer is not None else None, allowed)
    found = BoardTrend(row["board"], row["hostname"], model, layer)
    found.nights = [replace(point, apart=why) for point, why in zip(points, apart, strict=True)]
    found.changes = _changes(nights, found, allowed)
    return found


async def _of_one_program(database: Path, nights: Sequence[NightSession]) -> list[NightSession]:
    """Leave out sessions whose operators are mostly others than those of the newest session.

    Operators that a program calls one by one belong to no network: only sessions of one program can be compared.
    """
    numbers = [night.row["session"] for night in nights]
    async with reading(database) as connection:
        found = [await fetched(connection, _OPERATORS, (number, SINGLE_OPERATORS)) for number in numbers]
    # Frameworks append a number to operators that are called several times.
    operators = [{_DIGITS.sub("", name) for (name,) in rows} for rows in found]
    newest = operators[-1]
    others = [number for number, own in zip(numbers, operators, strict=True) if 2 * len(own & newest) < len(own)]
    if others:
        listed = ", ".join(map(str, others))
        tell(f"left out, for their operators are others than those of session {numbers[-1]}: {listed}")
    return [night for night in nights if night.row["session"] not in others]


def _point(night: NightSession, model: str, layer: str | None) -> TrendPoint | None:
    own = night.models[model]
    figures, unit, time = own.figures, own.unit, own.time
    if layer is not None:
        of_layer = next((each for key, each in own.layers.items() if key[0] == layer), None)
        if of_layer is None:
            return None
        figures, unit, time = of_layer, own.layers_unit, "layer"
    if figures.median is None:
        return None
    number, started_us, losses = (night.row[name] for name in ("session", "started_us", "losses"))
    facts = _facts(night, own)
    return TrendPoint(number, started_us, figures.number, figures.median, figures.mad, unit, time, losses, facts)


def _facts(night: NightSession, model: NightModel) -> dict[str, str]:
    return {**night.facts, **({"layers": model.layer_text} if model.layer_text else {})}


def _apart(nights: Sequence[NightSession], model: str, subject: Subject | None, allowed: Collection[str]) -> list[str]:
    """Return for each night why it is not compared with the newest one in layers, or (None) in the model's own time."""
    newest = nights[-1]
    last = newest.models[model]
    time = (last.time, last.unit) if subject is None else last.layers_unit
    chosen = subject or (Subject.ALL if last.time == "layers" else Subject.LATENCY)
    reasons = []
    for night in nights:
        own = night.models[model]
        models = model_differences(model, (own.pictures, last.pictures), (own.topology, last.topology))
        found = verdict([*run_differences(night.run, newest.run), *models], allowed)
        why = ", ".join(each.of_base() for each in found.blocking(chosen, model))
        is_alike = time == ((own.time, own.unit) if subject is None else own.layers_unit)
        reasons.append(why if is_alike else own.time if subject is None else own.layers_unit)
    return reasons


def _changes(nights: Sequence[NightSession], found: BoardTrend, allowed: Collection[str]) -> list[TrendChange]:
    """Return the changes of the trend's own series, then those of layers and of metrics, the largest first."""
    kind: Kind = "latency" if found.layer is None else "layer"
    own = [np.nan if night.apart else night.median for night in found.nights]
    newest = found.nights[-1]
    name = found.layer or newest.time
    changes = _of_series([_Series(kind, name, newest.unit, own)], nights, found.model)
    if found.layer is not None:
        return changes
    others = [*_layers(nights, found.model, allowed)], [*_metrics(nights)]
    return changes + [change for series in others for change in _of_series(series, nights, found.model)]


def _layers(nights: Sequence[NightSession], model: str, allowed: Collection[str]) -> Iterator[_Series]:
    apart = _apart(nights, model, Subject.LAYERS, allowed)
    newest = nights[-1].models[model]
    for key in newest.layers:
        values = []
        for night, why in zip(nights, apart, strict=True):
            figures = None if why else night.models[model].layers.get(key)
            values.append(np.nan if figures is None or figures.median is None else figures.median)
        yield _Series("layer", key[0], newest.layers_unit, values)


def _metrics(nights: Sequence[NightSession]) -> Iterator[_Series]:
    for name, unit in nights[-1].metrics:
        yield _Series("metric", name, unit, [night.metrics.get((name, unit), np.nan) for night in nights])


def _of_series(series: Sequence[_Series], nights: Sequence[NightSession], model: str) -> list[TrendChange]:
    """Return the changes of series that are searched together, those of one by time; the largest change is first."""
    facts = [(night.row["session"], _facts(night, night.models[model])) for night in nights]
    found = []
    for each in series:
        known = [place for place, value in enumerate(each.values) if not np.isnan(value)]
        changes = level_changes([each.values[place] for place in known], floor=FLOOR, series=len(series))
        starts = [0, *(change.index for change in changes), len(known)]
        levels = zip(changes, starts, starts[1:], starts[2:], strict=False)
        of_nights = [nights[place].row for place in known]
        of_facts = [facts[place] for place in known]
        found.append(
            [
                _change(each, change, of_nights[start], causes_of(of_facts, first, start, end))
                for change, first, start, end in levels
            ]
        )
    found.sort(key=lambda changes: -max((abs(each.after - each.before) for each in changes), default=0.0))
    return [change for changes in found for change in changes]


def _change(series: _Series, change: LevelChange, row: Mapping[str, Any], causes: Sequence[TrendCause]) -> TrendChange:
    levels = (change.before, change.after, change.uncertainty)
    began = (row["session"], row["started_us"])
    return TrendChange(series.kind, series.name, series.unit, *began, *levels, (*causes,))


def _values(nights: Sequence[tuple[int, Mapping[str, str]]], name: str) -> list[str]:
    values = [facts.get(name, "") for _, facts in nights]
    if name.startswith("label "):
        return values
    # A session without a label has none; a session without another fact does not know it, and is taken to be as before.
    first = next(filter(None, values), "")
    return [*accumulate(values, lambda last, value: value or last, initial=first)][1:]


def causes_of(nights: Sequence[tuple[int, Mapping[str, str]]], first: int, start: int, end: int) -> list[TrendCause]:
    """Return facts that changed near the night `start`, the nearest first; its level before began at `first`."""
    found: list[tuple[int, TrendCause]] = []
    for name in sorted(set[str]().union(*(facts for _, facts in nights)) - {TEMPERATURE}):
        values = _values(nights, name)
        places = [place for place in range(1, len(values)) if values[place] != values[place - 1]]
        near = min(places, key=lambda place: abs(place - start), default=None)
        if near is not None and abs(near - start) <= NEAR_NIGHTS and RARE * len(places) <= len(values):
            cause = TrendCause(name, values[near - 1], values[near], nights[near][0])
            found.append((abs(near - start), cause))
    causes = [cause for _, cause in sorted(found, key=lambda each: (each[0], each[1].fact))]
    sides = [
        [float(facts[TEMPERATURE]) for _, facts in part if TEMPERATURE in facts]
        for part in (nights[first:start], nights[start:end])
    ]
    before, after = (float(np.median(side)) if side else np.nan for side in sides)
    if abs(after - before) >= WARMER_C:
        causes.append(TrendCause(f"{TEMPERATURE} in C", f"{before:.1f}", f"{after:.1f}", nights[start][0]))
    return causes
