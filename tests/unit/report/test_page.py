"""The page as a file: what it holds, how large it is, and that nothing in it can be taken for something else."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from profagent.diff.diff import Operand
from profagent.limits import MOST_LEDGER_ROWS
from profagent.report.html_page import page
from profagent.report.report import gather
from profagent.report.timeline import thinned
from profagent_app.marks import Kind
from tests.fakes.spooled import MARKS, mark, spooled
from tests.fakes.spooled import START_US as RANGE_US
from tests.integration.board import simulated
from tests.integration.host import profagent
from tests.unit.store.database import JOB, START_US, DatabaseBuilder

if TYPE_CHECKING:
    from profagent.advise.rules import Language

DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)
HOSTILE = "</script><!--<b>&\u2028@@data@@"
MOST_BYTES = 3_000_000


def data_of(text: str) -> Any:
    (found,) = DATA.findall(text)
    return json.loads(found)


def test_the_library_is_the_one_that_its_page_names() -> None:
    folder = resources.files("profagent.report").joinpath("echarts")
    digest = hashlib.sha256(folder.joinpath("echarts.min.js").read_bytes()).hexdigest()
    about = folder.joinpath("README.md").read_text("utf-8")
    assert digest in about
    (version,) = re.findall(r"^# Apache ECharts (\S+)$", about, re.MULTILINE)
    shown = resources.files("profagent.report").joinpath("page", "page.js").read_text("utf-8")
    assert f"Apache ECharts {version}" in shown
    for name in ("LICENSE", "NOTICE", "LICENSE-d3"):
        assert folder.joinpath(name).is_file()


def test_names_of_a_board_cannot_end_the_data(tmp_path: Path) -> None:
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    session = builder.session()
    model = builder.model(builder.job(session), name=HOSTILE, layers=(HOSTILE,))
    for pic in range(3):
        inference = builder.inference(session, model, pic, start_us=START_US + 100 * pic)
        builder.aicore(inference, builder.new_part(session, model, "aicore"), [7])
    builder.close()
    file = tmp_path / "report.html"
    assert profagent("report", "1", "--workspace", tmp_path, "-o", file).code == 0
    text = file.read_text("utf-8")
    assert data_of(text)["stats"]["layer"]["rows"][0]["layer"] == HOSTILE
    assert HOSTILE not in text


def test_a_page_for_many_records_is_small_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    """100,000 layers in it: more than a page holds."""
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    session = builder.session(simulated=1, counter_map="some")
    layers = tuple(f"stage{number // 10}.block{number}.convolution" for number in range(100))
    model = builder.model(builder.job(session), layers=layers)
    ticks = [700 + 7 * (number % 13) for number in range(100)]
    counters: list[tuple[float | None, ...]] = [(0.9, 0.8, 0.1, 0.1, 0.2, 0.1, 0.3, 0.2, 1000.0, 1000.0)] * 100
    for pic in range(1000):
        inference = builder.inference(session, model, pic, start_us=START_US + 12_000 * pic)
        builder.aicore(inference, builder.new_part(session, model, "aicore"), ticks, counters=counters)
    builder.close()
    file = tmp_path / "report.html"
    assert profagent("report", "1", "--workspace", tmp_path, "-o", file).code == 0
    assert file.stat().st_size < MOST_BYTES
    shown = data_of(file.read_text("utf-8"))
    assert shown["timeline"]["rules"] == [
        "segments and layers of 120 of 1,000 inferences, evenly taken from each model"
    ]
    assert len(shown["timeline"]["spans"]) == 1000 + 120 * 101
    assert shown["stats"]["layer"]["rows"][0]["count"] == 1000
    assert len(zlib.compress(file.read_bytes())) < MOST_BYTES / 3


def test_layers_of_both_units_are_ranked_together(tmp_path: Path) -> None:
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    session = builder.session()
    model = builder.model(builder.job(session), layers=("conv0", "nms0"))
    for pic in range(3):
        inference = builder.inference(session, model, pic, start_us=START_US, end_us=START_US + 100)
        builder.aicore(inference, builder.new_part(session, model, "aicore"), [700])
        builder.aicpu(inference, builder.new_part(session, model, "aicpu"), [(150, 175)], [1])
    builder.close()
    file = tmp_path / "report.html"
    assert profagent("report", "1", "--workspace", tmp_path, "-o", file).code == 0
    shown = data_of(file.read_text("utf-8"))
    # Of the 175 us from the NPU's begin to the CPU's end.
    ranked = [(row["layer"], round(row["share"], 2), row["bound by"]) for row in shown["ranked"]]
    assert ranked == [("conv0", 57.14, None), ("not in any layer", 28.57, None), ("nms0", 14.29, "CPU")]
    table = {row["layer"]: round(row["share"], 2) for row in shown["stats"]["layer"]["rows"]}
    assert {layer: share for layer, share, _ in ranked} == table, "a layer has one share"
    timeline = shown["timeline"]
    assert timeline["detailed"] == [[0, 175]] * 3
    bars = [span for span in timeline["spans"] if timeline["lanes"][span[0]] == "inferences"]
    assert [span[1:3] for span in bars] == [[0, 175]] * 3, "to the end of the CPU's segment"
    ((model,), (spread,)) = shown["models"], shown["spreads"]["inferences"]
    assert (model["latency"]["median"], model["latency_from"], model["weight"]) == (175.0, "records", 1.0)
    assert (spread["what"], spread["unit"], spread["counts"]) == ("Latency", "us", [0, 3, 0])
    assert "2 of 2 layers recorded" in model["about"][0]


def test_of_several_models_each_has_its_part_of_the_time(tmp_path: Path) -> None:
    """Three inferences of 100 us and three of 300."""
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    session = builder.session()
    job = builder.job(session)
    for number, us in enumerate((100, 300)):
        model = builder.model(job, name=f"model{number}", model_id=number, layers=("conv0",))
        for pic in range(3):
            inference = builder.inference(session, model, pic, start_us=START_US, end_us=START_US + us)
            builder.aicore(inference, builder.new_part(session, model, "aicore"), [us * 7 // 2])
    builder.close()
    file = tmp_path / "report.html"
    assert profagent("report", "1", "--workspace", tmp_path, "-o", file).code == 0
    shown = data_of(file.read_text("utf-8"))
    assert {each["model"]: each["weight"] for each in shown["models"]} == {"model0": 0.25, "model1": 0.75}
    assert {row["share"] for row in shown["ranked"]} == {50.0}


@pytest.mark.parametrize("number", [1, 99, 100, 101, 5000])
def test_points_are_thinned_to_the_lowest_and_highest_of_each_part(number: int) -> None:
    points = np.column_stack([np.arange(number, dtype=float), np.sin(np.arange(number))])
    kept = thinned(points, 100)
    assert len(kept) <= 100
    assert (kept[:, 1].min(), kept[:, 1].max()) == (points[:, 1].min(), points[:, 1].max())
    assert (np.diff(kept[:, 0]) > 0).all()


def test_a_session_whose_records_are_gone_keeps_its_figures(tmp_path: Path) -> None:
    job = simulated(tmp_path / "board", 4, model="mobilenetv2")
    where = ("--workspace", tmp_path / "workspace")
    assert profagent("import", "-dir", job, *where).code == 0
    before = profagent("stats", "1", "--json", *where).document["rows"]
    assert profagent("gc", "--keep-last", "0", *where).code == 0
    file = tmp_path / "report.html"
    assert profagent("report", "1", *where, "-o", file).code == 0
    shown = data_of(file.read_text("utf-8"))
    assert shown["stats"]["layer"]["rows"] == before
    assert "`profagent gc` deleted" in shown["timeline"]["nothing"]
    assert "`report 1` show them" in profagent("export", "trace", "1", *where).err


def test_it_says_what_is_wrong(tmp_path: Path) -> None:
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    builder.job(builder.session())
    builder.close()
    file = tmp_path / "report.html"
    where = ("--workspace", tmp_path)
    assert profagent("report", "2", *where, "-o", file).code == 2
    ended = profagent("report", "1", *where, "-o", tmp_path / "no" / "folder.html")
    assert ended.code == 1
    assert "make it first" in ended.err
    link = tmp_path / "latest.html"
    link.symlink_to(file)
    ended = profagent("report", "1", *where, "-o", link)
    assert (ended.code, link.is_symlink()) == (0, True)
    assert "No layer was recorded" in ended.out
    assert JOB in file.read_text("utf-8")


def test_places_are_filled_once() -> None:
    shown = {
        "session": {"board": "u-1", "hostname": "@@data@@", "session": 1},
        "jobs": [],
        "simulated": False,
        "language": "en",
        "verdict": "@@title@@",
    }
    assert data_of(page(shown))["session"]["hostname"] == "@@data@@"


def test_a_session_without_a_job_has_its_ranges(tmp_path: Path) -> None:
    marks = spooled(tmp_path / MARKS, mark(Kind.SPAN, "frame", RANGE_US, RANGE_US + 800))
    where = ("--workspace", tmp_path / "workspace")
    assert profagent("import", "-dir", marks, *where).code == 0
    assert profagent("report", "1", *where, "-o", tmp_path / "report.html").code == 0
    shown = data_of((tmp_path / "report.html").read_text("utf-8"))
    assert shown["timeline"]["lanes"] == ["ranges 5/7"]
    assert shown["timeline"]["spans"] == [[0, 0, 800, 0]]
    assert shown["stats"]["step"]["rows"][0]["step"] == "frame"


def test_frames_of_a_program_are_a_section(tmp_path: Path) -> None:
    marks = [
        mark(Kind.SPAN, name, RANGE_US + 100 * n + at, RANGE_US + 100 * n + at + 20, f'{{"frame":{n}}}', number=2 * n)
        for n in (1, 2)
        for name, at in (("pre", 0), ("post", 30))
    ]
    directory, file = spooled(tmp_path / MARKS, b"".join(marks)), tmp_path / "report.html"
    assert profagent("report", directory, "-o", file).code == 0
    found = data_of(file.read_text("utf-8"))["stats"]["frame"]
    assert [(row["part"], row["kind"], row["total"]) for row in found["rows"]] == [
        *(("post", "stage", 40), ("pre", "stage", 40), ("wait before post", "wait", 20))
    ]
    assert [(each["frames"], each["latency"]["median"]) for each in found["frames"]] == [(2, 50)]


def test_a_clock_that_was_set_does_not_stretch_the_timeline(tmp_path: Path) -> None:
    begins_us = (5, RANGE_US, RANGE_US + 1000)
    spans = [mark(Kind.SPAN, "frame", at, at + 800, number=number) for number, at in enumerate(begins_us)]
    file = tmp_path / "report.html"
    assert profagent("report", spooled(tmp_path / MARKS, b"".join(spans)), "-o", file).code == 0
    timeline = data_of(file.read_text("utf-8"))["timeline"]
    assert [span[1] for span in timeline["spans"]] == [0, 1000]
    assert timeline["rules"] == ["all but 1 events that last, or are from the others, more than 30 days"]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Session 2 is slower than session 1 by its first layer; session 3 has too few inferences."""
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    for number, (ticks, inferences) in enumerate(((700, 12), (910, 12), (700, 2))):
        session = builder.session(started_us=START_US + number)
        model = builder.model(builder.job(session, name=f"JOB{number:029}"), layers=("conv0", "pool0"))
        for pic in range(inferences):
            start_us = START_US + 10_000 * pic
            end_us = start_us + (ticks + 1400) // 7 + pic % 3
            inference = builder.inference(session, model, pic, start_us=start_us, end_us=end_us)
            builder.aicore(inference, builder.new_part(session, model, "aicore"), [ticks + pic % 5, 1400 + pic % 7])
    builder.close()
    return tmp_path


