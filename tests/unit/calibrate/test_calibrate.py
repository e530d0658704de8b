"""`profagent calibrate` on a simulated JOB, whose own map is known: what is learnt of it, and what is refused."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profagent.calibrate.kit import Anonymizer
from profagent.calibrate.redecode_cli import redecode_job, redecode_session
from profagent.calibrate.vendor_table import parse_vendor_table
from profagent.cli.main import run
from profagent.errors import UsageError
from profagent.formats.counter_maps import BUILT_IN, CounterMaps, read_map, simulated_map
from profagent.formats.model_info import parse_layer_info, parse_net_info
from profagent.formats.names import parse_log_name
from profagent.formats.records import AICORE_DTYPE, view_records
from profagent.importing.importing import import_into, import_job
from profagent.store import counters
from profagent.store.workspace import Workspace
from profagentd.simulate import draw as encode
from profagentd.simulate.network import AICORE, CompiledModel, FusedRun, SimulatedLayer, UnitSegment
from profagentd.simulate.run import SimulationOptions
from tests.daemon.simulated_job import write_job
from tests.encoders import bytes_item, net_items
from tests.fakes.dumps import Dump, dump

LAYERS = 90


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two inferences, and the tables that the vendor's tool would make of them."""
    root = tmp_path_factory.mktemp("root")
    options = SimulationOptions(model="yolov5s", layers=LAYERS, seed=3, root=root)
    written = write_job(root, options, 2, gaps=False)
    assert run(["export", "summary", "-dir", str(written)]) == 0
    return written


@pytest.fixture
def table(job: Path) -> Path:
    """The table of the first inference."""
    (found,) = (job / "summary").glob("op_summary_0.yolov5s.0.1.1.0.*.csv")
    return found


