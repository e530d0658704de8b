"""Push of ended sessions into a lake (`profagent push`)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
import threading
import uuid
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from profagent import __version__
from profagent.errors import UsageError
from profagent.export.parquet import exported_views
from profagent.export.record_batches import SEGMENT_KEY
from profagent.export.view_batches import columns_of, field_of, view_stream
from profagent.files import to_the_end
from profagent.formats.names import LogKind
from profagent.lake.aggregates import Bucket, LayerFigures, aggregates
from profagent.lake.lake import PARTITION, SESSIONS, Push
from profagent.limits import PIECES_PER_BATCH
from profagent.store.columns import TABLES as TABLES_OF_UNITS
from profagent.store.columns import UNITS
from profagent.store.coverage import why_incomplete
from profagent.store.database import fetched, fetched_one, read_only, reading
from profagent.store.queries import Scope, find_session, jobs_of
from profagent.store.sessions import require_records
from profagent.store.subset import copied
from profagent.tables.comparability import facts_of
from profagent.tables.provenance import provenance_of
from profagent.units import US_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from profagent.ingest.source import View
    from profagent.lake.lake import Lake
    from profagent.store.database import Running
    from profagent.store.queries import SessionRow
    from profagent.store.workspace import Workspace

RECORDS = "records"
# Views of a session that form the rows of each table; its column `source_view` tells them apart.
VIEWS = {
    RECORDS: ("op_records", "aicpu_records"),
    "calls": ("api_records",),
    "metrics": ("metrics",),
    "ranges": ("ranges", "op_events"),
    "inferences": ("inferences",),
    "ledger": ("ledger", "coverage"),
}
# Columns of a record that its view does not show, but `restore` needs.
_KEYS = {LogKind.AICORE: ("record", SEGMENT_KEY, "ticks_before"), LogKind.AICPU: ("record", SEGMENT_KEY)}
_FIGURES: dict[str, type[NamedTuple]] = {"layers": LayerFigures, "histograms": Bucket}
# Table with the database of each session, in pieces and without the rows that `records` has.
DATABASES = "databases"
TABLES = (*VIEWS, *_FIGURES, DATABASES, SESSIONS)
_PIECE_BYTES = 1 << 20
_TEXT = pa.dictionary(pa.int32(), pa.string())
_TYPES = {int: pa.int64(), bytes: pa.binary(), int | None: pa.int64(), float | None: pa.float64()}
_LARGEST = pa.scalar(2**63 - 1, pa.uint64())
_LABELS = "SELECT key, value FROM session_label WHERE session = ?"
_PICTURES = (
    "SELECT DISTINCT name, batch_num, input_pic_num FROM inference i JOIN model USING (model) WHERE i.session = ?"
    " ORDER BY name, batch_num, input_pic_num"
)
# Content of a session for its digest: another counter map, more bytes, and other ledger entries change it.
_CONTENT = """
SELECT s.ended_us, s.counter_map_digest, (SELECT count(*) FROM inference i WHERE i.session = s.session),
       (SELECT count(*) FROM ledger_entry e WHERE e.session = s.session),
       (SELECT json_group_array(json_array(shown_path, offset, generation, hex(digest)))
        FROM (SELECT l.* FROM session_job j JOIN log l USING (job) WHERE j.session = s.session ORDER BY log))
FROM session s WHERE s.session = ?
"""


class Pushed(NamedTuple):
    """Result of a push: the session's name in the lake, the rows that this call wrote by table, and if it was there."""

    session: str
    rows: dict[str, int]
    was_there: bool


class _Session(NamedTuple):
    """Session that is pushed: its local number, its push, and the owner columns that every row gets."""

    number: int
    push: Push
    owners: Mapping[str, str]


