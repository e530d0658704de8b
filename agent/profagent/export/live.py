"""What a batch of changes means to someone who watches: events, in the order in which things became known."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from profagent.export.kept_loss import kept_loss_fields
from profagent.export.live_inference import Layer, OpenInference, model_fields, rounded
from profagent.export.live_job import LiveJob
from profagent.export.live_samples import LiveSamples
from profagent.formats.names import display_text, parse_log_name
from profagent.formats.records import api_name
from profagent.ingest.changes import (
    ApiRecords,
    ContentLedger,
    Entry,
    KeptLoss,
    LinkLedger,
    Redecoded,
    SegmentRecords,
    SimulatedKnown,
)
from profagent.link.messages import ENDED_STATES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from profagent.ingest.changes import Change, JobChanges

TOLD_ENTRIES = 10_000
# JOBs of which anything is remembered, those that were heard of last.
REMEMBERED_JOBS = 16
# Records of inferences that are not whole, of all JOBs; an inference that alone has more is shown as it is.
OPEN_RECORDS = 50_000

Event = dict[str, Any]


class LiveEvents:
    """Turns changes into events. `with_records` gives one for each record, else one for each inference."""

    def __init__(self, *, with_records: bool = False) -> None:
        self.simulated = False
        # Counters that the map in use calls likely, not certain.
        self.likely: Sequence[str] = ()
        self.samples = LiveSamples()
        self.inferences = 0
        self.records = dict.fromkeys(("aicore", "aicpu", "acl_api"), 0)
        self.ledger = {"loss": 0, "note": 0}
        self._with_records = with_records
        self._jobs: OrderedDict[str, LiveJob] = OrderedDict()
        self._told: OrderedDict[tuple[str, str | None, str], Entry] = OrderedDict()

    def feed(self, batch: JobChanges) -> Iterator[Event]:
        """Events of one JOB's changes."""
        job = self._jobs.setdefault(batch.job, LiveJob())
        self._jobs.move_to_end(batch.job)
        yield from self._make_room()
        for change in batch.changes:
            self.samples.take(batch.job, change)
            yield from self._change(batch.job, job, change)
        for inference, is_whole in job.due(has_ended=batch.state in ENDED_STATES):
            yield self._inference(batch.job, inference, complete=is_whole)
        yield from self._tell_oldest()
        if batch.state not in (None, job.state):
            job.state = batch.state
            yield self._event("job", batch.job, state=batch.state)

    def _make_room(self) -> Iterator[Event]:
        """Show what there is of the JOB that was not heard of for longest, and forget it."""
        while len(self._jobs) > REMEMBERED_JOBS:
            name, job = self._jobs.popitem(last=False)
            for inference, is_whole in job.due(has_ended=True):
                yield self._inference(name, inference, complete=is_whole)

    def _tell_oldest(self) -> Iterator[Event]:
        """Show what there is of too many records: the oldest inferences of JOBs that were not heard of for longest."""
        too_many = sum(job.open_records for job in self._jobs.values()) - OPEN_RECORDS
        for name, job in self._jobs.items():
            for inference in job.oldest(too_many):
                too_many -= inference.size
                yield self._inference(name, inference, complete=False)

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
            "sampling": self.samples.in_all(),
            "ledger": dict(self.ledger),
            "simulated": self.simulated,
        }

    def _change(self, job_name: str, job: LiveJob, change: Change) -> Iterator[Event]:
        match change:
            case SegmentRecords():
                yield from self._segments(job_name, job, change)
            case Redecoded():
                job.redecode(change)
            case ApiRecords():
                yield from self._calls(job_name, change)
            case ContentLedger():
                for entry in change.entries:
                    yield from self._entry(job_name, job, change.path, entry)
            case LinkLedger():
                yield from self._entry(job_name, job, change.path, change.entry)
            case KeptLoss():
                yield from self._kept_loss(change)
            case SimulatedKnown():
                self.simulated = True
            case _:
                job.know(change)

    def _segments(self, job_name: str, job: LiveJob, change: SegmentRecords) -> Iterator[Event]:
        for number, layer in job.take(change):
            self.records[change.name.kind.value] += 1
            if self._with_records:
                yield self._record(job_name, change, number, layer)

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
            **layer.bound(),
            **self._doubts(layer),
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
        share = self.samples.of_model(job_name, inference.name)
        doubts = self._doubts(*inference.layers[:1])
        return self._event("inference", job_name, **inference.fields(), **doubts, **share, complete=complete)

    def _doubts(self, *layers: Layer) -> dict[str, list[str]]:
        """The counters that are not certain, where there are any and a layer shows them."""
        return {"likely": list(self.likely)} if self.likely and any(each.ratios is not None for each in layers) else {}

    def _entry(self, job_name: str, job: LiveJob, path: str | None, entry: Entry) -> Iterator[Event]:
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

    def _kept_loss(self, loss: KeptLoss) -> Iterator[Event]:
        """A loss that the daemon keeps: told on every stream, shown when it is new or has newer figures."""
        key = ("", f"{loss.number}", "kept")
        known = self._told.get(key)
        if known == loss.entry:
            return
        self._told[key] = loss.entry
        self.ledger[loss.entry.grade] += loss.entry.count - (known.count if known is not None else 0)
        yield {"event": "kept_loss", **kept_loss_fields(loss), "simulated": self.simulated}

    def _event(self, kind: str, job: str, **fields: Any) -> Event:
        return {"event": kind, "job": job, **fields, "simulated": self.simulated}
