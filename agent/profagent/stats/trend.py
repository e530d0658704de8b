"""`trend`: how a model's time, or a layer's, went over the sessions of each board, and where its level changed."""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click
import msgspec
import numpy as np

from profagent.cli import options
from profagent.cli.options import age_us
from profagent.cli.running import asynchronous, tell
from profagent.cli.table import Column, fitted_lines, printable, sparkline, time_text
from profagent.errors import UsageError
from profagent.formats.records import SINGLE_OPERATORS, shown_mhz
from profagent.stats.figures import MAD_TO_SIGMA
from profagent.stats.stats import stats
from profagent.store.database import fetched, reading
from profagent.store.queries import jobs_of
from profagent.store.sampling import sampling_of
from profagent.store.sessions import fits
from profagent.store.summary import all_sessions
from profagent.store.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import aiosqlite
    from numpy.typing import NDArray

    from profagent.cli.table import Tone
    from profagent.store.sessions import Condition

# A session is of another level beyond so many standard deviations, and at least so much of the level.
NOISE_FACTOR = 3.0
FLOOR = 0.01
# From so many steps on, the steps themselves tell how much sessions differ.
FEWEST_STEPS = 6
# The standard deviation of a median is so much of that of its values, over the root of their number.
MEDIAN_FACTOR = 1.2533
_MINUTE = "%Y-%m-%d %H:%M"
# What a narrow terminal does without, first of all.
LESS = ("mad(us)", "mad(ticks)", "count")
# Labels that are a session's own name.
OWN_LABELS = ("nightly", "baseline", "content")
_OPERATORS = (
    "SELECT layer.name FROM session_job JOIN model USING (job) JOIN layer USING (model)"
    " WHERE session = ? AND model.name = ?"
)
_DIGITS = re.compile(r"\d+")
# What is compared of two sessions, beside their labels, when a level changed between them.
_FACTS = ("sdk_version", "daemon_version", "counter_map", "keeping", "simulated")


def level_changes(values: NDArray[np.float64], spreads: NDArray[np.float64]) -> list[tuple[int, float, float, bool]]:
    """Changes of level of values in the order of time; `spreads` is how uncertain each value is by itself (σ).

    Each has its place, the level before and after, and whether the value behind it confirms it.

    A single value that is off, and back the next, is no change of level. The last one cannot be confirmed.
    """
    if not len(values):
        return []
    steps = np.abs(np.diff(values))
    # By the usual step: few changes of level do not count in it.
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
    """The session from which on the level is another, by how much, and what else is not as the one before."""

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
    """The sessions of one board, oldest first, and where the level changed."""

    board: str
    hostname: str
    nights: list[Night] = field(default_factory=list)
    changes: list[LevelChange] = field(default_factory=list)


async def trend(
    database: Path, model: str, layer: str | None, since_us: int | None, conditions: Sequence[Condition]
) -> list[BoardTrend]:
    """The trend of a model, or a layer of it, on each board, over sessions that fit all conditions.

    Raises UsageError where no session has it, StoreError.
    """
    async with reading(database) as connection:
        sessions = [
            (each, await _facts(connection, each))
            for each in await all_sessions(connection)
            if fits(each, conditions) and (since_us is None or each["started_us"] >= since_us)
        ]
    boards: dict[str, BoardTrend] = {}
    for session, facts in sorted(sessions, key=lambda each: (each[0]["started_us"], each[0]["session"])):
        night = await _night(database, session, facts, model, layer)
        if night is not None:
            board = boards.setdefault(session["board"], BoardTrend(session["board"], session["hostname"]))
            board.nights.append(night)
    if not boards:
        what = model if layer is None else f"layer {layer} of {model}"
        hint = "`profagent stats SESSION --by model`, or --by layer, tells the names"
        raise UsageError(f"no session has {what}", hint=hint)
    for board in boards.values():
        if model == SINGLE_OPERATORS and layer is None:
            await _leave_others_out(database, board)
        board.changes = _changes(board.nights)
    return list(boards.values())


async def _leave_others_out(database: Path, board: BoardTrend) -> None:
    """Operators that are called one by one are of any program: keep the sessions with mostly the newest one's."""
    async with reading(database) as connection:
        found = [await fetched(connection, _OPERATORS, (night.session, SINGLE_OPERATORS)) for night in board.nights]
    # Frameworks number what is called several times.
    operators = [{_DIGITS.sub("", name) for (name,) in rows} for rows in found]
    newest = operators[-1]
    others = [night for night, each in zip(board.nights, operators, strict=True) if 2 * len(each & newest) < len(each)]
    board.nights = [night for night in board.nights if night not in others]
    if others:
        numbers = ", ".join(str(night.session) for night in others)
        tell(f"left out, for their operators are others than those of session {board.nights[-1].session}: {numbers}")


async def _night(
    database: Path, session: Mapping[str, Any], facts: Mapping[str, str], model: str, layer: str | None
) -> Night | None:
    answer = await stats(database, session=session["session"], by="model" if layer is None else "layer")
    wanted = (model,) if layer is None else (model, layer)
    figures = next((row.figures for row in answer.rows if row.key[: len(wanted)] == wanted), None)
    if figures is None or figures.median is None or figures.mad is None:
        return None
    number, started_us, losses = (session[name] for name in ("session", "started_us", "losses"))
    return Night(number, started_us, figures.number, figures.median, figures.mad, answer.unit, losses, facts)


