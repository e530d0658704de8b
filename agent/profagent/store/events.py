"""Events of inferences for lines, the screen and Prometheus, composed from columns of any origin.

An inference has its event once its figures are known. Its call comes later, and then has an event of its own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from cachetools import LRUCache

from profagent.formats.countermap import bound_in
from profagent.formats.figure_states import FigureState
from profagent.formats.inference_layers import LayerTimes, rounded
from profagent.formats.inference_times import Parts
from profagent.formats.names import LogKind, display_text, parse_log_name
from profagent.formats.records import api_name
from profagent.ingest.changes import ApiRecords, LinkLedger, NamesAnnounced, RecordedLoss
from profagent.ingest.live_latency import InferenceTimes, ModelCalls
from profagent.ingest.live_samples import LiveSamples
from profagent.ledger import SEQUENCE_GAP
from profagent.limits import CALLED_MODELS, REMEMBERED_JOB_STATES
from profagent.link.messages import ENDED_STATES, REMOVED
from profagent.store.figures import SLOWEST_LAYERS, us_per_tick

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from profagent.formats.inference_layers import RecordColumns
    from profagent.formats.model_info import LayerTable, Run
    from profagent.formats.names import LogName
    from profagent.ingest.changes import Change, JobChanges
    from profagent.ingest.live_samples import Model
    from profagent.ledger import Entry
    from profagent.store.figures import Figures
    from profagent.store.inference_columns import InferenceColumns, InferenceFacts

Event = dict[str, Any]


class Composer:
    """Composer of the events of a capture or a session, by default one for each inference.

    `with_records` adds one for each record. `with_layers` adds `layers` and `times` to each inference, an event
    `latency` with the times of an inference whose call comes later or never, and calls in columns.
    """

    def __init__(self, *, with_records: bool = False, with_layers: bool = False) -> None:
        # True once the board is known to be simulated; every event says so.
        self.simulated = False
        # Counters of the map in use whose meaning is likely, but not certain.
        self.likely: Sequence[str] = ()
        # Sampling of each model, as far as it is known.
        self.samples = LiveSamples()
        # Totals of the summary: inferences, records by unit, and counts of the ledger by grade.
        self.inferences = 0
        self.records = dict.fromkeys(("aicore", "aicpu", "acl_api"), 0)
        self.ledger = {"loss": 0, "note": 0}
        # Records of short layers that the runtime's filter left out: the summary has their number, and no event names
        # them.
        self.left_out = 0
        self._with_records, self._with_layers = with_records, with_layers
        # Number of the last inference with an event; calls find their inference by it.
        self._number = 0
        # Newest calls of each model, and inferences that wait for theirs.
        self._calls: LRUCache[tuple[str, Model], ModelCalls] = LRUCache(CALLED_MODELS)
        # Last state of each JOB for which there was an event.
        self._states: LRUCache[str, str] = LRUCache(REMEMBERED_JOB_STATES)

    @property
    def slowest(self) -> int:
        """Number of slowest layers that an event names: none where it has all layers."""
        return 0 if self._with_layers else SLOWEST_LAYERS

    def expect_calls(self, job: str, model: Model) -> None:
        """Note that a log of a model's calls exists, so that its inferences wait for their calls."""
        self._calls.setdefault((job, model), ModelCalls())

    def inference_events(
        self, columns: InferenceColumns, figures: Sequence[Figures | None], places: Sequence[int]
    ) -> Iterator[Event]:
        """Yield the events of the inferences at these places; `figures` are those of `figures_of`."""
        counts = {unit.records.unit: unit.counts(len(columns.rows)) for unit in columns.units}
        # All samples first: each event has the sampling of its model with the whole batch.
        for place in places:
            row = columns.rows[place]
            self.samples.see(row.job, _model(row), row.current_pic_count, row.input_pic_num)
            if row.load:
                self.samples.load_again(row.job, _model(row))
        for place, times in zip(places, self._times(columns, places), strict=True):
            row = columns.rows[place]
            if row.figures != FigureState.PENDING:
                self.inferences += 1
                for unit, count in counts.items():
                    self.records[unit] += int(count[place])
                if self._with_records:
                    yield from self._records(columns, place)
            yield self._inference(columns, place, figures[place], times, counts)

    def change_events(self, batch: JobChanges) -> Iterator[Event]:
        """Yield the events of calls, of the ledger and of a JOB's state in a batch."""
        for change in batch.changes:
            yield from self._change(batch.job, change)
        yield from self._ended(batch)

    def _ended(self, batch: JobChanges) -> Iterator[Event]:
        yield from self._settled(batch.job, is_over=is_over(batch))
        if batch.state is not None and batch.state != self._states.get(batch.job):
            self._states[batch.job] = batch.state
            yield self._event("job", batch.job, state=batch.state)

    def summary(self) -> Event:
        """Return the event with the totals."""
        return {
            "event": "summary",
            "inferences": self.inferences,
            "records": dict(self.records),
            "sampling": self.samples.in_all(),
            "ledger": dict(self.ledger),
            "left_out_records": self.left_out,
            "simulated": self.simulated,
        }

    def _times(self, columns: InferenceColumns, places: Sequence[int]) -> list[InferenceTimes]:
        found: list[InferenceTimes] = []
        waiting: dict[tuple[str, Model], list[int]] = {}
        begin_us, end_us = (column[places].tolist() for column in columns.whole)
        for number, place in enumerate(places):
            row = columns.rows[place]
            ran_before = row.current_pic_count / max(row.input_pic_num, 1)
            found.append(InferenceTimes(self._number + number + 1, ran_before, begin_us[number], end_us[number]))
            if (key := (row.job, _model(row))) in self._calls:
                waiting.setdefault(key, []).append(number)
        self._number += len(places)
        for key, numbers in waiting.items():
            for number, times in zip(numbers, self._calls[key].find([found[each] for each in numbers]), strict=True):
                found[number] = times._replace(is_awaited=math.isnan(times.call_end_us))
        return found

    def _inference(
        self,
        columns: InferenceColumns,
        place: int,
        figures: Figures | None,
        times: InferenceTimes,
        counts: Mapping[LogKind, NDArray[np.int64]],
    ) -> Event:
        row, table = columns.rows[place], columns.tables.get(columns.rows[place].model)
        is_final = figures is not None
        event = {
            "event": "inference",
            "job": row.job,
            **_model_fields(row),
            "start_us": row.start_us if is_final else None,
            "end_us": row.end_us if is_final else None,
            **(_UNKNOWN_TIMES if figures is None else _known_times(figures, times, table)),
            "of_layers": None if table is None else len(table.runs),
            "records": sum(int(count[place]) for count in counts.values()),
            "figures": row.figures,
            "why": row.why,
            "ledger": _by_reason(self._entries(row, columns.entries.get(place, ()))),
            **self._doubts(has_counters=bool(columns.aicore.records.counters) and counts[LogKind.AICORE][place] > 0),
        }
        if self._with_layers:
            of_place = tuple(unit.of(place) for unit in columns.units) if is_final else ()
            event["layers"] = LayerTimes(of_place, us_per_tick(row.frequency_mhz), table, row.family)
            event["times"] = times
            if is_final and times.is_awaited:
                self._calls[row.job, _model(row)].wait(times)
        else:
            event |= self.samples.of_model(row.job, _model(row))
        event["simulated"] = self.simulated
        return event

    def _records(self, columns: InferenceColumns, place: int) -> Iterator[Event]:
        row = columns.rows[place]
        runs = columns.tables[row.model].runs if row.model in columns.tables else ()
        for unit, emitted in zip(columns.units, self._emitted_records(row), strict=True):
            records = unit.of(place)
            yield from self._unit_records(row, records.cut(emitted, len(records.duration)), runs)

    def _emitted_records(self, row: InferenceFacts) -> tuple[int, int]:  # noqa: ARG002 - a live composer needs the row
        return 0, 0

    def _unit_records(self, row: InferenceFacts, records: RecordColumns, runs: Sequence[Run]) -> Iterator[Event]:
        bound = bound_in(row.family)
        durations = records.durations_us(us_per_tick(row.frequency_mhz))
        count = len(records.duration)
        of_all = {"unit": records.unit.value, **_model_fields(row)}
        shared = zip(
            records.segment.tolist(),
            records.sequence.tolist(),
            records.layer_index.tolist(),
            [None] * count if durations is None else durations.tolist(),
            strict=True,
        )
        counters = [column.tolist() for column in records.counters.values()]
        ratios = records.ratios(np.arange(count)).tolist() if counters else []
        doubts = self._doubts(has_counters=bool(counters))
        for number, (segment, sequence, layer, duration_us) in enumerate(shared):
            run = runs[layer] if 0 <= layer < len(runs) else None
            yield self._event(
                "record",
                row.job,
                **of_all,
                segment=segment,
                sequence=sequence,
                layer_name=run and run.name,
                layer_type=run and run.type,
                duration_us=rounded(duration_us),
                counters={
                    name: rounded(column[number], 6) for name, column in zip(records.counters, counters, strict=True)
                },
                **({"bound_by": bound(ratios[number])} if ratios else {}),
                **doubts,
            )

    def _change(self, job: str, change: Change) -> Iterator[Event]:
        match change:
            case NamesAnnounced():
                for name in map(parse_log_name, change.paths):
                    if name is not None and name.kind is LogKind.ACL_API:
                        self.expect_calls(job, model_of(name))
            case ApiRecords():
                yield from self._called(job, change)
            case LinkLedger():
                yield from self._entry(job, change.path, change.entry)
            case RecordedLoss():
                self._count(change.entry, change.entry.count)
                yield {"event": "kept_loss", **change.fields, "simulated": self.simulated}

    def _called(self, job: str, change: ApiRecords) -> Iterator[Event]:
        model = model_of(change.name)
        self._calls.setdefault((job, model), ModelCalls()).take(change.records)
        self.records["acl_api"] += len(change.records)
        # None are left where all of them ended before a watch began, or are corrupt.
        if self._with_layers and len(change.records):
            yield self._event("calls", job, calls=change.records)
        for record in change.records if self._with_records else ():
            begin, end = int(record["begin_us"]), int(record["end_us"])
            yield self._event(
                "call",
                job,
                model=model[0],
                model_id=model[1],
                name=api_name(int(record["api"])),
                begin_us=begin or None,
                end_us=end,
                duration_us=end - begin if begin else None,
                pid=int(record["pid"]),
                tid=int(record["tid"]),
            )

    def _settled(self, job: str, *, is_over: bool) -> Iterator[Event]:
        for (of, (model, model_id)), calls in self._calls.items() if self._with_layers else ():
            for times in calls.settle(is_over=is_over) if of == job else ():
                latency_us, origin = times.latency
                yield self._event(
                    "latency",
                    job,
                    model=model,
                    model_id=model_id,
                    times=times,
                    latency_us=rounded(latency_us),
                    latency_from=origin,
                )

    def _entry(self, job: str, path: str | None, entry: Entry) -> Iterator[Event]:
        self._count(entry, entry.count)
        if entry.reason != SEQUENCE_GAP:
            yield self._entry_event(job, path, entry)

    def _entry_event(self, job: str, path: str | None, entry: Entry) -> Event:
        return self._event(
            "ledger",
            job,
            log=None if path is None else display_text(path),
            grade=entry.grade,
            reason=entry.reason,
            detail=entry.detail,
            first=entry.first,
            last=entry.last,
            count=entry.count,
        )

    def _entries(self, row: InferenceFacts, entries: Sequence[Entry]) -> Iterable[Entry]:  # noqa: ARG002 - as above
        for entry in entries:
            self._count(entry, entry.count)
        return entries

    def _count(self, entry: Entry, count: int) -> None:
        self.ledger[entry.grade] += count
        if entry.reason == SEQUENCE_GAP:
            self.left_out += count

    def _doubts(self, *, has_counters: bool) -> dict[str, list[str]]:
        return {"likely": list(self.likely)} if self.likely and has_counters else {}

    def _event(self, kind: str, job: str, **fields: Any) -> Event:
        return {"event": kind, "job": job, **fields, "simulated": self.simulated}


