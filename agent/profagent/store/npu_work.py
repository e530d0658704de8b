"""Execute calls of a session and what the processors did in them: their own work, and that of other calls.

The NPU runs one segment at a time. A call that lasts while a segment of another call occupies the NPU waits for it, as
far as the other inference was sampled.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.formats.inference_times import EXECUTE, EXECUTE_ASYNC, SYNCHRONIZE, Calls, Spans, whole_spans
from profagent.store.calls import CallTable, call_tables
from profagent.store.columns import Segments
from profagent.store.database import fetched_of
from profagent.units import NS_PER_US

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from profagent.store.database import Running

    Ints = NDArray[np.int64]

NONE = -1
# Ends of the name of a wait for the same model.
_OTHERS = (" of another call", " of another process")
_RUNNING = (EXECUTE, EXECUTE_ASYNC, SYNCHRONIZE)
_INFERENCES = "SELECT inference, model, device_id, start_us, end_us FROM inference WHERE session = ? ORDER BY inference"
_MODELS = "SELECT model, name FROM model WHERE model IN ({})"


@dataclass(frozen=True, slots=True)
class ExecuteCalls:
    """Calls that run an inference, in the order of their ends, as columns; times are ns of the board's clock."""

    begin_ns: Ints
    end_ns: Ints
    process: Ints
    thread: Ints
    model: Ints

    def __len__(self) -> int:
        return len(self.begin_ns)


@dataclass(frozen=True, slots=True)
class WorkSegments:
    """Segments of sampled inferences in the order of their starts, as columns; `call` is -1 where none is known."""

    start_ns: Ints
    end_ns: Ints
    is_cpu: NDArray[np.bool_]
    model: Ints
    device: Ints
    call: Ints
    inference: Ints


class Stretch(NamedTuple):
    """Part of a call: its own segment, or a wait for that of another call; `name` says which. Times are ns."""

    begin_ns: int
    end_ns: int
    name: str
    is_wait: bool


class Contention(NamedTuple):
    """How long the sampled calls of a model waited while the NPU worked for another one.

    `waits` of its `calls` did so, for `waited_us` of the `calls_us` that all of them took.
    """

    model: str
    process: int
    for_model: str
    for_process: int
    waits: int
    calls: int
    waited_us: float
    calls_us: float


