"""What a batch of changes means to someone who watches: events, in the order in which things became known.

An inference is told once, when its last part has come. What is decoded again after that changes nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from profagent.export.live_inference import Layer, OpenInference, model_fields, rounded
from profagent.formats.durations import ticks_to_us
from profagent.formats.names import LogKind, display_text, parse_log_name
from profagent.formats.records import api_name
from profagent.ingest.changes import (
    ApiRecords,
    ContentLedger,
    Entry,
    FrequencyKnown,
    InferenceTimed,
    LayersKnown,
    LinkLedger,
    LogAdvanced,
    LogReset,
    Redecoded,
    SegmentRecords,
    SimulatedKnown,
)
from profagent.link.messages import ENDED_STATES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagent.formats.layers import LayerTable
    from profagent.formats.names import InferenceKey, LogName
    from profagent.ingest.changes import Change, JobChanges

# Inferences of which a part has come; older ones than these are shown as they are.
OPEN_INFERENCES = 1_000
# Inferences that were told and are not told again.
TOLD_INFERENCES = 10_000
TOLD_ENTRIES = 10_000

Event = dict[str, Any]
_Key = tuple["InferenceKey", int]


@dataclass(slots=True)
class _Job:
    state: str | None = None
    frequency_mhz: int | None = None
    tables: dict[tuple[str, int], LayerTable] = field(default_factory=dict)
    with_aicpu: set[tuple[str, int]] = field(default_factory=set)
    open: OrderedDict[_Key, OpenInference] = field(default_factory=OrderedDict)
    told: OrderedDict[_Key, None] = field(default_factory=OrderedDict)

    def opened(self, name: LogName, stretch: int) -> OpenInference | None:
        """The inference that records or a `.done` belong to; None when it was told."""
        assert name.inference is not None, "segments and their .done belong to an inference"
        key = (name.inference, stretch)
        return None if key in self.told else self.open.setdefault(key, OpenInference(name))

    def of_log(self, name: LogName | None) -> list[OpenInference]:
        """The open inferences that a log's records belong to, oldest first."""
        if name is None or name.inference is None:
            return []
        return [inference for (key, _), inference in self.open.items() if key == name.inference]

    def close(self, key: _Key) -> OpenInference:
        """The inference is being told."""
        self.told[key] = None
        if len(self.told) > TOLD_INFERENCES:
            self.told.popitem(last=False)
        return self.open.pop(key)

    def begin_anew(self, name: LogName) -> None:
        """Another file stands in a log's place: what was told is not about it."""
        for key in [key for key in self.told if key[0] == name.inference]:
            del self.told[key]


class LiveEvents:
    """Turns changes into events. `with_records` gives one for each record, else one for each inference."""

    def __init__(self, *, with_records: bool = False, simulated: bool = False) -> None:
        self.simulated = simulated
        self.inferences = 0
        self.records = dict.fromkeys(("aicore", "aicpu", "acl_api"), 0)
        self.ledger = {"loss": 0, "note": 0}
        self._with_records = with_records
        self._jobs: dict[str, _Job] = {}
        self._told: OrderedDict[tuple[str, str | None, str], Entry] = OrderedDict()

    def feed(self, batch: JobChanges) -> Iterator[Event]:
        """Events of one JOB's changes."""
        job = self._jobs.setdefault(batch.job, _Job())
        for change in batch.changes:
            yield from self._change(batch.job, job, change)
        has_ended = batch.state in ENDED_STATES
        for key in _due(job, has_ended=has_ended):
            is_whole = _is_whole(job, job.open[key])
            yield self._inference(batch.job, job.close(key), complete=is_whole)
        if batch.state not in (None, job.state):
            job.state = batch.state
            yield self._event("job", batch.job, state=batch.state)

    def pass_over(self, batch: JobChanges) -> None:
        """Take changes that nobody is to see: they are not counted."""
        counted = self.inferences, self.records, self.ledger
        self.records, self.ledger = dict(self.records), dict(self.ledger)
        for _ in self.feed(batch):
            pass
        self.inferences, self.records, self.ledger = counted

    def summary(self) -> Event:
        """What was shown in all."""
        return {
            "event": "summary",
            "inferences": self.inferences,
            "records": dict(self.records),
            "ledger": dict(self.ledger),
            "simulated": self.simulated,
        }

    def _change(self, job_name: str, job: _Job, change: Change) -> Iterator[Event]:
        match change:
            case SegmentRecords():
                yield from self._segments(job_name, job, change)
            case Redecoded():
                self._redecode(job, change)
            case ApiRecords():
                yield from self._calls(job_name, change)
            case ContentLedger():
                for entry in change.entries:
                    yield from self._entry(job_name, job, change.path, entry)
            case LinkLedger():
                yield from self._entry(job_name, job, change.path, change.entry)
            case SimulatedKnown():
                self.simulated = True
            case _:
                _know(job, change)

    def _segments(self, job_name: str, job: _Job, change: SegmentRecords) -> Iterator[Event]:
        """Records that came."""
        for number, layer in _take(job, change):
            self.records[change.name.kind.value] += 1
            if self._with_records:
                yield self._record(job_name, change, number, layer)

    def _redecode(self, job: _Job, change: Redecoded) -> None:
        """Records that came before, known better now: those of open inferences take the place of the earlier ones."""
        name = parse_log_name(change.path)
        for inference in job.of_log(name):
            assert name is not None, "an inference's log has a name"
            inference.of_unit(name.kind).clear()
            inference.done = None if name.kind is LogKind.AICORE else inference.done
        if change.records is not None:
            for _ in _take(job, change.records):
                pass

    def _record(self, job_name: str, change: SegmentRecords, number: int, layer: Layer) -> Event:
        counters = {name: rounded(values[number], 6) for name, values in change.counters.items()}
        return self._event(
            "record",
            job_name,
            unit=change.name.kind.value,
            **model_fields(change.name),
            segment=int(change.net[number]),
            sequence=int(change.sequence[number]),
            layer_name=layer.name,
            layer_type=layer.type,
            duration_us=rounded(layer.duration_us),
            **counters,
        )

    def _calls(self, job_name: str, change: ApiRecords) -> Iterator[Event]:
        self.records["acl_api"] += len(change.number)
        for record in change.records if self._with_records else ():
            begin, end = int(record["begin_us"]), int(record["end_us"])
            yield self._event(
                "record",
                job_name,
                unit="acl_api",
                model=display_text(change.name.model or ""),
                model_id=change.name.model_id,
                name=api_name(int(record["api"])),
                begin_us=begin or None,
                end_us=end,
                duration_us=end - begin if begin else None,
                pid=int(record["pid"]),
                tid=int(record["tid"]),
            )

    def _inference(self, job_name: str, inference: OpenInference, *, complete: bool) -> Event:
        self.inferences += 1
        return self._event("inference", job_name, **inference.fields(), complete=complete)

    def _entry(self, job_name: str, job: _Job, path: str | None, entry: Entry) -> Iterator[Event]:
        """A ledger entry that was not told: with its inference while that is open, else on its own."""
        key = (job_name, path, entry.reason)
        if self._told.get(key) == entry:
            return
        known = self._told.pop(key, None)
        self._told[key] = entry
        if len(self._told) > TOLD_ENTRIES:
            self._told.popitem(last=False)
        self.ledger[entry.grade] += entry.count - (known.count if known is not None else 0)
        open_inferences = [] if path is None else job.of_log(parse_log_name(path))
        if open_inferences:
            open_inferences[-1].entries[entry.reason] = entry
            return
        yield self._event(
            "ledger",
            job_name,
            log=None if path is None else display_text(path),
            grade=entry.grade,
            reason=entry.reason,
            detail=entry.detail,
            first=entry.first,
            last=entry.last,
            count=entry.count,
        )

    def _event(self, kind: str, job: str, **fields: Any) -> Event:
        return {"event": kind, "job": job, **fields, "simulated": self.simulated}