@pytest.mark.parametrize(
    ("session", "base", "said"),
    [
        (
            "2",
            "1",
            r"yolo latency \+10\.0 % \(301.0 → 331.0 us\), slower, p 0\.0\d+, .* changed most: conv0 \+29\.9 %",
        ),
        ("1", "2", r"Against session 2: yolo latency -9\.1 % \(.*\), faster"),
        ("1", "1", r"Against session 1: yolo latency \+0\.0 % \(.*\), within noise or floor$"),
        ("2", "3", r"Against session 3: yolo .* there are too few different inferences to tell a change from noise"),
    ],
)
def test_the_verdict_says_what_changed_how_surely_and_where(runs: Path, session: str, base: str, said: str) -> None:
    file = runs / "report.html"
    ended = profagent("report", session, "--workspace", runs, "--against", base, "-o", file, "--lang", "en")
    verdict = data_of(file.read_text("utf-8"))["verdict"]
    assert re.search(said, verdict)
    assert verdict in ended.out


def test_losses_and_samples_are_those_of_the_caveats_and_the_ledger_says_that_it_is_cut(tmp_path: Path) -> None:
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    session = builder.session()
    jobs = [builder.job(session, name=f"JOB{number:029}") for number in range(2)]
    builder.ledger(session, "loss", "torn-record", 5, jobs[1])
    for _ in range(MOST_LEDGER_ROWS):
        builder.ledger(session, "note", "no-layer", 1, jobs[0])
        builder.ledger(session, "note", "sequence-gap", 2, jobs[0])
    builder.close()
    shown = {}
    for job in ("0", "1", ""):
        named = ("--job", f"JOB{job:>029}") if job else ()
        file = tmp_path / "report.html"
        assert profagent("report", "1", *named, "--workspace", tmp_path, "-o", file).code == 0
        shown[job] = data_of(file.read_text("utf-8"))
    assert {job: each["session"]["losses"] for job, each in shown.items()} == {
        "0": {},
        "1": {"torn-record": 5},
        "": {"torn-record": 5},
    }
    assert "loss: none" in shown["0"]["caveats"]
    assert "loss: torn-record x 5" in shown["1"]["caveats"]
    about = shown[""]["session"]
    assert (len(about["ledger"]), about["ledger_rows"], about["sampled"]) == (
        MOST_LEDGER_ROWS,
        MOST_LEDGER_ROWS + 2,
        "N/A",
    )


