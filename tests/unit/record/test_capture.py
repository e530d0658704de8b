"""A board's messages through a capture: what does not wait until a batch is on the disk, and what is told of it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from profagent import ledger
from profagent.errors import UnreachableError
from profagent.ingest.changes import ContentLedger, JobChanges, LinkLedger, RecordedLoss, SourceRows
from profagent.ingest.mirror import digest_of
from profagent.link.messages import (
    Acknowledge,
    Acknowledgement,
    Announced,
    AnnouncedLog,
    Batch,
    ClientMessage,
    JobsListed,
    JobStatus,
    Open,
    ServerMessage,
    Started,
    Welcome,
)
from profagent.record.capture import Capture, FollowedStream
from profagent.record.exposition import Exposition, MeasuringObserver
from profagent.record.recording import Step
from profagent.store.writer import Applied
from tests.encoders import aicpu_record, api_record, done_text
from tests.unit.record.link import Nobody, board, job_status
from tests.unit.record.test_recording import Kept, keeping
from tests.unit.watch.arriving_job import START_US, ArrivingJob, aicore_done, aicore_path, records

DATA = records(3)
OPENING = (Welcome(board(), 0), job_status(), JobsListed())


class Wire:
    """A stream of which the other end is here, and its channel."""

    def __init__(self) -> None:
        self.coming: asyncio.Queue[ServerMessage | UnreachableError] = asyncio.Queue()
        self.acknowledged: asyncio.Queue[Acknowledgement] = asyncio.Queue()
        self.is_over = False

    async def ready(self) -> None:
        """It is."""

    async def receive(self) -> ServerMessage:
        try:
            message = await self.coming.get()
        except asyncio.CancelledError:
            self.is_over = True  # as a call of gRPC
            raise
        if isinstance(message, UnreachableError):
            raise message
        return message

    async def finish(self) -> None:
        self.coming.put_nowait(UnreachableError("the board ended the stream", hint=""))

    async def clocks(self) -> Any:
        raise UnreachableError("it does not tell", hint="")

    async def send(self, message: ClientMessage) -> None:
        if self.is_over:
            raise UnreachableError("it is over", hint="")
        for each in message.logs if isinstance(message, Acknowledge) else ():
            self.acknowledged.put_nowait(each)


def followed(kept: Kept, wire: Any, stop: asyncio.Event) -> FollowedStream:
    observer: Any = Nobody()
    sink = kept.recording
    capture = Capture(
        "board:1", sink, observer, wants=lambda *_: True, consumer="test", gather_s=0.0, stop=stop, is_patient=True
    )
    capture.session.tick(asyncio.get_running_loop().time())
    return FollowedStream(capture, wire, wire)


async def test_logs_are_answered_while_a_batch_goes_to_the_disk(tmp_path: Path) -> None:
    is_on_disk = threading.Event()

    def sync(_: Path) -> None:
        assert is_on_disk.wait(60)

    async with keeping(tmp_path, sync=sync) as kept:
        talking = followed(kept, Wire(), asyncio.Event())
        await talking.open()
        for message in (*OPENING, announced(1)):
            await talking.take(message)
        talking._queue.put_nowait(announced(2))  # more is at hand
        await talking.take(Batch((Started(1, 1, 0, "new", DATA),)))
        await talking.flush()
        try:
            await asyncio.wait_for(talking.take(talking._queue.get_nowait()), 60)
        finally:
            is_on_disk.set()
        await talking.take(replace(job_status(), state="finished"))
        assert await kept.rows("SELECT state, (SELECT max(offset) FROM log) FROM job") == [("finished", len(DATA))]


async def test_what_is_durable_is_told_while_the_stream_goes_on_and_at_its_end(tmp_path: Path) -> None:
    stop, wire, is_taken = asyncio.Event(), Wire(), asyncio.Event()

    def reached(step: Step) -> None:
        if step is Step.ACKNOWLEDGED:
            is_taken.set()

    async with keeping(tmp_path, reached=reached) as kept:
        talking = asyncio.create_task(followed(kept, wire, stop).run())
        for message in (*OPENING, announced(1), announced(2), whole(1)):
            wire.coming.put_nowait(message)
        told = await asyncio.wait_for(wire.acknowledged.get(), 60)
        assert told == Acknowledgement(1, 1, len(DATA), complete=True)
        is_taken.clear()
        wire.coming.put_nowait(whole(2))
        await asyncio.wait_for(is_taken.wait(), 60)
        stop.set()
        await talking
        assert wire.acknowledged.get_nowait() == Acknowledgement(2, 1, len(DATA), complete=True)


class Deaf(Wire):
    """A stream whose other end speaks, and takes nothing once it was followed."""

    def __init__(self) -> None:
        super().__init__()
        self.is_spoken_to = asyncio.Event()
        self.why = ""

    async def send(self, message: ClientMessage) -> None:
        if not isinstance(message, Open):
            self.is_spoken_to.set()
            await asyncio.Event().wait()

    def cancel(self, why: str) -> None:
        self.why = why
        self.coming.put_nowait(UnreachableError(why, hint=""))


async def test_a_board_that_takes_nothing_holds_up_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profagent.record.capture.LEAVE_S", 0.01)
    stop, wire = asyncio.Event(), Deaf()
    async with keeping(tmp_path) as kept:
        stream = followed(kept, wire, stop)
        for message in (*OPENING, announced(1)):
            wire.coming.put_nowait(message)
        talking = asyncio.create_task(stream.run())
        await wire.is_spoken_to.wait()
        stop.set()
        await asyncio.wait_for(talking, 60)
    assert wire.why == "it does not take what this host says"


def announced(number: int) -> Announced:
    """A log of the JOB."""
    return Announced((AnnouncedLog(number, 1, aicore_path(number).encode(), snapshot=False),))


def whole(number: int) -> Batch:
    """All of it."""
    return Batch((Started(number, 1, 0, "new", DATA, digest_of(DATA)),))


# What is counted of a capture for Prometheus

LOSS, NOTE = ledger.DISK_FULL, ledger.SEQUENCE_GAP


@pytest.fixture
def measured() -> MeasuringObserver:
    return MeasuringObserver(Nobody(), Exposition(), "lab1")


def value(measured: MeasuringObserver, metric: str, /, **labels: str) -> float | None:
    return measured._to.registry.get_sample_value(f"profagent_{metric}", {"board": "lab1", **labels})


class Counted:
    """In the place of the events of a JOB that arrives: it is counted."""

    def __init__(self, measured: MeasuringObserver) -> None:
        self._measured = measured

    def batch_events(self, applied: Applied, _now_s: float) -> tuple[()]:
        self._measured.changed([applied])
        return ()


@pytest.fixture
def job(measured: MeasuringObserver) -> ArrivingJob:
    """A JOB that arrives and is counted."""
    arriving = ArrivingJob()
    arriving.events = Counted(measured)  # type: ignore[assignment]
    arriving.begin()
    return arriving


def latency(measured: MeasuringObserver, what: str, origin: str) -> float | None:
    return value(measured, f"latency_seconds_{what}", model="m", latency_from=origin)


def test_an_inference_is_timed_once_on_both_processors(measured: MeasuringObserver, job: ArrivingJob) -> None:
    cpu = aicore_path().replace("aicore", "aicpu")
    job.announce(aicore_path(), cpu)
    job.send(aicore_path(), records(700, 1400, 7000))
    job.send(aicore_path() + ".done", aicore_done(768))
    assert latency(measured, "count", "records") is None
    after = START_US + 2_000, START_US + 11_000
    job.send(cpu, aicpu_record(0, *after, after, 1))
    job.send(cpu + ".done", done_text(file_len=128, start_time=after[0], end_time=after[1]))
    job.send(aicore_path() + ".done", aicore_done(768))
    assert latency(measured, "count", "records") == 1
    assert latency(measured, "sum", "records") == pytest.approx(0.011), "from the first begin to the last end"
    assert value(measured, "layers_seconds", model="m") == pytest.approx(0.0013 + 0.009)
    assert (value(measured, "layers_recorded", model="m"), value(measured, "layers_known", model="m")) == (3, 3)


def test_a_latency_is_observed_when_its_call_comes_and_the_pace_with_it(
    measured: MeasuringObserver, job: ArrivingJob
) -> None:
    calls = "data/acl_api.0.m.0"
    job.announce(calls)
    for pictures in range(2):
        job.send(aicore_path(pictures), records(700))
        job.send(aicore_path(pictures) + ".done", aicore_done(256, START_US + pictures * 5_000))
    assert [latency(measured, "count", origin) for origin in ("call", "records")] == [None, None]
    job.send(calls, api_record(2, START_US - 100, START_US + 1_000))
    assert [latency(measured, what, "call") for what in ("count", "sum")] == pytest.approx([1, 0.0011])
    job.send(calls, api_record(2, START_US + 4_900, START_US + 6_300))
    assert [latency(measured, what, "call") for what in ("count", "sum")] == pytest.approx([2, 0.0025])
    assert latency(measured, "count", "records") is None
    assert value(measured, "inferences_per_second", model="m") == pytest.approx(200.0)
    assert value(measured, "gap_seconds", model="m") == pytest.approx(0.0039)


def test_losses_are_those_that_the_ledger_has_now(measured: MeasuringObserver) -> None:
    def tell(*changes: object) -> float | None:
        measured.changed([Applied(JobChanges("JOBA", "", changes))])  # type: ignore[arg-type]
        return value(measured, "losses", reason=LOSS)

    lost, noted = ledger.entry(LOSS, "x", count=3), ledger.entry(NOTE, "x", count=9)
    assert (lost.grade, noted.grade) == ("loss", "note")
    assert tell(ContentLedger("a", (lost, noted))) == 3
    assert tell(ContentLedger("b", (lost,))) == 6
    assert tell(ContentLedger("a", ())) == 3
    assert tell(LinkLedger(None, lost), LinkLedger("c", lost)) == 9
    assert tell(RecordedLoss(5, lost), RecordedLoss(5, lost)) == 12
    assert value(measured, "losses", reason=NOTE) is None


def test_a_metric_has_its_last_value(measured: MeasuringObserver) -> None:
    names = SourceRows("00000001", "metric_name", [(0, "npu.temperature", "C")])
    rows = SourceRows("00000001", "metric", [(0, 0, 1_000, 40.0), (1, 0, 2_000, 41.5)])
    measured.changed([Applied(JobChanges("METRICS-x", "", [names, rows]))])
    assert value(measured, "metric", name="npu.temperature", unit="C") == 41.5
    assert value(measured, "records_total", kind="metric") == 2


def test_a_program_that_is_started_again_has_the_series_it_had(measured: MeasuringObserver) -> None:
    names = [(0, "program.my-app-17.rss", "B"), (1, "program.my-app-18.rss", "B"), (2, "daemon.rss", "B")]
    rows = [(0, 0, 1_000, 7.0), (1, 0, 2_000, 8.0), (2, 1, 2_000, 2.0), (3, 2, 2_000, 1.0)]
    changes = [SourceRows("00000001", "metric_name", names), SourceRows("00000001", "metric", rows)]
    measured.changed([Applied(JobChanges("METRICS-x", "", changes))])
    assert value(measured, "metric", name="program.my-app.rss", unit="B") == 10.0
    assert value(measured, "metric", name="daemon.rss", unit="B") == 1.0
    assert value(measured, "metric", name="program.my-app-17.rss", unit="B") is None


def test_a_stream_that_was_open_is_lost_once_and_one_that_never_was_is_not(measured: MeasuringObserver) -> None:
    away = UnreachableError("away", hint="wait")
    measured.unlinked(away, 1.0)
    assert value(measured, "links_lost_total") == 0
    measured.linked(board(), "operator")
    for _ in range(3):
        measured.unlinked(away, 1.0)
    assert value(measured, "links_lost_total") == 1


def test_collections_that_are_gone_count_nothing(measured: MeasuringObserver) -> None:
    measured.jobs_changed([JobStatus(1, "JOBA", "/a", "open", False), JobStatus(2, "JOBB", "/b", "open", False)])
    assert value(measured, "collections", source="job", state="open") == 2
    measured.jobs_changed([JobStatus(1, "JOBA", "/a", "finished", True)])
    assert value(measured, "collections", source="job", state="open") == 0
    assert value(measured, "collections", source="job", state="finished") == 1
    measured.ended()
    assert (value(measured, "capturing"), value(measured, "link_up")) == (0, 0)
