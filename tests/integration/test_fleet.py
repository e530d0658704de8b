"""The questions of `fleet`, on a lake of several boards and nights whose figures numpy knows."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from profagent.lake.aggregates import Bucket, LayerFigures, histogram
from profagent.lake.fleet import QUESTIONS
from profagent.lake.lake import Lake, Push
from profagent.lake.push import TABLES, rows_of
from profagent.lake.upkeep import RAW
from profagent.stats.figures import figures_of
from tests.integration.board import eventually
from tests.integration.host import profagent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

BOARDS = ("b1", "b2", "b3", "00012")
NIGHTS = ("2026-11-01", "2026-11-02", "2026-11-03")
LAYERS = ("conv", "pool")
SLOW = 1.5


def times_of(board: str, night: str, layer: str) -> NDArray[np.float64]:
    """A board is slow in all nights, and slower by what is drawn."""
    seed = [BOARDS.index(board), NIGHTS.index(night), LAYERS.index(layer)]
    drawn = np.random.default_rng(seed).normal(100, 5, 200)
    return drawn * (SLOW if board == "00012" else 1.0)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")
    lake = Lake(str(folder))
    for board in BOARDS:
        for night in NIGHTS:
            _push(lake, board, night)
    return folder


def _push(lake: Lake, board: str, night: str) -> None:
    push = Push(f"{board} {night}", f"session of {board} {night}")
    owners = {"date": night, "board": board, "session": push.session, "push": push.name}
    layers: list[LayerFigures] = []
    buckets: list[Bucket] = []
    keys: list[tuple[str | None, ...]] = [("layer", "net", layer, "Conv", "AA_CORE", "us") for layer in LAYERS]
    for key in [*keys, ("latency", "net", None, None, None, "us")]:
        times = times_of(board, night, key[2] or LAYERS[0])
        layers.append(LayerFigures._make((*key, *figures_of(times), float(times.min()), None, None, None)))
        buckets += [Bucket._make((*key, *each)) for each in histogram(times)]
    told = {"labels": f"rack={board[-1]} night={night[-1]}", "complete": int(board != "b2"), "losses": 0, "notes": 2}
    counts = {"inferences": 200, "sampled": 200, "due": 250, **told, "losses": 3 if board == "b2" else 0}
    covered = {"source_view": "coverage", "standing": "covered", "duration_us": 5e6}
    tables: dict[str, pa.RecordBatch] = {
        "layers": rows_of(LayerFigures, layers, owners),
        "histograms": rows_of(Bucket, buckets, owners),
        "ledger": pa.RecordBatch.from_pylist([{**owners, **covered}]),
    }
    for table in TABLES[:-1]:
        batch = tables.get(table, pa.RecordBatch.from_pylist([owners]))
        lake.append(table, push, batch.schema, partial(iter, [batch]))
    lake.name_session(push, pa.RecordBatch.from_pylist([{**owners, **counts}]))


def asked(lake: Path, *arguments: str) -> list[dict[str, Any]]:
    ended = profagent("fleet", *arguments, "--lake", lake, "--json")
    assert ended.code == 0, ended.err
    found: list[dict[str, Any]] = ended.document
    return found


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
        medians = [np.median(times_of(board, row["date"], row["layer"])) for board in BOARDS]
        assert row["median"] == pytest.approx(np.median(medians))
        assert row["p95"] == pytest.approx(np.quantile(times, 0.95, method="inverted_cdf"), rel=0.001001)


@pytest.mark.parametrize(
    ("options", "boards", "nights"),
    [
        (("--since", "2026-11-02"), BOARDS, NIGHTS[1:]),
        (("--until", "2026-11-02", "--since", "2026-11-02"), BOARDS, NIGHTS[1:2]),
        (("--board", "b1", "--board", "00012"), ("b1", "00012"), NIGHTS),
        (("--label", "rack=2"), ("b2", "00012"), NIGHTS),
        (("--label", "rack=2", "--label", "night=3"), ("b2", "00012"), NIGHTS[2:]),
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
        assert (row["boards"], row["inferences"]) == (len(boards), len(times))
        assert row["mean"] == pytest.approx(times.mean())
        for name, share in (("median", 0.5), ("p95", 0.95)):
            assert row[name] == pytest.approx(np.quantile(times, share, method="inverted_cdf"), rel=0.001001)


def test_a_board_that_differs_comes_first(lake: Path) -> None:
    first, *others = asked(lake, "boards")
    assert (first["board"], first["sessions"], first["boards"]) == ("00012", 3, 4)
    assert first["off"] == pytest.approx(100 * (SLOW - 1), abs=2)
    assert all(abs(row["off"]) < 2 for row in others)


def test_losses_are_of_each_board(lake: Path) -> None:
    first, *others = asked(lake, "losses")
    assert (first["board"], first["losses"], first["complete"], first["sessions"]) == ("b2", 9, 0, 3)
    assert (first["sampled"], first["due"], first["covered"], first["lacking"]) == (600, 750, 15, 0)
    assert [(row["board"], row["complete"]) for row in others] == [("00012", 3), ("b1", 3), ("b3", 3)]


@pytest.fixture(scope="module")
def spark(unused_tcp_port_factory: Callable[[], int]) -> Iterator[str]:
    """A server of Spark Connect that needs no Java."""
    port = unused_tcp_port_factory()
    program = Path(sys.executable).with_name("sail")
    with subprocess.Popen([program, "spark", "server", "--port", str(port)], stderr=subprocess.DEVNULL) as server:
        try:
            assert eventually(lambda: is_open(port))
            yield f"sc://127.0.0.1:{port}"
        finally:
            server.terminate()


def is_open(port: int) -> bool:
    with closing(socket.socket()) as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_spark_connect_answers_what_duckdb_answers(lake: Path, spark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every question, by the same text."""
    # Its client takes a main module that is no file, as a worker of tests has, for a doctest.
    monkeypatch.setattr(sys.modules["__main__"], "__file__", __file__, raising=False)
    for question in QUESTIONS:
        options = ("--label", "rack=2", "--since", "2026-11-02")
        wanted, found = (asked(lake, question, *options, *engine) for engine in ((), ("--engine", spark)))
        assert approximate(wanted) == found
        assert found
    ended = profagent("fleet", "sql", "SELECT nonsense FROM sessions", "--lake", lake, "--engine", spark)
    assert (ended.code, "nonsense" in ended.err, "Traceback" in ended.err) == (1, True, False)


