"""A JOB whose files a test lets arrive one by one, decoded for the live view."""

from __future__ import annotations

import asyncio
import sqlite3
from importlib import resources
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from profagent.errors import FormatError
from profagent.formats.board_files import parse_done
from profagent.formats.names import parse_log_name
from profagent.ingest.changes import JobChanges, NamesAnnounced
from profagent.ingest.decode import JobDecoder
from profagent.ingest.mirror import digest_of
from profagent.ingest.source import schemas
from profagent.store import counters, marks, thinning
from profagent.store.database import transaction
from profagent.store.inference_columns import ColumnReader, InferenceColumns
from profagent.store.live_events import LiveComposer
from profagent.store.sessions import MapUsed, SessionStart, begin_session
from profagent.store.writer import Applied, write_batches
from tests.encoders import aicore_record, done_text, layer_item

if TYPE_CHECKING:
    from collections.abc import Iterable

    from profagent.formats.countermap import CounterMap
    from profagent.ingest.changes import Change

JOB = "JOB" + "A" * 29
LAYERS = ("conv", "pool", "fc")
INFO_JSON = b'{"DeviceInfo": [{"aic_frequency": "700"}]}'
START_US = 1_795_230_382_123_456


def aicore_path(pictures: int = 0, model: str = "m") -> str:
    return f"data/aicore.0.{model}.3.0.1.1.{pictures}"


def records(*ticks: int, net: int = 0) -> bytes:
    """Records on aicore, of one segment, with sequence numbers from 0."""
    return b"".join(aicore_record(number, value, net) for number, value in enumerate(ticks))


def aicore_done(file_len: int, start_us: int = START_US, batches: str = "") -> bytes:
    text = done_text(file_len=file_len, start_time=start_us, end_time=start_us + 900, cache_hit=3, cache_mis=1)
    return text + (f"online_batch_num:{batches}".encode() if batches else b"")


class InMemory:
    """Rows of one session, as those of a capture that is only looked at."""

    def __init__(self, counter_map: CounterMap | None = None) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        schema = resources.files("profagent.store").joinpath("schema.sql").read_text("utf-8")
        for script in (schema, *schemas(), counters.SCHEMA, marks.SCHEMA, thinning.SCHEMA):
            self._connection.executescript(script)
        start = SessionStart("b1", "euler", "SS928", "watch", "here", 1, False, decoded_with=MapUsed.of(counter_map))
        self._session = begin_session(self._connection, start)
        self._reader = ColumnReader(self._connection)

    def apply(self, batch: JobChanges) -> Applied:
        """Write a batch; what became of it, with the columns of its inferences."""
        with transaction(self._connection):
            (applied,) = write_batches(self._connection, *self._session, [batch], keeps_records=False)
        return replace(applied, columns=self._reader.of(applied)[0])

    async def pending(self) -> InferenceColumns:
        """As of Recording."""
        return self._reader.pending()


class ArrivingJob:
    """Files in, events out."""

    def __init__(
        self, *, with_records: bool = False, with_layers: bool = False, counter_map: CounterMap | None = None
    ) -> None:
        self.events = LiveComposer(with_records=with_records, with_layers=with_layers)
        self.rows = InMemory(counter_map)
        self.files: dict[str, bytes] = {}
        self.now_s = 100.0
        self.decoder = JobDecoder(self, counter_map)

    def read(self, path: str, size: int | None = None, *, start: int = 0) -> bytes | None:
        data = self.files.get(path)
        return None if data is None else data[start : None if size is None else start + size]

    def names(self) -> list[str]:
        return list(self.files)

    def begin(self) -> None:
        """What is there before the first inference."""
        self.send("info.json.0", INFO_JSON)
        tables = [layer_item(i, name.encode() + b"\0", prof_layer_id=1 + i) for i, name in enumerate(LAYERS)]
        self.send("data/m.0.layer.info", b"".join(tables))

    def send(self, path: str, data: bytes) -> list[dict[str, Any]]:
        """A file, or more bytes of a data log."""
        name = parse_log_name(path)
        if name is None or not name.is_data:
            generation = 1 + (path in self.files)
            self.files[path] = data
            told = self.feed(self.decoder.snapshot(path, generation, data, digest_of(data)))
            return told + self.vouch(path.removesuffix(".done"))
        offset = len(self.files.get(path, b""))
        begun = [] if path in self.files else self.feed(self.decoder.begin(path, 1, 0))
        self.files[path] = self.files.get(path, b"") + data
        return begun + self.feed(self.decoder.append(path, 1, offset, data)) + self.vouch(path)

    def vouch(self, path: str) -> list[dict[str, Any]]:
        """The board vouches for a log that has the length its `.done` tells, once."""
        done, name = self.files.get(path + ".done"), parse_log_name(path + ".done")
        if done is None or name is None or path not in self.files:
            return []
        try:
            length = parse_done(done, name.kind, path).file_len
        except FormatError:
            return []
        return self.complete(path) if length == len(self.files[path]) else []

    def recreate(self, path: str, data: bytes) -> list[dict[str, Any]]:
        """Another file stands in a data log's place."""
        begun = self.feed(self.decoder.begin(path, 2, 0))
        self.files[path] = data
        return begun + self.feed(self.decoder.append(path, 2, 0, data)) + self.vouch(path)

    def complete(self, path: str) -> list[dict[str, Any]]:
        """The board vouches for a data log."""
        data = self.files[path]
        return self.feed(self.decoder.complete(path, 1, len(data), digest_of(data)))

    def change_state(self, state: str) -> list[dict[str, Any]]:
        return self.batch(JobChanges(JOB, "/board", (), state, caught_up=True))

    def feed(self, changes: Iterable[Change]) -> list[dict[str, Any]]:
        return self.batch(JobChanges(JOB, "/board", list(changes)))

    def batch(self, batch: JobChanges) -> list[dict[str, Any]]:
        """What a batch tells."""
        return list(self.events.batch_events(self.rows.apply(batch), self.now_s))

    def announce(self, *paths: str) -> None:
        """The board tells of logs before any byte of them comes."""
        self.feed([NamesAnnounced(paths)])

    def wait(self, seconds: float) -> list[dict[str, Any]]:
        """Time passes."""
        self.now_s += seconds
        return list(self.events.overdue_events(asyncio.run(self.rows.pending()), self.now_s))
