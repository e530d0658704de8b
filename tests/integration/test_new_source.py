"""A source is data: with one file on each side, its logs are followed, mirrored, decoded and seen in a view."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from profagent.ingest.changes import Change, SourceRows
from profagent.ingest.decoder import Decoder
from profagent.ingest.source import SOURCES
from profagent.record.options import RecordOptions
from profagent.record.record import record
from profagent.store.workspace import Workspace
from profagentd.sources import SOURCES, source_of
from profagentd.sources.source import Source
from tests.daemon.own_daemon import own_daemon
from tests.integration.rows import so_far
from tools.make_reference import database_page

LOGS = "server.logs"
LINES = f"SELECT path, number, text FROM text_lines WHERE collection = '{LOGS}' ORDER BY path, number"


class TextSource(Source):
    """The board's side: a directory of text logs, all of which grow."""

    name = "text"

    def is_collection(self, name: bytes) -> bool:
        return name.endswith(b".logs")


class TextDecoder(Decoder):
    """The host's side: a row a line."""

    schema = """
        CREATE TABLE IF NOT EXISTS text_line (
            log     INTEGER NOT NULL REFERENCES log,
            session INTEGER NOT NULL REFERENCES session,
            number  INTEGER NOT NULL,
            text    TEXT NOT NULL,
            PRIMARY KEY (log, number)
        ) WITHOUT ROWID;
        CREATE TRIGGER IF NOT EXISTS text_line_of_log AFTER DELETE ON log
        BEGIN DELETE FROM text_line WHERE log = old.log; END;
        CREATE TRIGGER IF NOT EXISTS text_line_of_cleared_log AFTER UPDATE OF generation ON log WHEN new.generation = 0
        BEGIN DELETE FROM text_line WHERE log = old.log; END;
        -- One row for each line.
        --   collection  name of the directory
        --   path        name of the log
        --   number      the line's, from 0
        --   text        what it says
        CREATE VIEW IF NOT EXISTS text_lines AS
        SELECT j.name AS collection, l.path, t.number, t.text
        FROM text_line t JOIN log l USING (log) JOIN job j USING (job);
    """

    def begin(self, path: str, generation: int, offset: int) -> Iterator[Change]:
        yield from super().begin(path, generation, offset)
        if offset == 0:
            yield SourceRows(path, "text_line", (), anew=True)

    def append(self, path: str, generation: int, offset: int, data: bytes) -> Iterator[Change]:
        yield from super().append(path, generation, offset, data)
        before, begun, rest = (self.files.read(path, offset) or b"").rpartition(b"\n")
        first = before.count(b"\n") + 1 if begun else 0
        *lines, _ = (rest + data).split(b"\n")
        rows = [(first + number, line.decode("utf-8", "replace")) for number, line in enumerate(lines)]
        yield SourceRows(path, "text_line", rows)


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Path]:
    """A collection of a source that the board knows."""
    SOURCES.append(TextSource())
    source_of.cache_clear()
    folder = tmp_path / "board" / LOGS
    folder.mkdir(parents=True)
    yield folder
    SOURCES.pop()
    source_of.cache_clear()


async def _recorded(logs: Path, workspace: Workspace, until: str, wanted: list[tuple[Any, ...]]) -> dict[str, Any]:
    """Record until a query has these rows; the summary."""
    stop = asyncio.Event()
    async with own_daemon(logs.parent) as (address, _):
        recording = asyncio.create_task(record(RecordOptions((address,), workspace), lambda _: None, stop))
        async with asyncio.timeout(20):
            while so_far(workspace.database, until) != wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        stop.set()
        return await recording


async def test_a_new_source_s_rows_are_in_its_view(logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "text", f"{__name__}:TextDecoder")
    workspace = Workspace(tmp_path / "workspace")
    (logs / "a.log").write_bytes(b"one\ntw")
    (logs / "b.log").write_bytes(b"")
    await _recorded(logs, workspace, LINES, [("a.log", 0, "one")])
    # A line goes on where it was, also for another process; a file that was made anew has its own lines.
    with (logs / "a.log").open("ab") as file:
        file.write(b"o\nthree\n")
    (logs / "b.log").write_bytes(b"first\n")
    more = [("a.log", 0, "one"), ("a.log", 1, "two"), ("a.log", 2, "three"), ("b.log", 0, "first")]
    await _recorded(logs, workspace, LINES, more)
    (logs / "a.log").unlink()
    (logs / "a.log").write_bytes(b"anew\n")
    summary = await _recorded(logs, workspace, LINES, [("a.log", 0, "anew"), ("b.log", 0, "first")])
    assert summary["jobs"] == [LOGS]
    (mirror,) = workspace.root.glob(f"mirror/*/{LOGS}")
    assert {file.name: file.read_bytes() for file in mirror.iterdir()} == {"a.log": b"anew\n", "b.log": b"first\n"}
    with closing(sqlite3.connect(workspace.database)) as connection, connection:
        connection.execute("DELETE FROM log")  # as gc does
        assert connection.execute("SELECT count(*) FROM text_line").fetchone() == (0,)


def test_the_page_of_the_database_has_its_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "text", f"{__name__}:TextDecoder")
    page = database_page()
    assert "## `text_lines`\n\nOne row for each line.\n\n- `collection`: name of the directory\n" in page


async def test_an_unknown_source_is_mirrored_counted_and_noted_once(logs: Path, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "workspace")
    (logs / "a.log").write_bytes(b"one\n")
    offsets = "SELECT path, offset, complete FROM log"
    summary = await _recorded(logs, workspace, offsets, [("a.log", 4, 1)])
    assert (summary["ledger"]["note"]["no-decoder"], summary["bytes"]) == (1, 4)
    with (logs / "a.log").open("ab") as file:
        file.write(b"two\n")
    await _recorded(logs, workspace, offsets, [("a.log", 8, 1)])
    entries = so_far(workspace.database, "SELECT reason, detail FROM ledger WHERE reason <> 'nothing-recorded'")
    assert entries == [("no-decoder", "no decoder for the source 'text': its logs are kept, not read")]
    (copied,) = workspace.root.glob(f"mirror/*/{LOGS}/a.log")
    assert copied.read_bytes() == b"one\ntwo\n"
