"""What a live capture shows: inferences as they end, records as they come, ledger entries. Pure.

Events are plain dicts: one JSON object a line for programs, one line of text for people.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from profagent.formats.durations import ticks_to_us
from profagent.formats.names import LogKind, display_text, parse_log_name
from profagent.formats.records import RECORD_BYTES, api_name
from profagent.ingest.changes import (
    ApiRecords,
    ContentLedger,
    Entry,
    FrequencyKnown,
    InferenceTimed,
    LayersKnown,
    LinkLedger,
    LogAdvanced,
    SegmentRecords,
    SimulatedKnown,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagent.formats.layers import LayerTable
    from profagent.formats.names import InferenceKey, LogName
    from profagent.ingest.changes import Change, JobChanges

SLOWEST_LAYERS = 3
# Inferences of which a part has come; older ones than these are shown as they are.
OPEN_INFERENCES = 1_000
TOLD_ENTRIES = 10_000

Event = dict[str, Any]


@dataclass(slots=True)
class _OpenInference:
    """What has come of an inference. Times are microseconds."""

    name: LogName
    layers: list[tuple[str | None, str | None, float | None]] = field(default_factory=list)
    entries: dict[str, Entry] = field(default_factory=dict)
    aicpu_us: float = 0.0
    size: int = 0
    done: InferenceTimed | None = None
    is_vouched: bool = False

    def is_whole(self, *, with_aicpu: bool) -> bool:
        """Whether its records are all here; `with_aicpu`: earlier inferences of its model had a part there."""
        done = self.done.done if self.done is not None else None
        has_parts = bool(self.aicpu_us) or not with_aicpu
        return done is not None and (self.is_vouched or (has_parts and 0 < done.file_len <= self.size))


@dataclass(slots=True)
class _Job:
    state: str | None = None
    frequency_mhz: int | None = None
    tables: dict[tuple[str, int], LayerTable] = field(default_factory=dict)
    with_aicpu: set[tuple[str, int]] = field(default_factory=set)
    open: OrderedDict[tuple[InferenceKey, int], _OpenInference] = field(default_factory=OrderedDict)


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
        if batch.state not in (None, job.state):
            job.state = batch.state
            yield self._event("job", batch.job, state=batch.state)
        for change in batch.changes:
            yield from self._change(batch.job, job, change)
        yield from self._ended(batch.job, job)

    def _change(self, job_name: str, job: _Job, change: Change) -> Iterator[Event]:
        match change:
            case FrequencyKnown():
                job.frequency_mhz = change.mhz
            case LayersKnown():
                job.tables[change.model, change.model_id] = change.table
            case SegmentRecords():
                yield from self._segments(job_name, job, change)
            case ApiRecords():
                yield from self._calls(job_name, change)
            case InferenceTimed() if change.done is not None:
                self._open(job, change.name, change.stretch).done = change
            case LogAdvanced() if change.complete:
                self._vouch(job, change.path)
            case SimulatedKnown():
                self.simulated = True
            case ContentLedger():
                for entry in change.entries:
                    yield from self._entry(job_name, job, change.path, entry)
            case LinkLedger():
                yield from self._entry(job_name, job, change.path, change.entry)

    def _segments(self, job_name: str, job: _Job, change: SegmentRecords) -> Iterator[Event]:
        self.records[change.name.kind.value] += len(change.sequence)
        durations = _durations(job, change)
        table = job.tables.get(_model_key(change.name))
        for number, index in enumerate(change.layer_index.tolist()):
            run = table.runs[index] if table is not None and 0 <= index < len(table.runs) else None
            layer = (None if run is None else run.name, None if run is None else run.type, durations[number])
            inference = self._open(job, change.name, int(change.stretch[number]))
            if change.name.kind is LogKind.AICPU:
                job.with_aicpu.add(_model_key(change.name))
                inference.aicpu_us += durations[number] or 0.0
            else:
                inference.size += RECORD_BYTES[LogKind.AICORE]
                inference.layers.append(layer)
            if self._with_records:
                yield self._record(job_name, change, number, layer)

    def _record(
        self, job_name: str, change: SegmentRecords, number: int, layer: tuple[str | None, str | None, float | None]
    ) -> Event:
        counters = {name: _rounded(values[number], 6) for name, values in change.counters.items()}
        return self._event(
            "record",
            job_name,
            unit=change.name.kind.value,
            **_model(change.name),
            segment=int(change.net[number]),
            sequence=int(change.sequence[number]),
            layer_name=layer[0],
            layer_type=layer[1],
            duration_us=_rounded(layer[2]),
            **counters,
        )

    def _calls(self, job_name: str, change: ApiRecords) -> Iterator[Event]:
        self.records["acl_api"] += len(change.number)
        if not self._with_records:
            return
        for record in change.records:
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

    def _open(self, job: _Job, name: LogName, stretch: int) -> _OpenInference:
        assert name.inference is not None, "segments and their .done belong to an inference"
        return job.open.setdefault((name.inference, stretch), _OpenInference(name))

    @staticmethod
    def _vouch(job: _Job, path: str) -> None:
        """The board says that a log is complete, even where its `.done` announces more."""
        name = parse_log_name(path)
        if name is not None and name.kind is LogKind.AICORE and name.is_data:
            for inference in _of_log(job, name):
                inference.is_vouched = True

    def _ended(self, job_name: str, job: _Job) -> Iterator[Event]:
        """Inferences that are whole, and the oldest of too many that are not."""
        whole = [
            key
            for key, inference in job.open.items()
            if inference.is_whole(with_aicpu=_model_key(inference.name) in job.with_aicpu)
        ]
        for key in whole:
            yield self._inference(job_name, job.open.pop(key), complete=True)
        while len(job.open) > OPEN_INFERENCES:
            yield self._inference(job_name, job.open.popitem(last=False)[1], complete=False)

    def _inference(self, job_name: str, inference: _OpenInference, *, complete: bool) -> Event:
        self.inferences += 1
        done = inference.done.done if inference.done is not None else None
        known = [layer for layer in inference.layers if layer[2] is not None]
        aicore_us = sum(layer[2] or 0.0 for layer in known)
        slowest = sorted(known, key=lambda layer: -(layer[2] or 0.0))[:SLOWEST_LAYERS]
        return self._event(
            "inference",
            job_name,
            **_model(inference.name),
            start_us=(done.start_us or None) if done is not None else None,
            end_us=(done.end_us or None) if done is not None else None,
            total_us=_rounded(aicore_us + inference.aicpu_us) if known or inference.aicpu_us else None,
            aicpu_us=_rounded(inference.aicpu_us),
            records=len(inference.layers),
            slowest=[
                {"layer_name": name, "layer_type": kind, "duration_us": _rounded(us), "share": _share(us, aicore_us)}
                for name, kind, us in slowest
            ],
            ledger=[
                {"grade": entry.grade, "reason": entry.reason, "count": entry.count}
                for entry in inference.entries.values()
            ],
            complete=complete,
        )

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
        name = None if path is None else parse_log_name(path)
        open_inferences = [] if name is None else _of_log(job, name)
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

    def summary(self) -> Event:
        """What was shown in all."""
        return {
            "event": "summary",
            "inferences": self.inferences,
            "records": dict(self.records),
            "ledger": dict(self.ledger),
            "simulated": self.simulated,
        }


def _of_log(job: _Job, name: LogName) -> list[_OpenInference]:
    """The open inferences that a log's records belong to, oldest first."""
    return [inference for (key, _), inference in job.open.items() if key == name.inference]


def _durations(job: _Job, change: SegmentRecords) -> list[float | None]:
    columns = change.columns
    if change.name.kind is LogKind.AICPU:
        return list((columns["end_us"].astype(float) - columns["begin_us"].astype(float)).tolist())
    if job.frequency_mhz is None:
        return [None] * len(change.sequence)
    return list(ticks_to_us(columns["ticks"], job.frequency_mhz).tolist())


def _model_key(name: LogName) -> tuple[str, int]:
    return name.model or "", name.model_id or 0


def _model(name: LogName) -> Event:
    return {
        "model": display_text(name.model or ""),
        "model_id": name.model_id,
        "device_id": name.device,
        "stream_id": name.stream,
        "batch_num": name.batch_num,
        "input_pic_num": name.input_pic_num,
        "current_pic_count": name.current_pic_count,
    }


def _rounded(value: float | None, digits: int = 3) -> float | None:
    return None if value is None or value != value else round(float(value), digits)  # noqa: PLR0124 - NaN


def _share(part: float | None, whole: float) -> float | None:
    return None if part is None or not whole else round(part / whole, 4)
