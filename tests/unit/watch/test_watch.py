"""What `watch` shows, from when on, and how it explains silence."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from profagent.errors import ProtocolError, UnreachableError
from profagent.formats.counter_maps import CounterMaps, simulated_map
from profagent.formats.countermap import MAPPED_NAMES
from profagent.formats.inference_layers import LayerTimes, RecordColumns
from profagent.formats.model_info import LayerTable
from profagent.formats.names import LogKind, parse_log_name
from profagent.ingest.changes import JobChanges, NamesAnnounced
from profagent.ingest.decode import JobDecoder
from profagent.ingest.live_latency import InferenceTimes
from profagent.limits import REMEMBERED_LATENCIES, SHOWN_EVENTS
from profagent.link.credentials import Access
from profagent.link.messages import JobStatus, Profiling
from profagent.store.frames import Frame, FramePart
from profagent.watch.layers import LayerQuery, ModelLayers, Sort
from profagent.watch.model import BoardModel, LinkState
from profagent.watch.screen.panes import frame_lines
from profagent.watch.watch import NO_COUNTER_MAP, WatchOptions, WatchView, watch_all
from tests.encoders import aicore_record, aicpu_record, api_record, done_text
from tests.unit.record.link import JOB, board
from tests.unit.watch.arriving_job import INFO_JSON, START_US, ArrivingJob, InMemory, aicore_done, aicore_path, records

if TYPE_CHECKING:
    from profagent.ingest.changes import Change


class _NoFiles:
    def read(self, path: str, size: int | None = None, *, start: int = 0) -> bytes | None:
        return None

    def names(self) -> list[str]:
        return []


class Viewed:
    """A view of a watched board, what it showed and what it told."""

    def __init__(self, **options: Any) -> None:
        self.shown: list[dict[str, Any]] = []
        self.told: list[str] = []
        self.now_s = 100.0
        chosen = WatchOptions("euler:1", **options)
        self.view = WatchView(chosen, self.shown.append, self.told.append, lambda: self.now_s)
        self.decoder = JobDecoder(_NoFiles())
        self.rows = InMemory()
        self.view.recording = self.rows  # type: ignore[assignment]

    def follow(self, *, listed: bool = True) -> None:
        assert self.view.past_filter.wants(self.status("open"), listed)
        self.changed(list(self.decoder.snapshot("info.json.0", 1, INFO_JSON, b"")))

    def state(self, state: str, *, caught_up: bool) -> None:
        self.view.jobs_changed([self.status(state, caught_up=caught_up)])

    def infer(self, pictures: int = 0) -> None:
        path = aicore_path(pictures)
        self.begin(pictures)
        self.changed(list(self.decoder.snapshot(path + ".done", 1, aicore_done(256), b"")))
        self.changed(list(self.decoder.complete(path, 1, 256, b"")))

    def begin(self, pictures: int = 0) -> None:
        """The data of an inference, without its `.done`."""
        path = aicore_path(pictures)
        self.changed([*self.decoder.begin(path, 1, 0), *self.decoder.append(path, 1, 0, records(700))])

    def changed(self, changes: Sequence[Change], state: str | None = None) -> None:
        self.view.changed([self.rows.apply(JobChanges(JOB, "/root", changes, state))])

    @property
    def pictures(self) -> list[int]:
        return [event["current_pic_count"] for event in self.shown if event["event"] == "inference"]

    @property
    def shown_figures(self) -> list[str]:
        return [event["figures"] for event in self.shown if event["event"] == "inference"]

    @staticmethod
    def status(state: str, *, caught_up: bool = False) -> JobStatus:
        return JobStatus(1, JOB, "/root", state, caught_up)


def test_what_is_from_before_is_not_shown_and_what_follows_is() -> None:
    viewed = Viewed()
    viewed.follow()
    viewed.infer(0)
    viewed.state("open", caught_up=True)
    viewed.infer(1)
    assert viewed.pictures == [1]
    assert viewed.view.events.summary()["inferences"] == 1


def test_what_was_shown_is_passed_over_when_the_link_is_back() -> None:
    viewed = Viewed(from_start=True)
    viewed.follow()
    viewed.infer(3)
    viewed.view.unlinked(UnreachableError("gone", hint="wait"), 0.5)
    name = parse_log_name(aicore_path(3))
    assert name is not None
    assert viewed.view.past_filter.was_shown(JOB, name)
    assert viewed.told[-1] == "gone; retrying in 1 s"


async def test_what_waited_for_long_is_shown_as_pending_and_again_when_it_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    viewed = Viewed(from_start=True)
    viewed.follow()
    viewed.state("open", caught_up=True)
    cpu = aicore_path().replace("aicore", "aicpu")
    viewed.changed([NamesAnnounced([aicore_path(), cpu])])
    viewed.infer()
    assert viewed.shown_figures == []
    await _mind_waiting(viewed, monkeypatch)
    assert viewed.shown_figures == ["pending"]
    name = parse_log_name(aicore_path())
    assert name is not None
    viewed.view.unlinked(UnreachableError("gone", hint="wait"), 0.5)
    assert not viewed.view.past_filter.was_shown(JOB, name), "it comes again, to be shown whole"
    data = aicpu_record(0, 100, 140, (100, 140), 1)
    viewed.changed([*viewed.decoder.begin(cpu, 1, 0), *viewed.decoder.append(cpu, 1, 0, data)])
    done = done_text(file_len=128, start_time=100, end_time=140)
    viewed.changed(list(viewed.decoder.snapshot(cpu + ".done", 1, done, b"")))
    viewed.changed(list(viewed.decoder.complete(cpu, 1, 128, b"")))
    assert viewed.shown_figures == ["pending", "final"]
    assert viewed.view.past_filter.was_shown(JOB, name)
    await _mind_waiting(viewed, monkeypatch)
    assert viewed.shown_figures == ["pending", "final"]


def test_what_was_due_is_shown_once_the_job_has_caught_up() -> None:
    viewed = Viewed(from_start=True)
    viewed.follow()
    status = replace(viewed.status("open"), profiling=Profiling("acl.json", "10"))
    viewed.view.jobs_changed([status])
    for pictures in (0, 20):
        viewed.infer(pictures)
    viewed.view.jobs_changed([replace(status, caught_up=True)])
    viewed.infer(30)
    assert [event["due"] for event in viewed.shown if event["event"] == "inference"] == [None, None, 4]


def test_the_missing_counter_map_is_told_with_the_first_record_that_lacks_it() -> None:
    viewed = Viewed(from_start=True)
    viewed.follow()
    viewed.view.linked(board(), "operator")
    assert NO_COUNTER_MAP not in viewed.told
    viewed.infer(0)
    viewed.infer(1)
    assert viewed.told.count(NO_COUNTER_MAP) == 1


async def _mind_waiting(viewed: Viewed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look once for inferences that wait, when some seconds have passed."""
    looks = iter([3.0])

    async def pass_at_once(_: float) -> None:
        for seconds in looks:
            viewed.now_s += seconds
            return
        raise _Enough

    monkeypatch.setattr("asyncio.sleep", pass_at_once)
    with pytest.raises(_Enough):
        await viewed.view.mind()


