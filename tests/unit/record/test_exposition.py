"""What is counted of a capture for Prometheus."""

from __future__ import annotations

import pytest

from profagent.errors import UnreachableError
from profagent.ingest import reasons
from profagent.ingest.changes import ContentLedger, JobChanges, KeptLoss, LinkLedger, SourceRows
from profagent.link.messages import JobStatus
from profagent.record.exposition import Exposition, Measured
from tests.encoders import aicpu_record, done_text
from tests.unit.record.link import Nobody, board
from tests.unit.watch.arriving_job import START_US, ArrivingJob, aicore_done, aicore_path, records

LOSS, NOTE = reasons.DISK_FULL, reasons.SEQUENCE_GAP


@pytest.fixture
def measured() -> Measured:
    return Measured(Nobody(), Exposition(), "lab1")


def value(measured: Measured, metric: str, /, **labels: str) -> float | None:
    return measured._to.registry.get_sample_value(f"profagent_{metric}", {"board": "lab1", **labels})


class Counted:
    """In the place of the events of a JOB that arrives: it is counted."""

    def __init__(self, measured: Measured) -> None:
        self._measured = measured

    def feed(self, batch: JobChanges, _now_s: float) -> tuple[()]:
        self._measured.changed([batch])
        return ()


def test_an_inference_is_timed_once_on_both_processors(measured: Measured) -> None:
    job, cpu = ArrivingJob(), aicore_path().replace("aicore", "aicpu")
    job.events = Counted(measured)  # type: ignore[assignment]
    job.begin()
    job.announce(aicore_path(), cpu)
    job.send(aicore_path(), records(700, 1400, 7000))
    job.send(aicore_path() + ".done", aicore_done(768))
    assert value(measured, "inference_seconds_count", model="m") is None
    after = START_US + 2_000, START_US + 11_000
    job.send(cpu, aicpu_record(0, *after, after, 1))
    job.send(cpu + ".done", done_text(file_len=128, start_time=after[0], end_time=after[1]))
    job.send(aicore_path() + ".done", aicore_done(768))
    assert value(measured, "inference_seconds_count", model="m") == 1
    assert value(measured, "inference_seconds_sum", model="m") == pytest.approx(0.0013 + 0.009)


def test_losses_are_those_that_the_ledger_has_now(measured: Measured) -> None:
    def tell(*changes: object) -> float | None:
        measured.changed([JobChanges("JOBA", "", changes)])  # type: ignore[arg-type]
        return value(measured, "losses", reason=LOSS)

    lost, noted = reasons.entry(LOSS, "x", count=3), reasons.entry(NOTE, "x", count=9)
    assert (lost.grade, noted.grade) == ("loss", "note")
    assert tell(ContentLedger("a", (lost, noted))) == 3
    assert tell(ContentLedger("b", (lost,))) == 6
    assert tell(ContentLedger("a", ())) == 3
    assert tell(LinkLedger(None, lost), LinkLedger("c", lost)) == 9
    assert tell(KeptLoss(5, lost), KeptLoss(5, lost)) == 12
    assert value(measured, "losses", reason=NOTE) is None


def test_a_metric_has_its_last_value(measured: Measured) -> None:
    names = SourceRows("00000001", "metric_name", [(0, "npu.temperature", "C")])
    rows = SourceRows("00000001", "metric", [(0, 0, 1_000, 40.0), (1, 0, 2_000, 41.5)])
    measured.changed([JobChanges("METRICS-x", "", [names, rows])])
    assert value(measured, "metric", name="npu.temperature", unit="C") == 41.5
    assert value(measured, "records_total", kind="metric") == 2


def test_a_stream_that_was_open_is_lost_once_and_one_that_never_was_is_not(measured: Measured) -> None:
    away = UnreachableError("away", hint="wait")
    measured.unlinked(away, 1.0)
    assert value(measured, "links_lost_total") == 0
    measured.linked(board(), "operator")
    for _ in range(3):
        measured.unlinked(away, 1.0)
    assert value(measured, "links_lost_total") == 1


def test_collections_that_are_gone_count_nothing(measured: Measured) -> None:
    measured.jobs_changed([JobStatus(1, "JOBA", "/a", "open", False), JobStatus(2, "JOBB", "/b", "open", False)])
    assert value(measured, "collections", source="job", state="open") == 2
    measured.jobs_changed([JobStatus(1, "JOBA", "/a", "finished", True)])
    assert value(measured, "collections", source="job", state="open") == 0
    assert value(measured, "collections", source="job", state="finished") == 1
    measured.ended()
    assert (value(measured, "capturing"), value(measured, "link_up")) == (0, 0)
