"""A source is data: with one file on each side, its logs are followed, decoded, and seen wherever others are."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from pyarrow import parquet  # type: ignore[import-untyped]

from profagent.ingest import source
from profagent.ingest.changes import Change, SourceRows
from profagent.ingest.decoder import Decoder
from profagent.ingest.source import (
    CounterValue,
    DatedTable,
    DrawnCounters,
    DrawnEvents,
    Headline,
    Instant,
    Names,
    Seen,
    Span,
    View,
)
from profagent.record.options import RecordOptions
from profagent.record.record import record
from profagent.report.timeline import Timeline
from profagent.store.database import reading
from profagent.store.workspace import Workspace
from profagent.watch.lines import line_of
from profagent.watch.model import BoardModel
from profagent.watch.replay import Pace, Player, Replayed
from profagentd.sources import SOURCES, source_of
from profagentd.sources.source import Source
from tests.daemon.own_daemon import own_daemon
from tests.fakes.ports import own_port
from tests.integration.host import profagent
from tests.integration.rows import so_far
from tools.make_reference import database_page

LOGS = "TEXT-server"
LINES = f"SELECT path, number, text FROM text_lines WHERE collection = '{LOGS}' ORDER BY path, number"
NOON_US = 1_795_262_400_000_000
LASTED_US = 4000


def line(text: str, second: int = 0) -> bytes:
    """A line of a log: when it began, how many seconds after noon its load was taken, and its text."""
    return f"{NOON_US + second * 1_000_000} {second} {text}\n".encode()


class TextSource(Source):
    """The board's side: a directory of text logs, all of which grow."""

    name = "text"

    def is_collection(self, name: bytes) -> bool:
        return name.startswith(b"TEXT-")


class TextDecoder(Decoder):
    """The host's side: a row a line."""

    def begin(self, path: str, generation: int, offset: int) -> Iterator[Change]:
        yield from super().begin(path, generation, offset)
        if offset == 0:
            yield SourceRows(path, "text_line", (), anew=True)

    def append(self, path: str, generation: int, offset: int, data: bytes) -> Iterator[Change]:
        yield from super().append(path, generation, offset, data)
        before, begun, rest = (self.files.read(path, offset) or b"").rpartition(b"\n")
        first = before.count(b"\n") + 1 if begun else 0
        *lines, _ = (rest + data).split(b"\n")
        words = [each.decode("utf-8", "replace").split(" ", 2) for each in lines]
        rows = [(first + number, int(at), float(load), text) for number, (at, load, text) in enumerate(words)]
        yield SourceRows(path, "text_line", rows)


def _see(rows: Sequence[tuple[Any, ...]], _names: Names) -> Seen:
    return Seen(
        samples=[CounterValue(at, "load", "%", load, "load") for _, at, load, _ in rows],
        spans=[Span(text, at * 1000, (at + LASTED_US) * 1000) for _, at, _, text in rows],
        instants=[Instant(at, f"came: {text}") for _, at, _, text in rows],
    )


