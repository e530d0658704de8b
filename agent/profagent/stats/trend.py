"""`trend`: a model's latency, or a layer's time, over the sessions of each board, and where its level changed."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent.cli.running import tell
from profagent.errors import UsageError
from profagent.formats.records import SINGLE_OPERATORS
from profagent.stats.figures import MAD_TO_SIGMA
from profagent.stats.stats import stats
from profagent.store.database import fetched, reading
from profagent.store.queries import jobs_of
from profagent.store.sampling import sampling_of
from profagent.store.sessions import fits
from profagent.store.summary import all_sessions
from profagent.tables.comparability import Subject, facts_of, model_differences, run_differences, verdict

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from profagent.stats.figures import DurationFigures
    from profagent.stats.session_figures import ModelFigures
    from profagent.store.database import Running
    from profagent.store.sessions import Condition
    from profagent.tables.comparability import Facts, Topology

# A session has another level if it differs by this many standard deviations, and by this share of the level.
NOISE_FACTOR = 3.0
FLOOR = 0.01
# With this many steps between sessions, the steps themselves show how much sessions differ by chance.
FEWEST_STEPS = 6
# The standard deviation of a median is this factor times that of its values, divided by the root of their number.
MEDIAN_FACTOR = 1.2533
# Labels that name the session itself: they differ between any two sessions and explain no change.
OWN_LABELS = ("nightly", "baseline", "content")
_OPERATORS = (
    "SELECT layer.name FROM session_job JOIN model USING (job) JOIN layer USING (model)"
    " WHERE session = ? AND model.name = ?"
)
_PICTURES = (
    "SELECT DISTINCT batch_num, input_pic_num FROM inference i JOIN model m USING (model)"
    " WHERE i.session = ? AND m.name = ?"
)
_TOPOLOGY = (
    "SELECT DISTINCT l.layer_index, l.name, l.type FROM session_job JOIN model m USING (job) JOIN layer l USING (model)"
    " WHERE session = ? AND m.name = ? ORDER BY l.layer_index"
)
_DIGITS = re.compile(r"\d+")
# Columns that are compared, beside the labels, between the two sessions at a change of level.
_FACTS = ("sdk_version", "daemon_version", "counter_map", "keeping", "simulated")


def level_changes(values: NDArray[np.float64], spreads: NDArray[np.float64]) -> list[tuple[int, float, float, bool]]:
    """Return the changes of level in a series of values in the order of time.

    `spreads` is the standard deviation of each value. Each change is its place, the level before and after it, and
    True if the next value confirms it. A single value that is off, and back the next time, is no change of level. The
    last value has no successor that could confirm it.
    """
    if not len(values):
        return []
    steps = np.abs(np.diff(values))
    # The median step estimates the noise between sessions: a few changes of level do not move it.
    between = MAD_TO_SIGMA * float(np.median(steps)) / math.sqrt(2) if len(steps) >= FEWEST_STEPS else 0.0
    limits = NOISE_FACTOR * np.maximum(spreads, between)
    starts = [0]
    for place in range(1, len(values)):
        level = float(np.median(values[starts[-1] : place]))
        limit = max(float(limits[place]), FLOOR * abs(level))
        following = values[place : place + 2] - level
        if (following > limit).all() or (following < -limit).all():
            starts.append(place)
    levels = [float(np.median(values[start:end])) for start, end in pairwise([*starts, len(values)])]
    return [
        (start, before, after, start + 1 < len(values))
        for start, (before, after) in zip(starts[1:], pairwise(levels), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """One session of a trend: the median and MAD of `count` durations, in `unit` (us or ticks), and its facts.

    `time` names the durations: `latency from call` or `records`, `layers` if no latency is known, or `layer`. `apart`
    says why the session is not compared with the newest one; it is empty if it is.
    """

    session: int
    started_us: int
    count: int
    median: float
    mad: float
    unit: str
    time: str
    losses: int
    facts: Mapping[str, str]
    apart: str = ""


class _Judged(NamedTuple):
    """Facts of a session by which the rules of comparability judge it: of the run, and of the model in it."""

    run: Facts
    pictures: frozenset[tuple[int, int]]
    topology: Topology


@dataclass(frozen=True, slots=True)
class LevelChange:
    """A change of level: its first session, the level before and after, and the facts that changed with it."""

    session: int
    started_us: int
    before: float
    after: float
    is_confirmed: bool
    changed: dict[str, tuple[str, str]]

    @property
    def percent(self) -> float:
        """The change of the level in %, positive if it became slower."""
        return 100 * (self.after / self.before - 1)


@dataclass(slots=True)
class BoardTrend:
    """The sessions of one board, oldest first, and the changes of level among them."""

    board: str
    hostname: str
    nights: list[TrendPoint] = field(default_factory=list)
    changes: list[LevelChange] = field(default_factory=list)


Judged = tuple[TrendPoint, _Judged]


def _marked(nights: Sequence[Judged], model: str, allowed: Collection[str]) -> list[TrendPoint]:
    last, newest = nights[-1]
    subject = {"layer": Subject.LAYERS, "layers": Subject.ALL}.get(last.time, Subject.LATENCY)
    marked = []
    for night, own in nights:
        models = model_differences(model, (own.pictures, newest.pictures), (own.topology, newest.topology))
        found = verdict([*run_differences(own.run, newest.run), *models], allowed)
        apart = ", ".join(f"{each.rule.code} {each.base}" for each in found.blocking(subject, model))
        is_another_time = (night.time, night.unit) != (last.time, last.unit)
        marked.append(replace(night, apart=night.time if is_another_time else apart))
    return marked


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
    async with reading(database) as connection:
        sessions = [
            (each, await _facts(connection, each))
            for each in await all_sessions(connection)
            if fits(each, conditions) and (since_us is None or each["started_us"] >= since_us)
        ]
    found: dict[str, list[Judged]] = {}
    boards: dict[str, BoardTrend] = {}
    for session, facts in sorted(sessions, key=lambda each: (each[0]["started_us"], each[0]["session"])):
        night = await _night(database, session, facts, model, layer)
        if night is not None:
            board = boards.setdefault(session["board"], BoardTrend(session["board"], session["hostname"]))
            found.setdefault(board.board, []).append(night)
    if not boards:
        what = model if layer is None else f"layer {layer} of {model}"
        hint = "`profagent stats SESSION --by model`, or --by layer, lists the names"
        raise UsageError(f"no session has {what}", hint=hint)
    for board in boards.values():
        board.nights = _marked(found[board.board], model, allowed)
        if model == SINGLE_OPERATORS and layer is None:
            await _leave_others_out(database, board)
        board.changes = _changes([night for night in board.nights if not night.apart])
    return list(boards.values())


async def _leave_others_out(database: Path, board: BoardTrend) -> None:
    """Leave out sessions whose operators are mostly others than those of the newest session.

    Operators that a program calls one by one belong to no network: only sessions of one program can be compared.
    """
    async with reading(database) as connection:
        found = [await fetched(connection, _OPERATORS, (night.session, SINGLE_OPERATORS)) for night in board.nights]
    # Frameworks append a number to operators that are called several times.
    operators = [{_DIGITS.sub("", name) for (name,) in rows} for rows in found]
    newest = operators[-1]
    others = [night for night, each in zip(board.nights, operators, strict=True) if 2 * len(each & newest) < len(each)]
    board.nights = [night for night in board.nights if night not in others]
    if others:
        numbers = ", ".join(str(night.session) for night in others)
        tell(f"left out, for their operators are others than those of session {board.nights[-1].session}: {numbers}")


async def _night(
    database: Path, session: Mapping[str, Any], facts: Mapping[str, str], model: str, layer: str | None
) -> Judged | None:
    answer = await stats(database, session=session["session"], by="model" if layer is None else "layer")
    if layer is None:
        of_model = next((each for each in answer.models if each.model == model), None)
        found = None if of_model is None else _time_of(of_model)
    else:
        rows = (row.figures for row in answer.rows if row.key[:2] == (model, layer))
        found = next((("layer", figures, answer.unit) for figures in rows), None)
    if found is None:
        return None
    time, figures, unit = found
    if figures.median is None or figures.mad is None:
        return None
    number, started_us, losses = (session[name] for name in ("session", "started_us", "losses"))
    async with reading(database) as connection:
        pictures = frozenset(await fetched(connection, _PICTURES, (number, model)))
        topology = [(name, kind) for _, name, kind in await fetched(connection, _TOPOLOGY, (number, model))]
    own = _Judged(facts_of(answer.provenance), pictures, topology)
    return TrendPoint(number, started_us, figures.number, figures.median, figures.mad, unit, time, losses, facts), own


def _time_of(model: ModelFigures) -> tuple[str, DurationFigures, str]:
    if model.latency_from is None:
        return "layers", model.layers, model.layers_unit
    return f"latency from {model.latency_from}", model.latency, "us"


async def _facts(connection: Running, session: Mapping[str, Any]) -> dict[str, str]:
    clocks = {job.clock_mhz for job in await jobs_of(connection, session["session"])}
    frequencies = {str(clock) for clock in clocks if clock}
    known = {name: str(session[name]) for name in _FACTS if session[name]}
    interval = (await sampling_of(connection, session["session"]))["interval"]
    if interval is not None:
        known["interval"] = str(interval)
    labels = {f"label {key}": value for key, value in session["labels_by_key"].items() if key not in OWN_LABELS}
    return {**known, "frequency_mhz": "+".join(sorted(frequencies)), **labels}


def _changes(alike: Sequence[TrendPoint]) -> list[LevelChange]:
    """Return the changes among sessions that may be compared with each other."""
    medians = np.array([night.median for night in alike])
    spreads = np.array([MEDIAN_FACTOR * MAD_TO_SIGMA * night.mad / np.sqrt(night.count) for night in alike])
    changes = []
    for place, before, after, is_confirmed in level_changes(medians, spreads):
        old, new = alike[place - 1].facts, alike[place].facts
        pairs = {name: (old.get(name, ""), new.get(name, "")) for name in sorted({*old, *new})}
        changed = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
        night = alike[place]
        changes.append(LevelChange(night.session, night.started_us, before, after, is_confirmed, changed))
    return changes
