"""Files that are not as they should be: each has an outcome, and the user is told."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from profagent.importing.importing import import_job
from tests.encoders import aicore_record, api_record, done_text
from tests.fakes.dumps import check, write_files
from tests.fakes.small_job import CALLS, PLAIN, SMALL_JOB, aicore_done
from tests.integration.rows import query

JOB = "JOB" + "A" * 29
INFO = {"info.json.0": SMALL_JOB["info.json.0"]}
ONE = aicore_record(0, 100, 0)

Ledger = list[tuple[Any, ...]]


def imported(tmp_path: Path, files: dict[str, bytes]) -> tuple[Ledger, dict[str, int]]:
    """The ledger without layers that no table names, and how many rows there are."""
    job = write_files(tmp_path / JOB, {**INFO, **files})
    with closing(sqlite3.connect(asyncio.run(import_job(job)).database)) as connection:
        check(connection)
        ledger = connection.execute(
            "SELECT log, grade, reason, first, last, count FROM ledger WHERE reason <> 'no-layer' ORDER BY 1, 3"
        ).fetchall()
        tables = ("aicore", "aicpu", "api", "inference")
        return ledger, {t: connection.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in tables}


def test_a_file_of_one_record(tmp_path: Path) -> None:
    ledger, rows = imported(tmp_path, {PLAIN: ONE, PLAIN + ".done": aicore_done(256)})
    assert ledger == []
    assert rows == {"aicore": 1, "aicpu": 0, "api": 0, "inference": 1}


@pytest.mark.parametrize(
    ("done", "expected"),
    [
        ({}, [(PLAIN, "note", "empty", None, None, 1)]),
        ({PLAIN + ".done": aicore_done(0)}, []),
        ({PLAIN + ".done": aicore_done(768)}, [(PLAIN, "loss", "missing-data", None, None, 768)]),
    ],
    ids=["without .done", "announced so", "announced otherwise"],
)
def test_an_empty_file(tmp_path: Path, done: dict[str, bytes], expected: Ledger) -> None:
    ledger, rows = imported(tmp_path, {PLAIN: b"", **done})
    assert ledger == expected
    assert rows["aicore"] == rows["inference"] == 0


def test_a_done_without_data(tmp_path: Path) -> None:
    ledger, rows = imported(tmp_path, {PLAIN + ".done": aicore_done(768)})
    assert ledger == [(PLAIN + ".done", "loss", "done-without-data", None, None, 768)]
    assert rows["inference"] == 0


def test_data_without_done(tmp_path: Path) -> None:
    ledger, rows = imported(tmp_path, {PLAIN: ONE * 2})
    assert ledger == [(PLAIN, "note", "no-done", None, None, 1)]
    assert rows["aicore"] == 2


@pytest.mark.parametrize(("path", "size"), [(PLAIN, 256), ("data/aicpu.0.m.3.0.1.1.0", 128), (CALLS, 32)])
def test_a_truncated_last_record(tmp_path: Path, path: str, size: int) -> None:
    record = api_record(2, 1, 2) if size == 32 else ONE[:size]
    ledger, rows = imported(tmp_path, {path: record * 2 + record[: size - 1]})
    assert (path, "loss", "torn-record", 2 * size, 3 * size - 1, 1) in ledger
    assert rows["aicore"] + rows["aicpu"] + rows["api"] == 2


@pytest.mark.parametrize(
    "path", ["data/core", "core.1234", "data/aicore.0.m.3.0.1.1.x", "data/aicore.0.m.70000.0.1.1.99999999999999999999"]
)
def test_a_foreign_file(tmp_path: Path, path: str) -> None:
    ledger, rows = imported(tmp_path, {PLAIN: ONE, PLAIN + ".done": aicore_done(256), path: b"anything"})
    assert ledger == [(path, "note", "foreign-file", None, None, 1)]
    assert rows["aicore"] == 1


def test_a_directory_where_a_file_should_be(tmp_path: Path) -> None:
    (tmp_path / JOB / PLAIN).mkdir(parents=True)
    ledger, rows = imported(tmp_path, {PLAIN + ".done": aicore_done(768), PLAIN + "/inside": b"x"})
    assert ledger == [
        (None, "note", "not-a-file", None, None, 1),
        (PLAIN + ".done", "loss", "done-without-data", None, None, 768),
    ]
    assert rows["aicore"] == 0


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(ONE * 5)
    write_files(tmp_path / JOB, INFO)
    (tmp_path / JOB / "data").mkdir()
    (tmp_path / JOB / PLAIN).symlink_to(outside)
    ledger, rows = imported(tmp_path, {PLAIN + ".done": aicore_done(1280)})
    assert [entry[1:3] for entry in ledger] == [("note", "not-a-file"), ("loss", "done-without-data")]
    assert rows["aicore"] == 0


def test_a_done_that_is_a_link_vouches_for_nothing(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(aicore_done(256))
    write_files(tmp_path / JOB, {PLAIN: ONE})
    (tmp_path / JOB / (PLAIN + ".done")).symlink_to(outside)
    ledger, _ = imported(tmp_path, {})
    assert [entry[1:3] for entry in ledger] == [("note", "not-a-file"), ("note", "no-done")]


def test_a_fifo_blocks_nobody(tmp_path: Path) -> None:
    write_files(tmp_path / JOB, {PLAIN: ONE})
    os.mkfifo(tmp_path / JOB / (PLAIN + ".done"))
    assert [entry[2] for entry in imported(tmp_path, {})[0]] == ["not-a-file", "no-done"]


@pytest.mark.parametrize("file_len", [3 << 30, -1, 2**32 - 1])
def test_a_length_of_gigabytes_is_only_a_claim(tmp_path: Path, file_len: int) -> None:
    ledger, rows = imported(tmp_path, {PLAIN: ONE, PLAIN + ".done": aicore_done(file_len)})
    assert ledger == [(PLAIN, "note", "announced-length", None, None, file_len % 2**32 - 256)]
    assert rows["aicore"] == 1


@pytest.mark.parametrize("data", [b"", ONE])
def test_an_empty_done_is_what_a_full_disk_leaves(tmp_path: Path, data: bytes) -> None:
    ledger, _ = imported(tmp_path, {PLAIN: data, PLAIN + ".done": b""})
    assert [entry[:3] for entry in ledger] == [(PLAIN, "loss", "missing-data"), (PLAIN + ".done", "note", "malformed")]


@pytest.mark.parametrize("text", [b"file_len:25", b"\xff\xfe", b"x" * 100_000])
def test_a_done_that_is_none(tmp_path: Path, text: bytes) -> None:
    ledger, rows = imported(tmp_path, {PLAIN: ONE, PLAIN + ".done": text})
    assert [entry[:3] for entry in ledger] == [(PLAIN, "note", "no-done"), (PLAIN + ".done", "note", "malformed")]
    assert rows["inference"] == 1


def test_a_done_with_more_behind_it_ends_the_log_as_on_the_board(tmp_path: Path) -> None:
    ledger, rows = imported(tmp_path, {PLAIN: ONE, PLAIN + ".done": aicore_done(256) + b"more"})
    assert [entry[:3] for entry in ledger] == [(PLAIN, "note", "no-done"), (PLAIN + ".done", "note", "malformed")]
    assert rows["inference"] == 1


def test_calls_without_their_mark_are_lost_and_the_others_are_not(tmp_path: Path) -> None:
    data = api_record(2, 1, 2) + api_record(2, 3, 4, magic=0x5A5B) + api_record(2, 5, 6)
    done = done_text(file_len=96, start_time=1, end_time=6, pid=7, tid=8)
    ledger, rows = imported(tmp_path, {CALLS: data, CALLS + ".done": done})
    assert ledger == [(CALLS, "loss", "bad-record", 32, 32, 1)]
    assert rows["api"] == 2


def test_tables_that_cannot_be_read_leave_records_without_names(tmp_path: Path) -> None:
    files = {PLAIN: ONE, PLAIN + ".done": aicore_done(256), "data/m.0.layer.info": b"\1\2\3", "data/m.0.net.info": b"x"}
    ledger, rows = imported(tmp_path, files)
    assert [entry[:3] for entry in ledger] == [
        ("data/m.0.layer.info", "note", "malformed"),
        ("data/m.0.net.info", "note", "malformed"),
    ]
    assert rows["aicore"] == 1


@pytest.mark.parametrize(
    "text", [b"", b"{}", b'{"DeviceInfo": []}', b"\xff", b'{"DeviceInfo": [{"aic_frequency": "0"}]}']
)
def test_an_info_json_without_a_frequency_leaves_durations_unknown(tmp_path: Path, text: bytes) -> None:
    ledger, rows = imported(tmp_path, {"info.json.0": text, PLAIN: ONE, PLAIN + ".done": aicore_done(256)})
    assert [entry[:3] for entry in ledger] == [("info.json.0", "note", "malformed")]
    assert rows["aicore"] == 1
    figures = "SELECT ticks, duration_us, start_us FROM op_records"
    assert query(tmp_path / JOB / "sqlite" / "profagent.db", figures) == [(100, None, None)]


def test_names_that_are_not_utf_8_are_imported(tmp_path: Path) -> None:
    path = os.fsdecode(b"data/aicore.0.\xff\xfe.3.0.1.1.0")
    ledger, rows = imported(tmp_path, {path: ONE, path + ".done": aicore_done(256), "data/\udc80": b"x"})
    assert ledger == [("data/\\x80", "note", "foreign-file", None, None, 1)]
    assert rows["aicore"] == 1
