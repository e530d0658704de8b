"""A lake has each pushed session once, whole or not at all, with the values that its database has."""

from __future__ import annotations

import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import deltalake
import numpy as np
import pytest
from deltalake import DeltaTable

from profagent.errors import LakeError
from profagent.lake import lake as lakes
from profagent.lake.aggregates import FRAMES, GAMMA, histogram
from profagent.lake.engines import engine_of
from profagent.lake.lake import Lake
from profagent.lake.push import TABLES, VIEWS
from profagent.stats.stats import stats
from tests.integration.host import processed, profagent
from tests.integration.rows import query

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def pushed(workspace: Path, lake: Path, session: str = "1") -> list[dict[str, Any]]:
    ended = profagent("push", session, "--workspace", workspace, "--lake", lake, "--json")
    assert ended.code == 0, ended.err
    found: list[dict[str, Any]] = ended.document
    return found


def asked(lake: Path, sql: str) -> list[tuple[Any, ...]]:
    with engine_of(Lake(str(lake))) as engine:
        return engine.ask(sql).rows


def counts(lake: Path) -> dict[str, int]:
    return {table: asked(lake, f"SELECT count(*) FROM {table}")[0][0] for table in TABLES}


@pytest.fixture(scope="module")
def lake(demo_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    (found,) = pushed(demo_workspace, folder)
    assert (found["number"], found["was_there"]) == (1, False)
    assert {name: number for name, number in counts(folder).items() if name != "sessions"} == found["rows"]
    return folder


@pytest.mark.parametrize("table", VIEWS)
def test_a_table_has_what_the_views_have(demo_workspace: Path, lake: Path, table: str) -> None:
    """Values of every column; times are whole microseconds."""
    for view in VIEWS[table]:
        with closing(sqlite3.connect(demo_workspace / "profagent.db")) as connection:
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({view})") if row[1] != "session"]
        named = ", ".join(f'"{name}"' for name in columns)
        found = asked(lake, f"SELECT {named} FROM {table} WHERE source_view = '{view}'")
        rows = query(demo_workspace / "profagent.db", f"SELECT {named} FROM {view}")
        assert _comparable(found, columns) == _comparable(rows, columns)


def _comparable(rows: Sequence[Sequence[Any]], columns: Sequence[str]) -> list[str]:
    is_time = [name.endswith("_us") and not name.endswith("duration_us") for name in columns]
    return sorted(repr([_value(each, is_time=whole) for each, whole in zip(row, is_time, strict=True)]) for row in rows)


def _value(value: Any, *, is_time: bool) -> Any:
    if isinstance(value, str) or value is None:
        return value
    return round(value) if is_time else float(value)


def test_no_number_is_nan_and_no_time_is_a_float(lake: Path) -> None:
    for table in TABLES:
        found = DeltaTable(f"{lake}/{table}")
        types = {field.name: str(field.type) for field in found.schema().fields}
        assert {"board", "session", "push", "date"} <= types.keys()
        floats = [name for name, of in types.items() if "double" in of]
        assert not [name for name in floats if name.endswith("_us") and not name.endswith("duration_us")]
        if floats:
            is_nan = " OR ".join(f'isnan("{name}")' for name in floats)
            assert asked(lake, f"SELECT count(*) FROM {table} WHERE {is_nan}") == [(0,)]


async def test_layers_are_those_of_stats(demo_workspace: Path, lake: Path) -> None:
    layers = await stats(demo_workspace / "profagent.db", session=1, by="layer")
    frames = await stats(demo_workspace / "profagent.db", session=1, by="frame")
    names = "number, total, mean, median, mad, p95, p99, max, share, in_inference, bound"
    found = asked(lake, f"SELECT model, layer, type, unit, {names} FROM layers WHERE kind = 'layer'")
    wanted = [(*row.key, *row.figures, row.share, row.in_inference, row.bound) for row in layers.rows]
    assert sorted((row for row in found if row[0] != FRAMES), key=repr) == sorted(wanted, key=repr)
    # The parts of frames are as layers of a model.
    stages = [row[1:3] + row[4:-2] for row in found if row[0] == FRAMES]
    assert sorted(stages) == sorted((*row.key, *row.figures, row.share) for row in frames.rows)


def test_a_histogram_has_each_time_that_its_figures_have(lake: Path) -> None:
    key = "kind, model, layer, type, unit"
    found = asked(lake, f"SELECT {key}, sum(number) FROM histograms GROUP BY {key}")
    assert found
    assert {*found} <= {*asked(lake, f"SELECT {key}, number FROM layers")}


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95, 0.999])
def test_a_histogram_knows_a_quantile_to_a_thousandth(share: float) -> None:
    times = np.random.default_rng(7).lognormal(3, 1.5, 100_000)
    buckets = [*histogram(times)]
    reached = np.cumsum([number for _, number in buckets]) >= share * len(times)
    bucket, _ = buckets[int(reached.argmax())]
    assert bucket is not None
    wanted = np.quantile(times, share, method="inverted_cdf")
    assert GAMMA ** (bucket + 0.5) == pytest.approx(wanted, rel=0.001001)


