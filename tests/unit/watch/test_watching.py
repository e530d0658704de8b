"""What of a stream is decoded for someone who watches, and what is remembered for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from profagent.ingest.changes import (
    ApiRecords,
    InferenceTimed,
    JobChanges,
    LinkLedger,
    LogAnnounced,
    LogJudged,
    Redecoded,
    SegmentRecords,
    SourceRows,
)
from profagent.limits import SILENCE_S
from profagent.link.messages import Chunk, FollowedLog, JobStatus, Profiling, Received
from profagent.record.beginnings import Beginnings
from profagent.store.counter_maps import BUILT_IN
from profagent.watch import watching
from profagent.watch.lines import line_of
from profagent.watch.live_board import LiveBoard
from profagent.watch.screen import paint
from profagent.watch.watch import INTERVAL_ZERO, Silence
from profagent.watch.watching import FORGOTTEN, REMEMBERED_JOBS, Watching
from tests.encoders import api_record
from tests.unit.record.link import BOARD_US, JOB, Sender, board, job_status
from tests.unit.store.rows import aicore
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


# What is told now and then of a board's metrics, subscriptions and spans

METRICS, OPS, MARKS = (f"{name}-20261123T140000123Z" for name in ("METRICS-board", "OPS-front-door", "MARKS-program"))
SECOND = 1_000_000
NOON_US = 1_795_262_400 * SECOND


def take(live: LiveBoard, collection: str, table: str, *rows: tuple[Any, ...], anew: bool = False) -> None:
    live.take(JobChanges(collection, "/spool", [SourceRows("00000001", table, rows, anew=anew)]))


def op(number: int, end_us: int) -> tuple[Any, ...]:
    return (number, 1, "Conv", "conv1", end_us - 10, end_us, 10, number)


def span(text: str, begin_us: int, duration_us: int, kind: str = "span") -> tuple[Any, ...]:
    return (0, kind, text, "{}", 5, 7, begin_us * 1000, (begin_us + duration_us) * 1000, 0, 0)


@pytest.fixture
def live() -> LiveBoard:
    found = LiveBoard()
    names = [(0, "npu.hw_utilization", "%"), (1, "thermal.0", "C"), (2, "daemon.cpu", "%")]
    names.append((3, "disk./data/npu.hw_utilization.used", "B"))
    take(found, METRICS, "metric_name", *names)
    take(found, METRICS, "metric", *((number, number, NOON_US, 10.0 + number) for number in range(4)))
    return found


def test_a_line_has_the_newest_of_everything(live: LiveBoard) -> None:
    take(live, OPS, "op_event", *(op(number, NOON_US + number * SECOND // 100) for number in range(100)))
    take(live, MARKS, "range", span("infer", NOON_US, 3000), span("infer", NOON_US, 5000), span("pre", NOON_US, 10))
    # The clock was set back meanwhile.
    take(live, MARKS, "range", span("infer", NOON_US, -9000))
    take(live, MARKS, "range", span("frame", NOON_US, 0, "mark"))
    event = live.event()
    assert event is not None
    assert line_of({**event, "simulated": False}) == (
        "12:00:00.990  board  NPU 10%  11.0 C  profagentd 12.0%  front-door 101 ops/s  infer 4.000 ms  pre 0.010 ms"
        "  1 mark"
    )
    assert live.event() is None
    take(live, OPS, "op_event", op(100, NOON_US + 3 * SECOND))
    following = live.event()
    assert following is not None
    assert following["ops"] == [{"source": "front-door", "count": 1, "per_s": 1 / 2.01}]
    assert following["spans"] == []
    assert following["npu_utilization"] == 10


def test_what_is_not_known_is_not_invented() -> None:
    live = LiveBoard()
    take(live, METRICS, "metric", (0, 9, NOON_US, 1.0))  # its name was told before
    assert live.event() is None
    take(live, MARKS, "range", span("infer", NOON_US, 3000))
    event = live.event()
    assert event is not None
    assert "NPU N/A  N/A C  profagentd N/A  infer 3.000 ms" in line_of({**event, "simulated": False})


def test_what_comes_again_after_a_lost_link_is_not_counted_again(live: LiveBoard) -> None:
    take(live, OPS, "op_event", op(0, NOON_US + 10))
    live.event()
    live.link_is_lost()
    take(live, METRICS, "metric_name", anew=True)
    take(live, OPS, "op_event", op(0, NOON_US + 10))
    assert live.event() is None
    take(live, OPS, "op_event", op(1, NOON_US + 20))
    event = live.event()
    assert event is not None
    assert event["ops"][0]["count"] == 1


# What is said when nothing comes of a board whose program goes on

NONE_CAME = f"no inference has come for {SILENCE_S:.0f} s"


class Heard:
    """A board that is watched, at a time that a test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.silence = Silence(lambda: self.now_s)

    def job(self, state: str = "open", interval: str | None = None, *, caught_up: bool = True) -> None:
        told = None if interval is None else Profiling("/acl.json", interval)
        self.silence.jobs_changed([JobStatus(1, JOB, "/root", state, caught_up, told)])

    def infer(self, *counts: int) -> None:
        changes = [aicore(aicore_path(count), [100]) for count in counts]
        self.silence.take(JobChanges(JOB, "/root", changes))

    def after(self, seconds: float = SILENCE_S) -> str | None:
        self.now_s += seconds
        return self.silence.remark()


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.mark.parametrize("interval", [None, "0", ""])
@pytest.mark.parametrize("counts", [(), (0,), (0, 0)])
def test_an_interval_of_0_is_named_once_where_it_can_be(
    heard: Heard, interval: str | None, counts: tuple[int, ...]
) -> None:
    heard.job(interval=interval)
    heard.infer(*counts)
    assert heard.after(SILENCE_S - 1) is None
    assert heard.after(1) == INTERVAL_ZERO
    assert heard.after() is None


def test_where_inferences_came_before_no_interval_is_guessed(heard: Heard) -> None:
    heard.job()
    heard.infer(0, 1)
    assert heard.after() == NONE_CAME
    assert heard.after() is None


def test_after_a_lost_link_the_silence_begins_anew(heard: Heard) -> None:
    """And what came before is remembered."""
    heard.job()
    heard.infer(0, 1)
    heard.silence.unlinked()
    assert heard.after(60) is None
    heard.job()
    assert heard.after(SILENCE_S - 1) is None
    assert heard.after(1) == NONE_CAME
