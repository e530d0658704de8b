"""`profagent stats`: text, CSV and JSON, and what it is told to look at."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pytest

from profagent.cli.main import run
from profagent.errors import UsageError
from profagent.stats.cli import since_us
from profagent.stats.records import read_job
from profagent.stats.trend import causes_of
from tests.unit.store.database import JOB, START_US, DatabaseBuilder

SHOWN = f"""\
session 1 of euler, {JOB}: by layer  *** simulated: these figures are invented ***
model  layer             type  unit     count  in_inference(us)  share(%)  mean(us)  median(us)  mad(us)  p95(us)  p99(us)  max(us)  bound by
-----  ----------------  ----  -------  -----  ----------------  --------  --------  ----------  -------  -------  -------  -------  --------
yolo   pool0             pool  AA_CORE     12             2.000     50.00     2.000       2.000    0.000    2.000    2.000    2.000  cube
yolo   conv0             conv  AA_CORE     12             1.000     25.00     1.000       1.000    0.000    1.000    1.000    1.000  cube
yolo   not in any layer  -     -           12             1.000     25.00     1.000       1.000    0.000    1.000    1.000    1.000  N/A

yolo: shares are of its mean latency, 4.000 us, from first begin to last end, for its calls are not known; 2 of 2 layers recorded
left out as warm-up: 2 of 14 inferences of yolo (--skip 0 keeps them)
captured N/A (interval N/A)
loss: torn-record x 2
"""  # noqa: E501 - as a terminal that is wide enough shows it


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A simulated session of 14 inferences, two of them slow, with a loss; another session goes on with its JOB."""
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    session = builder.session(ended_us=START_US, simulated=1, counter_map="some")
    other = builder.session(ended_us=START_US)
    job = builder.job(session, other)
    model = builder.model(job, layers=("conv0", "pool0"))
    for pic in range(14):
        slow = 10 if pic < 2 else 1
        begin_us = START_US + 100 * pic
        inference = builder.inference(session, model, pic, start_us=begin_us, end_us=begin_us + 4 * slow)
        part = builder.new_part(session, model, "aicore")
        builder.aicore(inference, part, [7 * slow, 14 * slow], counters=[(0.9,) * 10] * 2)
    later = builder.inference(other, model, 14, start_us=START_US + 1400)
    builder.aicore(later, builder.new_part(other, model, "aicore"), [700, 700])
    builder.ledger(session, "loss", "torn-record", 2, job)
    builder.close()
    return tmp_path


def _stats(workspace: Path, *arguments: str) -> int:
    return run(["stats", "1", "--workspace", str(workspace), *arguments])