def test_a_histogram_has_times_of_zero() -> None:
    assert [*histogram(np.array([0.0, 1.0, 0.0, np.nan]))] == [(0, 1), (None, 2)]


def test_what_is_pushed_again_is_there_once(demo_workspace: Path, lake: Path) -> None:
    before = counts(lake)
    (again,) = pushed(demo_workspace, lake)
    assert again["was_there"]
    assert counts(lake) == before


def test_several_that_push_the_same_at_once_push_it_once(demo_workspace: Path, lake: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        ended = [*pool.map(lambda _: processed_push(demo_workspace, tmp_path / "lake"), range(3))]
    assert [each.code for each in ended] == [0] * 3
    assert counts(tmp_path / "lake") == counts(lake)
    rows = "SELECT count(*) FROM all_records"
    assert asked(tmp_path / "lake", rows) == asked(lake, rows)


def processed_push(workspace: Path, lake: Path) -> Any:
    return processed("push", "1", "--workspace", str(workspace), "--lake", str(lake))


@pytest.mark.parametrize("commits", [3, len(TABLES) - 1])
def test_a_push_that_ends_midway_is_not_there_until_it_is_gone_on_with(
    demo_workspace: Path, lake: Path, tmp_path: Path, commits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends before each of its commits, and after none is a part of it seen."""
    left = [commits]
    write = deltalake.write_deltalake

    def ends(*arguments: Any, **named: Any) -> None:
        if not left[0]:
            raise OSError("the machine is gone")
        left[0] -= 1
        write(*arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(lakes, "write_deltalake", ends)
        ended = profagent("push", "1", "--workspace", demo_workspace, "--lake", tmp_path / "lake")
    assert ended.code == 1
    assert "the machine is gone" in ended.err
    with suppress(LakeError):
        assert set(counts(tmp_path / "lake").values()) == {0}
    pushed(demo_workspace, tmp_path / "lake")
    assert counts(tmp_path / "lake") == counts(lake)
    rows = "SELECT count(*) FROM all_records"
    assert asked(tmp_path / "lake", rows) == asked(lake, rows)


def test_a_session_that_changed_takes_its_own_place(demo_workspace: Path, lake: Path, tmp_path: Path) -> None:
    workspace = shutil.copytree(demo_workspace, tmp_path / "workspace")
    shutil.copytree(lake, tmp_path / "lake")
    for digest in ("one", None):
        with closing(sqlite3.connect(workspace / "profagent.db")) as connection, connection:
            connection.execute("UPDATE session SET counter_map_digest = ?", (digest,))
            connection.execute("UPDATE aicore SET mac_busy = ?", (0.5 if digest else 0.25,))
        (found,) = pushed(workspace, tmp_path / "lake")
        assert not found["was_there"]
        assert counts(tmp_path / "lake") == counts(lake)
        wanted = [(0.5 if digest else 0.25,)]
        rows = "SELECT DISTINCT mac_busy FROM records WHERE source_view = 'op_records'"
        assert asked(tmp_path / "lake", rows) == wanted