class NpuWork:
    """Calls and segments of a session, and which segments lie in which call."""

    def __init__(self, calls: ExecuteCalls, segments: WorkSegments, models: Mapping[int, str]) -> None:
        self.calls, self._segments, self._models = calls, segments, models
        self._process_of = dict(zip(calls.model.tolist(), calls.process.tolist(), strict=True))
        call, place = self._pairs()
        # A segment counts for a call as far as it overlaps that call.
        begin = np.maximum(segments.start_ns[place], calls.begin_ns[call])
        end = np.minimum(segments.end_ns[place], calls.end_ns[call])
        is_own = segments.call[place] == call
        device, last_ns = self._own_npu()
        self._is_sampled = device != NONE
        # Another call's work on the CPU, or on another device, keeps nobody waiting, nor does any once the last segment
        # of a call has begun. Of a call without a sampled inference nobody knows.
        end = np.where(is_own, end, np.minimum(end, last_ns[call]))
        contends = ~segments.is_cpu[place] & (device[call] == segments.device[place])
        (kept,) = ((begin < end) & (is_own | contends)).nonzero()
        self._call, self._place, self._begin, self._end, self._own = (
            column[kept] for column in (call, place, begin, end, is_own)
        )
        # Pairs of call i are those from _first[i] to before _first[i + 1].
        self._first = np.searchsorted(self._call, np.arange(len(calls) + 1))

    def _pairs(self) -> tuple[Ints, Ints]:
        """Return call and segment of each pair that may overlap, by call."""
        calls, segments = self.calls, self._segments
        # Segments hardly overlap each other: the latest end so far shows where those that reach into a call begin.
        latest = np.maximum.accumulate(segments.end_ns)
        first = np.searchsorted(latest, calls.begin_ns, side="right")
        counts = np.maximum(np.searchsorted(segments.start_ns, calls.end_ns) - first, 0)
        call = np.repeat(np.arange(len(calls)), counts)
        place = np.arange(len(call)) - np.repeat(np.cumsum(counts) - counts, counts) + first[call]
        return call, place

    def _own_npu(self) -> tuple[Ints, Ints]:
        """Return the device of each call, and when its last segment on the NPU began; NONE without one."""
        device, last_ns = np.full((2, len(self.calls)), NONE, np.int64)
        (ours,) = ((self._segments.call >= 0) & ~self._segments.is_cpu).nonzero()
        device[self._segments.call[ours]] = self._segments.device[ours]
        np.maximum.at(last_ns, self._segments.call[ours], self._segments.start_ns[ours])
        return device, last_ns

    def part_names(self) -> set[str]:
        """Return the names that parts of calls have: which of them there are depends on records."""
        waits = [f"wait for {name}{of}" for name in self._models.values() for of in ("", *_OTHERS)]
        return {f"{part} {name}" for name in self._models.values() for part in ("call", "NPU", "CPU")} | {*waits}

    def name(self, call: int) -> str:
        """Return the name of the model that a call runs."""
        return self._models[int(self.calls.model[call])]

    def stretches(self, call: int) -> list[Stretch]:
        """Return the segments within a call, cut to it; where two overlap, the later of the list has the time."""
        found = []
        for pair in self._pairs_of(call):
            segment, is_own = int(self._place[pair]), bool(self._own[pair])
            if is_own:
                name = f"{'CPU' if self._segments.is_cpu[segment] else 'NPU'} {self.name(call)}"
            else:
                name = self._wait(call, int(self._segments.model[segment]))
            found.append(Stretch(int(self._begin[pair]), int(self._end[pair]), name, not is_own))
        return sorted(found, key=lambda each: not each.is_wait)

    def inferences(self, call: int) -> list[int]:
        """Return the numbers of the sampled inferences that a call ran."""
        segments = [int(self._place[pair]) for pair in self._pairs_of(call) if self._own[pair]]
        return sorted({int(self._segments.inference[segment]) for segment in segments})

    def _pairs_of(self, call: int) -> range:
        return range(int(self._first[call]), int(self._first[call + 1]))

    def _wait(self, call: int, other: int) -> str:
        name = self._models[other]
        if name != self.name(call):
            return f"wait for {name}"
        is_elsewhere = self._process_of.get(other) != int(self.calls.process[call])
        return f"wait for {name}{_OTHERS[is_elsewhere]}"

    def contention(self) -> list[Contention]:
        """Return which model waited for which, the longest wait first."""
        (others,) = (~self._own).nonzero()
        call, segment = self._call[others], self._place[others]
        overlap_us = self._waited_ns(others) / NS_PER_US
        models = np.stack([self.calls.model[call], self._segments.model[segment]])
        # Models are grouped by number, not by name: two processes may run models of one name.
        found, of_pair = np.unique(models, axis=1, return_inverse=True)
        rows = []
        for number, (model, other) in enumerate(found.T.tolist()):
            ours, mine = of_pair.reshape(-1) == number, (self.calls.model == model) & self._is_sampled
            calls_us = float((self.calls.end_ns[mine] - self.calls.begin_ns[mine]).sum()) / NS_PER_US
            names = (self._models[model], self._process_of[model], self._models[other], self._process_of.get(other, 0))
            waits, waited_us = len(np.unique(call[ours])), float(overlap_us[ours].sum())
            rows.append(Contention(*names, waits, int(mine.sum()), waited_us, calls_us))
        return sorted(rows, key=lambda row: -row.waited_us)

    def _waited_ns(self, others: NDArray[np.intp]) -> Ints:
        """Return how long each of these pairs kept its call waiting: without the time of the call's own segments."""
        first, behind = self._first[self._call[others]], self._first[self._call[others] + 1]
        pair = np.repeat(np.arange(len(others)), behind - first)
        beside = np.arange(len(pair)) - np.repeat(np.cumsum(behind - first) - behind, behind - first)
        begin = np.maximum(self._begin[beside], self._begin[others][pair])
        end = np.minimum(self._end[beside], self._end[others][pair])
        # While its own segment runs, on the CPU for example, a call does not wait for the other one.
        busy = np.where(self._own[beside], np.maximum(end - begin, 0), 0)
        waited: Ints = self._end[others] - self._begin[others] - np.bincount(pair, busy, len(others)).astype(np.int64)
        return waited


def no_work() -> NpuWork:
    """Return the work of a program of which no call and no segment is known."""
    none = np.empty(0, np.int64)
    return NpuWork(ExecuteCalls(*[none] * 5), WorkSegments(none, none, none.astype(np.bool_), *[none] * 4), {})


