"""The questions of `fleet`, on a lake of several boards and nights whose figures numpy knows."""

from __future__ import annotations

import json
import math
import os
import shutil
import socket
import subprocess
import sys
from contextlib import closing
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from profagent.fleet.cli import QUESTIONS, Asking, Selected, budget_view, query_of
from profagent.fleet.demo import MAKING, NETWORK, Fleet, findings, push_night
from profagent.lake.aggregates import GAMMA, Bucket, LayerFigures, histogram
from profagent.lake.lake import Lake, Push
from profagent.lake.push import TABLES, rows_of
from profagent.lake.upkeep import RAW
from profagent.stats.figures import figures_of
from profagentd.simulate.run import SimulationOptions
from tests.daemon.simulated_job import write_job
from tests.integration.board import eventually
from tests.integration.host import profagent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

BOARDS = ("b1", "b2", "b3", "00012")
NIGHTS = tuple(f"2026-11-{day:02}" for day in range(1, 13))
LAYERS = ("conv", "pool")
SLOW = 1.5
# From this night on a layer is slower on the boards of a rack.
CHANGED, LATER = "2026-11-07", 1.1
LABELED = "2"


def times_of(board: str, night: str, layer: str) -> NDArray[np.float64]:
    """A board is slow in all nights, and slower by what is drawn."""
    seed = [BOARDS.index(board), NIGHTS.index(night), LAYERS.index(layer)]
    drawn = np.random.default_rng(seed).normal(100, 5, 200) * (SLOW if board == "00012" else 1.0)
    return drawn * (LATER if layer == LAYERS[1] and night >= CHANGED and board[-1] == LABELED else 1.0)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of which each table has two files a night, each of two boards."""
    folder = tmp_path_factory.mktemp("fleet")
    for boards in (BOARDS[:2], BOARDS[2:]):
        tables: dict[str, list[pa.RecordBatch]] = {}
        for board in boards:
            for night in NIGHTS:
                for table, batch in _pushed(board, night).items():
                    tables.setdefault(table, []).append(batch)
        for table in TABLES:
            rows = pa.concat_batches(tables[table])
            Lake(str(folder)).append(table, Push(str(boards), ""), rows.schema, partial(iter, [rows]))
    return folder


def _pushed(board: str, night: str) -> dict[str, pa.RecordBatch]:
    owners = {"date": night, "board": board, "session": f"session of {board} {night}", "push": f"{board} {night}"}
    layers: list[LayerFigures] = []
    buckets: list[Bucket] = []
    keys: list[tuple[str | None, ...]] = [("layer", "net", layer, "Conv", "AA_CORE", "us") for layer in LAYERS]
    for key in [*keys, ("latency", "net", None, None, None, "us")]:
        times = times_of(board, night, key[2] or LAYERS[0])
        layers.append(LayerFigures._make((*key, *figures_of(times), float(times.min()), None, None, None)))
        buckets += [Bucket._make((*key, *each)) for each in histogram(times)]
    labels = {"rack": board[-1], "night": night[-1]}
    told = {"labels": f"rack={board[-1]} night={night[-1]}", "labels_json": json.dumps(labels)}
    counts = {"inferences": 200, "sampled": 200, "due": 250, "complete": int(board != "b2"), "notes": 2, "simulated": 1}
    covered = {"source_view": "coverage", "standing": "covered", "duration_us": 5e6}
    tables = {table: pa.RecordBatch.from_pylist([owners]) for table in TABLES}
    return tables | {
        "layers": rows_of(LayerFigures, layers, owners),
        "histograms": rows_of(Bucket, buckets, owners),
        "ledger": pa.RecordBatch.from_pylist([{**owners, **covered}]),
        "sessions": pa.RecordBatch.from_pylist([{**owners, **told, **counts, "losses": 3 if board == "b2" else 0}]),
    }


def asked(lake: Path, *arguments: str, code: int = 0) -> Any:
    ended = profagent("fleet", *arguments, "--lake", lake, "--json")
    assert ended.code == code, ended.err
    return ended.document


def quantile(times: NDArray[np.float64], share: float) -> Any:
    """What histograms tell of it."""
    return pytest.approx(np.quantile(times, share, method="inverted_cdf"), rel=0.001001)


def all_times(night: str, layer: str, boards: tuple[str, ...] = BOARDS) -> NDArray[np.float64]:
    return np.concatenate([times_of(board, night, layer) for board in boards])


def test_stats_are_those_of_all_boards_by_night(lake: Path) -> None:
    found = asked(lake, "stats")
    assert [(row["date"], row["layer"]) for row in found] == [
        (night, layer) for night in NIGHTS for layer in sorted(LAYERS, key=lambda layer: -all_times(night, layer).sum())
    ]
    for row in found:
        times = all_times(row["date"], row["layer"])
        assert (row["boards"], row["number"]) == (4, len(times))
        assert row["total"] == pytest.approx(times.sum())
        assert row["mean"] == pytest.approx(times.mean())
        assert (row["median"], row["p95"]) == (quantile(times, 0.5), quantile(times, 0.95))


@pytest.mark.parametrize(
    ("options", "boards", "nights"),
    [
        (("--since", "2026-11-02"), BOARDS, NIGHTS[1:]),
        (("--until", "2026-11-02", "--since", "2026-11-02"), BOARDS, NIGHTS[1:2]),
        (("--board", "b1", "--board", "00012"), ("b1", "00012"), NIGHTS),
        (("--label", "rack=2"), ("b2", "00012"), NIGHTS),
        (("--label", "rack=2", "--label", "night=3"), ("b2", "00012"), NIGHTS[2:3]),
        (("--model", "net", "--until", "2026-11-01"), BOARDS, NIGHTS[:1]),
        (("--model", "other"), (), ()),
        (("--label", "rack="), (), ()),
        (("--board", "it's none"), (), ()),
    ],
)
def test_options_choose_sessions(
    lake: Path, options: tuple[str, ...], boards: tuple[str, ...], nights: tuple[str, ...]
) -> None:
    found = asked(lake, "trend", *options)
    assert [row["date"] for row in found] == [*nights]
    for row in found:
        times = all_times(row["date"], LAYERS[0], boards)
        assert (row["boards"], row["number"], row["layer"]) == (len(boards), len(times), None)
        assert row["mean"] == pytest.approx(times.mean())
        assert (row["median"], row["p95"]) == (quantile(times, 0.5), quantile(times, 0.95))


def test_a_layer_has_a_trend(lake: Path) -> None:
    found = asked(lake, "trend", "--layer", "pool")
    assert [(row["date"], row["layer"]) for row in found] == [(night, "pool") for night in NIGHTS]
    assert [row["p95"] for row in found] == [quantile(all_times(night, "pool"), 0.95) for night in NIGHTS]


def test_a_budget_counts_what_takes_longer(lake: Path) -> None:
    found = {row["board"]: row for row in asked(lake, "budget", "0.11ms", "--since", NIGHTS[-1])}
    edge = GAMMA ** (math.floor(math.log(110) / math.log(GAMMA)) + 1)
    for board in BOARDS:
        longer = int((times_of(board, NIGHTS[-1], LAYERS[0]) >= edge).sum())
        assert (found[board]["number"], found[board]["longer"], found[board]["share"]) == (200, longer, longer / 2)
    assert next(iter(found)) == "00012"
    assert 0 < found["b1"]["longer"] < 200
    (late,) = asked(lake, "budget", "150us", "--layer", "pool", "--board", "00012", "--since", NIGHTS[-1])
    assert late["longer"] > 150
    ended = profagent("fleet", "budget", "20", "--lake", lake)
    assert (ended.code, "20ms" in ended.err) == (2, True)


def test_an_objective_is_judged_on_each_board(lake: Path) -> None:
    night = ("--since", NIGHTS[-1])
    found = asked(lake, "budget", "--slo", "latency[net].p95 < 120us", *night, code=1)
    assert [(row["board"], row["verdict"]) for row in found] == [
        ("00012", "exceeded"),
        *((board, "holds") for board in BOARDS[:3]),
    ]
    times = times_of("00012", NIGHTS[-1], LAYERS[0])
    assert found[0]["value"] == quantile(times, 0.95)
    # The layer whose p99 is the furthest above its median, which is more than half of the latency's distance.
    tails = {layer: np.ptp(np.quantile(times_of("00012", NIGHTS[-1], layer), [0.5, 0.99])) for layer in LAYERS}
    assert (found[0]["number"], found[0]["missed"], found[0]["guilty"]) == (200, 200, max(tails, key=tails.__getitem__))
    assert [row["value"] for row in found[1:]] == [
        quantile(times_of(row["board"], NIGHTS[-1], LAYERS[0]), 0.95) for row in found[1:]
    ]
    (pool,) = asked(lake, "budget", "--slo", "layer[pool].max < 1ms", *night, "--board", "b1")
    assert (pool["layer"], pool["value"]) == ("pool", pytest.approx(times_of("b1", NIGHTS[-1], "pool").max()))
    assert asked(lake, "budget", "--slo", "frame.p99 < 1ms", *night, code=4) == []
    for arguments, said in ((("--slo", "frame.rate > 3fps"), "rates"), ((), "takes a TIME or --slo")):
        ended = profagent("fleet", "budget", *arguments, "--lake", lake)
        assert (ended.code, said in ended.err) == (2, True)


@pytest.mark.parametrize("options", [(), ("--at", "2026-11-06")])
def test_a_diff_tells_the_layer_the_boards_and_the_night(lake: Path, options: tuple[str, ...]) -> None:
    found = asked(lake, "diff", *options, code=1)
    (change,) = found["changes"]
    assert [change[name] for name in ("model", "layer", "what", "since")] == ["net", "pool", "slower", CHANGED]
    assert change["boards"] == ["00012", "b2"]
    assert change["where"] == "rack=2: 2 of 2 boards; others 0 of 2"
    assert change["percent"] == pytest.approx(100 * (LATER - 1), abs=1.5)
    assert found["base"] == [*NIGHTS[: 5 if options else 6]]


def test_a_report_shows_what_the_questions_answer(lake: Path, tmp_path: Path) -> None:
    ended = profagent("fleet", "report", "--lake", lake, "-o", tmp_path / "fleet.html")
    assert ended.code == 0, ended.err
    page = (tmp_path / "fleet.html").read_text("utf-8")
    assert "4 boards, 12 nights: 2026-11-01 to 2026-11-12" in page
    assert "1 slower, 0 faster" in page
    assert "rack=2: 2 of 2 boards; others 0 of 2" in page
    assert "simulated: the figures are invented" in page
    assert page.count("<polyline ") == 2
    assert page.count('<td class="number">3,000</td>') == len(BOARDS)
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    ended = profagent("fleet", "report", "--lake", lake, "--board", "none", "-o", tmp_path / "none.html")
    assert (ended.code, "cannot tell: no night" in (tmp_path / "none.html").read_text("utf-8")) == (0, True)


def test_a_diff_without_a_change_is_no_failure(lake: Path) -> None:
    found = asked(lake, "diff", "--board", "b1", "--board", "b3")
    assert (found["changes"], found["boards"], len(found["base"]), len(found["new"])) == ([], 2, 6, 6)


def test_a_diff_says_when_it_cannot_tell(lake: Path) -> None:
    ended = profagent("fleet", "diff", "--lake", lake, "--at", "2026-11-10")
    assert (ended.code, "cannot tell: 9 nights (2026-11-01 to 2026-11-09)" in ended.out) == (4, True)
    assert profagent("fleet", "diff", "--lake", lake, "--board", "none").code == 4


def test_answers_are_written_as_markdown(lake: Path) -> None:
    ended = profagent("fleet", "diff", "--lake", lake, "--markdown")
    heading, empty, titles, rule, row = ended.out.splitlines()
    assert (heading.endswith("1 slower, 0 faster"), empty) == (True, "")
    assert titles.startswith("| model | layer | type |")
    assert rule.startswith("|---|---|---|")
    assert row.startswith("| net | pool | Conv | AA\\_CORE | us | slower |")


def test_a_board_that_differs_comes_first(lake: Path) -> None:
    first, *others = asked(lake, "boards")
    assert (first["board"], first["sessions"], first["boards"]) == ("00012", len(NIGHTS), 4)
    assert first["off"] == pytest.approx(100 * (SLOW - 1), abs=2)
    assert all(abs(row["off"]) < 2 for row in others)


def test_losses_are_of_each_board(lake: Path) -> None:
    first, *others = asked(lake, "losses", "--since", "2026-11-10")
    assert [first[name] for name in ("board", "losses", "complete", "sessions", "lossy")] == ["b2", 9, 0, 3, 3]
    assert [first[name] for name in ("sampled", "due", "covered", "lacking")] == [600, 750, 15, 0]
    assert [(row["board"], row["complete"]) for row in others] == [("00012", 3), ("b1", 3), ("b3", 3)]
    assert {(row["last"], row["missed"]) for row in (first, *others)} == {(NIGHTS[-1], 0)}


@pytest.fixture(scope="module")
def spark(unused_tcp_port_factory: Callable[[], int]) -> Iterator[str]:
    """A server of Spark Connect that needs no Java, with workers as a cluster has."""
    port = unused_tcp_port_factory()
    program = Path(sys.executable).with_name("sail")
    cluster = {**os.environ, "SAIL_MODE": "local-cluster"}
    command: list[str | Path] = [program, "spark", "server", "--port", str(port)]
    with subprocess.Popen(command, env=cluster, stderr=subprocess.DEVNULL) as server:
        try:
            assert eventually(lambda: is_open(port))
            yield f"sc://127.0.0.1:{port}"
        finally:
            server.terminate()


def is_open(port: int) -> bool:
    with closing(socket.socket()) as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_spark_connect_answers_what_duckdb_answers(lake: Path, spark: str) -> None:
    """Every question, by the same text."""
    chosen, statements = Selected(labels=("rack=2",), since=datetime(2026, 11, 2, tzinfo=UTC)), [budget_view(110.0)]
    for question in QUESTIONS.values():
        statements += (*chosen.views(question.kind), query_of(question.file))
    statements += (*chosen._replace(layer="pool").views("latency"), query_of("nights"))
    answers = zip(*(Asking(str(lake), engine).answers(statements) for engine in ("duckdb", spark)), strict=True)
    found = [(wanted, answer) for wanted, answer in answers if "measure" in wanted.names or "board" in wanted.names]
    assert len(found) == len(QUESTIONS) + 1
    for wanted, answer in found:
        assert wanted.rows
        assert wanted.names == answer.names
        rows = ([dict(zip(each.names, row, strict=True)) for row in each.rows] for each in (wanted, answer))
        assert approximate(next(rows)) == next(rows)
    wanted, found = (asked(lake, "diff", *engine, code=1) for engine in ((), ("--engine", spark)))
    assert approximate(wanted["changes"]) == found["changes"]
    ended = profagent("fleet", "sql", "SELECT nonsense FROM sessions", "--lake", lake, "--engine", spark)
    assert (ended.code, "nonsense" in ended.err, "Traceback" in ended.err) == (1, True, False)


def approximate(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sums of fractions depend on the order of the rows."""
    return [
        {name: pytest.approx(value, rel=1e-9) if isinstance(value, float) else value for name, value in row.items()}
        for row in rows
    ]


