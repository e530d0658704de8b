"""`trend`: how a model's time, or a layer's, went over the sessions of each board, and where its level changed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent.errors import UsageError
from profagent.stats.figures import MAD_TO_SIGMA
from profagent.stats.stats import StatsOptions, stats
from profagent.store.queries import jobs_of, open_reader
from profagent.store.sampling import sampling_of
from profagent.store.sessions import all_sessions, fits

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from profagent.stats.rows import Row
    from profagent.store.sessions import Condition


# A night is of another level beyond so many standard deviations, and at least so much of the level.
NOISE_FACTOR = 3.0
FLOOR = 0.01
# From so many steps on, the steps themselves tell how much nights differ.
FEWEST_STEPS = 6


class Change(NamedTuple):
    """From `place` on the level is `after`; it was `before`. `is_confirmed` when the night behind it agrees."""

    place: int
    before: float
    after: float
    is_confirmed: bool


def level_changes(values: NDArray[np.float64], spreads: NDArray[np.float64]) -> list[Change]:
    """The changes of level of values in the order of time; `spreads` is how uncertain each value is by itself (σ).

    A single night that is off, and back the next, is no change of level. The last night cannot be confirmed.
    """
    if not len(values):
        return []
    limits = NOISE_FACTOR * np.maximum(spreads, _between_nights(values))
    starts = [0]
    for place in range(1, len(values)):
        level = float(np.median(values[starts[-1] : place]))
        limit = max(float(limits[place]), FLOOR * abs(level))
        following = values[place : place + 2] - level
        if (following > limit).all() or (following < -limit).all():
            starts.append(place)
    levels = [float(np.median(values[start:end])) for start, end in pairwise([*starts, len(values)])]
    return [
        Change(start, before, after, is_confirmed=start + 1 < len(values))
        for start, (before, after) in zip(starts[1:], pairwise(levels), strict=True)
    ]


def _between_nights(values: NDArray[np.float64]) -> float:
    """How much nights of one level differ (σ), by the usual step: few changes of level do not count in it."""
    steps = np.abs(np.diff(values))
    if len(steps) < FEWEST_STEPS:
        return 0.0
    return MAD_TO_SIGMA * float(np.median(steps)) / math.sqrt(2)


# The standard deviation of a median is so much of that of its values, over the root of their number.
MEDIAN_FACTOR = 1.2533
# Each night's own name, which is never the same.
OWN_LABEL = "nightly"
# What is compared of two sessions, beside their labels, when a level changed between them.
_FACTS = ("sdk_version", "daemon_version", "counter_map", "keeping", "simulated")


@dataclass(frozen=True, slots=True)
class TrendOptions:
    """Which sessions: begun since `since_us`, that fit all `conditions`; of a model, or of one of its layers."""

    model: str
    layer: str | None = None
    since_us: int | None = None
    conditions: Sequence[Condition] = ()


@dataclass(frozen=True, slots=True)
class Night:
    """One session: the median and MAD of `count` durations, in `unit` (us or ticks), and what is known of it."""

    session: int
    started_us: int
    count: int
    median: float
    mad: float
    unit: str
    losses: int
    facts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LevelChange:
    """The session from which on the level is another, by how much, and what else is not as the night before."""

    session: int
    started_us: int
    before: float
    after: float
    is_confirmed: bool
    changed: dict[str, tuple[str, str]]

    @property
    def percent(self) -> float:
        """How much longer it takes."""
        return 100 * (self.after / self.before - 1)


@dataclass(slots=True)
class BoardTrend:
    """The nights of one board, oldest first, and where the level changed."""

    board: str
    hostname: str
    nights: list[Night] = field(default_factory=list)
    changes: list[LevelChange] = field(default_factory=list)


def trend(database: Path, options: TrendOptions) -> list[BoardTrend]:
    """The trend of each board that ran the model. Raises UsageError where none did, StoreError."""
    with open_reader(database) as connection:
        sessions = [
            each
            for each in all_sessions(connection)
            if fits(each, options.conditions) and (options.since_us is None or each["started_us"] >= options.since_us)
        ]
        facts = {each["session"]: _facts(connection, each) for each in sessions}
    boards: dict[str, BoardTrend] = {}
    for session in sorted(sessions, key=lambda each: (each["started_us"], each["session"])):
        night = _night(database, session, options, facts[session["session"]])
        if night is not None:
            board = boards.setdefault(session["board"], BoardTrend(session["board"], session["hostname"]))
            board.nights.append(night)
    if not boards:
        what = options.model if options.layer is None else f"layer {options.layer} of {options.model}"
        raise UsageError(
            f"no session has {what}", hint="`profagent stats SESSION --by model`, or --by layer, tells the names"
        )
    for board in boards.values():
        board.changes = _changes(board.nights)
    return list(boards.values())


def _night(database: Path, session: Mapping[str, Any], options: TrendOptions, facts: Mapping[str, str]) -> Night | None:
    by = StatsOptions("model" if options.layer is None else "layer")
    answer = stats(database, session=session["session"], options=by)
    row = next((row for row in answer.rows if _is_asked(row, options)), None)
    if row is None or row.figures.median is None or row.figures.mad is None:
        return None
    figures = row.figures
    return Night(
        session["session"],
        session["started_us"],
        figures.number,
        row.figures.median,
        row.figures.mad,
        answer.unit,
        session["losses"],
        facts,
    )


def _is_asked(row: Row, options: TrendOptions) -> bool:
    return row.key[0] == options.model and (options.layer is None or row.key[1] == options.layer)


def _facts(connection: sqlite3.Connection, session: Mapping[str, Any]) -> dict[str, str]:
    """What may explain a change, as text: versions, the clock, the interval, labels."""
    frequencies = {str(job.frequency_mhz) for job in jobs_of(connection, session["session"]) if job.frequency_mhz}
    known = {name: str(session[name]) for name in _FACTS if session[name]}
    interval = sampling_of(connection, session["session"])["interval"]
    if interval is not None:
        known["interval"] = str(interval)
    labels = {f"label {key}": value for key, value in session["labels_by_key"].items() if key != OWN_LABEL}
    return {**known, "frequency_mhz": "+".join(sorted(frequencies)), **labels}


def _changes(nights: Sequence[Night]) -> list[LevelChange]:
    """Changes among nights of one unit, the newest's: others cannot be compared with them."""
    alike = [night for night in nights if night.unit == nights[-1].unit]
    medians = np.array([night.median for night in alike])
    spreads = np.array([MEDIAN_FACTOR * MAD_TO_SIGMA * night.mad / np.sqrt(night.count) for night in alike])
    return [
        LevelChange(
            alike[change.place].session,
            alike[change.place].started_us,
            change.before,
            change.after,
            change.is_confirmed,
            _differing(alike[change.place - 1].facts, alike[change.place].facts),
        )
        for change in level_changes(medians, spreads)
    ]


def _differing(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    names = sorted({*before, *after})
    return {name: pair for name in names if (pair := (before.get(name, ""), after.get(name, "")))[0] != pair[1]}