def approximate(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sums of fractions depend on the order of the rows."""
    return [
        {name: pytest.approx(value, rel=1e-9) if isinstance(value, float) else value for name, value in row.items()}
        for row in rows
    ]


def test_what_is_joined_answers_as_before_and_what_expires_keeps_its_figures(lake: Path, tmp_path: Path) -> None:
    shutil.copytree(lake, tmp_path / "lake")
    wanted = {question: approximate(asked(lake, question)) for question in QUESTIONS}
    joined = {row["table"]: row for row in asked(tmp_path / "lake", "compact")}
    assert joined.keys() == {*TABLES}
    assert joined["layers"] == {"table": "layers", "files_before": 12, "files": 3, "removed": 0, "rows": 0}
    assert {question: asked(tmp_path / "lake", question) for question in QUESTIONS} == wanted
    gone = asked(tmp_path / "lake", "expire", NIGHTS[1])
    assert gone == [{"table": table, "rows": 4} for table in RAW]
    assert asked(tmp_path / "lake", "sql", "SELECT min(date) AS first FROM records") == [{"first": NIGHTS[1]}]
    assert {question: asked(tmp_path / "lake", question) for question in QUESTIONS} == wanted


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
    ended = profagent("fleet", "stats", "--lake", "")
    assert (ended.code, "no lake is named" in ended.err) == (2, True)
