"""What is known of a JOB that someone watches: tables, and inferences of which parts have come."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from profagent.analyse.bound import ratios_of
from profagent.export.live_inference import Layer, OpenInference
from profagent.formats.durations import ticks_to_us
from profagent.formats.names import LogKind, parse_log_name
from profagent.ingest.changes import FrequencyKnown, InferenceTimed, LayersKnown, LogAdvanced, LogReset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagent.formats.done import Done
    from profagent.formats.layers import LayerTable
    from profagent.formats.names import InferenceKey, LogName
    from profagent.ingest.changes import Change, Redecoded, SegmentRecords

# Inferences of which a part has come; older ones than these are shown as they are.
OPEN_INFERENCES = 1_000
# Layers of all models' tables beyond the newest, and models that had a part on the CPU.
REMEMBERED_LAYERS = 100_000
REMEMBERED_MODELS = 1_000
# Inferences that were told and are not told again.
TOLD_INFERENCES = 10_000

_Key = tuple["InferenceKey", int]


class LiveJob:
    """One JOB. An inference is told once: what comes of it after that is counted, and changes nothing."""

    def __init__(self) -> None:
        self.state: str | None = None
        # Records of inferences that were not told.
        self.open_records = 0
        self._frequency_mhz: int | None = None
        self._tables: OrderedDict[tuple[str, int], LayerTable] = OrderedDict()
        self._layers = 0  # in all of these
        self._with_aicpu: OrderedDict[tuple[str, int], None] = OrderedDict()
        self._open: OrderedDict[_Key, OpenInference] = OrderedDict()
        self._told: OrderedDict[_Key, Done | None] = OrderedDict()

    def know(self, change: Change) -> None:
        """Take what makes no event by itself."""
        match change:
            case FrequencyKnown():
                self._frequency_mhz = change.mhz
            case LayersKnown():
                self._know_layers((change.model, change.model_id), change.table)
            case InferenceTimed():
                self._time(change)
            case LogReset():
                self._reset(change.path)
            case LogAdvanced():
                self._advance(change)

    def take(self, change: SegmentRecords) -> Iterator[tuple[int, Layer]]:
        """Put records to their inferences, unless those were told; gives each with its place in the change."""
        kind, model = change.name.kind, _model(change.name)
        durations, table, ratios = self._durations(change), self._tables.get(model), ratios_of(change.counters)
        if kind is LogKind.AICPU:
            self._with_aicpu[model] = None
            if len(self._with_aicpu) > REMEMBERED_MODELS:
                self._with_aicpu.popitem(last=False)
        places = zip(change.stretch.tolist(), change.layer_index.tolist(), strict=True)
        for number, (stretch, index) in enumerate(places):
            run = table.runs[index] if table is not None and 0 <= index < len(table.runs) else None
            name, type_ = (None, None) if run is None else (run.name, run.type)
            layer = Layer(name, type_, durations[number], None if ratios is None else ratios[number])
            inference = self._opened(change.name, stretch)
            if inference is not None:
                inference.of_unit(kind).append(layer)
                self.open_records += 1
            yield number, layer

    def redecode(self, change: Redecoded) -> None:
        """Records that came before, known better now, take the place of the earlier ones."""
        name = self._reset(change.path)
        if name is not None and name.kind is LogKind.AICORE:
            for inference in self.of_log(name):
                inference.done = None
        if change.records is not None:
            for _ in self.take(change.records):
                pass

    def of_log(self, name: LogName | None) -> list[OpenInference]:
        """The open inferences that a log's records belong to, oldest first."""
        if name is None or name.inference is None:
            return []
        return [inference for (key, _), inference in self._open.items() if key == name.inference]

    def due(self, *, has_ended: bool) -> Iterator[tuple[OpenInference, bool]]:
        """Inferences to tell now, and whether each is whole: of a JOB that has ended all, else those that are whole.

        The oldest of too many are told as they are.
        """
        too_many = len(self._open) - OPEN_INFERENCES
        for place, (key, inference) in enumerate(list(self._open.items())):
            is_whole = inference.is_whole(with_aicpu=_model(inference.name) in self._with_aicpu)
            if is_whole or place < too_many or (has_ended and inference.has_records):
                self._close(key, inference)
                yield inference, is_whole

    def oldest(self, records: int) -> Iterator[OpenInference]:
        """Inferences to tell as they are, so that at least so many records less are open."""
        for key, inference in list(self._open.items()):
            if records <= 0:
                return
            if inference.has_records:
                records -= inference.size
                self._close(key, inference)
                yield inference

    def _know_layers(self, model: tuple[str, int], table: LayerTable) -> None:
        earlier = self._tables.pop(model, None)
        self._layers += len(table.layers) - (len(earlier.layers) if earlier is not None else 0)
        self._tables[model] = table
        while len(self._tables) > 1 and (self._layers > REMEMBERED_LAYERS or len(self._tables) > REMEMBERED_MODELS):
            self._layers -= len(self._tables.popitem(last=False)[1].layers)

    def _opened(self, name: LogName, stretch: int) -> OpenInference | None:
        """The inference that records or a `.done` belong to; None when it was told."""
        assert name.inference is not None, "segments and their .done belong to an inference"
        key = (name.inference, stretch)
        return None if key in self._told else self._open.setdefault(key, OpenInference(name))

    def _close(self, key: _Key, inference: OpenInference) -> None:
        """Take an inference that is told from those that are open."""
        del self._open[key]
        self.open_records -= inference.size
        self._told[key] = inference.done
        if len(self._told) > TOLD_INFERENCES:
            self._told.popitem(last=False)

    def _time(self, change: InferenceTimed) -> None:
        """Take a `.done`; a model that was loaded again has the earlier one beside it until it writes its own."""
        inference = self._opened(change.name, change.stretch)
        if inference is not None:
            assert change.name.inference is not None, "the .done of an inference is named after it"
            earlier = self._told.get((change.name.inference, change.stretch - 1))
            inference.done = None if change.done == earlier else change.done

    def _reset(self, path: str) -> LogName | None:
        """A log's records come anew."""
        name = parse_log_name(path)
        for inference in self.of_log(name):
            assert name is not None, "an inference's log has a name"
            unit = inference.of_unit(name.kind)
            self.open_records -= len(unit)
            unit.clear()
        return name

    def _advance(self, change: LogAdvanced) -> None:
        name = parse_log_name(change.path)
        if name is None or not name.is_data:
            return
        if change.offset == 0 and change.generation > 1:
            # Another file stands in its place: what was told is not about it.
            for key in [key for key in self._told if key[0] == name.inference]:
                del self._told[key]
        if name.kind is LogKind.AICORE:
            # The board vouches for a complete log even where its `.done` announces more, until it grows again.
            for inference in self.of_log(name):
                inference.is_vouched = change.complete

    def _durations(self, change: SegmentRecords) -> list[float | None]:
        columns = change.columns
        if change.name.kind is LogKind.AICPU:
            return list((columns["end_us"].astype(float) - columns["begin_us"].astype(float)).tolist())
        if self._frequency_mhz is None:
            return [None] * len(change.sequence)
        return list(ticks_to_us(columns["ticks"], self._frequency_mhz).tolist())


def _model(name: LogName) -> tuple[str, int]:
    return name.model or "", name.model_id or 0
