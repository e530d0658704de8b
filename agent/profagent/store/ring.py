"""Ring of a flight recorder: the newest inferences of a session, judged by rules, then kept or thinned.

The ring is the store itself. An inference is *seen* once its figures are known, *judged* once its call has come or will
not come, and *decided* once what follows it within the window has been judged: it is kept if a window of an incident
has it, else it is thinned. Nothing of this is in memory alone: after a restart the inferences that were not decided are
seen again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.formats.durations import Distribution
from profagent.formats.incident_rules import RuleSubject, has_quantiles
from profagent.formats.inference_times import NOT_IN_ANY_LAYER, Spans
from profagent.limits import (
    CALL_PATIENCE_S,
    JUDGED_BY_RULES,
    MOST_IN_RING,
    MOST_THINNED_TOGETHER,
    REMEMBERED_FIGURES,
    RING_SETTLE_S,
)
from profagent.store.calls import calls_near
from profagent.store.database import transaction
from profagent.store.figures import us_per_tick
from profagent.store.incidents import Found, Incidents
from profagent.store.inference_columns import ColumnReader
from profagent.store.thinning import CALL, CALL_REST, Thinnable, fold_figures, forget_logs, thin

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from profagent.formats.incident_rules import IncidentRule, KeepWhen
    from profagent.formats.model_info import LayerTable
    from profagent.store.incidents import Incident
    from profagent.store.inference_columns import InferenceColumns

    Floats = NDArray[np.float64]

LATENCY = "latency"
US_PER_HOUR = 3_600_000_000
_NEW = "SELECT inference FROM inference WHERE inference > ? AND session = ? ORDER BY inference"
_SETTLED = (
    "SELECT inference, figures = 'final' FROM json_each(?) CROSS JOIN inference ON inference = value"
    " WHERE figures <> 'pending' ORDER BY start_us, inference"
)
# The newest rows of each subject: of a model that runs seldom they reach further back.
_PAST = (
    "SELECT name, subject, number, total, squares, least, most, bins FROM (SELECT *, row_number() OVER"
    " (PARTITION BY model, device_id, subject ORDER BY minute DESC) AS age FROM minute_figure WHERE session = ?"
    " AND subject NOT IN ('begin', 'ran', 'whole rest')) f JOIN model m USING (model) WHERE age <= ?"
)


class RingStep(NamedTuple):
    """Result of a step: files to remove by JOB and path, new incidents, and if more is ready to be decided."""

    files: Sequence[tuple[str, str]]
    incidents: Sequence[Incident]
    has_more: bool


@dataclass(eq=False, slots=True)
class _Chunk:
    """Inferences of one model that were read together, with the state of each."""

    found: Thinnable
    times: Floats
    table: LayerTable | None
    seen_s: float
    judged: NDArray[np.bool_] = field(init=False)
    decided: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.judged, self.decided = np.zeros((2, len(self.found.numbers)), np.bool_)

    @property
    def subjects(self) -> list[str]:
        """RuleSubject of each column, as in the minute figures."""
        return [f"{unit} {net} {layer}" for unit, net, layer in self.found.columns]

    def name_of(self, place: int) -> str:
        """Return the name of a column's layer."""
        unit, _, layer = self.found.columns[place]
        runs = self.table.runs if self.table is not None else ()
        return runs[layer].name if 0 <= layer < len(runs) else f"layer {layer} ({unit})"


@dataclass(eq=False, slots=True)
class _Known:
    """What steps have found: all of it follows from the database, and is read again after an error."""

    incidents: Incidents
    # Largest number of an inference that was seen, and those up to it whose figures are pending.
    last: int = 0
    pending: set[int] = field(default_factory=set)
    # Inferences that were seen and not decided.
    chunks: list[_Chunk] = field(default_factory=list)
    # Distributions of judged values, by name of the model and subject.
    past: dict[tuple[str, str], Distribution] = field(default_factory=dict)
    # End of the inference that was judged last, by the board's clock.
    newest_us: float = 0.0
    # Hour of the board's clock in which figures were folded last.
    folded_hour: int = 0

    def number(self, model: str) -> int:
        """Return how many latencies of a model are in its past."""
        past = self.past.get((model, LATENCY))
        return past.number if past is not None else 0

    def learn(self, model: str, values: dict[str, Floats]) -> None:
        """Add values by subject to the past of a model."""
        for subject, of_subject in values.items():
            self.past.setdefault((model, subject), Distribution()).add(of_subject)