TEXT = source.Source(
    decoder=TextDecoder,
    schema=f"""
        CREATE TABLE IF NOT EXISTS text_line (
            log     INTEGER NOT NULL REFERENCES log,
            session INTEGER NOT NULL REFERENCES session,
            number  INTEGER NOT NULL,
            at_us   INTEGER NOT NULL,
            load    REAL NOT NULL,
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
        --   load        of the server
        --   text        of the line
        --   start_us, end_us
        CREATE VIEW IF NOT EXISTS text_lines AS
        SELECT t.session, j.name AS collection, l.path, t.number, t.at_us AS start_us, t.at_us + {LASTED_US} AS end_us,
               t.load, t.text
        FROM text_line t JOIN log l USING (log) JOIN job j USING (job);
    """,
    views=(
        View(
            name="text_lines",
            whole=frozenset({"number"}),
            fractions=frozenset({"load"}),
            counted_as="lines",
            events=DrawnEvents(
                noun="lines of logs",
                process="'logs of ' || collection",
                track="path",
                order="collection, path",
                name="text",
                category="'line'",
                lane="'logs ' || path",
                arguments={"number": "number"},
            ),
            counters=DrawnCounters(process="'loads'", name="'load'", unit="'%'", time_us="start_us", value="load"),
        ),
    ),
    dated=(DatedTable("text_line", "at_us"),),
    see=_see,
    headlines={"load": Headline(("load",), "load {}", "{:g}%")},
)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host knows the source."""
    monkeypatch.setitem(source.SOURCES, "text", f"{__name__}:TEXT")


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


async def _recorded(
    logs: Path, workspace: Workspace, until: str, wanted: list[tuple[Any, ...]], port: int | None = None
) -> tuple[dict[str, Any], str]:
    """Record until a query has these rows; the summary, and what Prometheus is told at a port."""
    stop = asyncio.Event()
    address = None if port is None else f"127.0.0.1:{port}"
    told = ""
    async with own_daemon(logs.parent) as (board, _):
        options = RecordOptions((board,), workspace, metrics_listen=address)
        recording = asyncio.create_task(record(options, lambda _: None, stop))
        async with asyncio.timeout(20):
            while so_far(workspace.database, until) != wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            while address is not None and 'kind="text_line"' not in told:
                told = (await asyncio.to_thread(urlopen, f"http://{address}/metrics")).read().decode()
        stop.set()
        return await recording, told


@pytest.mark.usefixtures("decoded")
async def test_a_new_source_s_rows_are_in_its_view(logs: Path, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "workspace")
    two = line("two")
    (logs / "a.log").write_bytes(line("one") + two[:-2])
    (logs / "b.log").write_bytes(b"")
    await _recorded(logs, workspace, LINES, [("a.log", 0, "one")])
    # A line goes on where it was, also for another process; a file that was made anew has its own lines.
    with (logs / "a.log").open("ab") as file:
        file.write(two[-2:] + line("three"))
    (logs / "b.log").write_bytes(line("first"))
    more = [("a.log", 0, "one"), ("a.log", 1, "two"), ("a.log", 2, "three"), ("b.log", 0, "first")]
    await _recorded(logs, workspace, LINES, more)
    (logs / "a.log").unlink()
    (logs / "a.log").write_bytes(line("anew"))
    summary, _ = await _recorded(logs, workspace, LINES, [("a.log", 0, "anew"), ("b.log", 0, "first")])
    assert summary["jobs"] == [LOGS]
    (mirror,) = workspace.root.glob(f"mirror/*/{LOGS}")
    copied = {file.name: file.read_bytes() for file in mirror.iterdir()}
    assert copied == {"a.log": line("anew"), "b.log": line("first")}
    with closing(sqlite3.connect(workspace.database)) as connection, connection:
        connection.execute("DELETE FROM log")  # as gc does
        assert connection.execute("SELECT count(*) FROM text_line").fetchone() == (0,)


async def _replayed(workspace: Workspace) -> tuple[BoardModel, list[Any]]:
    """Replay the session on a screen's model; the model, and the events of the board."""
    model, events = BoardModel("lab", lambda: NOON_US), []
    player, stop = Player(Replayed(workspace, 1), with_layers=True), asyncio.Event()

    def show(event: Any) -> None:
        events.append(event)
        model.take(event)

    await player.play(lambda _: None, show, lambda *_: None, lambda _: None, Pace(1e9, stop), stop)
    return model, [event for event in events if event["event"] == "board"]


async def _drawn(workspace: Workspace) -> dict[str, Any]:
    """The timeline of a report."""
    timeline = Timeline()
    async with reading(workspace.database) as connection:
        await timeline.read(connection, 1)
    return timeline.document()


