"""`profagent advise`: the manual's worked example, what is not known, and the user's own rules."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from profagent.advise.report import PHRASES
from profagent.cli.main import run
from tests.integration.board import simulated
from tests.integration.host import profagent
from tests.unit.advise.test_rules import GOOD, RULES
from tests.unit.store.database import START_US, DatabaseBuilder

MANUAL_MS = (23.299, 14.190)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manual's worked example on the simulated board."""
    return simulated(tmp_path_factory.mktemp("mish"), 12, model="yolov4-mish")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A session without a counter map, calls or metrics."""
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    session = builder.session()
    model = builder.model(builder.job(session), layers=("conv0", "pool0"))
    for pic in range(12):
        inference = builder.inference(session, model, pic, start_us=START_US + 100 * pic)
        builder.aicore(inference, builder.new_part(session, model, "aicore"), [7, 14])
    builder.close()
    return tmp_path


def test_the_worked_example_of_the_manual_is_found_in_one_command(job: Path) -> None:
    found = profagent("advise", job, "--json", LANG="C").document
    first = found["findings"][0]
    assert (first["rule"], first["severity"], first["model"]) == ("split-activation", "high", "yolov4")
    assert {row["activation"] for row in first["evidence"]} == {"Mish"}
    assert len(first["evidence"]) == 43
    # What its author won by LeakyRelu.
    assert first["gain_us"] / 1000 == pytest.approx(MANUAL_MS[0] - MANUAL_MS[1], abs=0.1)
    assert "LeakyRelu" in first["advice"]
    assert found["simulated"] is True
    cannot = {each["rule"] for each in found["cannot_tell"]}
    rest = {each["rule"] for each in found["findings"]} | {*found["nothing_found"]}
    # An SS928 has no steps and units of other devices, and misses none.
    assert cannot | rest == {name for name, rule in RULES.items() if not {"steps", "other"} & {*rule.needs}}
    assert cannot == {name for name, rule in RULES.items() if "metrics" in rule.needs}


def test_the_gain_is_what_the_other_activation_brings(job: Path, tmp_path: Path) -> None:
    leaky = simulated(tmp_path, 12, model="yolov4-leaky")
    means = [
        profagent("stats", each, "--by", "model", "--json").document["models"][0]["layers"]["mean"] / 1000
        for each in (job, leaky)
    ]
    assert means == pytest.approx(MANUAL_MS, abs=0.2)
    rules = {each["rule"] for each in profagent("advise", leaky, "--json").document["findings"]}
    assert rules == {"cube-fine"}  # the manual sees no bottleneck then, and neither does another rule


@pytest.mark.parametrize(
    ("variables", "arguments", "said"),
    [
        ({"LANG": "C"}, (), "The NPU does not support the activation Mish"),
        ({"LC_ALL": "", "LC_MESSAGES": "", "LANG": "zh_CN.UTF-8"}, (), "NPU 不支持激活函数 Mish"),
        ({"LANG": "C"}, ("--lang", "zh"), "每次推理最多可省 9."),
    ],
)
def test_it_speaks_english_and_chinese(
    variables: dict[str, str], arguments: tuple[str, ...], said: str, job: Path
) -> None:
    ended = profagent("advise", job, *arguments, **{"LC_ALL": "", **variables})
    assert ended.code == 0
    assert said in ended.out
    is_english = "zh" not in variables["LANG"] and not arguments
    assert ("*** simulated" in ended.out, "*** 模拟数据" in ended.out) == (is_english, not is_english)


def test_the_chinese_report_is_chinese_around_the_findings_too(job: Path) -> None:
    lines = profagent("advise", job, "--lang", "zh", LANG="C").out.splitlines()
    english = {phrase for phrase in PHRASES["en"].values() if len(phrase) > len("medium")}
    starts = {phrase.partition("{")[0] for phrase in english if phrase.partition("{")[0].strip()}
    assert lines[0].startswith("会话 1：")
    assert lines[1].startswith("按每次推理")
    assert any(line.startswith("以下规则没有发现问题：") for line in lines)
    assert [line for line in lines if line.startswith(tuple(starts))] == []
    assert PHRASES["en"].keys() == PHRASES["zh"].keys()
    unknown = [line for line in lines if line.startswith("N/A: ")]
    assert unknown
    assert all(re.search(r"[\u4e00-\u9fff]", line) for line in unknown)


def test_the_vendor_s_file_has_the_vendor_s_keys(job: Path, tmp_path: Path) -> None:
    ended = profagent("advise", job, "-o", tmp_path / "out")
    assert "unverified" in ended.err
    found = json.loads((tmp_path / "out" / "prof_rule_0.json").read_text("utf-8"))
    assert found["simulated"] is True
    assert found["data"][0]["Rule Type"] == "Operator Processing"
    assert len(found["data"][0]["result"]) == 43


def test_a_model_that_is_loaded_each_time(tmp_path: Path) -> None:
    found = profagent("advise", simulated(tmp_path, 1, model="mobilenetv2", loads=4), "--json").document
    (loading,) = (each for each in found["findings"] if each["rule"] == "load-in-loop")
    assert loading["evidence"][0]["loads"] == 4
    assert loading["gain_us"] == 15_000


def test_layers_on_the_cpu_cut_the_network(tmp_path: Path) -> None:
    found = profagent("advise", simulated(tmp_path, 10), "--json").document
    (cut,) = (each for each in found["findings"] if each["rule"] == "cpu-cut")
    assert {row["type"] for row in cut["evidence"]} == {"Pooling"}


SMALL_AND_LARGE = """
name = "two"
[counters.Convolution]
mac_busy = 0.8
mac_ppen = 0.65
[counters.Deconvolution]
mac_busy = 0.1
mac_ppen = 0.1
dld = 0.95
[[segments]]
unit = "aicore"
runs = [
    { time_us = 60.0, layers = ["c1:Convolution", "s1:Sigmoid", "m1:Eltwise"] },
    { time_us = 60.0, layers = ["c2:Convolution", "s2:Sigmoid", "m2:Eltwise"] },
    { time_us = 60.0, layers = ["c3:Convolution", "s3:Sigmoid", "m3:Eltwise"] },
    { time_us = 1500.0, layers = ["up:Deconvolution"] },
]
"""
"""Swish is grave, and here of little weight."""


def test_what_brings_most_stands_first_whatever_its_severity(tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(SMALL_AND_LARGE, "utf-8")
    job = simulated(tmp_path / "board", 3, model=str(tmp_path / "two.toml"))
    findings = profagent("advise", job, "--json", LANG="C").document["findings"]
    assert [(each["rule"], each["severity"]) for each in findings[:2]] == [
        ("dld-suspect", "medium"),
        ("split-activation", "high"),
    ]
    known = [each["gain_us"] for each in findings if each["gain_us"] is not None]
    assert known == sorted(known, reverse=True)
    said = profagent("advise", job, LANG="C").out
    assert "sorted by the time that each could save at most in an inference" in said


MOSTLY_CPU = """
name = "tail"
[[segments]]
unit = "aicore"
runs = [{ time_us = 300.0, layers = ["conv1:Convolution"] }, { time_us = 300.0, layers = ["conv2:Convolution"] }]
[[segments]]
unit = "aicpu"
runs = [{ time_us = 9000.0, layers = ["nms:NonMaxSuppression"] }]
"""


def test_of_a_network_that_the_cpu_computes_it_says_so_first_and_once(tmp_path: Path) -> None:
    (tmp_path / "tail.toml").write_text(MOSTLY_CPU, "utf-8")
    job = simulated(tmp_path / "board", 20, model=str(tmp_path / "tail.toml"))
    first, *others = profagent("advise", job, "--json", LANG="C").document["findings"]
    assert first["rule"] == "cpu-layer"
    (nms,) = [row for row in profagent("stats", job, "--json").document["rows"] if row["layer"] == "nms"]
    assert (nms["unit"], nms["share"]) == ("AA_CPU", pytest.approx(first["share"]))
    assert 90 < nms["share"] < 95
    assert all((each["share"] or 0) < 10 for each in others)


def test_a_finding_says_that_another_is_about_the_same_layers(tmp_path: Path) -> None:
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    session = builder.session(counter_map="learned")
    model = builder.model(builder.job(session), layers=("conv0",))
    inference = builder.inference(session, model, 0)
    ratios = (0.3, 0.2, 0.1, 0.1, 0.9, 0.1, 0.9, 0.2, 1000.0, 1000.0)
    builder.aicore(inference, builder.new_part(session, model, "aicore"), [700], counters=[ratios])
    builder.close()
    ended = profagent("advise", "1", "--workspace", tmp_path, "--lang", "en", "--json")
    same = {each["rule"]: each["same_time"] for each in ended.document["findings"]}
    assert same["dld-suspect"] == []
    assert same["dstr-suspect"] == ["dld-suspect"]
    said = profagent("advise", "1", "--workspace", tmp_path, "--lang", "en").out
    assert "the same layers are in dld-suspect: count the time that they could save only once" in said


def test_jobs_of_different_clocks_are_told(tmp_path: Path) -> None:
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    for number, clocks in enumerate(((700, 700), (700, 350))):
        session = builder.session(started_us=START_US + number)
        for place, mhz in enumerate(clocks):
            job = builder.job(session, name=f"JOB{number}{place}", frequency_mhz=mhz)
            model = builder.model(job, layers=("conv0",))
            inference = builder.inference(session, model)
            builder.aicore(inference, builder.new_part(session, model, "aicore"), [700])
    builder.close()
    titles = [
        [each["title"] for each in profagent("advise", session, "--workspace", tmp_path, "--json").document["findings"]]
        for session in ("1", "2")
    ]
    told = "The clock differed between JOBs: 350 and 700 MHz"
    assert [told in each for each in titles] == [False, True]


def test_without_a_counter_map_what_rests_on_it_is_not_guessed(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["advise", "1", "--workspace", str(workspace), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    why = {each["rule"]: each["why"] for each in found["cannot_tell"]}
    of_boards = {name: {*rule.all_needs} for name, rule in RULES.items() if "other" not in rule.needs}
    assert why.keys() == {name for name, needs in of_boards.items() if {"counters", "calls", "metrics"} & needs}
    assert "no counter map" in why["dld-suspect"]
    assert run(["advise", "1", "--workspace", str(workspace)]) == 0
    assert "N/A: clock-change, thermal: no system metric was recorded" in capsys.readouterr().out


def test_a_layer_has_the_time_and_share_that_stats_tells(tmp_path: Path) -> None:
    """Of a layer that half of the inferences lack the record of as well."""
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    session = builder.session(counter_map="learned")
    model = builder.model(builder.job(session), layers=("conv0", "conv1"))
    for pic in range(4):
        inference = builder.inference(session, model, pic, start_us=START_US + 1000 * pic)
        counters = [(0.3, 0.2, 0.1, 0.1, 0.2, 0.1, 0.9, 0.2, 1000.0, 1000.0)]
        layers = builder.new_part(session, model, "aicore")
        builder.aicore(inference, layers, [700] * (1 + pic % 2), counters=[*counters, *counters])
    builder.close()
    ended = profagent("advise", "1", "--workspace", tmp_path, "--lang", "en", "--json")
    (suspect,) = (each for each in ended.document["findings"] if each["rule"] == "dld-suspect")
    rows = [(row["layer"], row["us_of_inference"], row["share_of_inference"]) for row in suspect["evidence"]]
    assert rows == [("conv0", 100.0, 10.0), ("conv1", 100.0, 10.0)]
    assert "conv0 (100.0 us of an inference)" in suspect["finding"]
    stats = profagent("stats", "1", "--workspace", tmp_path, "--json").document["rows"]
    assert [(row["layer"], row["in_inference"], row["share"]) for row in stats[:2]] == rows


def test_what_rests_on_a_counter_that_is_not_certain_is_marked(tmp_path: Path) -> None:
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    session = builder.session(counter_map="learned", counter_map_likely="dld")
    model = builder.model(builder.job(session), layers=("conv0",))
    for pic in range(3):
        inference = builder.inference(session, model, pic, start_us=START_US + 100 * pic)
        counters = [(0.3, 0.2, 0.1, 0.1, 0.2, 0.1, 0.9, 0.2, 1000.0, 1000.0)]
        builder.aicore(inference, builder.new_part(session, model, "aicore"), [70], counters=[*counters])
    builder.close()
    ended = profagent("advise", "1", "--workspace", tmp_path, "--lang", "en")
    assert "DLD above 70%: 1 layer  (?)" in ended.out
    assert "a counter of which the counter map is not certain" in ended.out
    assert "*** simulated" not in ended.out


def test_rules_of_the_workspace_and_of_folders_are_asked(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workspace / "rules").mkdir()
    (workspace / "rules" / "mine.toml").write_text(GOOD, "utf-8")
    (workspace / "others").mkdir()
    (workspace / "others" / "other.toml").write_text(GOOD.replace("many-layers", "most-layers"), "utf-8")
    assert run(["advise", "1", "--workspace", str(workspace), "--lang", "en"]) == 0
    assert "[low] yolo has 2 layers" in capsys.readouterr().out
    others = ("--rules", str(workspace / "others"), "--json")
    assert run(["advise", "1", "--workspace", str(workspace), *others]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {each["rule"] for each in found["findings"]} >= {"many-layers", "most-layers"}


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT gains FROM layer_means", "no such column: gains"),
        ("SELECT 1 AS model WHERE :other", "sql: "),
        ("SELECT model FROM layer_means", "gain_us"),
        ("SELECT model, 'much' AS gain_us FROM layer_means", "gain_us"),
        ("SELECT 1 AS gain_us; DELETE FROM session", "one statement"),
        ("WITH a AS (SELECT 1) INSERT INTO session SELECT * FROM a", "sql: "),
    ],
)
def test_a_query_that_cannot_be_names_its_file(
    query: str, said: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "rules").mkdir()
    start, end = GOOD.index('sql = "') + 7, GOOD.index('"\n[thresholds]')
    (workspace / "rules" / "mine.toml").write_text(GOOD[:start] + query + GOOD[end:], "utf-8")
    assert run(["advise", "1", "--workspace", str(workspace)]) == 2
    error = capsys.readouterr().err
    assert "mine.toml" in error
    assert said in error


def test_a_session_that_there_is_not(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["advise", "7", "--workspace", str(workspace)]) == 2
    assert "no session 7" in capsys.readouterr().err


def test_a_job_of_somebody_else_brings_no_rules(job: Path) -> None:
    folder = job / "sqlite" / "rules"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "theirs.toml").write_text("no rule", "utf-8")
    assert profagent("advise", job).code == 0


def test_a_folder_that_cannot_be_made_is_said(job: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    ended = profagent("advise", job, "-o", tmp_path / "file" / "out")
    assert ended.code == 1
    assert "Traceback" not in ended.err


def test_a_rule_tells_the_values_of_a_column_apart(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As split-activation does: two activations of a network are two findings."""
    apart = GOOD.replace('needs = ["times"]', 'needs = ["times"]\neach = "layer_name"')
    apart = apart.replace("GROUP BY model HAVING layers > :most", "GROUP BY model, layer_name HAVING :most")
    (workspace / "mine.toml").write_text(apart.replace("model, count(*)", "model, layer_name, count(*)"), "utf-8")
    assert run(["advise", "1", "--workspace", str(workspace), "--rules", str(workspace), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    names = [[row["layer_name"] for row in each["evidence"]] for each in found if each["rule"] == "many-layers"]
    assert sorted(names) == [["conv0"], ["pool0"]]
    assert RULES["split-activation"].each == "activation"


def test_a_query_without_end_is_named(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("profagent.advise.advise.LONGEST_QUERY_S", 0.05)
    rule = GOOD.replace(
        '"SELECT model', '"WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT model'
    )
    (workspace / "mine.toml").write_text(rule.replace("FROM layer_means", "FROM layer_means, r"), "utf-8")
    assert run(["advise", "1", "--workspace", str(workspace), "--rules", str(workspace)]) == 2
    said = capsys.readouterr().err
    assert "mine.toml" in said
    assert "takes more than" in said


def test_a_rule_says_of_how_many_layers_its_counters_are_not_known(tmp_path: Path) -> None:
    """It judges the others, and is not among those that found nothing."""
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    session = builder.session(counter_map="learned")
    model = builder.model(builder.job(session), layers=("conv0", "conv1"))
    known = (0.3, 0.2, 0.1, 0.1, 0.2, 0.1, 0.9, 0.2, 1000.0, 1000.0)
    for pic in range(3):
        inference = builder.inference(session, model, pic, start_us=START_US + 100 * pic)
        counters = [known, (0.3, None, *known[2:])]
        builder.aicore(inference, builder.new_part(session, model, "aicore"), [70, 70], counters=[*counters])
    builder.close()
    found = profagent("advise", "1", "--workspace", tmp_path, "--json").document
    (suspect,) = (each for each in found["findings"] if each["rule"] == "dld-suspect")
    assert [row["layer"] for row in suspect["evidence"]] == ["conv0"]
    why = {each["rule"]: each["why"] for each in found["cannot_tell"]}
    assert why["dld-suspect"] == why["wld-suspect"] == "of 2 layers on the NPU these are not known: mac_ppen (1)"
    assert why["transform"] == "of 2 layers on the NPU these are not known: bound (1)"
    assert not why.keys() & {*found["nothing_found"]}
