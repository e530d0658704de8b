"""JOBs that the runtime library wrote: every row of an import is what the bytes say, read here by hand."""

from __future__ import annotations

import asyncio
import re
import shutil
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from profagent.importing.importing import import_job
from tests.fakes.dumps import check

JOBS = Path(__file__).parents[1] / "data" / "jobs"
SAMPLES = sorted(path for path in JOBS.rglob("JOB*") if path.is_dir())
EDGE = "runtime-edge"
OF_INFERENCE = re.compile(r"(aicore|aicpu)\.(\d+)\.(.*)\.(\d+)\.(\d+)\.(\d+)\.(\d+)\.(\d+)")
OF_MODEL = re.compile(r"acl_api\.(\d+)\.(.*)\.(\d+)")


@pytest.fixture(scope="module", params=SAMPLES, ids=lambda job: job.parent.name)
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(request.param, tmp_path_factory.mktemp("jobs") / request.param.name))


@pytest.fixture(scope="module")
def db(job: Path) -> Iterator[sqlite3.Connection]:
    imported = asyncio.run(import_job(job))
    with closing(sqlite3.connect(imported.database)) as connection:
        check(connection)
        yield connection


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    (source,) = (JOBS / EDGE).glob("JOB*")
    copy = Path(shutil.copytree(source, tmp_path_factory.mktemp("edge") / source.name))
    with closing(sqlite3.connect(asyncio.run(import_job(copy)).database)) as connection:
        yield connection


def logs(job: Path, pattern: re.Pattern[str]) -> Iterator[tuple[re.Match[str], bytes]]:
    for path in sorted((job / "data").iterdir()):
        match = pattern.fullmatch(path.name)
        if match and not path.name.endswith(".done"):
            yield match, path.read_bytes()


def counted(number: str) -> int | str:
    return int(number) if int(number) < 2**63 else number