async def _facts(connection: aiosqlite.Connection, session: Mapping[str, Any]) -> dict[str, str]:
    """What may explain a change, as text: versions, the clock, the interval, labels."""
    clocks = {shown_mhz(job.frequency_mhz) for job in await jobs_of(connection, session["session"])}
    frequencies = {str(clock) for clock in clocks if clock}
    known = {name: str(session[name]) for name in _FACTS if session[name]}
    interval = (await sampling_of(connection, session["session"]))["interval"]
    if interval is not None:
        known["interval"] = str(interval)
    labels = {f"label {key}": value for key, value in session["labels_by_key"].items() if key not in OWN_LABELS}
    return {**known, "frequency_mhz": "+".join(sorted(frequencies)), **labels}


def _changes(nights: Sequence[Night]) -> list[LevelChange]:
    """Changes among sessions of one unit, the newest's: others cannot be compared with them."""
    alike = [night for night in nights if night.unit == nights[-1].unit]
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


@click.command("trend")
@options.workspace
@click.option(
    "--model",
    required=True,
    metavar="NAME",
    help="The model, as `stats --by model` names it.",
    shell_complete=options.completed("models"),
)
@click.option(
    "--layer",
    metavar="NAME",
    help="One of its layers, as `stats` names it, in place of the whole inference.",
    shell_complete=options.completed("layers"),
)
@click.option("--since", metavar="WHEN", help="Only sessions begun since a day (2026-11-01, UTC) or an age (30d).")
@options.where
@options.as_json
@options.wide
@asynchronous
async def command(
    *,
    workspace: Path | None,
    model: str,
    layer: str | None,
    since: str | None,
    where: list[Condition],
    as_json: bool,
    columns: int,
) -> None:
    """Show a model's time, session by session, and from which session on its level changed.

    Example: profagent trend --model yolov5s --since 30d
    Example: profagent trend --model yolov5s --layer conv1 --where board=euler
    """
    chosen = Workspace.at(workspace)
    if not chosen.database.exists():
        raise UsageError(f"there is no workspace in {chosen.root}", hint="name another one with --workspace DIR")
    begun_us = None if since is None else since_us(since)
    boards = await trend(chosen.readable_database(), model, layer, begun_us, where)
    if as_json:
        click.echo(msgspec.json.encode(boards))
        return
    what = model if layer is None else f"{layer} of {model}"
    click.echo("\n\n".join("\n".join(_lines(board, what, columns)) for board in boards))


def since_us(text: str) -> int:
    """Microseconds since 1970 of a day in UTC, or of an age before now; UsageError for anything else."""
    try:
        return int(datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()) * 1_000_000
    except ValueError:
        pass
    try:
        return time.time_ns() // 1000 - age_us(text)
    except UsageError as error:
        raise UsageError(f"{text!r} is no day and no age", hint="write 2026-11-01, 36h, 30d or 8w") from error


def _lines(board: BoardTrend, what: str, width: int) -> Iterator[str]:
    nights, unit = board.nights, board.nights[-1].unit
    is_simulated = any("simulated" in each.facts for each in nights)
    mark = "  *** simulated: these figures are invented ***" if is_simulated else ""
    yield printable(f"{board.hostname or board.board}: median of {what}{mark}")
    medians = [night.median if night.unit == unit else None for night in nights]
    mads = [night.mad if night.unit == unit else None for night in nights]
    yield sparkline(medians)
    levels = {change.session: f"{change.percent:+.1f} %" for change in board.changes}
    columns = [Column(title) for title in ("session", "started (UTC)", "count")]
    columns += [Column(f"median({unit})", 3), Column(f"mad({unit})", 3), Column("losses"), Column("level")]
    rows = [
        (
            each.session,
            time_text(each.started_us, _MINUTE),
            each.count,
            median,
            mad,
            each.losses,
            levels.get(each.session, "-"),
        )
        for each, median, mad in zip(nights, medians, mads, strict=True)
    ]
    yield from fitted_lines(columns, rows, width, less=LESS, tones=_tones(board))
    for change in board.changes:
        sure = "" if change.is_confirmed else ", which one session alone says"
        others = [f"{name}: {old or 'none'} -> {new or 'none'}" for name, (old, new) in change.changed.items()]
        yield printable(
            f"from session {change.session} ({time_text(change.started_us, _MINUTE)}) on:"
            f" {change.before:.3f} -> {change.after:.3f} {unit}, {change.percent:+.1f} %{sure};"
            f" changed with it: {', '.join(others) or 'nothing that is known'}"
        )
    if not board.changes:
        yield f"the level did not change in {len(nights)} sessions"


def _tones(board: BoardTrend) -> list[Tone | None]:
    """Of each session: a loss, or a level that is another from there on."""
    levels: dict[int, Tone] = {each.session: "slower" if each.percent > 0 else "faster" for each in board.changes}
    return ["loss" if night.losses else levels.get(night.session) for night in board.nights]
