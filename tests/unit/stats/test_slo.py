"""Objectives: what they may say, the verdict on them, and which part is guilty."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profagent.diff.diff import parse_condition
from profagent.errors import UsageError
from profagent.formats.durations import Distribution
from profagent.stats.slo import ModelSeries
from profagent.stats.thinned import ThinnedFigures, figures_with
from profagent.store.frames import Frame, FramePart
from profagent.store.thinning import WHOLE
from profagent.tables.frame_series import FrameSeries
from profagent.tables.slo import Judged, JudgedSeries, Objective, exit_code_of, is_of_layer, judged, judgement, unjudged
from profagentd.simulate.program import STAGES, FrameSteps, SlowStage

WAIT = "wait for resnet"
FRAMES, RUNS = 200, 50
US = {"ns": 0.001, "us": 1, "µs": 1, "ms": 1000, "s": 1_000_000}


def series(*us: float, name: str = "") -> JudgedSeries:
    return JudgedSeries(name, np.array(us))


@given(
    st.sampled_from(["frame", "latency", "latency[yolo v5]", "layer[conv1+relu]", "stage[wait for a.b]", "layer"]),
    st.sampled_from(["p50", "p95", "p99", "p99.9", "median", "mean", "max", "min"]),
    st.sampled_from(["<", "<=", ">", ">="]),
    st.decimals(min_value=0, max_value=9999, places=3),
    st.sampled_from([*US]),
    st.sampled_from(["", " "]),
)
def test_an_objective_is_read_with_or_without_blanks(
    subject: str, stat: str, sign: str, number: object, unit: str, blank: str
) -> None:
    found = Objective.parse(f"{subject}.{stat}{blank}{sign}{blank}{number}{blank}{unit}")
    name = subject.partition("[")[2].removesuffix("]") or None
    assert (found.subject, found.name, found.stat) == (subject.partition("[")[0], name, stat)
    assert found.operator == sign
    assert found.bound == pytest.approx(float(str(number)) * US[unit])


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("frame.p99 33ms", "frame.p99 < 33ms"),
        ("fps >= 30", "frame.rate >= 30fps"),
        ("frame[a].p99 < 33ms", r"stage\[NAME\].p99"),
        ("frame.rate >= 30ms", "frame.rate >= 30fps"),
        ("frame.mean < 30fps", "frame.p99 < 33ms"),
        ("stage.rate > 30fps", "frame.rate >= 30fps"),
        ("layer.p0 < 1us", "layer.min"),
    ],
)
def test_what_is_none_is_refused_with_one_that_is(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        Objective.parse(text)
    assert re.search(hint, refused.value.hint)


def test_a_condition_of_diff_begins_as_an_objective_does() -> None:
    assert parse_condition("layer[conv1].p95 > +20 us")[1:] == ("layer", "conv1", "p95", ">", 20.0, "us")


def verdict(text: str, *us: float) -> Judged:
    return judged(Objective.parse(text), series(*us))


def test_a_verdict_has_its_value_and_how_often_it_was_missed() -> None:
    found = verdict("frame.p95 < 10us", *[1.0] * 90, *[20.0] * 10)
    assert (found.verdict, found.value, found.number, found.exceeded, found.share) == ("exceeded", 20, 100, 10, 0.1)
    assert found.line() == "EXCEEDED frame.p95 < 10us: p95 is 20.000 us; 10 of 100 frames (10.00 %) miss it"
    assert verdict("frame.p50 <= 1us", *[1.0] * 90, *[20.0] * 10).verdict == "holds"
    assert verdict("frame.min > 1us", 1.0, 20.0).verdict == "exceeded"
    # What is not known is no value.
    assert verdict("frame.mean < 2us", *[1.0] * 10, float("nan")).number == 10


def test_few_values_decide_nothing() -> None:
    assert verdict("frame.mean < 2us", *[1.0] * 9).why == "9 of the 10 values that it takes"
    assert verdict("frame.p99 < 2us").why == "nothing is known of it"
    assert verdict("frame.max < 2us", 1.0).verdict == "holds"
    # A p99 allows one of a hundred: nobody knows whether one of fifty is that one.
    assert verdict("frame.p99 < 2us", *[1.0] * 49, 9.0).verdict == "unknown"
    assert verdict("frame.p99 < 2us", *[1.0] * 48, 9.0, 9.0).verdict == "exceeded"
    assert verdict("frame.p99 < 2us", *[1.0] * 50).verdict == "holds"


def test_a_rate_is_that_of_all_and_is_missed_by_intervals() -> None:
    # 30, 30 and 15 a second; of two inferences only one was sampled in the last step.
    steps = JudgedSeries("yolo", np.empty(0), np.array([33_333.0] * 20 + [133_333.0]), np.array([1.0] * 20 + [2.0]))
    found = judged(Objective.parse("latency.rate >= 29fps"), steps)
    assert (found.verdict, found.exceeded) == ("exceeded", 1)
    assert found.value == pytest.approx(22 / 0.799993)
    assert "rate is 27.50 /s; 1 of 21 intervals (4.76 %) miss it" in found.line()


def test_the_worst_case_is_the_verdict_and_comes_first() -> None:
    found = judgement(
        Objective.parse("layer.max < 5us"), [series(1, name="a"), series(9, 1, name="b"), series(9, name="c")]
    )
    assert [line.split(": ")[1] for line in found.lines()] == ["c", "b"]
    document = found.document()
    assert (document["verdict"], document["bound"], document["unit"]) == ("exceeded", 5.0, "us")
    assert [each["verdict"] for each in document["cases"]] == ["holds", "exceeded", "exceeded"]
    none = judgement(Objective.parse("layer[x].max < 5us"), [])
    assert none.lines() == ["unknown layer[x].max < 5us: nothing of it was recorded"]
    objective = Objective.parse("layer.max < 5us")
    holds = judgement(objective, [series(1, name="a"), series(2, name="b")])
    assert holds.lines()[0].endswith("miss it; it holds for 1 more")
    several = ([holds], [holds, unjudged(objective, "")], [none, found])
    assert [exit_code_of([each.verdict for each in some]) for some in several] == [0, 4, 1]


def drawn(seed: int, slow: str = "", contends: float = 0.3) -> list[Frame]:
    """Frames of the simulated board's program, whose `slow` part takes long in some; another model has the NPU."""
    random = np.random.default_rng(seed)
    steps = FrameSteps(seed, [SlowStage(slow, 5.0, 0.05)] if slow in STAGES else [])
    found = []
    for number in range(FRAMES):
        begin = number * 33_000
        waited = int(random.uniform(0, 500)) * (random.random() < contends)
        waited += 2000 * (slow == WAIT and random.random() < 0.05)
        ran = begin + waited + int(random.normal(3150, 20))
        before, infer, after = steps.around(begin, ran + 75)
        at = (("infer", infer[1], begin), (WAIT, begin, begin + waited), ("NPU yolo", begin + waited, ran))
        parts = [before, *at, ("call yolo", ran, ran + 75), after]
        kept = [FramePart(name, name == WAIT, low * 1000, high * 1000) for name, low, high in parts if low < high]
        found.append(Frame(1, 0, number, kept[0].begin_ns, kept[-1].end_ns, tuple(kept)))
    return found