def test_what_the_runtime_left_out_is_one_row_of_the_ledger(tmp_path: Path) -> None:
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    session = builder.session()
    job = builder.job(session)
    for _ in range(3):
        builder.ledger(session, "note", "sequence-gap", 2, job)
    builder.close()
    file = tmp_path / "report.html"
    assert profagent("report", "1", "--workspace", tmp_path, "-o", file).code == 0
    (row,) = data_of(file.read_text("utf-8"))["session"]["ledger"]
    assert (row["reason"], row["detail"], row["count"]) == ("sequence-gap", "in 3 files", 6)
    assert row["meaning"].startswith("Sequence numbers are missing")


def test_a_chinese_page_says_so_and_has_the_same_figures(runs: Path) -> None:
    shown = {}
    for language in ("zh", "en"):
        file = runs / f"{language}.html"
        ended = profagent("report", "1", "--workspace", runs, "--against", "2", "-o", file, "--lang", language)
        assert ended.code == 0
        shown[language] = data_of(file.read_text("utf-8"))
    text = (runs / "zh.html").read_text("utf-8")
    assert '<html lang="zh-CN">' in text
    assert '<h2 id="verdict-title">结论</h2>' in text
    assert '<html lang="en">' in (runs / "en.html").read_text("utf-8")
    assert (shown["zh"]["stats"], shown["en"]["texts"]) == (shown["en"]["stats"], {})
    assert re.search(r"与 会话 2 相比：yolo 时延 -9\.1 %.*，变快", shown["zh"]["verdict"])


