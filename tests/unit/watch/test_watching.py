"""What of a stream is decoded for someone who watches, and what is remembered for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from profagent.ingest.changes import (
    ApiRecords,
    InferenceTimed,
    LinkLedger,
    LogAnnounced,
    LogJudged,
    Redecoded,
    SegmentRecords,
)
from profagent.link.messages import Chunk, FollowedLog, JobStatus, Received
from profagent.record.beginnings import Beginnings
from profagent.store.counter_maps import BUILT_IN
from profagent.watch import watching
from profagent.watch.screen import paint
from profagent.watch.watching import (
    FORGOTTEN,
    REMEMBERED_JOBS,
    Watching,
)
from tests.encoders import api_record
from tests.unit.record.link import BOARD_US, JOB, Sender, board, job_status
from tests.unit.watch.arriving_job import INFO_JSON, aicore_done, aicore_path, records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagent.ingest.changes import Change


CALLS = "data/acl_api.0.m.0"


async def _sender(beginnings: Beginnings | None = None, *, simulated: bool = False) -> Sender:
    """A watched JOB, shown from its start unless told otherwise."""
    beginnings = beginnings or Beginnings(from_start=True)
    beginnings.wants(JobStatus(1, JOB, "/root", "open", caught_up=False), listed=True)
    sender = Sender(Watching(BUILT_IN, beginnings))
    await sender.open(of=board(simulated=simulated))
    return sender


def _of(kind: type[Change], changes: Sequence[Change]) -> list[Change]:
    return [change for change in changes if isinstance(change, kind)]


def _but_announced(changes: Sequence[Change]) -> list[Change]:
    return [change for change in changes if not isinstance(change, LogAnnounced)]


async def test_a_log_is_judged_when_it_and_its_done_are_whole() -> None:
    sender = await _sender()
    assert _of(LogJudged, await sender.send(aicore_path(), records(700), complete=False)) == []
    done = await sender.send(aicore_path() + ".done", aicore_done(256), snapshot=True)
    assert _of(LogJudged, done) == []
    changes = await sender.send(aicore_path(), records(700))
    assert _of(LogJudged, changes) == [LogJudged(aicore_path(), 1, "")]


@pytest.mark.parametrize("path", ["data/core", b"../../etc/passwd", b"/etc/passwd", "data/cont.0.m.0.1.1.0"])
async def test_what_is_no_use_to_a_watcher_is_not_wanted(path: str | bytes) -> None:
    sender = await _sender()
    _, holding = await sender.offer(path, snapshot=True)
    assert holding.skip


async def test_batches_at_run_time_that_come_late_are_used() -> None:
    sender = await _sender()
    path = "data/aicore.0.m.3.0.2.3.0"
    await sender.send(path, records(*range(100, 109)))
    changes = await sender.send(path + ".done", aicore_done(9 * 256, batches="2,1"), snapshot=True)
    assert len(_of(Redecoded, changes)) == 1
    timed = [change for change in changes if isinstance(change, InferenceTimed)]
    assert {change.done.online_batch_num for change in timed if change.done is not None} == {(2, 1)}


async def test_calls_from_before_are_left_out_of_a_file_that_comes_whole() -> None:
    beginnings = Beginnings(from_start=False)
    sender = await _sender(beginnings)
    beginnings.caught_up(JOB)
    calls = api_record(2, BOARD_US - 900, BOARD_US - 400) + api_record(2, BOARD_US + 100, BOARD_US + 600)
    (taken,) = _of(ApiRecords, await sender.send(CALLS, calls))
    assert isinstance(taken, ApiRecords)
    assert taken.records["end_us"].tolist() == [BOARD_US + 600]
    assert taken.number.tolist() == [1]


async def test_calls_that_were_shown_are_not_shown_again_after_a_lost_link() -> None:
    sender = await _sender()
    first = api_record(2, 100, 200)
    assert len(_of(ApiRecords, await sender.send(CALLS, first, complete=False))) == 1
    await sender.open()
    (again,) = _of(ApiRecords, await sender.send(CALLS, first + api_record(2, 300, 400), complete=False))
    assert isinstance(again, ApiRecords)
    assert again.records["begin_us"].tolist() == [300]
    await sender.open()
    assert _of(ApiRecords, await sender.send(CALLS, first + api_record(2, 300, 400), complete=False)) == []


async def test_a_snapshot_that_is_not_small_is_told_and_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LARGEST_CONTENT_BYTES", 8)
    sender = await _sender()
    (change,) = _but_announced(await sender.send("info.json.0", INFO_JSON, snapshot=True))
    assert isinstance(change, LinkLedger)
    assert change.entry.reason == "too-large"


async def test_small_files_that_come_of_several_jobs_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "REMEMBERED_BYTES", 10)
    sender = await _sender()
    told = []
    for sender.job in (JOB, "JOB" + "O" * 29, "JOB" + "P" * 29):
        sender.sink.know_job(job_status(sender.job))
        changes = await sender.send("data/m.0.layer.info", b"1234", snapshot=True, complete=False)
        told.append(_but_announced(changes))
    assert told[:2] == [[], []]
    (dropped,) = told[2]
    assert isinstance(dropped, LinkLedger)
    assert dropped.entry.reason == "too-large"


async def test_data_that_is_not_kept_any_more_is_told_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "REMEMBERED_BYTES", 2_000)
    sender = await _sender()
    path = "data/aicore.0.m.3.0.2.3.0"
    await sender.send(path, records(*range(100, 109)), complete=False)
    done = await sender.send(path + ".done", aicore_done(9 * 256, batches="2,1"), snapshot=True)
    (change,) = _but_announced(done)
    assert isinstance(change, LinkLedger)
    assert change.entry.reason == "too-large"


@pytest.mark.parametrize("what", ["JOBs", "bytes"])
async def test_jobs_are_bounded_in_all_and_the_oldest_is_told(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if what == "bytes":
        monkeypatch.setattr(watching, "REMEMBERED_JOBS", 1_000)
        room = len(records(700)) + watching.FILE_BYTES
        monkeypatch.setattr(watching, "REMEMBERED_BYTES_OF_ALL", REMEMBERED_JOBS * room)
    sender = await _sender()
    await sender.send(aicore_path(), records(700), complete=False)
    told: list[Change] = []
    for number in range(REMEMBERED_JOBS):
        sender.job = f"JOB{chr(65 + number)}{'B' * 28}"
        sender.sink.know_job(job_status(sender.job))
        told += _of(LinkLedger, await sender.send(aicore_path(), records(700)))
    assert told == [LinkLedger(None, FORGOTTEN)]
    # What goes on of it has no beginning here; what begins anew is shown.
    sender.job = JOB
    (log, _) = await sender.offer(aicore_path())
    data = records(700)
    grown = Chunk(log.handle, 1, len(data), data)
    at = FollowedLog(log.handle, JOB, log.path, snapshot=False, generation=1, offset=2 * len(data))
    gone, *_ = _but_announced(await sender.happen(Received(JOB, at, grown)))
    assert isinstance(gone, LinkLedger)
    assert gone.entry.reason == "too-large"
    assert _of(SegmentRecords, await sender.send(aicore_path(1), data))


# What is drawn of numbers: none is cut, and no shape is there that the values do not have

COUNTS = [(0, "0"), (9_999, "9,999"), (12_345, "12.3k"), (999_999, "1.0M"), (12_533_760, "12.5M"), (10**16, "10000.0T")]


@pytest.mark.parametrize(("number", "text"), COUNTS)
def test_a_large_count_is_short(number: int, text: str) -> None:
    assert paint.compact(number) == text


def lines_of(values: list[float], bins: int) -> list[str]:
    lines = paint.histogram(np.array(values, float), 60, bins)
    return ["".join(part.text for part in line) for line in lines]


SPREADS = {
    "fine ticks": [97.0 + each / 24 for each in range(60)],
    "ticks of 3 us": [100.0 + 3 * (each % 7) for each in range(90)],
    "ticks of 1.5 us": [100.0 + 1.5 * (each % 9) for each in range(90)],
    "one value": [98.5] * 20,
    "two values with rounding": [98.0, 98.0 + 1e-12, 99.0, 99.0] * 5,
    "a wide range": np.linspace(5.0, 90_000.0, 300).tolist(),
}


@pytest.mark.parametrize("name", SPREADS)
@pytest.mark.parametrize("bins", [1, 2, 7, 12, 40])
def test_a_histogram_has_no_gap_that_is_a_tick(name: str, bins: int) -> None:
    values = SPREADS[name]
    lines = lines_of(values, bins)
    labels = [line.partition("▕")[0] for line in lines]
    assert 1 <= len(lines) <= bins
    assert len(set(labels)) == len(lines)
    assert sum("◂" in line for line in lines) == 1
    counts = [int(line.replace("◂", "").split()[-1].strip("█")) for line in lines]
    assert sum(counts) == len(values)
    assert all(counts)


def test_a_gap_between_values_is_shown() -> None:
    assert any(not any(sign.isdigit() for sign in line.partition("▕")[2]) for line in lines_of([100, 101, 102, 140], 4))