def frame_verdict(frames: list[Frame], text: str) -> Judged:
    framed = FrameSeries()
    framed.add(frames)
    (found,) = judgement(Objective.parse(text), framed.of(Objective.parse(text))).cases
    return found


def test_a_planted_guilty_stage_is_named_and_none_in_a_clean_run() -> None:
    guilty = ("preprocess", "infer", "postprocess", WAIT)
    for seed in range(RUNS):
        slow = guilty[seed % len(guilty)]
        found = frame_verdict(drawn(seed, slow), "frame.p99 < 5.6ms")
        assert found.guilty is not None
        assert (found.verdict, found.guilty.part) == ("exceeded", slow)
        clean = frame_verdict(drawn(seed), "frame.p99 < 5.6ms")
        assert (clean.verdict, clean.guilty) == ("holds", None)
        # A bound within the noise is exceeded by chance: no stage is guilty of it.
        tight = frame_verdict(drawn(seed, contends=0), "frame.p90 < 4.48ms")
        assert (tight.verdict, tight.guilty, tight.why) == ("exceeded", None, "no single part explains it")


def test_what_is_always_slow_has_nothing_to_be_compared_with() -> None:
    found = frame_verdict(drawn(0), "frame.mean < 1ms")
    assert found.guilty is None
    assert found.why == "too few values meet the bound to tell what is usual; NPU yolo takes 69 %"