def test_every_aicore_record_has_its_row(job: Path, db: sqlite3.Connection) -> None:
    expected = []
    for match, data in logs(job, OF_INFERENCE):
        if match[1] == "aicore":
            key = (int(match[2]), match[3], *map(int, match.group(5, 4, 6, 7)), counted(match[8]))
            for at in range(0, len(data) // 256 * 256, 256):
                words = struct.unpack_from("<64I", data, at)
                expected.append((*key, words[63], words[0], words[1], words[1] * 100 / 700))
    found = db.execute(
        "SELECT device_id, model, model_id, stream_id, batch_num, input_pic_num, current_pic_count, segment, sequence,"
        " ticks, duration_us FROM op_records"
    ).fetchall()
    assert sorted(found, key=repr) == sorted(expected, key=repr)


def test_no_pmu_figure_is_made_up(db: sqlite3.Connection) -> None:
    columns = ("mac_busy", "mac_ppen", "vec_busy", "vec_ppen", "dstr", "dtrans", "dld", "wld", "ddr_read_bytes")
    assert set(db.execute(f"SELECT DISTINCT {', '.join(columns)} FROM op_records")) == {(None,) * len(columns)}


def test_every_aicpu_record_has_its_row(job: Path, db: sqlite3.Connection) -> None:
    expected = []
    for match, data in logs(job, OF_INFERENCE):
        if match[1] == "aicpu":
            for at in range(0, len(data) // 128 * 128, 128):
                sequence, begin, end, start, stop, net = struct.unpack_from("<I4xQQQQ84xI", data, at)
                expected.append((match[3], counted(match[8]), net, sequence, begin, end - begin, start, stop))
    found = db.execute(
        "SELECT model, current_pic_count, segment, sequence, start_us, duration_us, segment_start_us, segment_end_us"
        " FROM aicpu_records"
    ).fetchall()
    assert sorted(found, key=repr) == sorted(expected, key=repr)


def test_every_call_has_its_row(job: Path, db: sqlite3.Connection) -> None:
    names = ["mdl_load_from_mem", "mdl_unload", "mdl_execute", "mdl_execute_async", "rt_synchronize_stream"]
    names.append("ext_process_aicpu_task")
    expected = []
    for match, data in logs(job, OF_MODEL):
        for magic, api, begin, end, pid, tid in struct.iter_unpack("<IIQQII", data):
            assert magic == 0x5A5A
            known = (begin, end, end - begin) if begin else (None, end, None)
            expected.append((match[2], int(match[3]), f"svp_acl_{names[api]}", pid, tid, *known))
    found = db.execute(
        "SELECT model, model_id, name, pid, tid, begin_us, end_us, duration_us FROM api_records"
    ).fetchall()
    assert sorted(found, key=repr) == sorted(expected, key=repr)


def test_every_inference_has_what_its_done_says(job: Path, db: sqlite3.Connection) -> None:
    rows = db.execute(
        "SELECT model, model_id, stream_id, batch_num, input_pic_num, current_pic_count, start_us, end_us, cache_hit,"
        " cache_miss, online_batch_num, complete, max(load) FROM inferences GROUP BY 1, 2, 3, 4, 5, 6"
    ).fetchall()
    for model, model_id, stream, batch, pictures, count, *found, _ in rows:
        done = job / "data" / f"aicore.0.{model}.{stream}.{model_id}.{batch}.{pictures}.{count}.done"
        if not done.exists() or not done.with_name(done.name[:-5]).exists():
            assert found == [None, None, None, None, None, 0]
            continue
        lines = dict(line.split(":") for line in done.read_text("ascii").splitlines())
        times = [int(lines[key]) or None for key in ("start_time", "end_time")]
        cache = [int(lines[key]) % 2**32 for key in ("cache_hit", "cache_mis")]
        assert found == [*times, *cache, lines.get("online_batch_num"), 1]


def test_every_file_is_known_with_its_size(job: Path, db: sqlite3.Connection) -> None:
    files = {str(path.relative_to(job)): path.stat().st_size for path in job.rglob("*") if path.is_file()}
    files = {path: size for path, size in files.items() if not path.startswith("sqlite/")}
    assert dict(db.execute("SELECT path, offset FROM log").fetchall()) == files
    assert db.execute("SELECT state FROM job").fetchone()[0] in ("finished", "quiet")


# A line of cases.txt: the file, and what an import says about it. Layers that no table names are left out here.
CASES: dict[str, tuple[str, list[tuple[str, str, int]]]] = {
    "normal": ("data/aicore.0.demo_a.3.0.1.1.0", [("note", "appended", 2)]),
    "aicore short read 4->2": ("data/aicore.0.demo_a.3.0.1.1.1", []),
    "aicpu short read 4->2": ("data/aicpu.0.demo_a.3.0.1.1.2", [("note", "announced-length", 256)]),
    "all durations 0": ("data/aicore.0.demo_a.3.0.1.1.3", [("note", "empty", 1)]),
    "sequence filter": ("data/aicore.0.demo_a.3.0.1.1.4", [("note", "sequence-gap", 50)]),
    "last segment announced len 0": ("data/aicore.0.demo_a.3.0.1.1.5", [("note", "no-done", 1)]),
    "next inference after that": ("data/aicore.0.demo_a.3.0.1.1.6", [("note", "announced-length", 512)]),
    "last segment flag 0x2a=1": ("data/aicore.0.demo_a.3.0.1.1.7", []),
    "disk full (aicore)": ("data/aicore.0.demo_a.3.0.1.1.8.done", [("loss", "done-without-data", 768)]),
    "disk full (aicpu)": ("data/aicpu.0.demo_a.3.0.1.1.9.done", [("loss", "done-without-data", 384)]),
    "announced > limit": ("data/aicore.0.demo_a.3.0.1.1.10", []),
    "8 batches, big counters": ("data/aicore.0.demo_a.3.0.8.29.11", []),
    "aicpu after last aicore": ("data/aicpu.0.demo_a.3.0.1.1.12", []),
    "aicpu before last aicore": ("data/aicpu.0.demo_a.3.0.1.1.13", []),
    "aicore len 12*256+100": ("data/aicore.0.demo_a.3.0.1.1.14", []),
    "aicpu len 300": ("data/aicpu.0.demo_a.3.0.1.1.15", [("loss", "torn-record", 1)]),
    "u64 pic count, stream 65535": ("data/aicore.0.demo_a.65535.0.1.1.18446744073709551600", []),
    "same name twice (reload)": ("data/aicore.0.demo_a.3.0.1.1.0", [("note", "appended", 2)]),
    "RING": ("data/acl_api.0.demo_b.1", [("note", "no-done", 1), ("note", "ring-full", 2045)]),
    "stop with 6 queued": ("data/aicore.0.demo_a.3.0.1.1.100", [("note", "empty", 1)]),
    "segment before stop": ("data/aicore.0.demo_a.3.0.1.1.200", [("note", "no-done", 1)]),
    "first after restart": ("data/aicore.0.demo_a.3.0.1.1.201", [("note", "announced-length", 512)]),
    "unload after stop": ("data/acl_api.0.demo_b.1", [("note", "no-done", 1), ("note", "ring-full", 2045)]),
}


@pytest.mark.parametrize("case", CASES)
def test_each_odd_case_is_in_the_ledger(edge: sqlite3.Connection, case: str) -> None:
    path, expected = CASES[case]
    found = edge.execute(
        "SELECT grade, reason, count FROM ledger WHERE log = ? AND reason <> 'no-layer' ORDER BY reason", (path,)
    )
    assert found.fetchall() == expected


def test_every_line_of_the_cases_is_looked_at() -> None:
    lines = (JOBS / EDGE / "cases.txt").read_text("utf-8").splitlines()
    unseen = [line for line in lines if not any(line.startswith((f"EDGE {case}", case)) for case in CASES)]
    assert unseen == []


def test_nothing_else_is_odd_in_them(edge: sqlite3.Connection) -> None:
    told = {path for path, _ in CASES.values()}
    # The stub of the driver made up how many ticks layers take.
    known = "('no-layer', 'implausible-counter')"
    odd = {path for (path,) in edge.execute(f"SELECT DISTINCT log FROM ledger WHERE reason NOT IN {known}")}
    assert odd <= told


def test_records_without_a_layer_are_those_that_the_table_does_not_name(db: sqlite3.Connection) -> None:
    nameless = db.execute(
        "SELECT count(*) FROM (SELECT layer_name FROM op_records UNION ALL SELECT layer_name FROM aicpu_records)"
        " WHERE layer_name IS NULL"
    ).fetchone()
    (told,) = db.execute("SELECT ifnull(sum(count), 0) FROM ledger WHERE reason = 'no-layer'").fetchone()
    assert nameless == (told,)