@pytest.mark.usefixtures("decoded")
def test_a_new_source_is_seen_wherever_sources_are(logs: Path, tmp_path: Path) -> None:
    """In counts, by Prometheus, in a replay, on the screen, in traces, in the report and in Parquet files."""
    workspace, root = Workspace(tmp_path / "workspace"), tmp_path / "workspace"
    (logs / "a.log").write_bytes(line("one", 1) + line("two", 2))
    port = own_port()
    lines = [("a.log", 0, "one"), ("a.log", 1, "two")]
    summary, told = asyncio.run(_recorded(logs, workspace, LINES, lines, port))
    assert summary["events"] == {"lines": 2, "ops": 0, "ranges": 0, "samples": 0}
    assert 'kind="text_line"} 2.0' in told
    assert 'name="load",unit="%"} 2.0' in told

    model, events = asyncio.run(_replayed(workspace))
    assert events[-1]["load"] == 2
    assert "  load 2%" in line_of(events[-1])
    assert [(each.name, each.unit, each.values[-1]) for each in model.series("metrics")] == [("load", "%", 2.0)]
    assert [(each.name, each.values[-1]) for each in model.series("ranges")] == [("one", 4000.0), ("two", 4000.0)]
    assert [each.text for each in model.events(9) if each.kind == "mark"] == ["came: one", "came: two"]

    asked = ("1", "--workspace", root, "--output")
    ended = profagent("export", "trace", *asked, tmp_path / "trace.json")
    assert ended.code == 0, ended.err
    found = json.loads((tmp_path / "trace.json").read_bytes())["traceEvents"]
    slices = [(each["name"], each["dur"], each["args"]) for each in found if each["ph"] == "X"]
    assert slices == [("one", 4000.0, {"number": 0}), ("two", 4000.0, {"number": 1})]
    assert [(each["name"], each["args"]["value"]) for each in found if each["ph"] == "C"] == [
        ("load (%)", 1.0),
        ("load (%)", 2.0),
    ]
    ended = profagent("export", "parquet", *asked, tmp_path / "lake")
    assert ended.code == 0, ended.err
    (file,) = (tmp_path / "lake").glob("text_lines/**/*.parquet")
    types = {each.name: str(each.type) for each in parquet.read_schema(file)}
    assert (types["number"], types["load"], types["start_us"], types["text"]) == ("int64", "double", "double", "string")

    drawn = asyncio.run(_drawn(workspace))
    assert (drawn["lanes"], drawn["names"], len(drawn["spans"])) == (["logs a.log"], ["one", "two"], 2)
    assert [(each["name"], each["unit"], [value for _, value in each["points"]]) for each in drawn["metrics"]] == [
        ("load", "%", [1.0, 2.0])
    ]


@pytest.mark.usefixtures("decoded")
def test_the_page_of_the_database_has_its_view() -> None:
    page = database_page()
    assert "## `text_lines`\n\nOne row for each line.\n\n- `collection`: name of the directory\n" in page


async def test_an_unknown_source_is_mirrored_counted_and_noted_once(logs: Path, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "workspace")
    (logs / "a.log").write_bytes(b"one\n")
    offsets = "SELECT path, offset, complete FROM log"
    summary, _ = await _recorded(logs, workspace, offsets, [("a.log", 4, 1)])
    assert (summary["ledger"]["note"]["no-decoder"], summary["bytes"]) == (1, 4)
    with (logs / "a.log").open("ab") as file:
        file.write(b"two\n")
    await _recorded(logs, workspace, offsets, [("a.log", 8, 1)])
    entries = so_far(workspace.database, "SELECT reason, detail FROM ledger WHERE reason <> 'nothing-recorded'")
    assert entries == [("no-decoder", "no decoder for the source 'text': its logs are kept, not read")]
    (copied,) = workspace.root.glob(f"mirror/*/{LOGS}/a.log")
    assert copied.read_bytes() == b"one\ntwo\n"
