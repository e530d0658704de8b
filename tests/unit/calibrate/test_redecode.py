"""Counter columns of what is stored already, filled with another map from the bytes that were kept."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from profagent.calibrate.redecode_cli import redecode_job, redecode_session
from profagent.cli.main import run
from profagent.errors import UsageError
from profagent.importing.importing import import_into, import_job
from profagent.store import counters
from profagent.store.counter_maps import BUILT_IN, CounterMaps, simulated_map
from profagent.store.workspace import Workspace
from profagentd.simulate.run import SimulationOptions
from tests.daemon.simulated_job import write_job
from tests.fakes.dumps import Dump, dump

# The whole map's first three counters, of which one gives half of what it should: an earlier guess.
GUESS = replace(simulated_map(), name="guess", counters=dict([*simulated_map().counters.items()][:3]))
MAPS = CounterMaps(simulated_map())
KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from profagent.store.counter_maps import CounterMaps, simulated_map
from profagent.calibrate.redecode_cli import redecode_session
from profagent.store.workspace import Workspace
from profagent.store import counters

counters.ROWS_PER_BATCH = 5
pages = counters._pages
def three_pages(*arguments):
    number = 0
    for page in pages(*arguments):
        yield page
        number += 1
        if number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
counters._pages = three_pages
asyncio.run(redecode_session(Workspace(Path(sys.argv[1])), 1, CounterMaps(simulated_map())))
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    options = SimulationOptions(model="yolov5s", layers=8, pictures=2, seed=5)
    return write_job(tmp_path_factory.mktemp("board"), options, inferences=3, loads=2)


@pytest.fixture(scope="module")
def expected(job: Path) -> Dump:
    """What an import with the map gives."""
    return dump(asyncio.run(import_job(job, MAPS)).database)


@pytest.fixture
def workspace(job: Path, tmp_path: Path) -> Workspace:
    """A workspace with the JOB, read with the guess."""
    found = Workspace(tmp_path / "workspace")
    asyncio.run(import_into(job, found, asyncio.Event(), maps=CounterMaps(GUESS)))
    return found


def test_a_session_becomes_what_an_import_with_the_map_gives(
    workspace: Workspace, expected: Dump, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "ROWS_PER_BATCH", 5)
    assert dump(workspace.database)["op_records"] != expected["op_records"]
    done = asyncio.run(redecode_session(workspace, 1, MAPS))
    assert (done["counter_map_before"], done["rows"]) == ("guess", len(expected["op_records"]))
    assert dump(workspace.database)["op_records"] == expected["op_records"]
    with closing(sqlite3.connect(workspace.database)) as connection:
        used = connection.execute("SELECT counter_map, counter_map_digest FROM sessions").fetchall()
    assert used == [("simulated", simulated_map().fingerprint)]


def test_records_whose_bytes_are_gone_or_are_others_have_no_counters(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    logs = sorted(file for file in workspace.root.rglob("data/aicore.*") if file.suffix != ".done")
    one, other, another = logs[:3]
    rows = one.stat().st_size // 256 + 1 + another.stat().st_size // 256
    one.unlink()
    os.truncate(other, other.stat().st_size - 1)
    another.write_bytes(b"\1" * another.stat().st_size)
    file = tmp_path / "map.toml"
    file.write_bytes((Path(__file__).parents[3] / "agent/profagent/formats/maps/simulated.toml").read_bytes())
    assert run(["redecode", "1", "--workspace", str(workspace.root), "--counter-map", str(file)]) == 4
    assert f"\n{rows} rows have none: " in capsys.readouterr().out
    with closing(sqlite3.connect(workspace.database)) as connection:
        assert connection.execute("SELECT count(*) FROM aicore WHERE vec_busy IS NULL").fetchone() == (rows,)


def test_the_ledger_tells_what_cannot_be_by_the_new_map(workspace: Workspace) -> None:
    known = simulated_map()
    busy = replace(known.counters["mac_busy"], scale=100.0)
    asyncio.run(
        redecode_session(workspace, 1, CounterMaps(replace(known, counters={**known.counters, "mac_busy": busy})))
    )
    with closing(sqlite3.connect(workspace.database)) as connection:
        said = connection.execute("SELECT detail FROM ledger WHERE reason = 'implausible-counter'").fetchall()
    assert [detail for (detail,) in said if detail.startswith("mac_busy is above 1 in ")]


def test_killed_in_the_midst_it_leaves_all_as_it_was(workspace: Workspace) -> None:
    before = dump(workspace.database)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(workspace.root)], check=False, timeout=100)
    assert killed.returncode == -signal.SIGKILL
    assert dump(workspace.database) == before
    with closing(sqlite3.connect(workspace.database)) as connection:
        assert connection.execute("SELECT counter_map FROM session").fetchall() == [("guess",)]


def test_without_a_map_that_fits_it_is_refused(workspace: Workspace) -> None:
    with closing(sqlite3.connect(workspace.database)) as connection, connection:
        connection.execute("UPDATE session SET simulated = 0")
    with pytest.raises(UsageError, match="no counter map"):
        asyncio.run(redecode_session(workspace, 1, BUILT_IN))


def test_a_job_directory_s_own_database_is_filled(job: Path, expected: Dump) -> None:
    asyncio.run(import_job(job, CounterMaps(GUESS)))
    assert asyncio.run(redecode_job(job, MAPS))["counter_map_before"] == "guess"
    assert dump(job / "sqlite" / "profagent.db") == expected
    assert sorted(file.name for file in (job / "sqlite").iterdir()) == ["lock", "profagent.db"]
