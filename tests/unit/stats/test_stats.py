"""`stats` over the JOBs of a session."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from profagent.cli.main import run
from profagent.errors import UsageError
from profagent.formats.countermap import RATIOS
from profagent.formats.durations import Distribution
from profagent.lake.aggregates import FRAMES, aggregates
from profagent.stats.document import model_lines, stats_document
from profagent.stats.figures import JobRecords, LeftOut, left_out, warm_up
from profagent.stats.session_figures import By, Row, SessionFigures, joined_us, split
from profagent.stats.stats import stats
from profagent.store import columns
from profagent.tables.provenance import SIMULATED_MARK
from profagent_app.marks import Kind
from tests.fakes.spooled import MARKS, mark, spooled
from tests.fakes.spooled import START_US as BEGUN_US
from tests.unit.stats.job_records import Rows, inferences, job
from tests.unit.store.database import START_US, DatabaseBuilder


def _job(builder: DatabaseBuilder, session: int, name: str, inferences: int, frequency_mhz: int | None = 700) -> int:
    """Inferences of two layers on the NPU, 1 and 2 µs, one on the CPU, 4 µs, in 10 µs; the first takes ten times that.

    A call runs each, of 12 µs.
    """
    job = builder.job(session, name=name, frequency_mhz=frequency_mhz)
    model = builder.model(job, layers=("conv0", "pool0", "nms0"))
    calls: list[tuple[int, int | None, int]] = []
    for pic in range(inferences):
        slow, begin = (10, 0) if pic == 0 else (1, 200 * pic)
        inference = builder.inference(
            session, model, pic, start_us=START_US + begin, end_us=START_US + begin + 3 * slow
        )
        builder.aicore(inference, builder.new_part(session, model, "aicore"), [7 * slow, 14 * slow])
        builder.aicpu(
            inference, builder.new_part(session, model, "aicpu"), [(begin + 6 * slow, begin + 10 * slow)], [2]
        )
        calls.append((2, begin - 1, begin + 12 * slow - 1))
    builder.calls(builder.new_part(session, model, "acl_api"), calls)
    return job


async def test_jobs_of_a_session_are_answered_together_and_their_warm_ups_left_out(builder: DatabaseBuilder) -> None:
    session = builder.session()
    for name in ("JOBA", "JOBB"):
        _job(builder, session, name, 20)
    found = await stats(builder.close())
    assert [row.key[1:] for row in found.rows] == [
        ("nms0", "nms", "AA_CPU"),
        ("pool0", "pool", "AA_CORE"),
        ("conv0", "conv", "AA_CORE"),
        ("not in any layer", "-", "-"),
    ]
    assert [row.figures.number for row in found.rows] == [38] * 4
    assert [row.figures.median for row in found.rows] == pytest.approx([4.0, 2.0, 1.0, 5.0])
    assert [row.in_inference for row in found.rows] == pytest.approx([4.0, 2.0, 1.0, 5.0])
    assert [row.share for row in found.rows] == pytest.approx([400 / 12, 200 / 12, 100 / 12, 500 / 12])
    assert [tuple(each) for each in found.left_out] == [("yolo", 40, 2)]
    assert [each["job"] for each in found.provenance] == ["JOBA", "JOBB"]
    assert found.unit == "us"


async def test_figures_do_not_depend_on_how_many_records_are_read_at_a_time(
    builder: DatabaseBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = builder.session()
    _job(builder, session, "JOBA", 7)
    file = builder.close()
    for by in ("layer", "model"):
        whole = await stats(file, by=by, skip=1)
        for most in (1, 3):
            with monkeypatch.context() as lowered:
                lowered.setattr(columns, "RECORDS_PER_CHUNK", most)
                found = await stats(file, by=by, skip=1)
            assert stats_document(found, found.rows, 1) == stats_document(whole, whole.rows, 1)


async def test_without_a_frequency_durations_are_ticks(builder: DatabaseBuilder) -> None:
    session = builder.session()
    _job(builder, session, "JOBA", 2)
    _job(builder, session, "JOBB", 2, frequency_mhz=None)
    file = builder.close()
    found = await stats(file, by="type", skip=1)
    assert (found.unit, [row.figures.median for row in found.rows]) == ("ticks", [14.0, 7.0])
    (line,) = model_lines(found.models[0])
    assert "shares are of the sum of its layers, for the NPU's clock is not known;" in line
    assert [row.share for row in found.rows] == pytest.approx([200 / 3, 100 / 3])
    # Latency, and what ran on the CPU, need no NPU's clock; the sum over both processors does.
    of_model = await stats(file, by="model", skip=1)
    assert (of_model.unit, of_model.rows[0].figures.median) == ("us", 12.0)
    assert stats_document(of_model, of_model.rows, 1)["rows"][0]["layers"] is None
    cpu = await stats(file, by="aicpu", skip=1)
    assert (cpu.unit, cpu.rows[0].figures.median, cpu.models) == ("us", 4.0, [])
    assert cpu.rows[0].share == pytest.approx(400 / 12)


async def test_a_session_or_job_that_there_is_not_is_refused(builder: DatabaseBuilder) -> None:
    builder.job(builder.session())
    file = builder.close()
    assert (await stats(file)).rows == []
    with pytest.raises(UsageError):
        await stats(file, session=9)
    with pytest.raises(UsageError):
        await stats(file, job="JOBZ")


# Durations by what they are of

TWO: Rows = [(0, 0, 0, 10), (0, 1, 0, 20), (0, 0, 1, 5), (1, 0, 0, 11), (1, 1, 0, 21), (1, 0, 1, 6)]
CPU: Rows = [(0, 2, 2, 3), (0, 2, 2, 4), (1, 2, 2, 5)]


def _by(records: JobRecords, by: By, skip: int = 0) -> dict[tuple[str, ...], list[float]]:
    figures = SessionFigures(frozenset([by]), skip, in_us=records.us_per_tick is not None)
    figures.add(records)
    return {key: joined_us(parts).tolist() for key, parts in figures.durations(by).items()}


def test_each_record_is_a_value_of_its_layer() -> None:
    assert _by(job(inferences(2), TWO, CPU, us_per_tick=2.0), "layer") == {
        ("m", "conv0", "Convolution", "AA_CORE"): [20, 10, 22, 12],
        ("m", "conv1", "Convolution", "AA_CORE"): [40, 42],
        ("m", "nms", "N", "AA_CPU"): [3, 4, 5],
    }


def test_a_segment_s_value_is_its_sum_on_one_unit_in_one_inference() -> None:
    found = _rows(job(inferences(2), TWO, CPU, us_per_tick=2.0), "segment")
    units = {("m", "0", "AA_CORE"): (2, 124), ("m", "1", "AA_CORE"): (2, 22), ("m", "2", "AA_CPU"): (2, 12)}
    assert {key: row.figures[:2] for key, row in found.items()} == units
    assert ("m", "2", "AA_CPU") not in _rows(job(inferences(2), TWO, CPU, us_per_tick=None), "segment")


def _rows(records: JobRecords, by: By, skip: int = 0) -> dict[tuple[str, ...], Row]:
    figures = SessionFigures(frozenset([by]), skip, in_us=records.us_per_tick is not None)
    figures.add(records)
    return {row.key: row for row in figures.rows(by)}


def _models(*jobs: JobRecords, by: By = "model") -> SessionFigures:
    rows = SessionFigures(frozenset([by]), 0)
    for each in jobs:
        rows.add(each)
    return rows


def test_a_model_has_two_times_and_how_many_of_its_layers_were_recorded() -> None:
    # The second inference lacks the record of conv1, which counts with its mean.
    rows: Rows = [(i, layer, 0, 10.0 + i) for i in range(3) for layer in (0, 1) if (i, layer) != (1, 1)]
    whole = [(1000.0 * i, 1000.0 * i + 30) for i in range(3)]
    (found,) = _models(job(inferences(3), rows, whole=whole)).models()
    assert (found.latency.median, found.latency_from, found.per_second, found.gap_us) == (30, "records", 1000.0, 970.0)
    assert (found.layers.median, found.recorded, found.of_layers, found.lacking) == (22, 2, 3, 1)
    assert [found.layers.total, found.parts.rest_us] == pytest.approx([20 + 22 + 24, 8.0])


def test_an_inference_that_lacks_one_of_a_layer_s_records_is_told_and_not_faster() -> None:
    """Three records of conv0 are in most inferences; in the last the third, with which it would end, is missing."""
    rows: Rows = [(i, 0, 0, us) for i in range(4) for us in (10.0, 20.0, 40.0) if (i, us) != (3, 40.0)]
    rows_of = _models(job(inferences(4), rows, whole=[(0.0, 75.0)] * 3 + [(0.0, 35.0)]), by="layer")
    (found,) = rows_of.models()
    assert (found.lacking, found.layers.median, found.layers.mad) == (1, 70, 0)
    assert (found.latency.number, found.latency.mean) == (3, 75)
    assert [(row.key[1], row.in_inference) for row in rows_of.rows("layer")] == [("conv0", 70), ("not in any layer", 5)]


def test_figures_over_several_devices_say_so_where_they_are_of_no_one() -> None:
    of = [each._replace(device_id=device) for each, device in zip(inferences(2), (0, 3), strict=True)]
    ours = job(of, [(0, 0, 0, 10), (1, 0, 0, 30)], whole=[(0.0, 20.0), (100.0, 140.0)])
    told = "m: figures are over 2 devices: `profagent stats --by device` tells them apart"
    (over_all,) = _models(ours, by="layer").models()
    assert told in model_lines(over_all)
    each = _models(ours, by="device").models("device")
    assert [(one.device, one.devices) for one in each] == [("3", 1), ("0", 1)]
    assert not any("devices" in line for one in each for line in model_lines(one))


def test_latencies_of_all_jobs_are_of_one_origin() -> None:
    rows: Rows = [(i, 0, 0, 10) for i in range(3)]
    whole, calls = [(1000.0 * i, 1000.0 * i + 20) for i in range(3)], [(1000.0 * i, 1000.0 * i + 30) for i in range(3)]
    with_calls = job(inferences(3), rows, whole=whole, calls=calls)
    without = job(inferences(3), rows, whole=whole)
    (found,) = _models(with_calls, without).models()
    assert (found.latency_from, found.inferences, found.latency.number, found.latency.median) == ("call", 6, 3, 30)
    assert "m: its latency is known of 3 of 6 inferences" in model_lines(found)
    (found,) = _models(with_calls, without, without).models()
    assert (found.latency_from, found.inferences, found.latency.number, found.latency.median) == ("records", 9, 9, 20)


def test_a_layer_is_ranked_by_what_it_takes_when_its_record_is_there() -> None:
    """Of four inferences one lacks the longest layer's record, which by its total would be the second."""
    rows: Rows = [(i, layer, 0, us) for i in range(4) for layer, us in ((0, 100), (1, 90)) if i or layer]
    found = _models(job(inferences(4), rows, whole=[(0.0, 200.0)] * 4), by="layer").rows("layer")
    assert [(row.key[1], row.figures.total, row.share) for row in found] == [
        ("conv0", 300, 50.0),
        ("conv1", 360, 45.0),
        ("not in any layer", 30, 5.0),
    ]


