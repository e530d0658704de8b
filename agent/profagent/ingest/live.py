"""What a batch of changes means to someone who watches: events, in the order in which things became known."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Any

from cachetools import LRUCache

from profagent.formats.figure_states import FigureState, Verdict
from profagent.formats.inference_layers import LayerTimes, RecordColumns, rounded
from profagent.formats.names import LogKind, display_text, parse_log_name
from profagent.formats.records import api_name
from profagent.ingest.changes import (
    ApiRecords,
    ContentLedger,
    Entry,
    KeptLoss,
    LinkLedger,
    LogAdvanced,
    Redecoded,
    SegmentRecords,
    SimulatedKnown,
)
from profagent.ingest.live_inference import (
    SLOWEST_LAYERS,
    OpenInference,
    model_fields,
)
from profagent.ingest.live_job import LiveJob
from profagent.ingest.live_samples import LiveSamples
from profagent.ingest.reasons import SEQUENCE_GAP
from profagent.link.messages import ENDED_STATES, REMOVED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from profagent.formats.names import LogName
    from profagent.ingest.changes import Change, JobChanges


SHOWN_ENTRIES = 10_000
# JOBs of which anything is remembered, those that were heard of last.
REMEMBERED_JOBS = 16
# Records of inferences that are not whole, of all JOBs; an inference that alone has more is shown as it is.
OPEN_RECORDS = 50_000

Event = dict[str, Any]


class LiveEvents:
    """Turns changes into events. `with_records` gives one for each record, else one for each inference.

    `with_layers`: an inference has all of its `layers` and `times`, an event `latency` has the times of one whose call
    came later, or comes no more, and calls come in columns.
    """

    def __init__(self, *, with_records: bool = False, with_layers: bool = False) -> None:
        self.simulated = False
        # Counters that the map in use calls likely, not certain.
        self.likely: Sequence[str] = ()
        self.samples = LiveSamples()
        self.inferences = 0
        self.records = dict.fromkeys(("aicore", "aicpu", "acl_api"), 0)
        self.ledger = {"loss": 0, "note": 0}
        # Records of short layers that the runtime left out: one line of the summary tells of them.
        self.left_out = 0
        self._with_records, self._with_layers = with_records, with_layers
        self._number = 0  # of the inference that was told last
        self._jobs: OrderedDict[str, LiveJob] = OrderedDict()
        # What was told, by JOB, log and whether it follows from the log's bytes, then by reason.
        self._shown: LRUCache[tuple[str, str | None, bool], dict[str, Entry]] = LRUCache(SHOWN_ENTRIES)

    def feed(self, batch: JobChanges, now_s: float) -> Iterator[Event]:
        """Events of one JOB's changes; `now_s` is a clock that never goes back."""
        if batch.job not in self._jobs:
            self._jobs[batch.job] = LiveJob()
        job = self._jobs[batch.job]
        self._jobs.move_to_end(batch.job)
        yield from self._make_room()
        for change in batch.each:
            self.samples.take(batch.job, change)
            yield from self._change(batch.job, job, change, now_s)
        state = batch.state
        has_ended = state == REMOVED or (batch.caught_up and state in ENDED_STATES)
        is_new = state is not None and job.enter(state, has_ended=has_ended)
        yield from self._tell(batch.job, job, job.due())
        yield from self._tell_oldest()
        yield from self._settled(batch.job, job)
        if is_new:
            yield self._event("job", batch.job, state=state)

    def waited(self, now_s: float) -> Iterator[Event]:
        """Inferences that have waited for too long for what they are made of: their figures are not known yet."""
        for name, job in self._jobs.items():
            yield from self._tell(name, job, job.waited(now_s))

    def _make_room(self) -> Iterator[Event]:
        """Show what there is of the JOB that was not heard of for longest, and forget it."""
        while len(self._jobs) > REMEMBERED_JOBS:
            name, job = self._jobs.popitem(last=False)
            yield from self._tell(name, job, job.oldest(max(job.open_records, 1)))
            yield from self._settled(name, job, is_over=True)

    def _settled(self, name: str, job: LiveJob, *, is_over: bool = False) -> Iterator[Event]:
        for (model, model_id), times in job.settled(is_over=is_over) if self._with_layers else ():
            latency_us, origin = times.latency
            model_of = {"model": display_text(model), "model_id": model_id}
            yield self._event(
                "latency", name, **model_of, times=times, latency_us=rounded(latency_us), latency_from=origin
            )

    def _tell_oldest(self) -> Iterator[Event]:
        """Show what there is of too many records: the oldest inferences of JOBs that were not heard of for longest."""
        too_many = sum(job.open_records for job in self._jobs.values()) - OPEN_RECORDS
        for name, job in self._jobs.items() if too_many > 0 else ():
            before = job.open_records
            yield from self._tell(name, job, job.oldest(too_many))
            too_many -= before - job.open_records

    def _tell(self, name: str, job: LiveJob, inferences: Iterable[tuple[OpenInference, Verdict]]) -> Iterator[Event]:
        for inference, verdict in inferences:
            if self._with_records and verdict.state is not FigureState.PENDING:
                for columns in inference.columns_from(inference.shown_records):
                    for row in range(len(columns.duration)):
                        yield self._record(name, job, inference.name, columns, row)
                inference.shown_records = inference.records
            yield self._inference(name, job, inference, verdict)

    def pass_over(self, batch: JobChanges, now_s: float) -> None:
        """Take changes that nobody is to see: they are not counted."""
        counted = self.inferences, self.records, self.ledger, self.left_out
        self.records, self.ledger = dict(self.records), dict(self.ledger)
        for _ in self.feed(batch, now_s):
            pass
        self.inferences, self.records, self.ledger, self.left_out = counted

    def summary(self) -> Event:
        """What was shown in all."""
        return {
            "event": "summary",
            "inferences": self.inferences,
            "records": dict(self.records),
            "sampling": self.samples.in_all(),
            "ledger": dict(self.ledger),
            "left_out_records": self.left_out,
            "simulated": self.simulated,
        }

    def _change(self, job_name: str, job: LiveJob, change: Change, now_s: float) -> Iterator[Event]:
        match change:
            case LogAdvanced():  # most changes are
                job.know(change, now_s)
            case SegmentRecords():
                job.take(change, now_s)
            case Redecoded():
                job.redecode(change, now_s)
            case ApiRecords():
                yield from self._calls(job_name, job, change)
            case ContentLedger():
                self._take_back(job_name, job, change)
                for entry in change.entries:
                    yield from self._entry(job_name, job, change.path, entry, of_bytes=True)
            case LinkLedger():
                yield from self._entry(job_name, job, change.path, change.entry, of_bytes=False)
            case KeptLoss():
                yield from self._kept_loss(change)
            case SimulatedKnown():
                self.simulated = True
            case _:
                job.know(change, now_s)

    def _record(self, job_name: str, job: LiveJob, name: LogName, columns: RecordColumns, row: int) -> Event:
        layer = columns.layer(row, job.us_per_tick, job.table(name))
        return self._event(
            "record",
            job_name,
            unit=columns.unit.value,
            **model_fields(name),
            segment=int(columns.segment[row]),
            sequence=int(columns.sequence[row]),
            layer_name=layer.name,
            layer_type=layer.type,
            duration_us=rounded(layer.duration_us),
            **{counter: rounded(values[row], 6) for counter, values in columns.counters.items()},
            **layer.bound(),
            **self._doubts(has_counters=bool(columns.counters)),
        )

    def _calls(self, job_name: str, job: LiveJob, change: ApiRecords) -> Iterator[Event]:
        job.take_calls(change)
        self.records["acl_api"] += len(change.number)
        if self._with_layers:
            yield self._event("calls", job_name, calls=change.records)
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

    def _inference(self, job_name: str, job: LiveJob, inference: OpenInference, verdict: Verdict) -> Event:
        if verdict.state is not FigureState.PENDING:
            self._count(inference)
        is_final = verdict.state is FigureState.FINAL
        self._number += 1
        times = job.times(inference, self._number)
        columns = tuple(inference.columns) if is_final else ()
        layers = LayerTimes(columns, job.us_per_tick, job.table(inference.name))
        # Where all layers are there, which are the slowest is not asked for, nor how each model was sampled.
        slowest = 0 if self._with_layers else SLOWEST_LAYERS
        fields = inference.fields(verdict, layers, times, slowest=slowest)
        doubts = self._doubts(has_counters=any(each.counters for each in inference.columns))
        if self._with_layers:
            if is_final and times.is_awaited:
                job.await_call(inference.name, times)
            return self._event("inference", job_name, **fields, **doubts, layers=layers, times=times)
        return self._event("inference", job_name, **fields, **doubts, **self._sampled(job_name, inference.name))

    def _sampled(self, job: str, name: LogName) -> dict[str, Any]:
        return self.samples.of_model(job, (name.model or "", name.model_id or 0))

    def _count(self, inference: OpenInference) -> None:
        """Count what is told: records may have come twice, and what was partial may become final."""
        self.inferences += inference.counted is None
        known, inference.counted = inference.counted or Counter(), inference.records_of_units()
        for unit in (LogKind.AICORE, LogKind.AICPU):
            self.records[unit.value] += inference.counted[unit] - known[unit]

    def _doubts(self, *, has_counters: bool) -> dict[str, list[str]]:
        """The counters that are not certain, where there are any and they are shown."""
        return {"likely": list(self.likely)} if self.likely and has_counters else {}

    def _take_back(self, job_name: str, job: LiveJob, change: ContentLedger) -> None:
        """What the bytes of a log do not show any more, as layers without a name whose table came later."""
        known = self._shown.get((job_name, change.path, True), {})
        reasons = {entry.reason for entry in change.entries}
        for reason in [each for each in known if each not in reasons]:
            entry = known.pop(reason)
            self._count_entry(entry, -entry.count)
            for inference in [] if change.path is None else job.of_log(parse_log_name(change.path)):
                if inference.entries.get(reason) == entry:
                    del inference.entries[reason]

    def _is_new(self, key: tuple[str, str | None, bool], entry: Entry) -> bool:
        """Whether an entry was not told as it is; it counts from now on."""
        shown = self._shown[key] = self._shown.get(key, {})
        known = shown.get(entry.reason)
        if known == entry:
            return False
        shown[entry.reason] = entry
        self._count_entry(entry, entry.count - (known.count if known is not None else 0))
        return True

    def _count_entry(self, entry: Entry, count: int) -> None:
        self.ledger[entry.grade] += count
        if entry.reason == SEQUENCE_GAP:
            self.left_out += count

    def _entry(self, job_name: str, job: LiveJob, path: str | None, entry: Entry, *, of_bytes: bool) -> Iterator[Event]:
        """A ledger entry that was not told: with its inference while that is to be told, else on its own.

        Records that the runtime left out are only counted: nearly every inference has some.
        """
        if not self._is_new((job_name, path, of_bytes), entry) or entry.reason == SEQUENCE_GAP:
            return
        open_inferences = [] if path is None else job.of_log(parse_log_name(path))
        if open_inferences and open_inferences[-1].shown is not FigureState.PARTIAL:
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

    def _kept_loss(self, loss: KeptLoss) -> Iterator[Event]:
        """A loss that the daemon keeps: told on every stream, shown when it is new or has newer figures."""
        if self._is_new(("", f"{loss.number}", False), loss.entry):
            yield {"event": "kept_loss", **loss.fields, "simulated": self.simulated}

    def _event(self, kind: str, job: str, **fields: Any) -> Event:
        return {"event": kind, "job": job, **fields, "simulated": self.simulated}