def test_stages_and_frames_of_each_process_are_judged_by_themselves() -> None:
    frames = drawn(0)
    framed = FrameSeries("spans")
    framed.add([*frames, *(Frame(2, 0, each.number, each.begin_ns, each.end_ns, each.parts) for each in frames)])
    found = judgement(Objective.parse("stage.p50 < 3ms"), framed.of(Objective.parse("stage.p50 < 3ms")))
    assert [each.name for each in found.cases if each.verdict == "exceeded"] == [
        "NPU yolo, process 1",
        "NPU yolo, process 2",
    ]
    assert all(each.why == "frames are joined by the order of spans" for each in found.cases)
    (rate, _) = judgement(
        Objective.parse("frame.rate >= 30fps"), framed.of(Objective.parse("frame.rate >= 30fps"))
    ).cases
    assert rate.verdict == "holds"
    assert rate.value == pytest.approx(1000 / 33, rel=1e-3)


def test_inferences_that_a_flight_recorder_thinned_are_judged_by_their_figures() -> None:
    latency, conv, twice = Distribution(), Distribution(), Distribution()
    latency.add(np.array([*[1000.0] * 900, *[2000.0] * 100]))
    conv.add(np.full(1000, 300.0))
    twice.add(np.full(2000, 50.0))
    layers: Any = {place: SimpleNamespace(name=name) for place, name in enumerate(("conv", "twice"))}
    subjects = {WHOLE: latency, "aicore 0 0": conv, "aicore 0 1": twice}
    models = ModelSeries(in_us=True)
    models.add_thinned(ThinnedFigures("yolo", 0, layers, subjects, dict.fromkeys(subjects, 1000)))

    def verdict(text: str) -> Judged:
        (found,) = judgement(Objective.parse(text), models.of(Objective.parse(text))).cases
        return found

    slow = verdict("latency.p95 < 1.5ms")
    assert (slow.verdict, slow.number, slow.exceeded, slow.guilty) == ("exceeded", 1000, 100, None)
    assert slow.value == pytest.approx(2000, rel=0.005)
    assert slow.why.startswith("none of those that miss it was kept whole; a flight recorder thinned most")
    # Of a second device the picture counts begin anew.
    models.add_thinned(ThinnedFigures("yolo", 1, layers, subjects, dict.fromkeys(subjects, 1000)))
    assert (rate := verdict("latency.rate > 1/s")).verdict == "unknown"
    assert "their rate is not known" in rate.why
    # All of one value have a spread that bins do not show.
    constant = figures_with(np.empty(0), conv)
    assert constant.median == pytest.approx(300, rel=0.004)
    assert (constant.mad, constant.max) == (None, 300)
    assert verdict("latency.median < 1.5ms").verdict == verdict("layer[conv].max < 302us").verdict == "holds"
    # Of two records in each inference nobody knows the sum.
    assert (found := verdict("layer[twice].max < 1ms")).verdict == "unknown"
    assert "of a layer with several records in an inference" in found.why


@given(
    st.lists(st.floats(0.01, 1e6), min_size=10, max_size=40),
    st.integers(0, 10),
    st.sampled_from(["p50", "p95", "p99", "mean", "max", "min"]),
    st.sampled_from(["<", "<=", ">", ">="]),
    st.integers(0, 39),
    st.sampled_from([1.0, 0.9, 1.001, 1.003, 1.1]),
)
def test_a_verdict_on_a_histogram_is_that_on_its_values_or_unknown(
    values: list[float], kept: int, stat: str, sign: str, place: int, factor: float
) -> None:
    histogram = Distribution()
    histogram.add(np.array(values[kept:]))
    objective = Objective.parse(f"latency.{stat} {sign} 1us")._replace(bound=values[place % len(values)] * factor)
    true, found = (
        judged(objective, each)
        for each in (series(*values), series(*values[:kept])._replace(thinned=histogram if values[kept:] else None))
    )
    assert found.verdict in (true.verdict, "unknown")
    assert found.number == true.number
    assert found.exceeded <= true.exceeded <= found.exceeded + found.unsure
    assert found.value == pytest.approx(true.value, rel=0.0041)
    assert true.value is not None
    if abs(true.value / objective.bound - 1) > 0.0041 and true.verdict != "unknown":
        assert found.verdict == true.verdict