class _Enough(Exception):  # noqa: N818 - an end, not a fault
    pass


def test_a_board_is_named() -> None:
    viewed = Viewed()
    viewed.view.linked(board(simulated=True), "operator")
    assert viewed.told == ["watching euler at euler:1 [simulated]"]


def test_a_map_that_is_not_certain_is_told_once() -> None:
    counters = simulated_map().counters
    likely = {"mac_busy": msgspec.structs.replace(counters["mac_busy"], verdict="likely")}
    learnt = msgspec.structs.replace(simulated_map(), counters={**counters, **likely})
    viewed = Viewed(maps=CounterMaps(learnt))
    viewed.view.linked(board(simulated=True), "operator")
    viewed.view.linked(board(simulated=True), "operator")
    assert viewed.told.count("the counter map is not certain of mac_busy: a ? marks what rests on it") == 1
    assert viewed.view.events.likely == ("mac_busy",)


# The model behind the screen: figures that events keep up, and what is seen of them

NOW_US = START_US + 3_000_000
PERIOD_US = 10_000


class WatchedJob(ArrivingJob):
    """A JOB whose events go into a model."""

    def __init__(self) -> None:
        super().__init__(counter_map=simulated_map(), with_layers=True)
        self.model = BoardModel("euler", lambda: NOW_US)
        self.model.summary = self.events.summary
        self.begin()

    def infer(self, *ticks: int, pictures: int = 0) -> None:
        path = aicore_path(pictures)
        # The runtime writes no record of 0 ticks.
        data = b"".join(aicore_record(number, value, 0) for number, value in enumerate(ticks) if value)
        self.take(path, data)
        self.take(path + ".done", aicore_done(len(data), START_US + pictures * PERIOD_US))

    def take(self, path: str, data: bytes) -> None:
        for event in self.send(path, data):
            self.model.take(event)


