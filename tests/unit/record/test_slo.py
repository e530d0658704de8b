"""Objectives while a board is captured: when an alarm begins and ends, what it names, and what it keeps in memory."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from profagent.ingest.changes import JobChanges, SourceRows
from profagent.ingest.live_latency import InferenceTimes
from profagent.ingest.source import Marked
from profagent.limits import JUDGED_S, MOST_JUDGED
from profagent.link.coverage import Standing
from profagent.link.credentials import Access
from profagent.record.exposition import Exposition
from profagent.record.options import RecordOptions
from profagent.record.record import BoardRecord
from profagent.record.slo import Alarm, JudgingObserver, LiveObjectives
from profagent.store.database import reading
from profagent.store.events import Event
from profagent.store.marks import marks_of
from profagent.store.store import Store
from profagent.store.workspace import Workspace
from profagent.store.writer import Applied
from profagent.tables.slo import Objective
from profagent.watch.lines import line_of
from profagent.watch.watch import WatchOptions, watch
from tests.unit.record.link import Nobody, Sender

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

FPS = 5
MS = 1_000_000
# Stages of a frame in ms, one after the other.
STAGES = {"preprocess": 3, "infer": 8, "postprocess": 2}


def frame_marks(number: int, slow: str = "") -> Iterator[Marked]:
    """The marks of a frame, of which one stage takes 20 ms more."""
    at = number * 1000 * MS // FPS
    for stage, usual in STAGES.items():
        end = at + (usual + 20 * (stage == slow)) * MS + number % 7 * 1000
        yield Marked(7, 70, 0, False, stage, at, end, number, number)
        at = end


def run(live: LiveObjectives, seconds: int, slow: Callable[[int], str]) -> list[tuple[int, Alarm]]:
    """Feed frames as they come, and return the alarms with the second in which they came."""
    found = []
    for second in range(seconds):
        numbers = range(second * FPS, (second + 1) * FPS)
        marks = [mark for number in numbers for mark in frame_marks(number, slow(second))]
        live.take_marks(marks, float(second + 1))
        found += [(second + 1, alarm) for alarm in live.judge(float(second + 1))]
    return found


def test_an_alarm_begins_within_seconds_names_the_stage_and_ends_when_it_held_for_a_window() -> None:
    live = LiveObjectives([Objective.parse("frame.p95 < 20ms"), Objective.parse("stage[preprocess].max < 25ms")])
    alarms = run(live, 180, lambda second: "preprocess" if 20 <= second < 25 else "")
    by_objective: dict[str, list[tuple[int, Alarm]]] = {
        text: [] for text in ("frame.p95 < 20ms", "stage[preprocess].max < 25ms")
    }
    for second, alarm in alarms:
        by_objective[alarm.judged.objective.text].append((second, alarm))
    (on_s, on), (off_s, off) = by_objective["frame.p95 < 20ms"]
    assert (on.is_on, off.is_on) == (True, False)
    assert 20 < on_s <= 20 + 5
    assert on.judged.guilty is not None
    assert on.judged.guilty.part == "preprocess"
    # It was exceeded until so many of the slow frames had left the window, and then held for a window.
    assert 25 + JUDGED_S < off_s <= 25 + 2 * JUDGED_S + 5
    assert on.line().startswith("ALARM frame.p95 < 20ms: p95 is 3")
    assert off.line() == "alarm over: frame.p95 < 20ms was not exceeded for 60 s"
    assert by_objective["stage[preprocess].max < 25ms"] == []
    assert live.exit_code == 1
    assert live.documents() == [{"objective": "frame.p95 < 20ms", "name": "", "alarms": 1, "on": False}]


def test_a_rate_falls_while_a_program_that_runs_makes_no_frame() -> None:
    """Not while it starts its next one, and not while the link is down, when nothing is known of it."""
    live = LiveObjectives([Objective.parse("frame.rate >= 4fps")])
    assert run(live, 60, lambda _: "") == []
    live.is_running = True
    assert [live.judge(60.0 + second) for second in range(12)] == [[]] * 12
    live.is_running = False
    assert live.judge(95.0) == []
    live.is_running = True
    (alarm,) = live.judge(95.0)
    assert (alarm.is_on, alarm.judged.exceeded) == (True, 1)


def test_what_is_never_decided_is_told_at_the_end() -> None:
    live = LiveObjectives([Objective.parse("stage[preproces].p99 < 1ms"), Objective.parse("frame.p50 < 1s")])
    run(live, 60, lambda _: "")
    (line,) = live.undecided_lines()
    assert line.startswith("unknown stage[preproces].p99 < 1ms: nothing of it came")
    assert live.documents() == [{"objective": "stage[preproces].p99 < 1ms", "name": "", "alarms": None, "on": False}]


def test_what_holds_raises_no_alarm_and_little_decides_nothing() -> None:
    live = LiveObjectives(
        [
            Objective.parse("frame.p50 < 20ms"),
            Objective.parse("frame.p99 < 20ms"),
            Objective.parse("frame.rate >= 4fps"),
        ]
    )
    # One slow frame in fewer than a hundred decides no p99.
    assert run(live, 5, lambda _: "") == []
    slow = Marked(7, 70, 0, False, "infer", 5000 * MS, 5090 * MS, 1, 900)
    # A frame is complete once the marks of a later time have come.
    later = Marked(7, 70, 0, False, "infer", 8000 * MS, 8010 * MS, 2, 901)
    live.take_marks([slow, later], 6.0)
    assert live.judge(9.0) == []
    assert live.exit_code == 0
    median, p99, rate = live.figures.values()
    assert (p99.verdict, p99.why) == ("unknown", "one value of 26 beyond the bound decides no p99")
    assert (median.verdict, rate.verdict) == ("holds", "holds")
    assert rate.value == pytest.approx(5, rel=0.02)


class Layers:
    """Times of layers by place, as of an inference: two layers of the NPU, its unknown ones, and the CPU's."""

    def __init__(self, *us: float) -> None:
        self.by_place: NDArray[np.float64] = np.array([*us, *[math.nan] * (6 - len(us))])
        self.table = type("Table", (), {"runs": [type("Run", (), {"name": name})() for name in ("conv1", "conv2")]})