def test_the_guilty_part_of_thinned_frames_is_that_of_those_whose_calls_have_records() -> None:
    """Of most frames only the call is known: beside these the NPU would explain any excess."""
    frames = drawn(0, "postprocess", contends=0)
    slow = {place for place, each in enumerate(frames) if each.us > 5300}
    kept = {near for place in slow for near in range(place - 2, place + 3)}
    whole = "call yolo"
    for place, frame in enumerate(frames):
        if place not in kept:
            parts = tuple(part._replace(name=whole) if part.name.endswith("yolo") else part for part in frame.parts)
            frames[place] = replace(frame, parts=parts, undivided=1)
    framed = FrameSeries("number", {whole, "NPU yolo", WAIT})
    framed.add(frames)
    objective, of_part = Objective.parse("frame.p98 < 5.3ms"), Objective.parse("stage[NPU yolo].p99 < 4ms")
    (found,) = judgement(objective, framed.of(objective)).cases
    assert found.guilty is not None
    assert (found.guilty.part, found.number, found.exceeded) == ("postprocess", FRAMES, len(slow))
    (undivided,) = judgement(of_part, framed.of(of_part)).cases
    assert (undivided.verdict, undivided.value) == ("unknown", None)


@pytest.mark.parametrize("every", [2, 5])
@pytest.mark.parametrize("stage", ["postprocess", ""])
def test_frames_whose_calls_are_divided_alike_are_compared(every: int, stage: str) -> None:
    """Of the inferences of the other frames nothing was sampled: only the call is known."""
    frames = drawn(1, stage, contends=0)
    for place, frame in enumerate(frames):
        if place % every:
            parts = [part._replace(name="call yolo") if part.name.endswith("yolo") else part for part in frame.parts]
            frames[place] = replace(frame, parts=tuple(parts), undivided=1)
    # Noise alone exceeds a bound at the median.
    bound = "p98 < 5300us" if stage else f"p60 < {np.median([each.us for each in frames])}us"
    found = frame_verdict(frames, f"frame.{bound}")
    assert (found.verdict, found.number) == ("exceeded", FRAMES)
    assert (found.guilty and found.guilty.part) == (stage or None)


def test_of_all_stages_those_that_few_frames_have_are_left_out() -> None:
    frames = drawn(2, "", contends=0)
    extra = frames[-1].parts[-1]._replace(name="infer")
    frames[-1] = replace(frames[-1], parts=(*frames[-1].parts[:-1], extra))
    framed = FrameSeries()
    framed.add(frames)
    every, of_it = Objective.parse("stage.p99 < 50ms"), Objective.parse("stage[infer].p99 < 50ms")
    assert [judgement(each, framed.of(each)).verdict for each in (every, of_it)] == ["holds", "unknown"]


def test_a_value_near_its_bound_is_shown_with_more_digits() -> None:
    objective = Objective.parse("frame.rate >= 30fps")
    assert [objective.text_of(value) for value in (29.9987, 30.0, 28.0)] == ["29.99870 /s", "30.00 /s", "28.00 /s"]
    assert Objective.parse("frame.p99 < 33ms").text_of(33000.2) == "33.000200 ms"


@pytest.mark.parametrize(
    ("wanted", "is_of"), [(None, True), ("a.conv", True), ("a.conv+b.relu", True), ("b.relu", True), ("relu", False)]
)
def test_one_name_of_a_fused_layer_is_enough(wanted: str | None, is_of: bool) -> None:
    assert is_of_layer(wanted, "a.conv+b.relu (cpu)") is is_of
