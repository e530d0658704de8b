"""What is known of a JOB that someone watches: tables, and inferences of which parts have come."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from cachetools import LRUCache

from profagent.formats.figure_states import (
    JOB_ENDED,
    Figure,
    FigureState,
    Has,
    Part,
    Share,
    UnitLog,
    Verdict,
    clock_part,
    log_part,
    state_of,
)
from profagent.formats.inference_layers import RecordColumns
from profagent.formats.names import DEVICE_INFO, SIMULATED_MARKER, LogKind, parse_log_name
from profagent.formats.records import ticks_to_us
from profagent.ingest.changes import (
    FrequencyKnown,
    InferenceTimed,
    LayersKnown,
    LogAdvanced,
    LogAnnounced,
    LogJudged,
    LogRemoved,
    LogReset,
)
from profagent.ingest.live_inference import OpenInference
from profagent.ingest.live_latency import InferenceTimes, ModelCalls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagent.formats.model_info import LayerTable
    from profagent.formats.names import InferenceKey, LogName
    from profagent.ingest.changes import ApiRecords, Change, Redecoded, SegmentRecords

# Inferences of which a part has come; older ones than these are told as they are.
OPEN_INFERENCES = 8_000
# Layers of all models' tables.
REMEMBERED_LAYERS = 100_000
REMEMBERED_MODELS = 1_000
# Inferences that were told and are not told again.
SHOWN_INFERENCES = 10_000
# How long an inference waits for what it is made of before it is told that its figures are not known.
PATIENCE_S = 2.0
TOO_MANY = Verdict(FigureState.PARTIAL, "more inferences are open than are remembered while watching")
AWAITED_TABLE = Has(Share.COMING, "the table of layers has not come yet")
AWAITED_MARKER = Has(Share.COMING, "whether the board is simulated is not known yet")
_UNITS = {LogKind.AICORE: Part.AICORE, LogKind.AICPU: Part.AICPU}


@dataclass(slots=True)
class _Files:
    """The logs of one name, and the inferences in them that are not told: a file has one for each load of its model."""

    name: LogName
    logs: dict[LogKind, UnitLog] = field(default_factory=dict)
    inferences: dict[int, OpenInference] = field(default_factory=dict)


class LiveJob:
    """One JOB. An inference is told when its figures are known; before, only that they are not, when it has waited."""

    def __init__(self) -> None:
        self.state: str | None = None
        # Records of inferences that were not told.
        self.open_records = 0
        self._ended = ""
        self._frequency_mhz: int | None = None
        self._has_clock_file = False
        self._awaits_marker = False
        self._tables: LRUCache[tuple[str, int], LayerTable] = LRUCache(REMEMBERED_LAYERS, getsizeof=_room)
        self._awaited_tables: LRUCache[tuple[str, int], None] = LRUCache(REMEMBERED_MODELS)
        self._files: OrderedDict[InferenceKey, _Files] = OrderedDict()
        # Of files whose inferences were told: the highest number of these, and the units that they had.
        self._shown: LRUCache[InferenceKey, tuple[int, tuple[LogKind, ...]]] = LRUCache(SHOWN_INFERENCES)
        self._touched: dict[InferenceKey, None] = {}
        # Models and the units that any inference of theirs has records of.
        self._used: LRUCache[tuple[tuple[str, int], LogKind], None] = LRUCache(REMEMBERED_MODELS)
        # Calls of the models that have a log of them.
        self._calls: LRUCache[tuple[str, int], ModelCalls] = LRUCache(REMEMBERED_MODELS)

    @property
    def us_per_tick(self) -> float | None:
        """How long a tick is; None while the clock is not known."""
        return None if self._frequency_mhz is None else ticks_to_us(1, self._frequency_mhz)

    def table(self, name: LogName) -> LayerTable | None:
        """The table of a log's model."""
        return self._tables.get(_model(name))

    def know(self, change: Change, now_s: float) -> None:
        """Take what makes no event by itself."""
        match change:
            case LogAdvanced():
                self._advance(change)
            case LogReset():
                self._reset(change.path)
            case LogAnnounced():
                self._announce(change.path)
            case LogJudged():
                self._judge(change)
            case LogRemoved():
                self._remove(change.path)
            case FrequencyKnown():
                self._frequency_mhz = change.mhz
                self._touch_all()
            case LayersKnown():
                self._awaited_tables.pop((change.model, change.model_id), None)
                self._tables[change.model, change.model_id] = change.table
                self._touch_all()
            case InferenceTimed():
                inference = self._opened(change.name, change.load, now_s)
                if inference is not None:
                    inference.done = change.done

    def take(self, change: SegmentRecords, now_s: float) -> None:
        """Put records to their inferences, unless those were told."""
        records = _columns_of(change)
        unit = change.unit
        load = unit.seg_load[unit.segment]
        # Most often all are of one inference.
        ends = [len(load)] if load[0] == load[-1] else [*(np.flatnonzero(np.diff(load)) + 1).tolist(), len(load)]
        begin = 0
        for end in ends:
            inference = self._opened(change.name, int(load[begin]), now_s)
            if inference is not None:
                inference.columns.append(records if end - begin == len(load) else records.cut(begin, end))
                self.open_records += end - begin
            begin = end

    def take_calls(self, change: ApiRecords) -> None:
        """Take calls, by which inferences have their latency."""
        self._calls_of(change.name).take(change.records)

    def times(self, inference: OpenInference, number: int) -> InferenceTimes:
        """When an inference ran, as far as it is known now; `number` tells it from all others."""
        name = inference.name
        ran_before = (name.current_pic_count or 0) / max(name.input_pic_num or 1, 1)
        found = InferenceTimes(number, ran_before, *inference.span)
        calls = self._calls.get(_model(name))
        if calls is None:
            return found
        (found,) = calls.find([found])
        return found._replace(is_awaited=not self._ended and found.call_end_us != found.call_end_us)

    def await_call(self, name: LogName, times: InferenceTimes) -> None:
        """Let an inference wait for its call, until `settled` tells of it."""
        self._calls_of(name).wait(times)

    def settled(self, *, is_over: bool = False) -> Iterator[tuple[tuple[str, int], InferenceTimes]]:
        """Inferences whose calls have come since they were told, or come no more, each with its model."""
        for model, calls in self._calls.items():
            for times in calls.settle(is_over=is_over or bool(self._ended)):
                yield model, times

    def redecode(self, change: Redecoded, now_s: float) -> None:
        """Records that came before, known better now, take the place of the earlier ones."""
        name = self._reset(change.path)
        if name is not None and name.kind is LogKind.AICORE:
            for inference in self.of_log(name):
                inference.done = None
        if change.records is not None:
            self.take(change.records, now_s)

    def of_log(self, name: LogName | None) -> list[OpenInference]:
        """The open inferences that a log's records belong to, oldest first."""
        files = None if name is None or name.inference is None else self._files.get(name.inference)
        return [] if files is None else list(files.inferences.values())

    def enter(self, state: str, *, has_ended: bool) -> bool:
        """The JOB is in a state; once it `has_ended` nothing more comes. Whether that is new."""
        is_new, self.state = state != self.state, state
        ended = JOB_ENDED if has_ended else ""
        if ended != self._ended:
            self._ended = ended
            self._touch_all()
        return is_new

    def due(self) -> Iterator[tuple[OpenInference, Verdict]]:
        """Inferences of which something new is known, and whose figures are known now, or never will be.

        The oldest of too many are told as they are.
        """
        touched, self._touched = list(self._touched), {}
        for key in touched:
            files = self._files.get(key)
            for number in [] if files is None else sorted(files.inferences):
                yield from self._shown_now(key, number)
            self._forget_if_shown(key)
        while len(self._files) > OPEN_INFERENCES:
            key, files = next(iter(self._files.items()))
            yield from self._given_up(key, sorted(files.inferences))
            del self._files[key]

    def waited(self, now_s: float) -> Iterator[tuple[OpenInference, Verdict]]:
        """Inferences that have waited for long enough: they are told as pending, and again when that is over."""
        for files in list(self._files.values()):
            for number, inference in files.inferences.items():
                if inference.shown is None and inference.records and now_s - inference.since_s >= PATIENCE_S:
                    inference.shown = FigureState.PENDING
                    yield inference, self._verdict(files, number, Figure.LAYERS)

    def oldest(self, records: int) -> Iterator[tuple[OpenInference, Verdict]]:
        """Inferences to tell as they are, so that at least so many records less are open."""
        for key, files in list(self._files.items()):
            for number in sorted(files.inferences):
                if records <= 0:
                    return
                records -= files.inferences[number].records
                yield from self._given_up(key, [number])

    def _given_up(self, key: InferenceKey, numbers: list[int]) -> Iterator[tuple[OpenInference, Verdict]]:
        for number in numbers:
            inference = self._close(key, number)
            if inference.shown is not FigureState.PARTIAL:
                yield inference, TOO_MANY

    def _shown_now(self, key: InferenceKey, number: int) -> Iterator[tuple[OpenInference, Verdict]]:
        files = self._files[key]
        inference, verdict = files.inferences[number], self._verdict(files, number, Figure.LAYERS)
        if verdict.state is FigureState.PENDING or not inference.records:
            return  # see `waited`
        # Without names of layers the time is known all the same.
        time = verdict if verdict.state is FigureState.FINAL else self._verdict(files, number, Figure.TIME)
        was_shown = inference.shown is time.state
        inference.shown = time.state
        if time.state is FigureState.FINAL:
            self._close(key, number)
        if not was_shown:
            yield inference, time

    def _verdict(self, files: _Files, number: int, figure: Figure) -> Verdict:
        model = _model(files.name)
        parts = {
            part: log_part(part, files.logs.get(kind), number, self._ended, is_used=(model, kind) in self._used)
            for kind, part in _UNITS.items()
        }
        parts[Part.CLOCK] = clock_part(self._frequency_mhz, has_come=self._has_clock_file, ended=self._ended)
        is_awaited = model in self._awaited_tables and not self._ended
        parts[Part.LAYERS] = AWAITED_TABLE if is_awaited else Has(Share.NONE)
        if self._awaits_marker and not self._ended:
            parts[Part.LAYERS] = AWAITED_MARKER  # no line is without its mark
        return state_of(figure, parts)

    def _close(self, key: InferenceKey, number: int) -> OpenInference:
        """Take an inference that is told from those that are open."""
        files = self._files[key]
        inference = files.inferences.pop(number)
        self.open_records -= inference.records
        highest, _ = self._shown.pop(key, (-1, ()))
        self._shown[key] = (max(highest, number), tuple(files.logs))
        return inference

    def _forget_if_shown(self, key: InferenceKey) -> None:
        files = self._files.get(key)
        if files is None or files.inferences or key not in self._shown:
            return
        if all(log.whole > self._shown[key][0] for log in files.logs.values()):
            del self._files[key]

    def _opened(self, name: LogName, load: int, now_s: float) -> OpenInference | None:
        """The inference that records or a `.done` belong to; None when it was told."""
        assert name.inference is not None, "segments and their .done belong to an inference"
        if load <= self._shown.get(name.inference, (-1, ()))[0]:
            return None
        files = self._begin(name)
        inference = files.inferences.get(load)
        if inference is None:
            inference = files.inferences[load] = OpenInference(name, now_s)
        return inference

    def _calls_of(self, name: LogName) -> ModelCalls:
        calls = self._calls.get(_model(name))
        if calls is None:
            calls = self._calls[_model(name)] = ModelCalls()
        return calls

    def _begin(self, name: LogName) -> _Files:
        """The files of that name, which have a log of that unit."""
        files = self._of(name)
        files.logs.setdefault(name.kind, UnitLog())
        used = (_model(name), name.kind)
        if used not in self._used:
            self._used[used] = None
            self._touch_all()  # others of the model may wait for it
        return files

    def _of(self, name: LogName) -> _Files:
        """The files of that name, in which something has happened."""
        key = name.inference
        assert key is not None, "it belongs to an inference"
        self._touched[key] = None
        files = self._files.get(key)
        if files is None:
            # A model that was loaded again goes on with the logs that it had.
            files = self._files[key] = _Files(name, dict.fromkeys(self._shown.get(key, (-1, ()))[1], UnitLog()))
        return files

    def _touch_all(self) -> None:
        self._touched.update(dict.fromkeys(self._files))

    def _announce(self, path: str) -> None:
        name = parse_log_name(path)
        if name is None:
            self._awaits_marker |= path == SIMULATED_MARKER
        elif name.kind in _UNITS:
            self._begin(name)
        elif name.kind is LogKind.ACL_API:
            self._calls_of(name)
        elif name.kind is LogKind.LAYER_INFO and _model(name) not in self._tables:
            self._awaited_tables[_model(name)] = None

    def _judge(self, change: LogJudged) -> None:
        name = parse_log_name(change.path)
        assert name is not None, "only logs of an inference are judged"
        logs = self._of(name).logs
        logs[name.kind] = logs.get(name.kind, UnitLog())._replace(whole=change.whole, fault=change.fault)

    def _reset(self, path: str) -> LogName | None:
        name = parse_log_name(path)
        for inference in self.of_log(name):
            assert name is not None, "an inference's log has a name"
            before = inference.records
            inference.drop_unit(name.kind)
            self.open_records -= before - inference.records
        return name

    def _advance(self, change: LogAdvanced) -> None:
        name = parse_log_name(change.path)
        if name is None:
            if change.path == SIMULATED_MARKER and self._awaits_marker:
                self._awaits_marker = False
                self._touch_all()
            return
        if change.path == DEVICE_INFO:
            self._has_clock_file |= change.complete
            self._touch_all()
        if not name.is_data or name.kind not in _UNITS or name.inference is None:
            return
        if change.offset == 0 and change.generation > 1:
            # Another file stands in its place: what was told is not about it.
            self._shown.pop(name.inference, None)
        logs = self._of(name).logs
        known = logs.get(name.kind, UnitLog())
        # An empty log that is complete has been judged.
        whole, fault = (known.whole, known.fault) if change.offset or change.complete else (0, "")
        logs[name.kind] = UnitLog(whole, change.complete, fault)

    def _remove(self, path: str) -> None:
        name = parse_log_name(path)
        if name is None:
            return
        if name.kind is LogKind.LAYER_INFO and _model(name) in self._awaited_tables:
            del self._awaited_tables[_model(name)]
            self._touch_all()
        elif name.is_data and name.kind in _UNITS:
            logs = self._of(name).logs
            logs[name.kind] = logs.get(name.kind, UnitLog())._replace(is_gone=True)


def _columns_of(change: SegmentRecords) -> RecordColumns:
    kind, columns, segment_times = change.name.kind, change.unit.columns, None
    if kind is LogKind.AICPU:
        begin, end, *segments = (
            columns[name].astype(np.float64) for name in ("begin_us", "end_us", "segment_start_us", "segment_end_us")
        )
        durations, segment_times = end - begin, (segments[0], segments[1])
    else:
        durations = columns["ticks"].astype(np.float64)
    shared = (columns["net"], columns["sequence"], columns["layer_index"])
    return RecordColumns(kind, *shared, durations, change.unit.counters, segment_times)


def _room(table: LayerTable) -> int:
    """What a table takes of REMEMBERED_LAYERS: all for the largest, and no so little that there were too many."""
    return min(max(len(table.layers), REMEMBERED_LAYERS // REMEMBERED_MODELS), REMEMBERED_LAYERS)


def _model(name: LogName) -> tuple[str, int]:
    return name.model or "", name.model_id or 0