@pytest.mark.parametrize("by", ["layer", "type", "segment"])
def test_the_parts_sum_to_the_latency_of_their_own_model(by: By) -> None:
    both = [*inferences(2), *inferences(2, model=2, name="other")]
    whole = [(0.0, 100.0), (200.0, 310.0), (0.0, 60.0), (70.0, 130.0)]
    npu = [*TWO, *((row[0] + 2, *row[1:]) for row in TWO)]
    cpu = [*CPU, *((row[0] + 2, *row[1:]) for row in CPU)]
    found = _models(job(both, npu, cpu, whole=whole), by=by).rows(by)
    for model, latency in (("m", 105.0), ("other", 60.0)):
        ours = [row for row in found if row.key[0] == model]
        assert sum(row.share or 0.0 for row in ours) == pytest.approx(100.0)
        assert sum(row.in_inference or 0.0 for row in ours) == pytest.approx(latency)


def test_layers_that_overlap_leave_no_rest() -> None:
    rows = _models(job(inferences(2), TWO, CPU, whole=[(0.0, 20.0)] * 2), by="layer")
    assert not any(row.key[1] == "not in any layer" for row in rows.rows("layer"))
    (model,) = rows.models()
    assert "m: its layers take 42.500 us together, more than that: they overlap" in model_lines(model)