def test_the_table_with_what_is_to_be_said_beside_it(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _stats(workspace) == 0
    assert capsys.readouterr().out == SHOWN


@pytest.mark.parametrize(("likely", "word"), [("dld", "cube?"), ("ddr_read_bytes", "cube")])
def test_what_rests_on_a_counter_that_is_not_certain_is_marked(
    likely: str, word: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(workspace / "profagent.db")) as database, database:
        database.execute("UPDATE session SET counter_map_likely = ?", (likely,))
    assert _stats(workspace) == 0
    out = capsys.readouterr().out
    assert [line.split()[-1] for line in out.splitlines() if "pool0" in line] == [word]
    assert f"the counter map is not certain of {likely}: a ? marks what rests on it" in out
    assert _stats(workspace, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["likely"], document["rows"][0]["bound by"]) == ([likely], "cube")


def test_rows_are_sorted_and_cut(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _stats(workspace, "--sort", "layer", "--top", "1", "--skip", "0") == 0
    out = capsys.readouterr().out
    assert "conv0" in out
    assert "pool0" not in out
    assert "1 of 3 rows shown" in out
    assert "left out" not in out


def test_csv_is_the_table_alone(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _stats(workspace, "--csv") == 0
    captured = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(captured.out)))
    assert [(row["layer"], row["share(%)"]) for row in rows] == [
        ("pool0", "50.00"),
        ("conv0", "25.00"),
        ("not in any layer", "25.00"),
    ]
    assert "loss: torn-record x 2" in captured.err


@pytest.mark.parametrize(
    ("objective", "code", "said"),
    [
        ("latency.p99 < 5us", 0, "holds latency.p99 < 5us: yolo: p99 is 4.000 us; 0 of 12 inferences (0.00 %) miss it"),
        ("layer[conv0].max < 500ns", 1, "EXCEEDED layer[conv0].max < 500ns: conv0 of yolo: max is 1.000 us; 12 of 12"),
        ("frame.p99 < 33ms", 4, "unknown frame.p99 < 33ms: nothing of it was recorded"),
    ],
)
def test_objectives_are_judged(
    objective: str, code: int, said: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _stats(workspace, "--slo", objective) == code
    assert capsys.readouterr().out.splitlines()[1].startswith(said)
    assert _stats(workspace, "--slo", objective, "--json") == code
    (found,) = json.loads(capsys.readouterr().out)["slo"]
    assert (found["objective"], found["verdict"]) == (objective, said.partition(" ")[0].lower())


def test_figures_and_verdicts_come_from_one_reading(workspace: Path) -> None:
    with patch("profagent.stats.records.read_job", wraps=read_job) as read:
        assert _stats(workspace, "--slo", "latency.p99 < 5us", "--slo", "layer.p99 < 5us") == 0
    assert read.call_count == 1


def test_json_has_rows_and_where_they_come_from(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _stats(workspace, "--json", "--by", "model") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["by"], document["unit"], document["simulated"], document["all_rows"]) == ("model", "us", True, 1)
    (row,) = document["rows"]
    assert list(row.items()) == [
        *(("model", "yolo"), ("count", 12), ("latency", 4.0), ("p95", 4.0), ("p99", 4.0), ("mean", 4.0), ("mad", 0.0)),
        *(("max", 4.0), ("latency_from", "records"), ("per_second", 10_000.0), ("gap", 96.0), ("layers", 3.0)),
        *(("recorded", 2), ("of_layers", 2), ("bound by", "cube")),
    ]
    assert document["units"]["latency"] == "us"
    assert [document["models"][0][name] for name in ("whole", "not_in_any_layer", "lacking")] == [4.0, 1.0, 0]
    assert document["left_out"] == [{"model": "yolo", "inferences": 14, "left_out": 2}]
    assert document["jobs"][0]["ledger"]["loss"] == {"torn-record": 2}


@pytest.mark.parametrize(
    "arguments",
    [
        ["stats", "nowhere"],
        ["stats", "7"],
        ["stats", "1", "--by", "api", "--skip", "0"],
        ["stats", "1", "--sort", "size"],
        ["stats", "1", "--job", "JOBZ"],
        ["stats", "1", "--counter-map", "map.toml"],
        ["stats", "1", "--json", "--csv"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_is_refused_with_a_hint(
    arguments: list[str], workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, "--workspace", str(workspace)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_of_a_session_that_was_cut_at_its_beginning_the_model_is_not_blamed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    builder.job(builder.session(), name=f"JOB{'A' * 29}")
    builder.job(builder.session(ended_us=START_US + 5), name=f"JOB{'B' * 29}")
    builder.session()
    builder.close()
    assert run(["stats", "1", "--workspace", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "INCOMPLETE: session 1: it has not ended: `record` runs, was killed" in said
    assert "model" not in said
    assert run(["stats", "2", "--workspace", str(tmp_path)]) == 1
    assert "no model that is built for profiling" in capsys.readouterr().err
    assert run(["stats", "3", "--workspace", str(tmp_path), "--by", "api"]) == 0
    ended = capsys.readouterr()
    assert "INCOMPLETE: session 3: it has not ended" in ended.err
    assert "acl.json" not in ended.out
    assert run(["export", "timeline", "3", "--workspace", str(tmp_path)]) == 4
    assert "INCOMPLETE: session 3: it has not ended" in capsys.readouterr().err


# `profagent trend`: nights of two boards, of which one is slower from the fourth night on

DAY_US = 86_400_000_000
NIGHTS = 7
FIRST_SLOW = 3


@pytest.fixture
def nights(tmp_path: Path) -> Path:
    """Board 1 is as it was; board 2 is slower and warmer from its fourth night on, when build and interval changed."""
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    builder.insert("board", identity="0ddba12", hostname="gauss", model="SS928")
    for night in range(NIGHTS):
        for board in (1, 2):
            at_us = START_US + night * DAY_US
            session = builder.session(board=board, source="record", started_us=at_us, ended_us=at_us + 1, simulated=1)
            slower = board == 2 and night >= FIRST_SLOW
            builder.insert("session_label", session=session, key="build", value="b" if slower else "a")
            builder.insert("session_label", session=session, key="nightly", value=f"night {night}")
            job = builder.job(session, name=f"JOB{board}{night}")
            model = builder.model(job, layers=("conv0", "pool0"))
            builder.insert("sample", model=model, current_pic_count=0, input_pic_num=1, kept=1, session=session)
            interval = 2 if slower else 1
            builder.insert("sampling", model=model, session=session, sampled=12, passed_over=0, interval=interval)
            for pic in range(12):
                end_us = at_us + pic + (2160 if slower else 2100)
                inference = builder.inference(session, model, pic, start_us=at_us + pic, end_us=end_us)
                part = builder.new_part(session, model, "aicore")
                builder.aicore(inference, part, [7000 + pic % 3, 7420 if slower else 7000])
            if board == 2:
                job = builder.job(session, name=f"METRICS-{night}")
                log = builder.log(job, model, "metrics", "metrics.0")
                builder.insert("metric_name", log=log, number=0, name="power.temperature", unit="C")
                sample = {"number": 0, "name": 0, "time_us": at_us, "value": 61.5 if slower else 52.0}
                builder.insert("metric", log=log, session=session, **sample)
    builder.close()
    return tmp_path


def trend(nights: Path, *arguments: str) -> int:
    return run(["trend", "--workspace", str(nights), *arguments])


def test_the_board_and_the_night_are_told(nights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trend(nights, "--model", "yolo") == 0
    _, second = capsys.readouterr().out.split("\n\n")
    assert "not compared with session 14: 2 (interval 1), 4 (interval 1), 6 (interval 1)\nwith --allow" in second
    assert "cannot tell: 4 sessions, and a level takes 3, a change of level 6" in second
    assert trend(nights, "--model", "yolo", "--allow", "interval") == 0
    first, second = capsys.readouterr().out.split("\n\n")
    assert first.startswith("euler: latency from records, median of yolo  *** simulated")
    assert "the level did not change in 7 sessions" in first
    assert second.startswith("gauss: latency from records, median of yolo")
    assert "▁▁▁████" in second
    causes = "changed with it: interval: 1 -> 2, label build: a -> b, temperature in C: 52.0 -> 61.5"
    assert f"from session 8 (2023-11-17 22:13) on: 2100.000 -> 2160.000 us, +2.9 ± 0.0 %; {causes}" in second
    assert "night 1" not in second, "each night's own name explains nothing"
    assert "layer pool0 from session 8 (2023-11-17 22:13) on: 1000.000 -> 1060.000 us, +6.0 ± 0.0 %; changed" in second
    assert "metric power.temperature from session 8 (2023-11-17 22:13) on: 52.000 -> 61.500 C" in second
    assert "conv0" not in second
    assert trend(nights, "--model", "yolo", "--allow", "interval", "--json") == 0
    (_, board) = json.loads(capsys.readouterr().out)
    assert [series | {"values": set(series["values"])} for series in board["series"]] == [
        {"kind": "layer", "name": "pool0", "unit": "us", "values": {1000.0, 1060.0}},
        {"kind": "metric", "name": "power.temperature", "unit": "C", "values": {52.0, 61.5}},
    ]


def test_of_a_layer(nights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trend(nights, "--model", "yolo", "--layer", "pool0", "--where", "board=gauss", "--json") == 0
    (board,) = json.loads(capsys.readouterr().out)
    (change,) = board["changes"]
    assert (board["layer"], change["kind"], change["name"], change["session"]) == ("pool0", "layer", "pool0", 8)
    assert change["after"] / change["before"] == pytest.approx(1.06)
    assert ("label build", "a", "b", 8) in [tuple(cause.values()) for cause in change["causes"]]
    assert trend(nights, "--model", "yolo", "--layer", "conv0") == 0
    assert capsys.readouterr().out.count("the level did not change") == 2


@pytest.mark.parametrize(
    ("facts", "start", "causes"),
    [
        ({3: {"sdk_version": "2"}}, 3, ["sdk_version: 1 -> 2"]),
        ({5: {"sdk_version": "2"}}, 3, ["sdk_version: 1 -> 2 (session 5)"]),
        ({6: {"sdk_version": "2"}}, 3, []),
        ({night: {"label run": str(night)} for night in range(9)}, 3, []),
        ({3: {"layers": None}}, 3, []),
        ({3: {"layers": "12 (fed123)"}}, 3, ["layers: 12 (abc123) -> 12 (fed123)"]),
        ({3: {"temperature": "57.0"}}, 3, ["temperature in C: 50.0 -> 57.0"]),
        ({3: {"temperature": "52.0"}}, 3, []),
    ],
    ids=[
        *("that night", "two nights later", "too far", "in every night", "not known", "other layers"),
        *("warmer", "hardly warmer"),
    ],
)
def test_what_changed_near_a_change_of_level_is_a_candidate(
    facts: dict[int, dict[str, str | None]], start: int, causes: list[str]
) -> None:
    own: dict[str, str | None] = {"sdk_version": "1", "layers": "12 (abc123)", "temperature": "50.0"}
    nights = []
    for night in range(9):
        own = own | facts.get(night, {})
        nights.append((night, {name: value for name, value in own.items() if value is not None}))
    assert [cause.text(start) for cause in causes_of(nights, 0, start, 9)] == causes


@pytest.mark.parametrize(("known", "time"), [(True, "latency from records"), (False, "layers")])
def test_sessions_that_know_another_time_are_shown_and_not_compared(
    known: bool, time: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    for night in range(7):
        at_us = START_US + night * DAY_US
        session = builder.session(started_us=at_us)
        model = builder.model(builder.job(session, name=f"JOB{night}"), layers=("conv0",))
        calls: list[tuple[int, int | None, int]] = []
        for pic in range(12):
            start_us = at_us + 1000 * pic
            # The newest of them all may not know when its inferences ran.
            is_timed = known or night == 0
            times: dict[str, int | None] = (
                {"start_us": start_us, "end_us": start_us + 100} if is_timed else {"start_us": None}
            )
            inference = builder.inference(session, model, pic, **times)
            builder.aicore(inference, builder.new_part(session, model, "aicore"), [560], start_us=None)
            calls.append((2, start_us - START_US - 10, start_us - START_US + 150))
        if night == 0:
            builder.calls(builder.new_part(session, model, "acl_api"), calls)
    builder.close()
    assert trend(tmp_path, "--model", "yolo") == 0
    said = capsys.readouterr().out
    assert said.startswith(f"euler: {time}, median of yolo")
    assert "not compared with session 7: 1 (latency from call)" in said
    assert "the level did not change in 6 sessions" in said


def test_figures_that_outlived_their_records_count_as_well(nights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trend(nights, "--model", "yolo", "--where", "board=euler", "--json") == 0
    before = json.loads(capsys.readouterr().out)
    assert run(["gc", "--workspace", str(nights), "--keep-last", "2"]) == 0
    capsys.readouterr()
    assert trend(nights, "--model", "yolo", "--where", "board=euler", "--json") == 0
    assert json.loads(capsys.readouterr().out) == before


def test_what_is_not_there_is_told(nights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trend(nights, "--model", "resnet") == 2
    assert "no session has resnet" in capsys.readouterr().err
    assert trend(nights, "--model", "yolo", "--layer", "fc") == 2
    assert "layer fc of yolo" in capsys.readouterr().err
    assert trend(tmp_path / "none", "--model", "yolo") == 2


def test_a_day_or_an_age() -> None:
    assert since_us("1970-01-02") == DAY_US
    assert since_us("1d") > START_US
    with pytest.raises(UsageError, match="neither a date nor an age"):
        since_us("yesterday")