async def npu_work_of(connection: Running, session: int) -> NpuWork:
    """Return the calls and segments of a session; both are columns, of some fifty bytes for each call."""
    return await connection.run(partial(_read, session))


def _read(session: int, connection: sqlite3.Connection) -> NpuWork:
    rows = connection.execute(_INFERENCES, (session,)).fetchall()
    number, model, device = (np.array([row[at] for row in rows], np.int64) for at in range(3))
    npu = Spans(*np.array([row[3:] for row in rows], np.float64).reshape(-1, 2).T)
    segments = Segments.of_session(connection, session)
    # A log that two sessions fetched also has inferences of the other one. A segment without a duration takes no time.
    segments = segments.at(np.isin(segments.inference, number) & (segments.end_us > segments.start_us))
    place = np.searchsorted(number, segments.inference)
    table = CallTable.joined(each.at(np.isin(each.api, _RUNNING)) for each in call_tables(connection, session=session))
    calls, call_of = _calls(table, model, _whole(npu, segments, place, len(number)))
    order = np.argsort(segments.start_us, kind="stable")
    at = place[order]
    work = WorkSegments(
        _ns(segments.start_us[order]),
        _ns(segments.end_us[order]),
        segments.is_aicpu[order],
        *(column[at] for column in (model, device, call_of, number)),
    )
    models = np.union1d(model, table.model).tolist()
    return NpuWork(calls, work, dict(fetched_of(connection, _MODELS, (), models)))


def _whole(npu: Spans, segments: Segments, place: Ints, inferences: int) -> Spans:
    begin, end = np.full(inferences, np.inf), np.full(inferences, -np.inf)
    np.minimum.at(begin, place, segments.start_us)
    np.maximum.at(end, place, segments.end_us)
    np.fmin(begin, npu.begin_us, out=begin)
    np.fmax(end, npu.end_us, out=end)
    return whole_spans([Spans(begin, end)])


def _calls(table: CallTable, model_of: Ints, whole: Spans) -> tuple[ExecuteCalls, Ints]:
    """Return the calls by their ends, and the call of each inference, NONE where none is known.

    An asynchronous call is known by its inference alone, and lasts until the synchronize that waited for it.
    """
    # The search of calls by inferences is that of latencies, model by model, so that both have one answer.
    found = Spans(*np.full((2, len(model_of)), np.nan))
    for model in np.unique(table.model):
        called, ours = table.at(table.model == model), model_of == model
        spans = Calls(called.api, called.begin_us, called.end_us).spans(whole.at(ours))
        for column, known in zip(found, spans, strict=True):
            column[ours] = known
    is_sync = (table.api == EXECUTE) & (table.begin_us > 0) & (table.end_us >= table.begin_us)
    is_async = table.api == EXECUTE_ASYNC
    columns = [table.at(is_sync)]
    ends = [columns[0].end_us]
    if is_async.any():
        known_spans = zip(model_of.tolist(), found.begin_us.tolist(), found.end_us.tolist(), strict=True)
        ends_of = {(model, begin): end for model, begin, end in known_spans}
        asynchronous = table.at(is_async)
        keys = zip(asynchronous.model.tolist(), asynchronous.begin_us.tolist(), strict=True)
        end_us = np.array([ends_of.get((model, float(begin)), np.nan) for model, begin in keys])
        known = ~np.isnan(end_us)
        columns.append(asynchronous.at(known))
        ends.append(end_us[known].astype(np.int64))
    joined, end = CallTable.joined(columns), np.concatenate(ends)
    # The join of frames takes calls by their ends.
    order = np.lexsort((joined.begin_us, end))
    joined, end = joined.at(order), end[order]
    calls = ExecuteCalls(joined.begin_us * NS_PER_US, end * NS_PER_US, joined.pid, joined.tid, joined.model)
    keyed = zip(joined.model.tolist(), joined.begin_us.tolist(), end.tolist(), strict=True)
    places = {key: place for place, key in enumerate(keyed)}
    keys_of = zip(model_of.tolist(), found.begin_us.tolist(), found.end_us.tolist(), strict=True)
    return calls, np.array([places.get(key, NONE) for key in keys_of], np.int64)


def _ns(times_us: NDArray[np.float64]) -> Ints:
    """Return whole ns of times in µs; a double holds no time since 1970 in ns."""
    whole = np.floor(times_us)
    return whole.astype(np.int64) * NS_PER_US + np.rint((times_us - whole) * NS_PER_US).astype(np.int64)