class Ring:
    """Ring of one session. Its `step` runs on the thread that writes the database."""

    def __init__(self, session: int, choice: KeepWhen) -> None:
        self._session, self._choice = session, choice
        self._known: _Known | None = None

    def step(
        self,
        connection: sqlite3.Connection,
        now_s: float,
        wall_s: int,
        is_busy: Callable[[str, str], bool],
        *,
        is_over: bool = False,
    ) -> RingStep:
        """Look at what came, and thin what is decided, in one transaction.

        `now_s` is a monotonic clock, `wall_s` that of the host; `is_busy` is that of `thin`. With `is_over` nothing
        more comes, so that everything is judged and decided. After an error the next step begins with what is
        committed.
        """
        known, self._known = self._known, None
        with transaction(connection):
            known = known or self._read(connection)
            self._see(known, connection, now_s)
            before = len(known.incidents.all)
            self._judge(known, connection, now_s, is_over=is_over)
            known.incidents.look_elsewhere(connection, int(known.newest_us) or None)
            known.incidents.look_at_frames(connection, is_over=is_over)
            found, has_more = self._decide(known, connection, now_s, is_over=is_over)
            stayed, files = thin(connection, self._session, found, wall_s, is_busy) if found else (set[int](), [])
            # These are decided again, as where a log is not complete.
            for chunk in known.chunks if stayed and not is_over else ():
                chunk.decided &= ~np.isin(chunk.found.numbers, [*stayed])
            for each in found:
                known.incidents.count_thinned(each.whole.at(~np.isin(each.numbers, [*stayed])))
            forget_logs(connection, wall_s)
            if (hour := int(known.newest_us // US_PER_HOUR)) > known.folded_hour or is_over:
                fold_figures(connection, self._session, known.newest_us)
                known.folded_hour = hour
            known.incidents.write(connection)
        known.chunks = [chunk for chunk in known.chunks if not chunk.decided.all()]
        self._known = known
        return RingStep(files, known.incidents.all[before:], has_more)

    def _read(self, connection: sqlite3.Connection) -> _Known:
        known = _Known(Incidents(connection, self._session, self._choice))
        for model, subject, *columns, bins in connection.execute(_PAST, (self._session, REMEMBERED_FIGURES)):
            name = LATENCY if subject == CALL else subject
            known.past.setdefault((model, name), Distribution()).merge(Distribution.unpacked(columns, bins))
        return known

    def _see(self, known: _Known, connection: sqlite3.Connection, now_s: float) -> None:
        new = [number for (number,) in connection.execute(_NEW, (known.last, self._session)).fetchall()]
        # A process before has kept some of the first ones.
        kept = frozenset[int]() if known.last else known.incidents.kept
        known.last = new[-1] if new else known.last
        known.pending.update(number for number in new if number not in kept)
        waiting = json.dumps(sorted(known.pending))
        rows = connection.execute(_SETTLED, (waiting,)).fetchall()
        known.pending.difference_update(number for number, _ in rows)
        # Partial figures are part of no statistics, so such an inference stays as it is.
        settled = [number for number, is_final in rows if is_final]
        reader = ColumnReader(connection, only_times=True)
        for start in range(0, len(settled), MOST_THINNED_TOGETHER):
            for found, table in _thinnable(reader.read(settled[start : start + MOST_THINNED_TOGETHER])):
                known.chunks.append(_Chunk(found, found.layer_times, table, now_s))

    # Judging

    def _judge(self, known: _Known, connection: sqlite3.Connection, now_s: float, *, is_over: bool) -> None:
        """Judge the inferences whose calls have come, in the order of time.

        While a model has no past, its inferences wait for each other: then even the first is judged by a quantile,
        whenever a recorder was killed before it had one.
        """
        ready: dict[str, list[tuple[_Chunk, NDArray[np.int64]]]] = {}
        for chunk in known.chunks:
            if len(places := self._ready(connection, chunk, is_late=is_over or _is_late(chunk, now_s))):
                ready.setdefault(chunk.found.name, []).append((chunk, places))
        for model, found in ready.items():
            number = known.number(model)
            is_first = not has_quantiles(number)
            has_bounds = has_quantiles(number + sum(len(places) for _, places in found))
            some = [
                (chunk, places[start : start + JUDGED_BY_RULES])
                for chunk, places in found
                if has_bounds or not self._choice.has_quantile or is_over or _is_late(chunk, now_s)
                for start in range(0, len(places), JUDGED_BY_RULES)
            ]
            for chunk, places in some if is_first else ():
                known.learn(model, self._values(chunk, places))
            for chunk, places in some:
                values = self._values(chunk, places)
                self._judge_some(known, chunk, places, values)
                if not is_first:
                    known.learn(model, values)

    def _ready(self, connection: sqlite3.Connection, chunk: _Chunk, *, is_late: bool) -> NDArray[np.int64]:
        """Return the inferences whose calls have come, or need not be waited for any longer."""
        places = np.flatnonzero(~chunk.judged)
        if not len(places):
            return places
        whole = chunk.found.whole.at(places)
        calls, latest_us = calls_near(connection, chunk.found.model, whole)
        found = calls.spans(whole)
        for column, times in zip(chunk.found.calls, found, strict=True):
            column[places] = times
        # Calls are written as they end, so one that began later shows that none is missing.
        has_call = ~np.isnan(found.us) | (whole.end_us < latest_us)
        return places if is_late else places[has_call]

    @staticmethod
    def _values(chunk: _Chunk, places: NDArray[np.int64]) -> dict[str, Floats]:
        times = chunk.times[places]
        calls, whole = chunk.found.calls.us[places], chunk.found.whole.us[places]
        latency = whole if np.isnan(calls).all() else calls
        values: dict[str, Floats] = {LATENCY: latency, CALL_REST: latency - np.nansum(times, axis=1)}
        return values | {subject: times[:, column] for column, subject in enumerate(chunk.subjects)}

    def _judge_some(self, known: _Known, chunk: _Chunk, places: NDArray[np.int64], values: dict[str, Floats]) -> None:
        found = chunk.found
        for rule in self._choice.rules:
            if rule.subject is RuleSubject.LATENCY and rule.name in ("", found.name):
                self._apply(known, rule, chunk, places, LATENCY, values)
            elif rule.subject is RuleSubject.LAYER:
                for column, subject in enumerate(chunk.subjects):
                    if rule.name in (name := chunk.name_of(column), *name.split("+")):
                        self._apply(known, rule, chunk, places, subject, values)
        chunk.judged[places] = True
        known.newest_us = float(found.whole.end_us[places].max())

    def _apply(
        self,
        known: _Known,
        rule: IncidentRule,
        chunk: _Chunk,
        places: NDArray[np.int64],
        subject: str,
        values: dict[str, Floats],
    ) -> None:
        bound = rule.bound(known.past.get((chunk.found.name, subject)))
        if bound is None:
            return
        state = known.incidents.state(rule, chunk.found.name)
        of_subject = values[subject]
        rows = np.flatnonzero(~np.isnan(of_subject))
        if state.is_ready:
            # Values inside the bound leave a ready rule as it is.
            is_beyond = of_subject[rows] < bound if rule.is_below else of_subject[rows] > bound
            rows = rows[int(is_beyond.argmax()) :] if is_beyond.any() else rows[:0]
        for row in rows.tolist():
            begin_us, value = int(chunk.found.whole.begin_us[places[row]]), float(of_subject[row])
            if known.incidents.fires(rule, state, value, bound, begin_us):
                number = int(chunk.found.numbers[places[row]])
                about = (chunk.found.name, number, *self._culprit(known, chunk, row, values))
                known.incidents.add(Found(begin_us, rule.text, value, bound, rule.unit, *about))

    @staticmethod
    def _culprit(known: _Known, chunk: _Chunk, row: int, values: dict[str, Floats]) -> tuple[str | None, float | None]:
        """Return the layer with the largest excess over its median so far, and that excess."""
        names = {CALL_REST: NOT_IN_ANY_LAYER}
        names |= {subject: chunk.name_of(column) for column, subject in enumerate(chunk.subjects)}
        excesses = {
            subject: values[subject][row] - past.quantile(0.5)
            for subject in names
            if (past := known.past.get((chunk.found.name, subject))) is not None
        }
        known_ones = {subject: float(us) for subject, us in excesses.items() if us > 0}
        if not known_ones:
            return None, None
        largest = max(known_ones, key=lambda subject: known_ones[subject])
        return names[largest], known_ones[largest]

    # Deciding

    def _decide(
        self, known: _Known, connection: sqlite3.Connection, now_s: float, *, is_over: bool
    ) -> tuple[list[Thinnable], bool]:
        """Count what is kept, and return what is to be thinned, and if more of it is left for the next step."""
        waiting = [chunk.found.whole.begin_us[~chunk.judged].min() for chunk in known.chunks if not chunk.judged.all()]
        framed_us = known.incidents.judged_until_us
        until = [known.newest_us, *waiting, *([] if framed_us is None else [framed_us])]
        horizon_us = min(until) - self._choice.around_us
        surplus = sum(int((~chunk.decided).sum()) for chunk in known.chunks) - MOST_IN_RING
        found: list[Thinnable] = []
        count = 0
        for chunk in known.chunks:
            is_due = chunk.judged & ~chunk.decided
            if not is_over and surplus <= 0:
                is_due &= (chunk.found.whole.end_us <= horizon_us) & (now_s - chunk.seen_s >= RING_SETTLE_S)
            places = np.flatnonzero(is_due)
            if count and count + len(places) > MOST_THINNED_TOGETHER:
                return found, True
            if len(places):
                count, surplus = count + len(places), surplus - len(places)
                is_kept = known.incidents.keep(connection, chunk.found.numbers[places], chunk.found.whole.at(places))
                chunk.decided[places] = True
                if not is_kept.all():
                    found.append(chunk.found.at(places[~is_kept]))
        return found, False


def _is_late(chunk: _Chunk, now_s: float) -> bool:
    return now_s - chunk.seen_s >= CALL_PATIENCE_S


def _thinnable(columns: InferenceColumns) -> Iterator[tuple[Thinnable, LayerTable | None]]:
    """Yield the inferences of each model and device, in the order of their begins; those without times are left out."""
    groups: dict[tuple[int, int], list[int]] = {}
    for place, row in enumerate(columns.rows):
        if not np.isnan(columns.whole.us[place]):
            groups.setdefault((row.model, row.device_id), []).append(place)
    for (model, device), found in groups.items():
        places = np.array(found, np.int64)[np.argsort(columns.whole.begin_us[found], kind="stable")]
        rows = [columns.rows[place] for place in places.tolist()]
        unknown = np.full((2, len(places)), np.nan)
        thinnable = Thinnable(
            model,
            rows[0].model_name,
            device,
            np.array([row.inference for row in rows], np.int64),
            columns.whole.at(places),
            Spans(*unknown),
            np.array([row.current_pic_count / max(row.input_pic_num, 1) for row in rows], np.float64),
            *_records(columns, places, us_per_tick(rows[0].frequency_mhz)),
        )
        yield thinnable, columns.tables.get(model)


def _records(
    columns: InferenceColumns, places: NDArray[np.int64], us: float | None
) -> tuple[list[tuple[str, int, int]], NDArray[np.int64], NDArray[np.int64], Floats]:
    """Return the records of some inferences as the last fields of Thinnable."""
    new = np.full(len(columns.rows), -1)
    new[places] = np.arange(len(places))
    names: list[tuple[str, int, int]] = []
    parts: list[tuple[NDArray[np.int64], NDArray[np.int64], Floats]] = []
    for unit in columns.units:
        records, inference = unit.records, new[unit.inference]
        ours, durations = inference >= 0, records.durations_us(us)
        assert durations is not None, "final figures have a clock"
        net, layer = (np.asarray(each)[ours].astype(np.int64) for each in (records.segment, records.layer_index))
        width = int(layer.max(initial=0)) + 2
        codes, column = np.unique(net * width + layer + 1, return_inverse=True)
        parts.append((inference[ours], column.reshape(-1) + len(names), durations[ours]))
        names += [(records.unit.value, code // width, code % width - 1) for code in codes.tolist()]
    of_inference, of_column, values = zip(*parts, strict=True)
    return names, np.concatenate(of_inference), np.concatenate(of_column), np.concatenate(values)