def inference(number: int, *us: float) -> dict[str, Any]:
    begin = number * 10_000.0
    times = InferenceTimes(number, float(number), begin, begin + sum(us) + 5)
    fields = {"model": "yolo", "model_id": 0, "figures": "final", "layers": Layers(*us), "times": times}
    return {"event": "inference", **fields}


def test_a_latency_names_its_layer_and_is_renewed_by_its_call() -> None:
    live = LiveObjectives([Objective.parse("latency[yolo].p95 < 2ms"), Objective.parse("layer[conv1].mean < 50us")])
    for number in range(200):
        live.take(inference(number, 100.0, 800.0 + number % 9 + 3000.0 * (number % 10 == 9)), number / 100)
    latency, layer = live.judge(2.0)
    assert latency.judged.guilty is not None
    assert (latency.judged.name, latency.judged.guilty.part, latency.judged.exceeded) == ("yolo", "conv2", 20)
    assert (layer.judged.name, layer.judged.value) == ("conv1 of yolo", 100.0)
    # The calls come later, and took 3 ms each.
    for number in range(200):
        times = inference(number, 100.0, 800.0)["times"]
        called = times._replace(call_begin_us=times.begin_us, call_end_us=times.begin_us + 3000)
        live.take({"event": "latency", "model": "yolo", "model_id": 0, "times": called}, 2.0)
    assert live.judge(3.0) == []
    assert live.figures["latency[yolo].p95 < 2ms", "yolo"].value == 3000