def test_objectives_have_a_section_with_their_verdicts(runs: Path) -> None:
    where: list[str | Path] = ["--workspace", runs, "-o", runs / "report.html"]
    slo = ["--slo", "latency.max < 1us", "--slo", "frame.p99 < 33ms", "--slo", "latency.max < 1s"]
    assert profagent("report", "1", *where, *slo[4:]).code == 0
    assert profagent("report", "1", *where, *slo[2:]).code == 4
    ended = profagent("report", "1", *where, *slo, "--lang", "zh")
    shown = data_of((runs / "report.html").read_text("utf-8"))
    assert (ended.code, [each["verdict"] for each in shown["slo"]]) == (1, ["exceeded", "unknown", "holds"])
    (exceeded,), (unknown,), (holds,) = shown["slo_lines"]
    missed = re.escape("次（100.00 %）未达到; ")
    assert re.match(rf"超出 latency.max < 1us：yolo: max 为 [\d.]+ us; (\d+) 次推理中有 \1 {missed}", exceeded)
    assert unknown == "未知 frame.p99 < 33ms：没有采集到任何相关数据"
    assert holds.startswith("满足 latency.max < 1s：yolo: max 为 ")
    assert ended.out.splitlines()[1:4] == [exceeded, unknown, holds]
    assert profagent("report", "1", *where).code == 0
    assert data_of((runs / "report.html").read_text("utf-8"))["slo"] == []


async def test_the_nights_up_to_a_session_are_shown_with_their_levels(tmp_path: Path) -> None:
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    for night in range(8):
        session = builder.session(started_us=START_US + night * 86_400_000_000)
        builder.insert("session_label", session=session, key="build", value="b" if night >= 4 else "a")
        model = builder.model(builder.job(session, name=f"JOB{night}"), layers=("conv<0>", "pool0"))
        for pic in range(3):
            inference = builder.inference(session, model, pic, start_us=START_US + 10_000 * pic)
            ticks = [9100 if night >= 4 else 7000, 1400]
            builder.aicore(inference, builder.new_part(session, model, "aicore"), ticks)
    builder.close()
    cases: tuple[tuple[int, Language], ...] = ((8, "en"), (8, "zh"), (5, "en"))
    shown = {
        (session, language): await gather(Operand("s", tmp_path / "profagent.db", session), [], language)
        for session, language in cases
    }
    (history,) = shown[8, "en"]["history"]
    assert [(title, chart.count("<circle"), chart.count("<line")) for title, chart in history["charts"]] == [
        ("yolo, latency from records: 8 nights, from 1,000.0 to 1,000.0 us", 8, 0),
        ("yolo, conv<0>: 8 nights, from 1,000.0 to 1,300.0 us", 8, 2),
    ]
    (line,) = history["lines"]
    assert line == (
        "layer conv<0> from session 5 (2023-11-18 22:13) on: 1000.000 -> 1300.000 us, +30.0 ± 0.0 %;"
        " changed with it: label build: a -> b"
    )
    (chinese,) = shown[8, "zh"]["history"]
    assert chinese["charts"][0][0] == "yolo, latency from records：8 夜，1,000.0 至 1,000.0 us"
    assert chinese["lines"][0].startswith("层 conv<0> 从会话 5（2023-11-18 22:13）起：")
    assert shown[5, "en"]["history"] == [], "five nights tell no change"
