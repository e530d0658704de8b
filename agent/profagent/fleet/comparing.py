"""Comparison for `fleet diff`: layers that are slower or faster in later nights, on which boards, and since when.

Each tested column is a layer on a board, each row a night: one test therefore accounts for all comparisons.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent.diff.comparing import Change
from profagent.diff.diff import DEFAULT_FLOOR
from profagent.diff.significance import FEWEST_ROWS, differences
from profagent.limits import MOST_NAMED
from profagent.stats.figures import figures_of
from profagent.stats.levels import level_changes
from profagent.tables.comparability import Subject, model_differences, run_differences, verdict
from profagent.tables.table import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    Key = tuple[str | None, ...]

NEWEST_NIGHTS = 7
# A label separates the changed boards if their share among its boards exceeds that among the others by this much.
LEAST_SHARE = 0.5


class FleetChange(NamedTuple):
    """Layer, or a model's inferences (`layer` None), that changed on `boards`; `where` describes these.

    Times are medians over these boards and their nights, in `measure`; `since` is the first night of the new level,
    None if the change is no step.
    """

    model: str
    layer: str | None
    type: str | None
    unit: str | None
    measure: str
    what: str
    base: float
    new: float
    percent: float | None
    p: float
    where: str
    since: str | None
    boards: list[str]


class FleetDiff(NamedTuple):
    """Changes between nights, the slower first; `changes` is None if there are too few nights.

    `apart` has the nights that the rules of comparability leave out, each with its board and the rules.
    """

    base: list[str]
    new: list[str]
    boards: int
    changes: list[FleetChange] | None
    apart: Sequence[str] = ()


class Nights:
    """Nights of each board with the facts of its sessions, from rows of board, date and `facts_json` (or None)."""

    def __init__(self, rows: Iterable[tuple[str, str, str | None]]) -> None:
        # Of several sessions in one night the last one stands for all.
        self._facts = {(board, day): json.loads(text) for board, day, text in sorted(rows, key=str) if text}
        self._newest = {board: (day, facts) for (board, day), facts in sorted(self._facts.items())}

    def blocking(self, board: str, day: str, model: str, subject: Subject, allowed: Collection[str]) -> list[str]:
        """Return the rules that forbid comparing a night of a board with its newest night."""
        own = self._facts.get((board, day))
        if own is None:
            return []
        _, newest = self._newest[board]
        pictures = [[(batch, count) for batch, count in side["pictures"].get(model, ())] for side in (own, newest)]
        differences = run_differences(own["run"], newest["run"])
        of_model = model_differences(model, (pictures[0], pictures[1]), ((), ()))
        found = verdict([*differences, *of_model], allowed)
        return [each.of_base() for each in found.blocking(subject, model)]


def comparable(
    rows: Iterable[Sequence[Any]], nights: Nights, allowed: Collection[str]
) -> tuple[list[Sequence[Any]], list[str]]:
    """Return the rows of nights that may be compared, and a text for each night and reason that is left out."""
    found: list[Sequence[Any]] = []
    apart: dict[str, None] = {}
    judged: dict[tuple[str, str, str, Subject], list[str]] = {}
    for row in rows:
        board, model, layer, *_, day, _ = row
        key = (board, day, model, Subject.LATENCY if layer is None else Subject.LAYERS)
        if key not in judged:
            judged[key] = nights.blocking(*key, allowed)
        if not judged[key]:
            found.append(row)
        apart |= dict.fromkeys(f"{board} {day}: {rule}" for rule in judged[key])
    return found, [*apart]


def compared(
    rows: Iterable[Sequence[Any]],
    labels: Iterable[Sequence[Any]],
    at: str | None,
    nights: Nights | None = None,
    allowed: Collection[str] = (),
) -> FleetDiff:
    """Compare the nights from `at` on, or the newest, with those before; `rows` and `labels` are answers of a lake."""
    found, apart = comparable(rows, nights or Nights([]), allowed)
    days = sorted({row[-2] for row in found})
    # If there are few nights, the later half is compared with the earlier one.
    split = max(len(days) - NEWEST_NIGHTS, len(days) // 2) if at is None else bisect_left(days, at)
    place = {day: number for number, day in enumerate(days)}
    columns: dict[Key, NDArray[np.float64]] = {}
    for *key, day, median in found:
        columns.setdefault(tuple(key), np.full(len(days), np.nan))[place[day]] = median
    # A layer on a board with fewer nights on either side cannot be tested.
    columns = {
        key: column
        for key, column in columns.items()
        if min((~np.isnan(part)).sum() for part in (column[:split], column[split:])) >= FEWEST_ROWS
    }
    base, new = ([column[part] for column in columns.values()] for part in (slice(split), slice(split, None)))
    tested = differences(base, new) if columns else None
    comparison = FleetDiff(days[:split], days[split:], len({key[0] for key in columns}), None, apart)
    if tested is None:
        return comparison
    changed: dict[Key, list[tuple[str, Change]]] = {}
    for (board, *layer), one, other, p in zip(columns, base, new, tested.tolist(), strict=True):
        sides = figures_of(one[~np.isnan(one)]), figures_of(other[~np.isnan(other)])
        change = Change("layer", str(board), *sides, p).judged(DEFAULT_FLOOR)
        if change.is_significant:
            what = "slower" if change.difference > 0 else "faster"
            changed.setdefault((*layer, what), []).append((str(board), change))
    of_boards = _labels_of_boards(labels)
    changes = [_change(key, on, columns, days, of_boards) for key, on in changed.items()]
    return comparison._replace(
        changes=sorted(changes, key=lambda each: (each.what == "faster", -abs(each.percent or 0.0)))
    )


def _change(
    key: Key,
    on: Sequence[tuple[str, Change]],
    columns: Mapping[Key, NDArray[np.float64]],
    days: Sequence[str],
    labels: Mapping[str, set[str]],
) -> FleetChange:
    boards = [board for board, _ in on]
    base, new = (float(np.median([getattr(change, side).median for _, change in on])) for side in ("base", "new"))
    compared = {str(board) for board, *layer in columns if (*layer,) == key[:-1]}
    # Each board relative to its own base, because boards differ in speed.
    levels = [columns[board, *key[:-1]] / (change.base.median or 1.0) for board, change in on]
    percent = 100 * (new - base) / base if base else None
    # The largest p: the statement is about all these boards.
    p = max(change.p or 0.0 for _, change in on)
    since = _since(np.array(levels), days, 1 if new > base else -1)
    return FleetChange._make((*key, base, new, percent, p, _where(set(boards), compared, labels), since, boards))


def _since(levels: NDArray[np.float64], days: Sequence[str], sign: int) -> str | None:
    nights = np.flatnonzero((~np.isnan(levels)).any(axis=0))
    values = np.nanmedian(levels[:, nights], axis=0)
    steps = [(sign * (each.after - each.before), each.index) for each in level_changes(values)]
    largest, start = max(steps, default=(0.0, 0))
    return days[nights[start]] if largest > 0 else None


def _where(on: set[str], compared: set[str], labels: Mapping[str, set[str]]) -> str:
    """Return a text like `rack=3: 4 of 4 boards; others 0 of 12`; names of boards if no label separates them."""
    if on == compared:
        return f"all {counted(len(on), 'board')}" if len(on) > 1 else f"{min(on)}, the only board"
    best, text = LEAST_SHARE, ""
    for label in sorted(set[str]().union(*labels.values())):
        inside = {board for board in compared if label in labels[board]}
        outside = compared - inside
        if not inside or not outside:
            continue
        difference = len(on & inside) / len(inside) - len(on & outside) / len(outside)
        if difference > best:
            best = difference
            text = f"{label}: {len(on & inside)} of {counted(len(inside), 'board')}"
            text += f"; others {len(on & outside)} of {len(outside)}"
    names = sorted(on)[:MOST_NAMED]
    return text or f"{', '.join(names)}{', …' * (len(on) > len(names))}: {len(on)} of {counted(len(compared), 'board')}"


def _labels_of_boards(rows: Iterable[Sequence[Any]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for board, text in rows:
        own = {f"{key}={value}" for key, value in json.loads(text or "{}").items()}
        found[board] = found.get(board, own) & own
    return found


def apart_line(found: FleetDiff) -> str:
    """Return a line about the nights that are not compared, the first few of them by name."""
    more = len(found.apart) - MOST_NAMED
    return f"not compared: {'; '.join(found.apart[:MOST_NAMED])}" + (f"; and {more} more" if more > 0 else "")


def headline(found: FleetDiff) -> str:
    """Return a sentence with the compared nights and the number of changes."""
    base, new = (
        f"{counted(len(side), 'night')} ({side[0]} to {side[-1]})" if side else "no night" for side in found[:2]
    )
    if found.changes is None:
        return f"cannot tell: {base} against {new}; it takes {FEWEST_ROWS} of a board on each side"
    slower = sum(change.what == "slower" for change in found.changes)
    return f"{base} against {new}: {slower} slower, {len(found.changes) - slower} faster"