async def push(workspace: Workspace, number: int, lake: Lake) -> Pushed:
    """Push a session into a lake, unless its content is there already. Raises UsageError, StoreError, LakeError.

    A session that was decoded anew replaces its earlier push. If the push is interrupted at any point and repeated, or
    runs twice at the same time, each row is there once.
    """
    database = workspace.readable_database()
    async with reading(database) as connection:
        found = await find_session(connection, number)
        await require_records(connection, found.session)
        ended_us, *content = await fetched_one(connection, _CONTENT, (found.session,))
        if ended_us is None:
            raise UsageError(f"session {found.session} has not ended", hint="push it after its capture has ended")
        facts = {
            "labels_json": json.dumps(dict(await fetched(connection, _LABELS, (found.session,)))),
            "incomplete_json": json.dumps(await why_incomplete(connection, found.session)),
            "facts_json": json.dumps(await _facts(connection, found)),
            "profagent": __version__,
        }
    name = name_of(workspace, found.session, found.board, found.started_us)
    digest = hashlib.blake2b(json.dumps([ended_us, *content]).encode(), digest_size=16).hexdigest()
    before = await asyncio.to_thread(lake.pushed, name) or {"content": "", "push": ""}
    if before["content"] == digest:
        return Pushed(name, {}, was_there=True)
    own = Push.on(datetime.now(UTC).date(), name, digest, before["push"])
    day = datetime.fromtimestamp(found.started_us / US_PER_S, UTC).date().isoformat()
    session = _Session(found.session, own, {PARTITION: day, "board": found.board, "session": name, "push": own.name})
    layers = await aggregates(database, found.session)
    facts |= {"content": digest, "after": before["push"]}
    return Pushed(name, await to_the_end(_push, database, session, lake, layers, facts), was_there=False)


async def _facts(connection: Running, session: SessionRow) -> dict[str, Any]:
    scopes = [Scope(session, job) for job in await jobs_of(connection, session.session)]
    pictures: dict[str, list[list[int]]] = {}
    for model, *each in await fetched(connection, _PICTURES, (session.session,)):
        pictures.setdefault(model, []).append(each)
    return {"run": facts_of([await provenance_of(connection, scope) for scope in scopes]), "pictures": pictures}


def name_of(workspace: Workspace, number: int, board: str, started_us: int) -> str:
    """Return the name of a session in all lakes, derived from its workspace. Raises StoreError."""
    return str(uuid.uuid5(workspace.uuid(), f"{number} {board} {started_us}"))


def _push(
    database: Path, session: _Session, lake: Lake, figures: Sequence[Sequence[NamedTuple]], facts: Mapping[str, str]
) -> dict[str, int]:
    views = {view.name: view for view in exported_views()}
    rows = {}
    with closing(_SharedConnection(database)) as connection:
        for table, names in VIEWS.items():
            source = _ViewRows(connection, [views[name] for name in names], session)
            rows[table] = source.rows if lake.append(table, session.push, source.schema, source.batches) else 0
        for table, found in zip(_FIGURES, figures, strict=True):
            batch = rows_of(_FIGURES[table], found, session.owners)
            is_new = lake.append(table, session.push, batch.schema, partial(iter, [batch]))
            rows[table] = len(found) if is_new else 0
        (own,) = _ViewRows(connection, [views[SESSIONS]], session).batches()
    held = rows[RECORDS] or lake.count(RECORDS, session.owners)
    rows[DATABASES] = _push_database(database, session, lake)
    for name, value in {"number": session.number, RECORDS: held, **facts}.items():
        own = own.append_column(name, pa.array([value]))
    # This commit makes the rows of all tables visible to readers, so that it is the last.
    lake.name_session(session.push, own)
    return rows


