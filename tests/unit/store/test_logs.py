"""Rows of logs and models, found again by path and by name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from profagent.store.logs import REMEMBERED_LOGS, REMEMBERED_MODELS, LogRows, path_from_sql, path_to_sql
from profagent.store.samples import SampleRows
from tests.unit.store.rows import AICORE, CALLS, Rows

ODD = "data/aicore.0.\udcff\udcfe.3.0.1.1.0"


@pytest.fixture
def logs(rows: Rows) -> Iterator[LogRows]:
    rows.apply()
    samples = SampleRows(rows.connection, 1)
    yield LogRows(rows.connection, 1, samples)
    samples.flush()


@pytest.mark.parametrize(("path", "stored"), [("data/ä", "data/ä"), ("data/\udcff", b"data/\xff")])
def test_paths_survive_the_database(path: str, stored: str | bytes) -> None:
    assert path_to_sql(path) == stored
    assert path_from_sql(stored) == path


@pytest.mark.parametrize(
    ("path", "kind", "model"),
    [
        (AICORE, "aicore", "m"),
        (AICORE + ".done", "done", "m"),
        (CALLS, "acl_api", "m"),
        ("data/m.0.layer.info", "layer_info", "m"),
        ("data/acl_api.0..1", "acl_api", ""),
        ("info.json.0", "info_json", None),
        ("data/core", "foreign", None),
        (ODD, "aicore", "\\xff\\xfe"),
    ],
)
def test_a_log_is_what_its_name_says(rows: Rows, logs: LogRows, path: str, kind: str, model: str | None) -> None:
    row = logs.row(path)
    assert row.is_new
    assert logs.row(path) is row
    assert rows.query("SELECT path, kind, name FROM log LEFT JOIN model USING (model)") == [
        (path_to_sql(path), kind, model)
    ]


def test_a_log_is_found_again(rows: Rows, logs: LogRows) -> None:
    row = logs.row(ODD)
    again = LogRows(rows.connection, 1, SampleRows(rows.connection, 1)).row(ODD)
    assert (again.log, again.model, again.is_new, again.parts, again.entries) == (row.log, row.model, False, None, None)


def test_one_path_in_two_jobs_is_two_logs(rows: Rows, logs: LogRows) -> None:
    rows.apply(job="JOB" + "B" * 29)
    assert LogRows(rows.connection, 2, SampleRows(rows.connection, 2)).row(AICORE).log != logs.row(AICORE).log
    assert rows.query("SELECT job, name, model_id FROM model") == [(2, "m", 0), (1, "m", 0)]


def test_models_are_told_apart_by_name_and_id(logs: LogRows) -> None:
    numbers = {logs.model("m", 0), logs.model("m", 1), logs.model("n", 0), logs.model("", 0), logs.model(None, None)}
    assert len(numbers) == 5
    assert logs.model("m", 1) in numbers


def test_only_so_many_are_remembered(rows: Rows, logs: LogRows) -> None:
    for number in range(REMEMBERED_LOGS + 10):
        logs.row(f"data/aicore.0.m{number % (REMEMBERED_MODELS + 10)}.3.0.1.1.{number}")
    assert len(logs._logs) == REMEMBERED_LOGS
    assert len(logs._models) == REMEMBERED_MODELS
    assert not logs.row("data/aicore.0.m0.3.0.1.1.0").is_new
    assert rows.query("SELECT count(*) FROM log") == [(REMEMBERED_LOGS + 10,)]
    assert rows.query("SELECT count(*) FROM model") == [(REMEMBERED_MODELS + 10,)]