@pytest.fixture
def job() -> WatchedJob:
    return WatchedJob()


def test_layers_have_last_median_and_share_of_the_latency_and_the_rest_is_a_line(job: WatchedJob) -> None:
    for pictures, ticks in enumerate((700, 1400, 700)):
        job.infer(ticks, 350, 350, pictures=pictures)
    assert job.model.models() == ["m.0"]
    view = job.model.layers("m.0").view(LayerQuery())
    # An inference is from its first begin to its last end here: 900 us.
    assert [line.name for line in view.lines] == ["not in any layer", "conv", "pool", "fc"]
    rest, conv, *_ = view.lines
    assert (conv.last_us, conv.median_us, conv.share) == pytest.approx((100.0, 100.0, 400 / 3 / 900))
    assert (rest.last_us, rest.median_us) == pytest.approx((700.0, 700.0))
    assert sum(line.share for line in view.lines) == pytest.approx(1.0)
    assert (view.layers, view.inferences, view.overlap) == (3, 3, False)
    inferences = job.model.layers("m.0").inferences()
    assert inferences.latencies_us.tolist() == [900.0] * 3
    assert (inferences.total, inferences.recorded, inferences.of_layers) == (3, 3, 3)
    assert (inferences.layers_us, inferences.per_s, inferences.gap_us) == pytest.approx((700 / 3, 100.0, 9_100.0))


def test_latencies_are_the_calls_once_these_are_here(job: WatchedJob) -> None:
    calls = "data/acl_api.0.m.0"
    job.announce(calls)
    for pictures in range(4):
        job.infer(700, 350, 350, pictures=pictures)
    begins = [START_US + pictures * PERIOD_US - 50 for pictures in range(3)]
    assert job.model.layers("m.0").inferences().origin == "records"
    job.take(calls, b"".join(api_record(2, begin, begin + 1000 + 10 * place) for place, begin in enumerate(begins)))
    inferences = job.model.layers("m.0").inferences()
    assert (inferences.origin, inferences.latencies_us.tolist()) == ("call", [1000.0, 1010.0, 1020.0])


def test_a_dropped_record_makes_no_inference_faster_and_its_layer_is_ranked_by_what_it_takes(job: WatchedJob) -> None:
    """The runtime leaves `pool` out of two inferences of five, in which it took 200 us all the same."""
    for pictures in range(5):
        job.infer(700, 0 if pictures % 2 else 1400, 350, pictures=pictures)
    view = job.model.layers("m.0").view(LayerQuery())
    by_name = {line.name: line for line in view.lines}
    assert [line.name for line in view.lines] == ["not in any layer", "pool", "conv", "fc"]
    assert (by_name["pool"].median_us, by_name["pool"].share) == pytest.approx((200.0, 200 / 900))
    assert by_name["not in any layer"].trend == pytest.approx((550.0,) * 5)


def test_layers_that_overlap_leave_no_rest(job: WatchedJob) -> None:
    job.infer(7000, 350, 350)
    view = job.model.layers("m.0").view(LayerQuery())
    assert view.overlap
    assert "not in any layer" not in [line.name for line in view.lines]


def test_layers_are_sorted_filtered_and_cut(job: WatchedJob) -> None:
    job.infer(700, 1400, 350)
    layers = job.model.layers("m.0")

    def names(**query: object) -> list[str | None]:
        return [line.name for line in layers.view(LayerQuery(**query), {"conv": 50.0, "pool": 400.0}).lines]  # type: ignore[arg-type]

    assert names(sort=Sort.MEDIAN) == ["not in any layer", "pool", "conv", "fc"]
    assert names(sort=Sort.ORDER) == ["conv", "pool", "fc", "not in any layer"]
    assert names(sort=Sort.NAME) == ["conv", "fc", "not in any layer", "pool"]
    assert names(sort=Sort.CHANGE)[0] == "conv"  # twice its baseline
    assert names(text="OO") == ["pool"]
    assert names(first=1, number=1) == ["pool"]
    assert layers.view(LayerQuery(text="none")).matching == 0