def test_without_a_latency_shares_are_of_the_sum_of_layers() -> None:
    rows = _models(job(inferences(2), TWO, CPU), by="layer")
    assert sum(row.share or 0.0 for row in rows.rows("layer")) == pytest.approx(100.0)
    (model,) = rows.models()
    assert (model.latency.median, model.latency_from) == (None, None)
    first, *_ = model_lines(model)
    assert first.startswith("m: shares are of the sum of its layers, for its latency is not known;")


@pytest.mark.parametrize("by", ["layer", "type", "segment", "aicpu"])
def test_what_is_left_out_is_in_no_value(by: By) -> None:
    records = job(inferences(2), TWO, CPU)
    alone = job(inferences(1), [(0, *row[1:]) for row in TWO if row[0]], [(0, *row[1:]) for row in CPU if row[0]])
    assert _rows(records, by, skip=1) == _rows(alone, by)


def test_without_skip_the_warm_up_of_each_load_is_left_out() -> None:
    rows: Rows = [(i, 0, 0, 300 if i in (0, 20, 21) else 100) for i in range(40)]
    keeps, counts = left_out(job(inferences(20, 20), rows), None)
    assert np.flatnonzero(~keeps).tolist() == [0, 20, 21]
    assert counts == [LeftOut("m", 40, 3)]
    assert left_out(job(inferences(20, 20), rows), 0)[0].all()