_UNKNOWN_TIMES: Mapping[str, Any] = {
    "latency_us": None,
    "latency_from": None,
    "layers_us": None,
    "aicpu_us": None,
    "slowest": [],
    "recorded": None,
}


def _by_reason(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    counts: dict[tuple[str, str], int] = {}
    for entry in entries:
        if entry.reason != SEQUENCE_GAP:
            key = entry.grade, entry.reason
            counts[key] = counts.get(key, 0) + entry.count
    return [{"grade": grade, "reason": reason, "count": count} for (grade, reason), count in counts.items()]


def _known_times(figures: Figures, times: InferenceTimes, table: LayerTable | None) -> dict[str, Any]:
    latency_us, origin = times.latency
    parts = Parts(figures.layers_us, latency_us)
    runs = () if table is None else table.runs
    slowest = []
    for layer in figures.slowest:
        is_cpu, index = divmod(layer.place, len(runs) + 1)
        run, share = runs[index] if index < len(runs) else None, parts.share(layer.us)
        slowest.append(
            {
                "layer_name": run and run.name,
                "layer_type": run and run.type,
                "unit": LogKind.AICPU.value if is_cpu else LogKind.AICORE.value,
                "duration_us": round(layer.us, 3),
                "share": None if share is None else round(share / 100, 4),
                **layer.bound,
            }
        )
    return {
        "latency_us": rounded(latency_us),
        "latency_from": origin,
        "layers_us": round(figures.layers_us, 3),
        "aicpu_us": round(figures.aicpu_us, 3),
        "slowest": slowest,
        "recorded": figures.recorded,
    }


def _model_fields(row: InferenceFacts) -> dict[str, Any]:
    return {
        "model": row.model_name,
        "model_id": row.model_id,
        "device_id": row.device_id,
        "stream_id": row.stream_id,
        "batch_num": row.batch_num,
        "input_pic_num": row.input_pic_num,
        "current_pic_count": row.current_pic_count,
    }


def is_over(batch: JobChanges) -> bool:
    """Return True if nothing more comes of a batch's JOB."""
    return batch.state == REMOVED or (batch.caught_up and batch.state in ENDED_STATES)


def model_of(name: LogName) -> Model:
    """Return the model of a log in the spelling of rows and events."""
    return display_text(name.model or ""), name.model_id or 0


def _model(row: InferenceFacts) -> Model:
    return row.model_name, row.model_id
