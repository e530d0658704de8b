"""Rows of logs and models of one JOB, and what is remembered of those in use."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from profagent.formats.names import LogKind, display_text, parse_log_name

if TYPE_CHECKING:
    import sqlite3

    from profagent.ingest.changes import Entry
    from profagent.store.samples import SampleRows

# Any other is looked up again.
REMEMBERED_LOGS = 4096
REMEMBERED_MODELS = 1024
# Files that a sampled inference leaves, their `.done` among them.
_OF_SAMPLES = (LogKind.AICORE, LogKind.AICPU)


class Part(NamedTuple):
    """A part of a log: records from `first_record` on that `session` fetched."""

    number: int
    first_record: int
    session: int


@dataclass(slots=True)
class LogRow:
    """A log's number, the model that its name speaks of, and what is known of its other rows; None: look it up.

    `is_new` until anything is written about it; `kept` unless passed over on purpose. `segment` is the ordinal and the
    number of its last segment.
    """

    log: int
    model: int | None
    is_new: bool = False
    kept: bool = True
    parts: list[Part] | None = None
    segment: tuple[int, int] | None = None
    entries: dict[Entry, int] | None = field(default=None)


def path_to_sql(path: str) -> str | bytes:
    """A log's path as the database holds it: TEXT, or BLOB where it is not UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return path.encode("utf-8", "surrogateescape")
    return path


def path_from_sql(path: str | bytes) -> str:
    """The path that `path_to_sql` stored."""
    return path if isinstance(path, str) else path.decode("utf-8", "surrogateescape")


class LogRows:
    """The logs of one JOB, found by path; rows are made where there are none."""

    def __init__(self, connection: sqlite3.Connection, job: int, samples: SampleRows) -> None:
        self._connection = connection
        self._job = job
        self._samples = samples
        self._logs: OrderedDict[str, LogRow] = OrderedDict()
        self._models: OrderedDict[tuple[str, int], int] = OrderedDict()

    def row(self, path: str) -> LogRow:
        """The row of a log."""
        row = self._logs.get(path)
        if row is None:
            row = self._logs[path] = self._find(path) or self._add(path)
            if len(self._logs) > REMEMBERED_LOGS:
                self._logs.popitem(last=False)
        self._logs.move_to_end(path)
        return row

    def model(self, name: str | None, model_id: int | None) -> int:
        """The number of a model."""
        key = (display_text(name or ""), -1 if model_id is None else model_id)
        model = self._models.get(key)
        if model is None:
            model = self._models[key] = self._find_or_add_model(*key)
            if len(self._models) > REMEMBERED_MODELS:
                self._models.popitem(last=False)
        self._models.move_to_end(key)
        return model

    def _find(self, path: str) -> LogRow | None:
        found = self._connection.execute(
            "SELECT log, model, kept FROM log WHERE job = ? AND path = ?", (self._job, path_to_sql(path))
        ).fetchone()
        return None if found is None else LogRow(found[0], found[1], kept=bool(found[2]))

    def _add(self, path: str) -> LogRow:
        name = parse_log_name(path)
        kind = "foreign" if name is None else "done" if name.is_done else name.kind.value
        model = None if name is None or name.model is None else self.model(name.model, name.model_id)
        cursor = self._connection.execute(
            "INSERT INTO log (job, path, shown_path, kind, model, generation, offset, complete)"
            " VALUES (?, ?, ?, ?, ?, 0, 0, 0)",
            (self._job, path_to_sql(path), display_text(path), kind, model),
        )
        if model is not None and name is not None and name.kind in _OF_SAMPLES:
            self._samples.add(model, name)
        return LogRow(int(cursor.lastrowid or 0), model, is_new=True, parts=[], entries={})

    def _find_or_add_model(self, name: str, model_id: int) -> int:
        key = (self._job, name, model_id)
        self._connection.execute("INSERT OR IGNORE INTO model (job, name, model_id) VALUES (?, ?, ?)", key)
        (model,) = self._connection.execute(
            "SELECT model FROM model WHERE job = ? AND name = ? AND model_id = ?", key
        ).fetchone()
        return int(model)