def test_a_demo_finds_what_was_planted(tmp_path: Path, spark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By both engines, in a fleet of few boards."""
    monkeypatch.setattr(sys.modules["__main__"], "__file__", __file__, raising=False)
    network = tmp_path / "detector.toml"
    network.write_text(NETWORK)
    (tmp_path / "jobs").mkdir()
    job = write_job(tmp_path / "jobs", SimulationOptions(str(network)), 12, gaps=False)
    fleet = Fleet(
        date(2026, 11, 28), boards=3, rack_boards=1, nights=10, rack=2, slow_nights=5, lossy=1, away=3, away_nights=9
    )
    for place in range(fleet.nights):
        push_night(fleet, tmp_path, job, place, 0, 1)
    for engine in ("duckdb", spark):
        slower, lossy, away = findings(Asking(str(tmp_path / MAKING), engine))
        assert slower.split()[:5] == ["slower:", "layer", "stage2", "of", "detector"]
        assert slower.endswith("since the night of 2026-11-24; rack=2: 1 of 1 board; others 0 of 1")
        assert 19 < float(slower.split()[6]) < 21
        assert lossy == "  lossy:  board-01 lost something in 10 of 10 sessions"
        assert away == "  away:   board-03 has no session since the night of 2026-11-19: 9 nights"


def test_what_is_joined_answers_as_before_and_what_expires_keeps_its_figures(lake: Path, tmp_path: Path) -> None:
    shutil.copytree(lake, tmp_path / "lake")
    questions = ("stats", "losses")
    wanted = {question: approximate(asked(lake, question)) for question in questions}
    joined = {row["table"]: row for row in asked(tmp_path / "lake", "compact")}
    assert joined.keys() == {*TABLES}
    assert joined["layers"] == {"table": "layers", "files_before": 24, "files": 12, "removed": 0, "rows": 0}
    assert {question: asked(tmp_path / "lake", question) for question in questions} == wanted
    gone = asked(tmp_path / "lake", "expire", NIGHTS[1])
    assert gone == [{"table": table, "rows": 4} for table in RAW]
    assert asked(tmp_path / "lake", "sql", "SELECT min(date) AS first FROM records") == [{"first": NIGHTS[1]}]
    assert {question: asked(tmp_path / "lake", question) for question in questions} == wanted


def test_a_folder_may_have_any_name(lake: Path, tmp_path: Path) -> None:
    """A blank, a quote and a percent sign are written otherwise in addresses or in SQL."""
    other = shutil.copytree(lake, tmp_path / "it's 5 % more")
    assert asked(other, "losses") == asked(lake, "losses")


def test_sql_is_answered_and_what_is_wrong_is_said(lake: Path) -> None:
    assert asked(lake, "sql", "SELECT count(DISTINCT board) AS boards FROM sessions") == [{"boards": 4}]
    ended = profagent("fleet", "sql", "SELECT nonsense FROM sessions", "--lake", lake)
    assert (ended.code, "nonsense" in ended.err, "Traceback" in ended.err) == (1, True, False)
    ended = profagent("fleet", "stats", "--lake", lake / "none")
    assert (ended.code, "there is no lake" in ended.err) == (1, True)
    ended = profagent("fleet", "stats", "--lake", lake, "--engine", "oracle")
    assert (ended.code, "there is no engine oracle" in ended.err) == (2, True)
    ended = profagent("fleet", "stats", "--lake", lake, "--engine", "sc://127.0.0.1:1")
    assert (ended.code, "sc://127.0.0.1:1 does not answer" in ended.err) == (1, True)
    ended = profagent("fleet", "stats", "--lake", lake, "--since", "nonsense")
    assert (ended.code, "nonsense" in ended.err) == (2, True)
    ended = profagent("fleet", "stats", "--lake", lake, "--label", "rack")
    assert (ended.code, "'rack' is not a label" in ended.err) == (2, True)
    ended = profagent("fleet", "stats", "--lake", "")
    assert (ended.code, "no lake is named" in ended.err) == (2, True)
