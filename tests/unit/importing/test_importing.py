"""Importing a JOB directory into its own database."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from profagent.errors import StoreError
from profagent.importing import job_folder
from profagent.importing.importing import import_job
from profagentd.simulate.run import SimulationOptions
from tests.daemon.simulated_job import write_job


def _rows(database: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(sql).fetchall()


def test_a_job_with_logs_without_end_is_quiet(job: Path) -> None:
    next((job / "data").glob("aicore*.done")).unlink()
    assert _rows(asyncio.run(import_job(job)).database, "SELECT state FROM job") == [("quiet",)]


def test_a_simulated_job_brings_its_counter_map(tmp_path: Path) -> None:
    imported = asyncio.run(import_job(write_job(tmp_path, SimulationOptions(layers=5), 1)))
    assert imported.simulated
    assert _rows(imported.database, "SELECT count(*) > 0 FROM op_records WHERE mac_busy > 0") == [(1,)]


def test_an_import_that_fails_leaves_the_database_as_it_was(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = asyncio.run(import_job(job)).database
    before = database.read_bytes()

    def full(_: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(job_folder, "sync", full)
    with pytest.raises(StoreError, match="is full"):
        asyncio.run(import_job(job))
    assert database.read_bytes() == before
