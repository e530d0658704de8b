"""`trend`: a model's latency, layers and metrics over the sessions of each board, and where their levels changed."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Literal

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


@dataclass(frozen=True, slots=True)
class TrendSeries:
    """Values of a latency, layer or metric, one for each session of a trend: None where none can be compared."""

    kind: Kind
    name: str
    unit: str
    values: tuple[float | None, ...]


@dataclass(slots=True)
class BoardTrend:
    """The sessions of one board, oldest first, and the changes of level among them: those of `layer`, or of all.

    `nights` are those of the model's latency, or of the layer unless it is None. `series` has the layers and metrics
    that changed, the largest change of each kind first.
    """

    board: str
    hostname: str
    model: str
    layer: str | None
    nights: list[TrendPoint] = field(default_factory=list)
    changes: list[TrendChange] = field(default_factory=list)
    series: list[TrendSeries] = field(default_factory=list)

    @property
    def own_series(self) -> TrendSeries:
        """The series of `nights`."""
        newest = self.nights[-1]
        values = tuple(None if night.apart else night.median for night in self.nights)
        return TrendSeries("latency" if self.layer is None else "layer", self.layer or newest.time, newest.unit, values)

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

    def charts(self) -> Iterator[tuple[str, str]]:
        """Yield title and SVG of a chart of the own series with its levels, and of each other one that is listed."""
        numbers = [night.session for night in self.nights]
        others = [[each for each in self.series if each.kind == kind] for kind in ("layer", "metric")]
        for series in chain([self.own_series], *(own[:SHOWN_LEVEL_CHANGES] for own in others)):
            title = chart_title(f"{self.model}, {series.name}", series.unit, series.values)
            own = [each for each in self.changes if (each.kind, each.name) == (series.kind, series.name)]
            yield title, level_chart(title, series.values, [(numbers.index(each.session), each) for each in own])

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
    changed = _changed([found.own_series], nights, model)
    if layer is None:
        others = [
            *_changed([*_layers(nights, model, allowed)], nights, model),
            *_changed([*_metrics(nights)], nights, model),
        ]
        found.series = [series for series, _ in others]
        changed += others
    found.changes = [change for _, changes in changed for change in changes]
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


def _layers(nights: Sequence[NightSession], model: str, allowed: Collection[str]) -> Iterator[TrendSeries]:
    apart = _apart(nights, model, Subject.LAYERS, allowed)
    newest = nights[-1].models[model]
    times = Counter(key[0] for key in newest.layers)
    for key in newest.layers:
        found = [None if why else night.models[model].layers.get(key) for night, why in zip(nights, apart, strict=True)]
        # A layer that runs on both processors is two series.
        name = key[0] if times[key[0]] == 1 else " ".join(key)
        yield TrendSeries("layer", name, newest.layers_unit, tuple(each and each.median for each in found))


def _metrics(nights: Sequence[NightSession]) -> Iterator[TrendSeries]:
    for name, unit in nights[-1].metrics:
        yield TrendSeries("metric", name, unit, tuple(night.metrics.get((name, unit)) for night in nights))


def _changed(
    series: Sequence[TrendSeries], nights: Sequence[NightSession], model: str
) -> list[tuple[TrendSeries, list[TrendChange]]]:
    """Return those of series that changed, which are searched together, with their changes; the largest is first."""
    facts = [(night.row["session"], _facts(night, night.models[model])) for night in nights]
    found = []
    for each in series:
        places, values = [], []
        for place, value in enumerate(each.values):
            if value is not None:
                places.append(place)
                values.append(value)
        changes = level_changes(values, floor=FLOOR, series=len(series))
        starts = [0, *(change.index for change in changes), len(values)]
        of_facts = [facts[place] for place in places]
        own = [
            _change(each, change, nights[places[start]].row, causes_of(of_facts, first, start, end))
            for change, first, start, end in zip(changes, starts, starts[1:], starts[2:], strict=False)
        ]
        if own:
            found.append((each, own))
    return sorted(found, key=lambda changed: -max(abs(each.after - each.before) for each in changed[1]))


def _change(
    series: TrendSeries, change: LevelChange, row: Mapping[str, Any], causes: Sequence[TrendCause]
) -> TrendChange:
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
