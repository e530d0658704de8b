"""What is remembered for someone who watches, and what is drawn and said."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from msgspec.structs import replace

from profagent.ingest import memory_mirror
from profagent.ingest.changes import (
    ApiRecords,
    InferenceTimed,
    JobChanges,
    LinkLedger,
    LogJudged,
    NamesAnnounced,
    PlainLogs,
    Redecoded,
    SourceRows,
)
from profagent.ingest.mirror import digest_of
from profagent.limits import SILENCE_S
from profagent.link.messages import Acknowledgement, JobStatus, Profiling, Received, Started
from profagent.record.beginnings import PastFilter
from profagent.record.options import RecordingOptions
from profagent.record.recording import Recording
from profagent.store import room
from profagent.store.store import Store
from profagent.store.writer import Applied
from profagent.watch.lines import line_of
from profagent.watch.live_board import LiveBoard
from profagent.watch.memory import MemoryWorkspace
from profagent.watch.screen import paint
from profagent.watch.watch import INTERVAL_ZERO, Silence, WatchOptions, WatchView
from tests.encoders import api_record
from tests.unit.record.link import BOARD_US, JOB, Sender, board
from tests.unit.store.rows import aicore, calls
from tests.unit.watch.arriving_job import INFO_JSON, aicore_done, aicore_path, records

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from profagent.ingest.changes import Change

CALLS = "data/acl_api.0.m.0"


class Watched:
    """A JOB that is watched, kept in memory only."""

    def __init__(self, store: Store, sender: Sender) -> None:
        self.store, self.sender = store, sender

    async def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return await self.store.query(sql)

    async def infer(self, count: int, ticks: int = 700) -> list[Change]:
        """An inference that comes log by log."""
        data = records(ticks)
        return [
            *await self.sender.send(aicore_path(count), data),
            *await self.sender.send(f"{aicore_path(count)}.done", aicore_done(len(data)), snapshot=True),
        ]

    async def together(self, count: int) -> list[Change]:
        """An inference that comes whole."""
        events: list[Received] = []
        data, path = records(700), aicore_path(count)
        for each, content in ((path, data), (f"{path}.done", aicore_done(len(data)))):
            log, _ = await self.sender.offer(each, snapshot=each != path)
            whole = Started(log.handle, 1, 0, "new", content, digest_of(content))
            events.append(Received(JOB, replace(log, generation=1, offset=len(content)), whole))
        return await self.sender.happen(*events)


@asynccontextmanager
async def watched(past_filter: PastFilter | None = None) -> AsyncIterator[Watched]:
    """Shown from its start unless told otherwise."""
    past_filter = past_filter or PastFilter(from_start=True)
    past_filter.wants(JobStatus(1, JOB, "/root", "open", caught_up=False), listed=True)
    async with Store(None) as store:
        chosen = RecordingOptions(
            lambda: 1, source="watch", past_filter=past_filter, notes_past=False, with_columns=True
        )
        sender = Sender(Recording(MemoryWorkspace(), store, chosen))
        await sender.open()
        yield Watched(store, sender)


def _of(kind: type[Change], changes: Sequence[Change]) -> list[Change]:
    return [change for change in changes if isinstance(change, kind)]


def _but_announced(changes: Sequence[Change]) -> list[Change]:
    return [change for change in changes if not isinstance(change, NamesAnnounced)]


async def test_a_log_is_judged_when_it_and_its_done_are_whole() -> None:
    async with watched() as found:
        send = found.sender.send
        assert _of(LogJudged, await send(aicore_path(), records(700), complete=False)) == []
        assert _of(LogJudged, await send(aicore_path() + ".done", aicore_done(256), snapshot=True)) == []
        assert _of(LogJudged, await send(aicore_path(), records(700))) == [LogJudged(aicore_path(), 1, "")]


@pytest.mark.parametrize("path", [b"../../etc/passwd", b"/etc/passwd"])
async def test_a_path_that_leads_out_of_its_job_is_not_wanted(path: bytes) -> None:
    async with watched() as found:
        _, holding = await found.sender.offer(path, snapshot=True)
        assert holding.skip


async def test_batches_at_run_time_that_come_late_are_used() -> None:
    async with watched() as found:
        path = "data/aicore.0.m.3.0.2.3.0"
        await found.sender.send(path, records(*range(100, 109)))
        changes = await found.sender.send(path + ".done", aicore_done(9 * 256, batches="2,1"), snapshot=True)
        assert len(_of(Redecoded, changes)) == 1
        timed = [change for change in changes if isinstance(change, InferenceTimed)]
        assert {change.done.online_batch_num for change in timed if change.done is not None} == {(2, 1)}


def test_calls_from_before_are_left_out_of_a_file_that_comes_whole() -> None:
    shown: list[dict[str, Any]] = []
    view = WatchView(WatchOptions("board:1", with_records=True), shown.append, lambda _: None)
    view.linked(board(), "viewer")
    view.wants(JobStatus(1, JOB, "/root", "open", caught_up=False), listed=True)
    view.past_filter.caught_up(JOB)
    view.changed([Applied(JobChanges(JOB, "/root", [calls([0, 1], [BOARD_US - 400, BOARD_US + 600])]))])
    assert [event["end_us"] for event in shown if event["event"] == "call"] == [BOARD_US + 600]


async def test_what_was_taken_does_not_come_again_after_a_lost_link() -> None:
    async with watched() as found:
        first = api_record(2, 100, 200)
        assert len(_of(ApiRecords, await found.sender.send(CALLS, first, complete=False))) == 1
        await found.infer(1)
        await found.sender.open()
        (again,) = _of(ApiRecords, await found.sender.send(CALLS, first + api_record(2, 300, 400), complete=False))
        assert isinstance(again, ApiRecords)
        assert again.records["begin_us"].tolist() == [300]
        _, holding = await found.sender.offer(aicore_path(1))
        assert (holding.generation, holding.offset) == (1, 256)


async def test_data_that_is_not_kept_any_more_is_told_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_mirror, "LARGEST_REMEMBERED_BYTES", 2_000)
    async with watched() as found:
        path = "data/aicore.0.m.3.0.2.3.0"
        await found.sender.send(path, records(*range(100, 109)), complete=False)
        done = await found.sender.send(path + ".done", aicore_done(9 * 256, batches="2,1"), snapshot=True)
        (change,) = _but_announced(done)
        assert isinstance(change, LinkLedger)
        assert change.entry.reason == "too-large"
        await found.infer(1)
        assert await found.rows("SELECT count(*) FROM inference") == [(2,)]


async def test_records_of_final_figures_get_no_rows() -> None:
    async with watched() as found:
        await found.together(0)
        assert await found.rows("SELECT count(*) FROM aicore") == [(1,)], "it has no time yet"
        await found.sender.send("info.json.0", INFO_JSON, snapshot=True)
        (plain,) = _of(PlainLogs, await found.together(1))
        assert isinstance(plain, PlainLogs)
        assert await found.rows("SELECT figures, whole FROM inference") == [("final", 1), ("final", 1)]
        assert await found.rows("SELECT count(*) FROM aicore") == [(1,)]
        await found.infer(2)
        assert await found.rows("SELECT count(*) FROM aicore") == [(2,)]


async def test_all_that_a_clock_makes_final_is_read_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("record.recording", "store.inference_columns"):
        monkeypatch.setattr(f"profagent.{module}.INFERENCES_PER_LOOK", 2)
    async with watched() as found:
        for count in range(5):
            await found.infer(count)
        log, _ = await found.sender.offer("info.json.0", snapshot=True)
        come = Received(JOB, log, Started(log.handle, 1, 0, "new", INFO_JSON, digest_of(INFO_JSON)))
        applied = [*await found.sender.sink.take([come], nobody, more=False)]
        while more := await found.sender.sink.committed():
            applied += more
        told = [row.current_pic_count for each in applied for columns in each.columns for row in columns.rows]
        assert told == [0, 1, 2, 3, 4]


async def nobody(_: Sequence[Acknowledgement]) -> None:
    """There is no board to acknowledge to."""


async def test_what_came_first_goes_where_there_is_no_room() -> None:
    async with watched() as found:
        await found.sender.send("info.json.0", INFO_JSON, snapshot=True)
        await found.sender.send(aicore_path(0), records(700), complete=False)
        for count in range(1, 8):
            await found.infer(count)
        await found.store.run(lambda connection: room.delete_up_to(connection, 4))
        logs = await found.rows("SELECT path, kept FROM log WHERE kind = 'aicore' ORDER BY log")
        assert logs == [(aicore_path(0), 0), *((aicore_path(count), 1) for count in range(4, 8))]
        assert await found.rows("SELECT count(*) FROM aicore") == [(4,)]
        # Of the one that was open nothing is shown any more: a part of it is gone.
        await found.sender.send(aicore_path(0), records(700, 800))
        await found.sender.send(f"{aicore_path(0)}.done", aicore_done(512), snapshot=True)
        assert await found.rows("SELECT min(current_pic_count), count(*) FROM inference") == [(4, 4)]
        await found.store.run(lambda connection: room.make_room(connection, most_bytes=0))
        assert await found.rows("SELECT count(*) FROM inference") == [(0,)]
        await found.infer(9)
        assert await found.rows("SELECT current_pic_count, whole FROM inference") == [(9, 1)]


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
