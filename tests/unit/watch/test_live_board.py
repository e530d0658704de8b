"""What is told now and then of a board's metrics, subscriptions and spans."""

from __future__ import annotations

from typing import Any

import pytest

from profagent.ingest.changes import JobChanges, SourceRows
from profagent.link.messages import JobStatus, Profiling
from profagent.watch.lines import line_of
from profagent.watch.live_board import LiveBoard
from profagent.watch.watch import INTERVAL_ZERO, SILENCE_S, Silence
from tests.unit.record.link import JOB
from tests.unit.store.rows import aicore
from tests.unit.watch.arriving_job import aicore_path

METRICS, OPS, MARKS = (f"{name}-20261123T140000123Z" for name in ("METRICS-board", "OPS-front-door", "MARKS-program"))
SECOND = 1_000_000
NOON_US = 1_795_262_400 * SECOND


def take(board: LiveBoard, collection: str, table: str, *rows: tuple[Any, ...], anew: bool = False) -> None:
    board.take(JobChanges(collection, "/spool", [SourceRows("00000001", table, rows, anew=anew)]))


def op(number: int, end_us: int) -> tuple[Any, ...]:
    return (number, 1, "Conv", "conv1", end_us - 10, end_us, 10, number)


def span(text: str, begin_us: int, duration_us: int, kind: str = "span") -> tuple[Any, ...]:
    return (0, kind, text, "{}", 5, 7, begin_us * 1000, (begin_us + duration_us) * 1000, 0, 0)


@pytest.fixture
def board() -> LiveBoard:
    found = LiveBoard()
    names = [(0, "npu.hw_utilization", "%"), (1, "thermal.0", "C"), (2, "daemon.cpu", "%")]
    names.append((3, "disk./data/npu.hw_utilization.used", "B"))
    take(found, METRICS, "metric_name", *names)
    take(found, METRICS, "metric", *((number, number, NOON_US, 10.0 + number) for number in range(4)))
    return found


def test_a_line_has_the_newest_of_everything(board: LiveBoard) -> None:
    take(board, OPS, "op_event", *(op(number, NOON_US + number * SECOND // 100) for number in range(100)))
    take(board, MARKS, "range", span("infer", NOON_US, 3000), span("infer", NOON_US, 5000), span("pre", NOON_US, 10))
    # The clock was set back meanwhile.
    take(board, MARKS, "range", span("infer", NOON_US, -9000))
    take(board, MARKS, "range", span("frame", NOON_US, 0, "mark"))
    event = board.event()
    assert event is not None
    assert line_of({**event, "simulated": False}) == (
        "12:00:00.990  board  NPU 10%  11.0 C  profagentd 12.0%  front-door 101 ops/s  infer 4.000 ms  pre 0.010 ms"
        "  1 mark"
    )
    assert board.event() is None
    take(board, OPS, "op_event", op(100, NOON_US + 3 * SECOND))
    following = board.event()
    assert following is not None
    assert following["ops"] == [{"source": "front-door", "count": 1, "per_s": 1 / 2.01}]
    assert following["spans"] == []
    assert following["npu_utilization"] == 10


def test_what_is_not_known_is_not_invented() -> None:
    board = LiveBoard()
    take(board, METRICS, "metric", (0, 9, NOON_US, 1.0))  # its name was told before
    assert board.event() is None
    take(board, MARKS, "range", span("infer", NOON_US, 3000))
    event = board.event()
    assert event is not None
    assert "NPU N/A  N/A C  profagentd N/A  infer 3.000 ms" in line_of({**event, "simulated": False})


def test_what_comes_again_after_a_lost_link_is_not_counted_again(board: LiveBoard) -> None:
    take(board, OPS, "op_event", op(0, NOON_US + 10))
    board.event()
    board.link_is_lost()
    take(board, METRICS, "metric_name", anew=True)
    take(board, OPS, "op_event", op(0, NOON_US + 10))
    assert board.event() is None
    take(board, OPS, "op_event", op(1, NOON_US + 20))
    event = board.event()
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