def _know(job: _Job, change: Change) -> None:
    """Take what makes no event by itself."""
    match change:
        case FrequencyKnown():
            job.frequency_mhz = change.mhz
        case LayersKnown():
            job.tables[change.model, change.model_id] = change.table
        case InferenceTimed():
            inference = job.opened(change.name, change.stretch)
            if inference is not None:
                inference.done = change.done
        case LogReset():
            _reset(job, parse_log_name(change.path))
        case LogAdvanced():
            _advance(job, change)


def _reset(job: _Job, name: LogName | None) -> None:
    """A log's records come anew."""
    for inference in job.of_log(name):
        assert name is not None, "an inference's log has a name"
        inference.of_unit(name.kind).clear()


def _advance(job: _Job, change: LogAdvanced) -> None:
    name = parse_log_name(change.path)
    if name is None or not name.is_data:
        return
    if change.offset == 0 and change.generation > 1:
        job.begin_anew(name)
    if name.kind is LogKind.AICORE:
        # The board vouches for a complete log even where its `.done` announces more; one that grows is not complete.
        for inference in job.of_log(name):
            inference.is_vouched = change.complete


def _take(job: _Job, change: SegmentRecords) -> Iterator[tuple[int, Layer]]:
    """Put records to their inferences, unless those were told; gives each with its place in the change."""
    kind, model = change.name.kind, (change.name.model or "", change.name.model_id or 0)
    durations, table = _durations(job, change), job.tables.get(model)
    if kind is LogKind.AICPU:
        job.with_aicpu.add(model)
    for number, (stretch, index) in enumerate(zip(change.stretch.tolist(), change.layer_index.tolist(), strict=True)):
        run = table.runs[index] if table is not None and 0 <= index < len(table.runs) else None
        layer = Layer(None if run is None else run.name, None if run is None else run.type, durations[number])
        inference = job.opened(change.name, stretch)
        if inference is not None:
            inference.of_unit(kind).append(layer)
        yield number, layer


def _due(job: _Job, *, has_ended: bool) -> list[_Key]:
    """Inferences to tell now: those that are whole, the oldest of too many, and all of a JOB that has ended."""
    if has_ended:
        return [key for key, inference in job.open.items() if inference.has_records]
    too_many = len(job.open) - OPEN_INFERENCES
    return [key for place, (key, each) in enumerate(job.open.items()) if place < too_many or _is_whole(job, each)]


def _is_whole(job: _Job, inference: OpenInference) -> bool:
    name = inference.name
    return inference.is_whole(with_aicpu=(name.model or "", name.model_id or 0) in job.with_aicpu)


def _durations(job: _Job, change: SegmentRecords) -> list[float | None]:
    columns = change.columns
    if change.name.kind is LogKind.AICPU:
        return list((columns["end_us"].astype(float) - columns["begin_us"].astype(float)).tolist())
    if job.frequency_mhz is None:
        return [None] * len(change.sequence)
    return list(ticks_to_us(columns["ticks"], job.frequency_mhz).tolist())