def test_memory_is_bounded_and_the_past_is_forgotten() -> None:
    live = LiveObjectives([Objective.parse("latency.mean < 2ms")])
    for number in range(MOST_JUDGED + 500):
        live.take(inference(number, 100.0), number / 100)
    live.judge(55.0)
    (found,) = live.figures.values()
    assert found.number == MOST_JUDGED
    live.judge(55.0 + JUDGED_S)
    (found,) = live.figures.values()
    assert (found.verdict, found.number) == ("unknown", 0)


def marks(frames: int) -> list[Applied]:
    """A batch with the marks of frames."""
    rows = [
        (each.number, "span", each.name, f'{{"frame":{each.frame}}}', 7, 70, each.begin_ns, each.end_ns, each.number, 0)
        for number in range(frames)
        for each in frame_marks(number)
    ]
    return [Applied(JobChanges("MARKS-1", "marks", [SourceRows("marks.1", "range", rows)]), 1)]


async def test_record_ends_with_1_if_an_alarm_was_on_unless_data_is_missing(tmp_path: Path) -> None:
    workspace, said = Workspace(tmp_path), list[str]()
    async with Store(workspace.database) as store:
        options = RecordOptions(("euler",), workspace, objectives=[Objective.parse("frame.p95 < 1ms")])
        recorded = BoardRecord("euler", options, store, said.append)
        await Sender(recorded._recording).open()
        recorded._capture.session.has_synced = True
        recorded._capture.coverage.stand(Standing.COVERED, 2**50)
        await recorded._end()
        assert (await recorded.summary())["exit_code"] == 0
        judging: Any = recorded._judging
        judging.changed(marks(50))
        await recorded._judge(judging)
        (line,) = (each for each in said if each.startswith("ALARM frame.p95 < 1ms: p95 is 13.0"))
        # A flight recorder makes an incident of it.
        async with reading(workspace.database) as connection:
            assert [text for _, text in await marks_of(connection, 1)] == [line]
        summary = await recorded.summary()
        assert (summary["exit_code"], summary["slo"]) == (1, judging.live.documents())


async def test_watch_shows_the_alarm_and_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, shown = asyncio.Event(), list[Event]()

    class FakeCapture:
        session = coverage = None

        def __init__(self, _address: str, _sink: Any, observer: Any, **_: Any) -> None:
            self.observer = observer

        async def run(self) -> None:
            self.observer.changed(marks(50))

    monkeypatch.setattr("profagent.watch.watch.Capture", FakeCapture)
    objectives = (Objective.parse("frame.p95 < 1ms"),)
    options = WatchOptions("good:1", access=Access(insecure=True), objectives=objectives)
    summary = await watch(options, shown.append, lambda _: None, stop)
    assert summary["exit_code"] == 1
    (event,) = (each for each in shown if each["event"] == "slo")
    assert line_of(event).startswith("ALARM frame.p95 < 1ms: p95 is 13.0")
    assert (event["alarm"], event["unit"], event["share"]) == (True, "us", 1.0)


def test_an_observer_hands_on_what_it_sees_and_feeds_the_metrics() -> None:
    exposition = Exposition()
    seen: list[Alarm] = []
    measuring = exposition.measuring(Nobody(), "euler")
    observer: Any = JudgingObserver(
        measuring, [Objective.parse("frame.p95 < 1ms")], seen.append, measuring.judged, now_s=lambda: 5.0
    )
    observer.changed(marks(50))
    observer.judge()
    # The last frames may still get stages.
    assert [(each.is_on, each.judged.number) for each in seen] == [(True, 39)]
    labels = {"board": "euler", "slo": "frame.p95 < 1ms", "name": ""}
    value = exposition.registry.get_sample_value
    assert (value("profagent_slo_exceeded", labels), value("profagent_slo_alarms", labels)) == (1, 1)
    assert value("profagent_slo_value", labels) == pytest.approx(0.013, rel=0.01)
    assert value("profagent_slo_missed_ratio", labels) == 1