def test_a_layer_alone_has_its_distribution_and_counters(job: WatchedJob) -> None:
    for pictures in range(4):
        job.infer(700 + pictures, 1400, 350, pictures=pictures)
    layers = job.model.layers("m.0")
    (place,) = [line.place for line in layers.view(LayerQuery()).lines if line.name == "conv"]
    detail = layers.detail(place, {"conv": 50.0})
    assert detail is not None
    assert detail.times_us.tolist() == pytest.approx([100.0, 100 + 1 / 7, 100 + 2 / 7, 100 + 3 / 7])
    assert detail.baseline_us == 50.0
    assert set(detail.counters) == set(MAPPED_NAMES)
    assert layers.detail(999) is None


def _times(*values: float, table: LayerTable | None = None) -> LayerTimes:
    none = np.full(len(values), -1, np.int32)
    zeros = np.zeros(len(values), np.uint32)
    return LayerTimes((RecordColumns(LogKind.AICORE, zeros, zeros, none, np.array(values), {}),), 1.0, table)


def _ran(number: int, latency_us: float) -> InferenceTimes:
    begin = float(START_US + number * 1_000_000)
    return InferenceTimes(number, float(number), begin, begin + latency_us)


def test_what_is_kept_is_bounded_and_the_newest() -> None:
    layers = ModelLayers()
    for number in range(REMEMBERED_LATENCIES + 5):
        layers.take(_times(float(number)), _ran(number, float(number)))
    layers.renew(_ran(2, 1e9))  # it is not kept any more
    view = layers.inferences()
    assert view.total == REMEMBERED_LATENCIES + 5
    assert view.latencies_us.tolist() == [float(each) for each in range(5, REMEMBERED_LATENCIES + 5)]
    assert view.per_s == 1.0
    line, _ = layers.view(LayerQuery()).lines
    assert (line.name, line.last_us) == (None, REMEMBERED_LATENCIES + 4.0)


def test_another_table_begins_anew() -> None:
    layers = ModelLayers()
    layers.take(_times(1.0, 2.0), _ran(0, 3.0))
    layers.take(_times(5.0, table=LayerTable((), ())), _ran(1, 5.0))
    assert layers.inferences().latencies_us.tolist() == [5.0]


def test_calls_are_told_apart_by_name_and_thread(job: WatchedJob) -> None:
    calls = [api_record(2, START_US + each, START_US + each + 100 + each, tid=7 + each % 2) for each in range(4)]
    for event in job.send("data/acl_api.0.m.3", b"".join([*calls, api_record(3, 0, START_US + 9, tid=7)])):
        job.model.take(event)
    by_key = {(line.name, line.thread): line for line in job.model.calls()}
    assert by_key["svp_acl_mdl_execute", 7].number == 2
    assert by_key["svp_acl_mdl_execute", 8].median_us == 102.0
    assert by_key["svp_acl_mdl_execute_async", 7].median_us is None  # its begin is not known


def test_the_header_tells_link_lag_and_losses(job: WatchedJob) -> None:
    assert job.model.header().link is LinkState.CONNECTING
    job.model.linked(board("euler"))
    job.model.compared(1_000_000)  # the board's clock is a second ahead
    job.infer(700, 350, 350)
    header = job.model.header()
    assert (header.link, header.losses, header.inferences) == (LinkState.LINKED, 0, 1)
    assert header.age_s == pytest.approx((NOW_US + 1_000_000 - START_US - 900) / 1_000_000)
    job.model.enter(LinkState.AWAY, "refused; retrying in 1 s")
    assert job.model.header().link_text == "refused; retrying in 1 s"


@pytest.mark.parametrize(("name", "who"), [("euler", "euler"), ("10.0.0.7", "10.0.0.7 (euler)")])
def test_a_board_keeps_the_name_that_it_was_given(name: str, who: str) -> None:
    model = BoardModel(name, lambda: NOW_US)
    model.linked(board())
    assert (model.name, model.header().who) == (name, who)


