"""The model behind the screen: figures that events keep up, and what is seen of them."""

from __future__ import annotations

import numpy as np
import pytest

from profagent.formats.countermap import COUNTER_NAMES
from profagent.formats.model_info import LayerTable
from profagent.formats.names import LogKind
from profagent.ingest.live import LiveEvents
from profagent.ingest.live_inference import LayerTimes, RecordColumns
from profagent.store.counter_maps import simulated_map
from profagent.watch.layers import KEPT_INFERENCES, LayerQuery, ModelLayers, Sort
from profagent.watch.model import KEPT_EVENTS, BoardModel, LinkState
from tests.encoders import api_record
from tests.unit.record.link import board
from tests.unit.watch.arriving_job import START_US, ArrivingJob, aicore_done, aicore_path, records

NOW_US = START_US + 3_000_000


class WatchedJob(ArrivingJob):
    """A JOB whose events go into a model."""

    def __init__(self) -> None:
        super().__init__(counter_map=simulated_map())
        self.events = LiveEvents(with_layers=True)
        self.model = BoardModel("euler", lambda: NOW_US)
        self.model.summary = self.events.summary
        self.begin()

    def infer(self, *ticks: int, pictures: int = 0) -> None:
        path = aicore_path(pictures)
        told = self.send(path, records(*ticks))
        for event in [*told, *self.send(path + ".done", aicore_done(256 * len(ticks)))]:
            self.model.take(event)


@pytest.fixture
def job() -> WatchedJob:
    return WatchedJob()


def test_layers_have_last_median_and_share(job: WatchedJob) -> None:
    for pictures, ticks in enumerate((700, 1400, 700)):
        job.infer(ticks, 350, 350, pictures=pictures)
    assert job.model.models() == ["m.0"]
    view = job.model.layers("m.0").view(LayerQuery())
    assert [line.name for line in view.lines] == ["conv", "pool", "fc"]
    conv = view.lines[0]
    assert (conv.last_us, conv.median_us, conv.share) == (100.0, 100.0, 0.5)
    assert (view.matching, view.layers, view.inferences) == (3, 3, 3)
    times = job.model.layers("m.0").inferences()
    assert times.times_us.tolist() == [200.0, 300.0, 200.0]
    assert times.total == 3


def test_layers_are_sorted_filtered_and_cut(job: WatchedJob) -> None:
    job.infer(700, 1400, 350)
    layers = job.model.layers("m.0")

    def names(**query: object) -> list[str | None]:
        return [line.name for line in layers.view(LayerQuery(**query), {"conv": 50.0, "pool": 400.0}).lines]  # type: ignore[arg-type]

    assert names(sort=Sort.MEDIAN) == ["pool", "conv", "fc"]
    assert names(sort=Sort.ORDER) == ["conv", "pool", "fc"]
    assert names(sort=Sort.NAME) == ["conv", "fc", "pool"]
    assert names(sort=Sort.CHANGE)[0] == "conv"  # twice its baseline
    assert names(text="OO") == ["pool"]
    assert names(first=1, number=1) == ["conv"]
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
    assert set(detail.counters) == set(COUNTER_NAMES)
    assert layers.detail(999) is None


def _times(*values: float, table: LayerTable | None = None) -> LayerTimes:
    none = np.full(len(values), -1, np.int32)
    zeros = np.zeros(len(values), np.uint32)
    return LayerTimes((RecordColumns(LogKind.AICORE, zeros, zeros, none, np.array(values), {}),), 1.0, table)


def test_what_is_kept_is_bounded_and_the_newest() -> None:
    layers = ModelLayers()
    for number in range(KEPT_INFERENCES + 5):
        layers.take(_times(float(number)), float(number), START_US + number * 1_000_000)
    view = layers.inferences()
    assert view.total == KEPT_INFERENCES + 5
    assert view.times_us.tolist() == [float(each) for each in range(5, KEPT_INFERENCES + 5)]
    assert view.per_s == 1.0
    (line,) = layers.view(LayerQuery()).lines
    assert (line.name, line.last_us) == (None, KEPT_INFERENCES + 4.0)


def test_another_table_begins_anew() -> None:
    layers = ModelLayers()
    layers.take(_times(1.0, 2.0), 3.0, None)
    layers.take(_times(5.0, table=LayerTable((), ())), 5.0, None)
    assert layers.inferences().times_us.tolist() == [5.0]


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
    for number in range(KEPT_EVENTS + 7):
        job.model.note("note", f"gap {number}", number + 1, about="gap")
    (event,) = job.model.events(10)
    assert (event.text, event.number) == (f"gap {KEPT_EVENTS + 6}", KEPT_EVENTS + 7)
    for number in range(KEPT_EVENTS + 7):
        job.model.note("note", f"other {number}", number + 1)
    assert len(job.model.events(10_000)) == KEPT_EVENTS


def test_a_paused_model_passes_figures_over_and_no_loss(job: WatchedJob) -> None:
    job.infer(700, 350, 350)
    job.model.is_paused = True
    job.infer(700, 350, 350, pictures=1)
    job.model.take({"event": "job", "job": "JOB", "state": "finished", "simulated": False})
    assert job.model.layers("m.0").inferences().total == 1
    assert job.model.passed_over == 1
    assert job.model.events(1)[0].text == "JOB is finished"


def test_metrics_ranges_and_marks_come_with_the_board(job: WatchedJob) -> None:
    event = {
        "event": "board",
        "time_us": START_US,
        "daemon_cpu": 1.5,
        "metrics": {"npu.hw_utilization": (7.0, "%")},
        "spans": [{"name": "infer", "count": 3, "mean_us": 10.0}],
        "ops": [{"source": "program", "count": 5, "per_s": 100.0}],
        "marks": [],
        "simulated": True,
    }
    job.model.take(event)
    job.model.take({**event, "metrics": {"npu.hw_utilization": (9.0, "%")}})
    assert [(line.name, line.values) for line in job.model.series("metrics")] == [("npu.hw_utilization", (7.0, 9.0))]
    assert [(line.name, line.number) for line in job.model.series("ranges")] == [("infer", 6), ("program ops", 10)]
    header = job.model.header()
    assert (header.daemon_cpu, header.is_simulated) == (1.5, True)