def _push_database(database: Path, session: _Session, lake: Lake) -> int:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "session.db"
        with copied(database, str(file), session.number, [TABLES_OF_UNITS[unit] for unit in UNITS]):
            pass
        schema = rows_of(_Piece, [], session.owners).schema
        is_new = lake.append(DATABASES, session.push, schema, partial(_pieces, file, session.owners))
        return -(-file.stat().st_size // _PIECE_BYTES) if is_new else 0


class _Piece(NamedTuple):
    place: int
    data: bytes


def _pieces(file: Path, owners: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    with file.open("rb") as data:
        found = enumerate(iter(partial(data.read, _PIECE_BYTES), b""))
        while some := [_Piece(*each) for each in islice(found, PIECES_PER_BATCH)]:
            yield rows_of(_Piece, some, owners)


class _SharedConnection:
    """Connection that sees one state of a database and is shared with the thread in which a lake reads batches.

    That thread may go on after the lake has given up, so that a lock guards the connection.
    """

    def __init__(self, database: Path) -> None:
        self.sqlite = sqlite3.connect(read_only(database), uri=True, check_same_thread=False)
        self.sqlite.execute("BEGIN")
        # Held while a batch is read, and while the connection is closed.
        self._lock = threading.Lock()
        # True once the push has ended: the thread of the lake may still ask for batches, and then gets none.
        self._is_closed = False

    def read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches that come from the connection, until it is closed."""
        while True:
            with self._lock:
                batch = None if self._is_closed else next(batches, None)
            if batch is None:
                return
            yield batch

    def close(self) -> None:
        """Close the connection, once no batch is being read."""
        with self._lock:
            self._is_closed = True
            self.sqlite.close()


class _ViewRows:
    """Rows of a lake's table, from the views of a session; `rows` counts the rows that were yielded."""

    def __init__(self, connection: _SharedConnection, views: Sequence[View], session: _Session) -> None:
        self._connection, self._session = connection, session
        self._views = [(view, [*columns_of(connection.sqlite, view), *_keys_of(view)]) for view in views]
        types = {name: _type(view, name) for view, names in self._views for name in names}
        owners = {name: pa.string() if name == PARTITION else _TEXT for name in session.owners}
        self.schema = pa.schema([*({**owners, "source_view": _TEXT, **types} | owners).items()])
        self.rows = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows from the beginning."""
        self.rows = 0
        for view, names in self._views:
            constants = {**self._session.owners, "source_view": view.name}
            found = pa.RecordBatchReader.from_stream(
                view_stream(self._connection.sqlite, view, self._session.number, names)
            )
            for batch in self._connection.read(found):
                self.rows += len(batch)
                columns = [_column(field, batch, constants) for field in self.schema]
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _keys_of(view: View) -> tuple[str, ...]:
    return () if view.unit is None else _KEYS[view.unit]


def _type(view: View, column: str) -> pa.DataType:
    """Return the type of a column in a lake: times are whole µs, integers are signed; durations may have fractions."""
    kind = field_of(view, column).kind
    is_time = column.endswith("_us") and not column.endswith("duration_us")
    if is_time or kind in {"int64", "uint64"}:
        return pa.int64()
    return pa.float64() if kind == "float64" else _TEXT


def _column(field: pa.Field, batch: pa.RecordBatch, constants: Mapping[str, str]) -> pa.Array:
    if field.name == PARTITION:
        return pa.repeat(constants[field.name], len(batch))
    if field.name in constants:
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(batch), np.int32)), [constants[field.name]])
    if field.name not in batch.schema.names:
        return pa.nulls(len(batch), field.type)
    found = batch.column(field.name)
    if pa.types.is_string(found.type):
        return found.dictionary_encode()
    if pa.types.is_uint64(found.type):
        # A value from 2^63 on cannot be a count: the runtime wrote something else there.
        found = pc.if_else(pc.greater(found, _LARGEST), None, found)
    if pa.types.is_floating(found.type) and pa.types.is_integer(field.type):
        found = pc.round(found)
    return found.cast(field.type)


def rows_of(kind: type[NamedTuple], rows: Sequence[NamedTuple], owners: Mapping[str, str]) -> pa.RecordBatch:
    """Return rows of a table as one batch; `owners` are columns with one value for all rows."""
    types = {name: _TYPES.get(of, pa.string()) for name, of in get_type_hints(kind).items()}
    columns = {name: [row[place] for row in rows] for place, name in enumerate(types)}
    columns |= {name: [value] * len(rows) for name, value in owners.items()}
    schema = pa.schema([*((name, pa.string()) for name in owners), *types.items()])
    return pa.RecordBatch.from_pydict(columns, schema=schema)