def test_what_is_told_again_and_again_is_one_event(job: WatchedJob) -> None:
    for number in range(SHOWN_EVENTS + 7):
        job.model.note("note", f"gap {number}", number + 1, about="gap")
    (event,) = job.model.events(10)
    assert (event.text, event.number) == (f"gap {SHOWN_EVENTS + 6}", SHOWN_EVENTS + 7)
    for number in range(SHOWN_EVENTS + 7):
        job.model.note("note", f"other {number}", number + 1)
    assert len(job.model.events(10_000)) == SHOWN_EVENTS


def test_a_paused_model_passes_figures_over_and_no_loss(job: WatchedJob) -> None:
    job.infer(700, 350, 350)
    job.model.is_paused = True
    job.infer(700, 350, 350, pictures=1)
    job.model.take({"event": "job", "job": "JOB", "state": "finished", "simulated": False})
    assert job.model.layers("m.0").inferences().total == 1
    assert job.model.passed_over == 1
    assert job.model.events(1)[0].text == "JOB is finished"


def _frame(number: int, begin: int, pre: int, post: int) -> Frame:
    """A frame of two stages, times in µs; the numbers below 9 before it are all there."""
    begin, middle, end = (each * 1000 for each in (begin, begin + pre, begin + pre + post))
    parts = FramePart("pre", False, begin, middle), FramePart("post", False, middle, end)
    return Frame(5, 0, number, begin, end, parts, missing=int(number == 9))


def test_metrics_ranges_and_marks_come_with_the_board(job: WatchedJob) -> None:
    event = {
        "event": "board",
        "time_us": START_US,
        "daemon_cpu": 1.5,
        "metrics": {"npu.hw_utilization": (7.0, "%")},
        "spans": [{"name": "infer", "count": 3, "mean_us": 10.0}],
        "ops": [{"source": "program", "count": 5, "per_s": 100.0}],
        "marks": [],
        "frames": [_frame(7, 0, 30, 70), _frame(9, 100_000, 60, 40)],
        "simulated": True,
    }
    assert "no frame yet" in str(frame_lines(job.model.frames(), 40, 4))
    job.model.take(event)
    job.model.take({**event, "metrics": {"npu.hw_utilization": (9.0, "%")}})
    assert [(line.name, line.values) for line in job.model.series("metrics")] == [("npu.hw_utilization", (7.0, 9.0))]
    assert [(line.name, line.number) for line in job.model.series("ranges")] == [("infer", 6), ("program ops", 10)]
    header = job.model.header()
    assert (header.daemon_cpu, header.is_simulated) == (1.5, True)
    frames = job.model.frames()
    assert frames.per_s == pytest.approx(30)
    assert (frames.number, frames.missing, frames.largest) == (4, 2, ("post", 0.55))
    shown = "\n".join("".join(part.text for part in line) for line in frame_lines(job.model.frames(), 40, 3))
    assert shown.splitlines()[1:] == ["30.0/s  dropped 2  age N/A ms", "largest part: post, 55%"]


async def test_what_ends_one_of_several_boards_stands_in_its_summary_and_ends_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop, told = asyncio.Event(), dict[str, list[str]]()

    class FakeCapture:
        session = coverage = None

        def __init__(self, address: str, *_: Any, **__: Any) -> None:
            self.address = address

        async def run(self) -> None:
            if self.address == "lying:1":
                raise OverflowError("too large")
            if self.address == "breaking:1":
                raise ProtocolError("it broke the protocol", hint="upgrade")
            await stop.wait()

    def tell(board: str, text: str) -> None:
        told.setdefault(board, []).append(text)
        if len(told) == 2:
            stop.set()

    monkeypatch.setattr("profagent.watch.watch.Capture", FakeCapture)
    boards = [WatchOptions(each, access=Access(insecure=True)) for each in ("good:1", "lying:1", "breaking:1")]
    good, lying, breaking = await watch_all(boards, lambda *_: None, tell, stop)
    assert "error" not in good
    assert (lying["exit_code"], breaking["exit_code"]) == (1, 3)
    assert told["breaking:1"] == ["it broke the protocol; upgrade"]
    assert "OverflowError: too large" in lying["error"]