def test_what_is_learnt_reads_records_as_the_true_map_does(
    job: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "learnt.toml"
    assert run(["calibrate", str(job), "--vendor-summary", str(table), "-o", str(file), "--sdk", "B999"]) == 0
    shown = capsys.readouterr().out
    assert f"{LAYERS} of {LAYERS} rows are records of {job.name}" in shown
    assert "*** simulated" in shown
    learnt = read_map(file)
    assert (learnt.name, learnt.sdk, learnt.simulated) == ("learnt", "B999", True)
    assert len(learnt.digest) == 32
    assert len(learnt.counters) == len(simulated_map().counters)
    (log,) = (job / "data").glob("aicore.0.yolov5s.*.1")
    records = view_records(log.read_bytes(), AICORE_DTYPE)
    true = simulated_map().apply(records)
    for name, values in learnt.apply(records).items():
        assert np.allclose(values, true[name]), name
    assert {counter.verdict for counter in learnt.counters.values()} == {"certain", "likely"}


@pytest.mark.parametrize("learns_by", ["its file", "the user's folder"])
def test_with_what_is_learnt_the_vendors_table_comes_out_again(
    learns_by: str, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JOB of a real board whose counters are where nobody knows, and the vendor's table of each inference."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    real = tmp_path / ("JOB" + "R" * 29)
    shutil.copytree(job, real, ignore=shutil.ignore_patterns("simulated", "summary", "sqlite", "*.db"))
    for log in real.glob("data/aicore.*[0-9]"):
        log.write_bytes(elsewhere(log.read_bytes()))
    tables = sorted((job / "summary").glob("op_summary_*.csv"))
    file = tmp_path / "profagent" / "counter-maps" / "learnt.toml"
    file.parent.mkdir(parents=True)
    assert run(["calibrate", str(real), "--vendor-summary", str(tables[0]), "-o", str(file)]) == 0
    taken = ["--counter-map", str(file)] if learns_by == "its file" else []
    assert run(["import", "-dir", str(real), *taken]) == 0
    assert run(["export", "summary", "-dir", str(real)]) == 0
    assert "N/A,N/A" not in tables[0].read_text("utf-8")
    for table in tables:
        assert (real / "summary" / table.name).read_bytes() == table.read_bytes()


def elsewhere(data: bytes) -> bytes:
    """Records with the simulated board's counters at other bytes, and anything around them."""
    records = np.frombuffer(data, np.uint8).reshape(-1, 256)
    moved = records.copy()
    moved[:, 0x08:0xFC] = np.random.default_rng(4).integers(0, 256, (len(records), 0xF4), np.uint8)
    place = 0xF9
    for counter in simulated_map().counters.values():
        size = int(counter.type[1:]) // 8
        place -= size + 3
        moved[:, place : place + size] = records[:, counter.offset : counter.offset + size]
    return moved.tobytes()


def test_a_table_with_another_inferences_name_is_found_by_its_times(
    job: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (second,) = (job / "summary").glob("op_summary_0.yolov5s.0.1.1.1.*.csv")
    wrong = tmp_path / table.name
    wrong.write_bytes(second.read_bytes())
    assert run(["calibrate", str(job), "--vendor-summary", str(wrong)]) == 0
    assert "yolov5s at picture 1, by name and time" in capsys.readouterr().out


def test_a_table_of_another_job_is_refused(
    job: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = SimulationOptions(model="yolov5s", layers=20, seed=9, root=tmp_path)
    other = write_job(tmp_path, options, 1, gaps=False)
    lines = table.read_text("utf-8").splitlines()
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("\n".join(line.replace("model.", "other.").replace(".", ".9", 3) for line in lines), "utf-8")
    assert run(["calibrate", str(other), "--vendor-summary", str(wrong)]) == 2
    assert "a table of none of these JOBs" in capsys.readouterr().err


def test_jobs_that_disagree_teach_nothing(job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first inference under one map, the second under one that is a byte further on."""
    one, other = tmp_path / ("JOB" + "A" * 29), tmp_path / ("JOB" + "B" * 29)
    for copy, gone in ((one, 1), (other, 0)):
        shutil.copytree(job, copy)
        next((copy / "data").glob(f"aicore.0.yolov5s.*.{gone}")).unlink()
    (log,) = (log for log in (other / "data").glob("aicore.0.yolov5s.*.1"))
    records = np.frombuffer(log.read_bytes(), np.uint8).reshape(-1, 256).copy()
    records[:, 0x08:0xFC] = np.roll(records[:, 0x08:0xFC], 1, axis=1)
    log.write_bytes(records.tobytes())
    tables = [next((job / "summary").glob(f"op_summary_0.yolov5s.0.1.1.{picture}.*.csv")) for picture in (0, 1)]
    arguments = [argument for each in tables for argument in ("--vendor-summary", str(each))]
    assert run(["calibrate", str(one), str(other), *arguments, "--json"]) == 1
    # The failure stands in a line of its own, below what was learnt.
    learnt, failure = map(json.loads, capsys.readouterr().out.splitlines())
    assert failure["code"] == "failed"
    counters = learnt["counters"]
    assert {each["verdict"] for each in counters} == {"not found"}
    assert all(each["advice"] for each in counters)


# Counter columns of what is stored already, filled with another map from the bytes that were kept

# The whole map's first three counters, of which one gives half of what it should: an earlier guess.
GUESS = replace(simulated_map(), name="guess", counters=dict([*simulated_map().counters.items()][:3]))
MAPS = CounterMaps(simulated_map())
KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from profagent.formats.counter_maps import CounterMaps, simulated_map
from profagent.calibrate.redecode_cli import redecode_session
from profagent.store.workspace import Workspace
from profagent.store import counters

counters.COUNTERS_PER_BATCH = 5
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
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    options = SimulationOptions(model="yolov5s", layers=8, pictures=2, seed=5)
    return write_job(tmp_path_factory.mktemp("board"), options, inferences=3, loads=2)


@pytest.fixture(scope="module")
def expected(recorded: Path) -> Dump:
    """What an import with the map gives."""
    return dump(asyncio.run(import_job(recorded, MAPS)).database)


@pytest.fixture
def workspace(recorded: Path, tmp_path: Path) -> Workspace:
    """A workspace with the JOB, read with the guess."""
    found = Workspace(tmp_path / "workspace")
    asyncio.run(import_into(recorded, found, asyncio.Event(), maps=CounterMaps(GUESS)))
    return found


def test_a_session_becomes_what_an_import_with_the_map_gives(
    workspace: Workspace, expected: Dump, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "COUNTERS_PER_BATCH", 5)
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
    assert f"\n{rows} rows without counters: " in capsys.readouterr().out
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
    with pytest.raises(UsageError, match="not exactly one counter map"):
        asyncio.run(redecode_session(workspace, 1, BUILT_IN))


def test_a_job_directory_s_own_database_is_filled(recorded: Path, expected: Dump) -> None:
    asyncio.run(import_job(recorded, CounterMaps(GUESS)))
    assert asyncio.run(redecode_job(recorded, MAPS))["counter_map_before"] == "guess"
    assert dump(recorded / "sqlite" / "profagent.db") == expected
    assert sorted(file.name for file in (recorded / "sqlite").iterdir()) == ["lock", "profagent.db"]


# Names that are replaced: the same throughout, in as many bytes, and none that stays

TITLES = "Layer Id,Ori Layer Name,Layer Name,Layer Type,Time(us),Mac Busy Ratio\n"


def network(*names: str) -> CompiledModel:
    return CompiledModel(
        "secret", (UnitSegment(AICORE, tuple(FusedRun((SimulatedLayer(name, "Conv"),), 1.0) for name in names)),) * 2
    )


@pytest.mark.parametrize(
    "path",
    [
        "data/aicore.0.0.3.0.1.1.0",
        "data/aicore.0.my_net.3.0.1.1.0.done",
        "data/AAcpu.0.卷积.0.1.1.17",
        "data/0.0.net.info",
        "data/my.1.layer.info",
    ],
)
def test_a_models_name_goes_and_the_numbers_of_its_files_stay(path: str) -> None:
    name = parse_log_name(path)
    aliased = parse_log_name(Anonymizer().path(path))
    assert name is not None
    assert aliased is not None
    assert aliased.model != name.model
    assert (aliased.kind, aliased.is_done, aliased.inference and aliased.inference[2:]) == (
        name.kind,
        name.is_done,
        name.inference and name.inference[2:],
    )


@pytest.mark.parametrize(("form", "with_nul"), [(encode.BYTES32, True), (encode.BYTES16, False)])
def test_a_layer_table_stays_as_it_is_but_for_names(form: int, with_nul: bool) -> None:
    data = encode.layer_info(network("secret/conv1", "b+secret", "层"), form=form, with_nul=with_nul)
    replaced = Anonymizer().content("data/m.0.layer.info", data)
    assert len(replaced) == len(data)
    assert b"secret" not in replaced
    before, after = (parse_layer_info(each, "x").layers for each in (data, replaced))
    assert [layer.type for layer in after] == [layer.type for layer in before]
    assert [len(layer.name.encode()) for layer in after] == [len(layer.name.encode()) for layer in before]
    assert after[:3] != after[3:]
    assert [layer.name for layer in after[:3]] == [layer.name for layer in after[3:]]


@given(st.sampled_from(["layer", "net"]), st.binary(max_size=99), st.integers(0, 200))
def test_no_name_stays_in_a_torn_file(kind: str, said: bytes, at: int) -> None:
    data = bytearray(encode.layer_info(network("secret/conv", "relu")))
    data[at : at + len(said)] = said
    replaced = Anonymizer().content(f"data/m.0.{kind}.info", bytes(data))
    assert len(replaced) == len(data)
    assert b"secret" not in replaced


@pytest.mark.parametrize("start", ["items", "length", "container", "elsewhere"])
def test_nets_begin_where_they_did(start: str) -> None:
    data = encode.net_info(network("conv"), start)
    names = Anonymizer()
    replaced = names.content("data/m.0.net.info", data)
    assert len(replaced) == len(data)
    assert parse_net_info(replaced, "x") == parse_net_info(data, "x")
    secret = names.content("data/m.0.net.info", net_items(0, prof_layers=1) + bytes_item(0x045, b"/home/me"))
    assert b"/home" not in secret


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gb18030"])
@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_a_vendor_table_has_the_same_aliases_and_its_numbers(encoding: str, delimiter: str) -> None:
    names = Anonymizer()
    names.content("data/m.0.layer.info", encode.layer_info(network("卷积1", "relu")))
    rows = (
        TITLES,
        "0,N/A,卷积1+relu\t,Conv+Relu,10.000,0.5000\n" if delimiter == "," else "0,N/A,卷积1+relu,Conv,10.0,0.5\n",
        "1,relu,a|relu,Conv,2.000,50%\n-,-,total,-,12.0,0.5\n",
    )
    data = "".join(rows).replace(",", delimiter)
    replaced = names.table(data.encode(encoding), "x.csv")
    before, after = parse_vendor_table(data.encode(encoding), "x"), parse_vendor_table(replaced, "x")
    assert after.time_us.values.tolist() == before.time_us.values.tolist()
    shown = replaced.decode()
    assert "卷积" not in shown
    assert shown.splitlines()[0] == TITLES.strip()
    assert "relu" not in shown
    assert after.names[0] == "Laaaaaa+Laaa"
