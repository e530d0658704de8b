"""A lake in an object store is read through the store by which it is written, and as one in a folder."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from profagent.lake import engines
from profagent.lake.engines import engine_of
from profagent.lake.lake import SESSIONS, Lake, Push
from tests.integration.board import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

_ADDRESS = re.compile(r"Running on (http://\S+)")
QUERY = "SELECT date, session, count(*), sum(value) FROM records GROUP BY date, session ORDER BY date, session"


def pushed(lake: Lake, number: int) -> None:
    """Push a session of so many rows, of a day of its own."""
    push = Push(f"push {number}", f"session {number}")
    owners = {"date": f"2026-11-{number + 1:02}", "session": push.session, "push": push.name}
    for table in ("records", "calls"):
        batch = pa.RecordBatch.from_pylist([{**owners, "value": value} for value in range(number + 1)])
        lake.append(table, push, batch.schema, partial(iter, [batch]))
    lake.name_session(push, pa.RecordBatch.from_pylist([owners]))


def asked(lake: Lake) -> list[tuple[Any, ...]]:
    with engine_of(lake) as engine:
        return engine.ask(QUERY).rows


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket of a store that stands for S3, in a process of its own."""
    server: list[str | Path] = [Path(sys.executable).with_name("moto_server"), "--host", "127.0.0.1", "--port", "0"]
    log = tmp_path / "moto.log"
    with log.open("wb") as out, subprocess.Popen(server, stderr=out) as store:
        try:
            assert eventually(lambda: _ADDRESS.search(log.read_text()) is not None), log.read_text()
            (address,) = _ADDRESS.findall(log.read_text())
            with urllib.request.urlopen(urllib.request.Request(f"{address}/nights", method="PUT")):
                pass
            named = {"ENDPOINT_URL": address, "ALLOW_HTTP": "true", "REGION": "us-east-1"}
            for name, value in {**named, "ACCESS_KEY_ID": "one", "SECRET_ACCESS_KEY": "two"}.items():
                monkeypatch.setenv(f"AWS_{name}", value)
            yield "s3://nights"
        finally:
            store.terminate()


def test_several_push_at_once_and_are_read_as_in_a_folder(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_ORDER", (SESSIONS, "records", "calls"))
    # A blank is written otherwise in addresses.
    lakes = Lake(f"{bucket}/in it"), Lake(str(tmp_path / "in it"))
    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(partial(pushed, lakes[0]), range(4))] == [None] * 4
    for number in range(4):
        pushed(lakes[1], number)
    wanted = [
        (f"2026-11-{number + 1:02}", f"session {number}", number + 1, sum(range(number + 1))) for number in range(4)
    ]
    assert asked(lakes[0]) == asked(lakes[1]) == wanted
