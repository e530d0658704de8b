"""`profagent stats`: text, CSV and JSON, and what it is told to look at."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from profagent.cli.main import run
from tests.unit.store.database import JOB, START_US, DatabaseBuilder

SHOWN = f"""\
session 1, {JOB}: by layer  *** simulated: these figures are invented ***
model  layer  type  count  total(us)  share(%)  mean(us)  median(us)  mad(us)  p95(us)  max(us)  bound by
-----  -----  ----  -----  ---------  --------  --------  ----------  -------  -------  -------  --------
yolo   pool0  pool     12     24.000     66.67     2.000       2.000    0.000    2.000    2.000  cube
yolo   conv0  conv     12     12.000     33.33     1.000       1.000    0.000    1.000    1.000  cube

left out as warm-up: 2 of 14 inferences of yolo (--skip 0 keeps them)
captured N/A (interval N/A)
loss: torn-record x 2
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A simulated session of 14 inferences, two of them slow, with a loss; another session goes on with its JOB."""
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    session = builder.session(simulated=1, counter_map="some")
    other = builder.session()
    job = builder.job(session, other)
    model = builder.model(job, layers=("conv0", "pool0"))
    for pic in range(14):
        inference = builder.inference(session, model, pic, start_us=START_US + 100 * pic)
        slow = 10 if pic < 2 else 1
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
    assert "1 of 2 rows shown; shares are of all" in out
    assert "left out" not in out


def test_csv_is_the_table_alone(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _stats(workspace, "--csv") == 0
    captured = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(captured.out)))
    assert [(row["layer"], row["total(us)"]) for row in rows] == [("pool0", "24.000"), ("conv0", "12.000")]
    assert "loss: torn-record x 2" in captured.err


def test_json_has_rows_and_where_they_come_from(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _stats(workspace, "--json", "--by", "model") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["by"], document["unit"], document["simulated"], document["all_rows"]) == ("model", "us", True, 1)
    assert document["rows"][0]["median"] == pytest.approx(3.0)
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
    assert "session 1 is unfinished: its capture goes on, or was cut" in said
    assert "model" not in said
    assert run(["stats", "2", "--workspace", str(tmp_path)]) == 1
    assert "no model that is built for profiling" in capsys.readouterr().err
    assert run(["stats", "3", "--workspace", str(tmp_path), "--by", "api"]) == 0
    ended = capsys.readouterr()
    assert "session 3 is unfinished" in ended.err
    assert "acl.json" not in ended.out
    assert run(["export", "timeline", "--session", "3", "--workspace", str(tmp_path)]) == 0
    assert "session 3 is unfinished" in capsys.readouterr().err