def test_what_is_warm_up_is_seen_by_the_latency_where_it_is_known() -> None:
    rows: Rows = [(i, 0, 0, 300 if i == 0 else 100) for i in range(20)]
    whole = [(0.0, 900.0 if i < 2 else 400.0) for i in range(20)]
    assert left_out(job(inferences(20), rows, whole=whole), None)[1] == [LeftOut("m", 20, 2)]


def test_ratios_have_the_keys_of_the_durations() -> None:
    figures = SessionFigures(frozenset(["layer"]), 1)
    figures.add(job(inferences(2), TWO, ratios=0.25))
    keys: list[tuple[By, tuple[str, ...]]] = [
        ("layer", ("m", "conv1", "Convolution", "AA_CORE")),
        ("segment", ("m", "1", "AA_CORE")),
        ("model", ("m",)),
    ]
    for by, key in keys:
        found = figures.ratios(lambda coding, by=by: coding.key(by))  # type: ignore[misc]
        assert found[key] == pytest.approx(np.full(len(RATIOS), 0.25))
    assert all(row.bound is None for row in figures.rows("aicpu"))
    assert all(row.bound is None for row in _rows(job(inferences(2), TWO), "layer").values())


@pytest.mark.parametrize("largest", [300, 70_000])
def test_values_are_split_by_code_in_their_order(largest: int) -> None:
    codes = np.array([largest, 3, largest, 0, 3])
    found = [(code, values.tolist()) for code, values in split(codes, np.arange(5))]
    assert found == [(0, [3]), (3, [1, 4]), (largest, [0, 2])]
    assert list(split(codes[:0], codes[:0])) == []


# Which leading inferences are a warm-up


@pytest.mark.parametrize(
    ("slow", "by_us", "noise", "left_out"),
    [
        (slice(0), 200, 0.01, 0),
        (slice(1), 200, 0.01, 1),
        (slice(2), 200, 0.01, 2),
        (slice(7), 200, 0.01, 7),
        (slice(1, 2), 200, 0.01, 0),
        (slice(18), 300, 0.01, 10),
        (slice(1), 200, 0.1, 0),
    ],
    ids=["none", "one", "two", "seven", "a later one", "more than a quarter", "within the noise"],
)
def test_leading_slow_ones_are_left_out(slow: slice, by_us: float, noise: float, left_out: int) -> None:
    times = 1000.0 * (1 + noise * np.random.default_rng(7).standard_normal(40))
    times[slow] += by_us
    assert warm_up(times) == left_out


# `stats --by step`: steps are what a Profiler calls so, and the outermost ranges of each thread


