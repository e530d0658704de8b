"""An empty database with one session, and changes by hand."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from msgspec.structs import replace

from profagent.formats.names import LogName, parse_log_name
from profagent.formats.records import API_DTYPE, LogProgress, Unit
from profagent.ingest.changes import ApiRecords, Change, JobChanges, SegmentRecords
from profagent.store.database import reading
from profagent.store.sessions import SessionStart
from profagent.store.store import Store, StoredSession

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

T = TypeVar("T")
JOB = "JOB" + "A" * 29
AICORE = "data/aicore.0.m.3.0.1.1.0"
AICPU = "data/aicpu.0.m.3.0.1.1.0"
CALLS = "data/acl_api.0.m.0"


class Rows:
    """A store with one session; `session` begins another one in it. `connection` reads what is committed."""

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        self.file, self._durable = folder / "profagent.db", durable
        self.runner = asyncio.Runner()
        self.open()
        self.session()
        self.connection = sqlite3.connect(self.file, isolation_level=None)

    def open(self) -> None:
        """A process begins."""
        self.store = Store(self.file, durable=self._durable)
        self.run(self.store.__aenter__())

    def close(self) -> None:
        """The process ends."""
        self.run(self.store.__aexit__())

    def session(self, **start: Any) -> StoredSession:
        fields = {"simulated": False, "always_new": True, **start}
        begun = SessionStart("b1", "euler", "SS928", "record", "here", 1, **fields)
        self.close()
        self.open()
        self.writer = self.run(self.store.begin(begun))
        return self.writer

    def write(self, *batches: JobChanges) -> None:
        self.run(self.writer.apply(batches))

    def apply(self, *changes: Change, job: str = JOB, state: str | None = None) -> None:
        self.write(JobChanges(job, "/board", changes, state))

    def list_all(self, job: str = JOB) -> None:
        """Every file of the JOB that stands on the board has been told."""
        self.write(JobChanges(job, "/board", (), "open", caught_up=True))

    def finish(self, job: str = JOB) -> None:
        """The JOB has ended, and all of it has come."""
        self.write(JobChanges(job, "/board", (), "finished", caught_up=True))

    def query(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql, parameters).fetchall()

    def ask(self, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        """What a reader finds."""

        async def asked() -> T:
            async with reading(self.file) as connection:
                return await function(connection, *arguments)

        return self.run(asked())

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(coroutine)


def name_of(path: str) -> LogName:
    name = parse_log_name(path)
    assert name is not None
    return name


def aicore(
    path: str = AICORE,
    ticks: Sequence[int] = (10, 20),
    *,
    first: int = 0,
    net: int = 0,
    ordinals: Sequence[int] | None = None,
    loads: Sequence[int] | None = None,
    layers: Sequence[int] | None = None,
    counters: dict[str, list[float]] | None = None,
) -> SegmentRecords:
    """Records of one segment unless told otherwise."""
    columns = {"ticks": np.array(ticks, np.int64), "ticks_before": np.cumsum(ticks) - np.array(ticks)}
    return _records(path, columns, first, net, ordinals, loads, layers, counters)


def aicpu(
    times: Sequence[tuple[int, int]], segment: tuple[int, int], path: str = AICPU, net: int = 1
) -> SegmentRecords:
    """Records of one segment on the other unit."""
    count = len(times)
    columns = {
        "begin_us": [begin for begin, _ in times],
        "end_us": [end for _, end in times],
        "segment_start_us": [segment[0]] * count,
        "segment_end_us": [segment[1]] * count,
    }
    return _records(path, {key: np.array(values, np.uint64) for key, values in columns.items()}, 0, net)


def _records(
    path: str,
    columns: dict[str, NDArray[Any]],
    first: int,
    net: int,
    ordinals: Sequence[int] | None = None,
    loads: Sequence[int] | None = None,
    layers: Sequence[int] | None = None,
    counters: dict[str, list[float]] | None = None,
) -> SegmentRecords:
    """Consecutive records of a log from number `first` on."""
    name, count = name_of(path), len(next(iter(columns.values())))
    ordinal, load = (np.array(each or [0] * count, np.int64) for each in (ordinals, loads))
    seg_first = np.flatnonzero(np.diff(ordinal, prepend=-1))
    before = LogProgress.new(1)
    unit = Unit(
        kind=name.kind,
        before=replace(before, records=before.records + first),
        after=replace(before, records=before.records + first + count, loads=load[-1:] + 1),
        records=np.array([count]),
        first=np.zeros(1, np.intp),
        segment=np.cumsum(np.diff(ordinal, prepend=ordinal[0]) > 0),
        seg_log=np.zeros(len(seg_first), np.intp),
        seg_first=seg_first,
        seg_ordinal=ordinal[seg_first],
        seg_load=load[seg_first],
        columns={
            "sequence": np.arange(first, first + count),
            "net": np.full(count, net, np.uint32),
            "layer_index": np.array(layers or [-1] * count, np.int32),
            **columns,
        },
        counters={key: np.array(values) for key, values in (counters or {}).items()},
        gap_at=np.empty(0, np.intp),
        gap_missing=np.empty(0, np.int64),
        is_gap_odd=np.empty(0, np.bool_),
    )
    return SegmentRecords(path, name, unit)


def calls(numbers: Sequence[int], ends_us: Sequence[int] | None = None, path: str = CALLS) -> ApiRecords:
    """Calls with these places in their file."""
    records = np.zeros(len(numbers), API_DTYPE)
    records["api"], records["begin_us"] = 2, 5
    records["end_us"] = ends_us or [9] * len(numbers)
    return ApiRecords(path, name_of(path), np.array(numbers, np.int64), records)