def rows_of(directory: Path, capsys: pytest.CaptureFixture[str]) -> dict[tuple[str, str], tuple[int, float, float]]:
    """Number, total and share by step and range."""
    assert run(["stats", str(directory), "--by", "step", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["rows"]
    shares = [row["share"] and round(row["share"], 2) for row in found]
    return {
        (row["step"], row["range"]): (row["count"], row["total"], share)
        for row, share in zip(found, shares, strict=True)
    }


def test_what_was_made_up_has_the_mark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = str(spooled(tmp_path / MARKS, mark(Kind.SPAN, "frame", *at(0, 800))))
    (tmp_path / MARKS / "simulated").write_text("")
    assert run(["stats", directory, "--by", "step", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["simulated"] is True
    for command in (["stats", directory, "--by", "step"], ["show", "-dir", directory]):
        assert run(command) == 0
        assert SIMULATED_MARK in capsys.readouterr().out


def at(begin: int, end: int) -> tuple[int, int]:
    return BEGUN_US + begin, BEGUN_US + end


def test_ranges_belong_to_the_outermost_of_their_thread(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [
        # As they end: what is within comes first.
        *(mark(Kind.SPAN, "decode", *at(1000 * n + 100, 1000 * n + 300)) for n in range(3)),
        *(mark(Kind.RANGE, "copy", *at(1000 * n + 400, 1000 * n + 500), lane=9) for n in range(3)),
        *(mark(Kind.SPAN, "frame", *at(1000 * n, 1000 * n + 800)) for n in range(3)),
        mark(Kind.SPAN, "upload", *at(100, 300), tid=8),
        # The board's clock was set back within it: nobody knows how long it took.
        mark(Kind.SPAN, "upload", *at(400, 350), tid=8),
        mark(Kind.MARK, "start", *at(0, 0)),
    ]
    assert rows_of(spooled(tmp_path / MARKS, b"".join(records)), capsys) == {
        ("frame", ""): (3, 2400, round(2400 / 2600 * 100, 2)),
        ("frame", "decode"): (3, 600, 25),
        ("frame", "copy"): (3, 300, 12.5),
        ("upload", ""): (1, 200, round(200 / 2600 * 100, 2)),
    }


def test_a_profiler_s_step_holds_every_thread_s(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [
        mark(Kind.SPAN, "decode", *at(100, 300)),
        mark(Kind.SPAN, "upload", *at(100, 200), tid=8),
        *(mark(Kind.SPAN, "work", *at(0, 900), tid=thread) for thread in (3, 4)),
        mark(Kind.STEP, "step", *at(0, 1000)),
        mark(Kind.STEP, "step", *at(1000, 1500)),
        mark(Kind.SPAN, "decode", *at(1000, 1400)),
        mark(Kind.SPAN, "straddling", *at(1400, 1600)),
    ]
    assert rows_of(spooled(tmp_path / MARKS, b"".join(records)), capsys) == {
        ("step", ""): (2, 1500, round(1500 / 1700 * 100, 2)),
        ("step", "decode"): (2, 600, 40),
        ("step", "upload"): (1, 100, round(100 / 15, 2)),
        # Two threads at once took longer than the step.
        ("step", "work"): (2, 1800, None),
        ("straddling", ""): (1, 200, round(200 / 1700 * 100, 2)),
    }


def test_a_session_without_a_job_has_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory, workspace = spooled(tmp_path / MARKS, mark(Kind.SPAN, "frame", *at(0, 800))), str(tmp_path / "workspace")
    assert run(["import", "-dir", str(directory), "--workspace", workspace]) == 0
    capsys.readouterr()
    assert run(["stats", "1", "--by", "step", "--json", "--workspace", workspace]) == 0
    assert [row["step"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["frame"]


def test_it_says_where_there_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = spooled(tmp_path / MARKS, mark(Kind.MARK, "start", *at(0, 0)))
    run(["stats", str(directory), "--by", "step"])
    said = capsys.readouterr().out
    assert "nothing was recorded that could be told by step: marks alone are no steps" in said
    assert run(["stats", str(directory), "--by", "step", "--skip", "1"]) == 2


async def test_calls_inside_a_call_count_once(builder: DatabaseBuilder) -> None:
    session = builder.session()
    job = builder.job(session)
    model = builder.model(job)
    # An execute of 100 µs, in which an unload takes 30; another thread's execute of 50 at the same time.
    builder.calls(builder.new_part(session, model, "acl_api"), [(2, 0, 100), (1, 20, 50)])
    builder.calls(builder.new_part(session, model, "acl_api"), [(2, 10, 60)], tid=502)
    found = await stats(builder.close(), by="api")
    assert [(row.key[0], row.figures.number, row.figures.total, row.own, row.share) for row in found.rows] == [
        ("svp_acl_mdl_execute", 2, 150.0, 120.0, 80.0),
        ("svp_acl_mdl_unload", 1, 30.0, 30.0, 20.0),
    ]
    execute, _ = stats_document(found, found.rows, None)["rows"]
    assert (execute["total"], execute["self"], execute["share"]) == (150.0, 120.0, 80.0)


# `stats --by frame`


def _marked(builder: DatabaseBuilder, session: int, rows: list[tuple[str, int, int, int | None]]) -> None:
    """Spans of process 500 from name, begin, end and frame, in µs from START_US."""
    job = builder.job(session, name=MARKS)
    log = builder.insert("log", job=job, path="1", shown_path="1", kind="foreign", generation=1, offset=256, complete=1)
    builder.part(session, log)
    for number, (name, begin, end, frame) in enumerate(rows):
        times = {"begin_ns": (START_US + begin) * 1000, "end_ns": (START_US + end) * 1000, "mark": number, "lane": 0}
        attributes = "{}" if frame is None else json.dumps({"frame": frame, "captured_us": START_US + begin})
        about = {"kind": "span", "text": name, "attributes": attributes, "pid": 500, "tid": 501}
        builder.insert("range", log=log, session=session, number=number, **about, **times)


def _of_calls(builder: DatabaseBuilder, session: int) -> None:
    """Three inferences of 30 µs in calls of 40; in the last call another process has the NPU for the first 10."""
    job, other = builder.job(session, name="JOB" + "A" * 29), builder.job(session, name="JOB" + "B" * 29)
    ours, others = builder.model(job, "yolo"), builder.model(other, "resnet")
    for number, (model, begin, us) in enumerate([(ours, 105, 30), (ours, 205, 30), (ours, 312, 30), (others, 300, 12)]):
        part = builder.new_part(session, model, "aicore")
        start_us = START_US + begin
        inference = builder.inference(session, model, number, start_us=start_us, end_us=start_us + us)
        builder.segment(inference, part, "aicore", us * 7, start_us=start_us, end_us=start_us + us)
    builder.calls(builder.new_part(session, ours, "acl_api"), [(2, 100, 140), (2, 200, 240), (2, 302, 342)])
    builder.calls(builder.new_part(session, others, "acl_api"), [(2, 299, 313)], pid=600)


async def test_stages_and_waits_sum_to_the_frames(builder: DatabaseBuilder) -> None:
    session = builder.session()
    _of_calls(builder, session)
    steps = (("pre", -8, -4), ("infer", -4, 44), ("post", 54, 64))
    bases = {1: 100, 2: 200, 4: 300}
    _marked(
        builder, session, [(name, at + begin, at + end, n) for n, at in bases.items() for name, begin, end in steps]
    )
    database = builder.close()
    found = await stats(database, by="frame")
    (figures,) = found.frames
    assert figures[:3] == (500, "number", 3)
    assert (figures.latency.median, figures.age.median, figures.missing, figures.lost) == (72, 72, 1, 0)
    assert figures.per_second == pytest.approx(2 / 200e-6)
    totals = {row.key: (row.figures.number, row.figures.total) for row in found.rows}
    assert totals == {
        ("NPU yolo", "stage"): (3, 90),
        ("wait before post", "wait"): (3, 30),
        ("post", "stage"): (3, 30),
        ("infer", "stage"): (3, 24),
        ("call yolo", "stage"): (2, 20),
        ("pre", "stage"): (3, 12),
        ("wait for resnet", "wait"): (1, 10),
    }
    assert sum(total for _, total in totals.values() if total) == figures.latency.total == 216
    assert sum(row.share or 0 for row in found.rows) == pytest.approx(100)
    # A lake has them as a model whose layers are the stages and waits.
    layers, buckets = await aggregates(database, session)
    rows = {(row.layer, row.type): row.total for row in layers if row.model == FRAMES}
    assert rows == {**{key: total for key, (_, total) in totals.items()}, (None, None): 216}
    assert sum(each.number for each in buckets if each.model == FRAMES and each.layer is None) == 3


async def test_an_asynchronous_call_lasts_until_it_is_waited_for(builder: DatabaseBuilder) -> None:
    session = builder.session()
    model = builder.model(builder.job(session), "yolo")
    part = builder.new_part(session, model, "aicore")
    inference = builder.inference(session, model, start_us=START_US + 20, end_us=START_US + 50)
    builder.segment(inference, part, "aicore", 210, start_us=START_US + 20, end_us=START_US + 50)
    builder.calls(builder.new_part(session, model, "acl_api"), [(3, 10, 12), (4, 30, 60)])
    _marked(builder, session, [("send", 5, 15, 1), ("wait", 25, 65, 1)])
    found = await stats(builder.close(), by="frame")
    assert {row.key[0]: row.figures.total for row in found.rows} == {
        "send": 5,  # until the call begins
        "call yolo": 10,
        "NPU yolo": 30,  # also while the program waits for it
        "wait": 15,
    }


def test_calls_alone_are_joined_by_order(builder: DatabaseBuilder, capsys: pytest.CaptureFixture[str]) -> None:
    session = builder.session()
    _of_calls(builder, session)
    assert run(["stats", "1", "--by", "frame", "--workspace", str(builder.close().parent)]) == 0
    said = capsys.readouterr().out
    assert "process 500: 3 frames, joined by order, as the program marks nothing" in said
    assert "process 600: 1 frame, joined by order" in said
    assert "process 500: age at its end: N/A" in said


def test_figures_of_frames_outlive_their_marks(builder: DatabaseBuilder, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = enumerate((1, 2, 5, True, 10**20))
    _marked(builder, builder.session(ended_us=START_US), [("pre", 10 * at, 10 * at + 4, n) for at, n in numbers])
    command = ["stats", "1", "--by", "frame", "--json", "--workspace", str(builder.close().parent)]
    assert run(command) == 0
    before = json.loads(capsys.readouterr().out)
    # What is no number of the database has no frame.
    assert [(each["frames"], each["missing"]) for each in before["frames"]] == [(3, 2)]
    assert run(["gc", "--older-than", "1d", "--workspace", str(builder.file.parent)]) == 0
    capsys.readouterr()
    assert run(command) == 0
    after = json.loads(capsys.readouterr().out)
    assert (after["rows"], after["frames"]) == (before["rows"], before["frames"])


async def test_thinned_inferences_are_not_dropped_silently_beside_a_job_without_a_clock(
    builder: DatabaseBuilder,
) -> None:
    session = builder.session()
    _job(builder, session, "JOBA", 20, frequency_mhz=None)
    model = builder.model(builder.job(session, name="JOBB"), "resnet", layers=("conv0",))
    for subject in ("whole", "layers", "aicore 0 0", "begin", "ran"):
        found = Distribution()
        found.add(np.linspace(100, 200, 30))
        named = ("number", "total", "squares", "least", "most")
        figures = dict(zip(named, found.columns, strict=True))
        key = {"session": session, "model": model, "device_id": 0, "subject": subject, "minute": 0}
        builder.insert("minute_figure", **key, inferences=30, bins=found.packed(), **figures)
    database = builder.close()
    layers, models = await stats(database, by="layer"), await stats(database, by="model")
    assert (layers.unit, {row.key[0] for row in layers.rows}) == ("ticks", {"yolo"})
    (thinned,) = (each for each in models.models if each.model == "resnet")
    assert (thinned.inferences, thinned.latency.number) == (30, 30)
    assert thinned.latency.mean == pytest.approx(150)
    assert any("its layers are those of 0 of 30 inferences" in line for line in model_lines(thinned))
    # By itself the JOB has a clock.
    assert {row.key[1] for row in (await stats(database, job="JOBB")).rows} == {"conv0", "not in any layer"}
