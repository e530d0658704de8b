"""Logs and models of a JOB during one batch: looked up together, changed in memory, written together.

The ledger's entries about a log are kept with it. Row numbers are assigned here, which is safe because the open
transaction has the database alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from profagent import ledger
from profagent.formats.names import LogKind, LogName, display_text, parse_log_name
from profagent.ledger import Entry
from profagent.limits import LARGEST_AMOUNT, LARGEST_INTEGER, LONGEST_DETAIL, LONGEST_REASON, MOST_NOTED
from profagent.store.database import Part, fetched_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from profagent.ingest.changes import RecordedLoss

# Kinds of the logs that make up an inference.
UNITS = (LogKind.AICORE, LogKind.AICPU)


# Tables whose row numbers `Numbers` assigns.
_NUMBERED = ("model", "log", "part", "inference", "segment")
# The columns behind `model` are those of LogRow, in its order.
_LOGS = (
    "SELECT path, log, model, generation, offset, complete, digest, kept, whole, fault FROM log"
    " WHERE job = ? AND path IN ({})"
)
_PARTS = "SELECT log, part, first_record, session FROM part WHERE log IN ({}) ORDER BY first_record"
_SEGMENTS = "SELECT log, max(ordinal), segment FROM segment WHERE log IN ({}) GROUP BY log"
_ENTRIES = (
    "SELECT log, origin, entry, grade, reason, detail, first, last, count FROM ledger_entry"
    " WHERE log IN ({}) AND origin IN ('content', 'link')"
)
_ENTRY = (
    "INSERT INTO ledger_entry (session, job, log, origin, grade, reason, detail, first, last, count)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_RECORDED_LOSS = ("job_name", "lost_logs", "lost_bytes", "from_us", "to_us")


def path_to_sql(path: str) -> str | bytes:
    """Return a log's path as the database stores it: TEXT, or BLOB where the path is not UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return path.encode("utf-8", "surrogateescape")
    return path


def path_from_sql(path: str | bytes) -> str:
    """Return the path that `path_to_sql` stored."""
    return path if isinstance(path, str) else path.decode("utf-8", "surrogateescape")


class Numbers:
    """Next row numbers of each table, within one transaction."""

    def __init__(self, last: Sequence[int]) -> None:
        # By table, the highest number that has been taken.
        self._last = dict(zip(_NUMBERED, last, strict=True))

    @classmethod
    def of(cls, connection: sqlite3.Connection) -> Numbers:
        """Read the highest numbers by a connection that has a transaction open."""
        queries = ", ".join(f"(SELECT ifnull(max({table}), 0) FROM {table})" for table in _NUMBERED)  # noqa: S608
        return cls(connection.execute(f"SELECT {queries}").fetchone())

    def take(self, table: str, count: int = 1) -> int:
        """Reserve `count` successive numbers of a table, and return the first."""
        first = self._last[table] + 1
        self._last[table] += count
        return first


class LogRow(Struct):
    """Row of a log, with the ledger's entries about it and the place of its last records.

    `segment` is the ordinal and the number of the log's last segment. `desired` is the list of entries that are to
    follow from the log's bytes; None leaves them unchanged. `kind` is set for a file whose name does not say its kind.
    """

    # Columns of the table `log`.
    number: int
    path: str
    name: LogName | None
    model: int | None
    generation: int = 0
    offset: int = 0
    complete: int = 0
    digest: bytes | None = None
    kept: int = 1
    whole: int = 0
    fault: str | None = None
    # Parts in the order of their records.
    parts: list[Part] = field(default_factory=list)
    segment: tuple[int, int] | None = None
    # Stored entries that follow from the log's bytes, with their row numbers.
    content: dict[Entry, int] = field(default_factory=dict)
    # Reason and detail of each entry about the link: a board repeats them after a reconnection.
    noted: set[tuple[str, str]] = field(default_factory=set)
    desired: tuple[Entry, ...] | None = None
    kind: str = ""

    @property
    def is_name(self) -> bool:
        """True if nothing of the log has come but its name."""
        return self.generation == 0 and self.complete == 0 and bool(self.kept)

    @property
    def state(self) -> tuple[Any, ...]:
        """Columns that a batch may change."""
        return (self.generation, self.offset, self.complete, self.digest, self.kept, self.whole, self.fault)


class LogRows:
    """Logs of one JOB that a batch names, and all models of the JOB."""

    def __init__(self, connection: sqlite3.Connection, job: int, numbers: Numbers) -> None:
        self._connection = connection
        self._job = job
        self._numbers = numbers
        # Rows by path, those that were stored before and new ones.
        self._logs: dict[str, LogRow] = {}
        # Columns of stored rows as they were read: `write` updates only rows that differ.
        self._stored: dict[str, tuple[Any, ...]] = {}
        # Logs of which this batch brings the name alone: number, name and model by path. They get no LogRow, because an
        # announcement may name very many.
        self._names: dict[str, tuple[int, LogName, int]] = {}
        # Model numbers by name and model ID.
        self._models: dict[tuple[str, int], int] = {}
        # By model, the units of which it has logs.
        self._units: dict[int, set[str]] = {}
        # By model, the beginnings of its log names: several spellings of one model occur.
        self._spellings: dict[int, set[str]] = {}
        # Rows to insert, and models whose units or spellings have changed.
        self._new_models: list[tuple[Any, ...]] = []
        self._new_units: set[int] = set()
        # New samples: pictures by model and picture count; 0 where the files of one sample disagree.
        self._samples: dict[tuple[int, int], int] = {}
        # Samples of which more than a name has come in this batch.
        self._fetched: set[tuple[int, int]] = set()
        # Samples that were skipped on purpose.
        self._passed_over: set[tuple[int, int]] = set()
        # Models whose sampling has to be computed again for another reason.
        self.changed: set[int] = set()

    def load(self, paths: Collection[str]) -> None:
        """Read the JOB's models and the rows of these paths, with their parts, last segments and entries."""
        for model, name, model_id, spellings, *units in self._connection.execute(
            "SELECT model, name, model_id, spellings, aicore, aicpu FROM model WHERE job = ?", (self._job,)
        ).fetchall():
            self._models[name, model_id] = model
            self._spellings[model] = set(spellings.split())
            self._units[model] = {unit.value for unit, is_used in zip(UNITS, units, strict=True) if is_used}
        by_number: dict[int, LogRow] = {}
        stored = [path_to_sql(path) for path in paths]
        for key, number, model, *state in fetched_of(self._connection, _LOGS, (self._job,), stored):
            path = path_from_sql(key)
            row = by_number[number] = self._logs[path] = LogRow(number, path, parse_log_name(path), model, *state)
            self._stored[path] = row.state
        numbers = list(by_number)
        for log, *part in fetched_of(self._connection, _PARTS, (), numbers):
            by_number[log].parts.append(Part(*part))
        for log, ordinal, segment in fetched_of(self._connection, _SEGMENTS, (), numbers):
            by_number[log].segment = (ordinal, segment)
        for log, origin, entry, *fields in fetched_of(self._connection, _ENTRIES, (), numbers):
            if origin == "content":
                by_number[log].content[Entry(*fields)] = entry
            else:
                by_number[log].noted.add((fields[1], fields[2]))

    def announce(self, paths: Iterable[str]) -> Iterator[tuple[str, LogName, int]]:
        """Add rows for new names, and yield path, name and model of each log of a unit among the paths."""
        for path in paths:
            name = parse_log_name(path)
            if name is None or name.kind not in UNITS:
                continue
            model = self.model(name.model, name.model_id)
            if path not in self._logs and path not in self._names:
                self._names[path] = self._numbers.take("log"), name, model
                self._add_sample(model, name)
            yield path, name, model

    def row(self, path: str) -> LogRow:
        """Return the row of a log, a new one where there was none."""
        row = self._logs.get(path)
        is_new = row is None
        if row is None:
            number, name, model = self._names.pop(path) if path in self._names else self._named(path)
            row = self._logs[path] = LogRow(number, path, name, model)
        if row.model is not None and row.name is not None and row.name.kind in UNITS:
            if is_new:
                self._add_sample(row.model, row.name)
            if is_new or row.is_name:
                self._fetch_sample(row.model, row.name)
        return row

    def _named(self, path: str) -> tuple[int, LogName | None, int | None]:
        name = parse_log_name(path)
        model = None if name is None or name.model is None else self.model(name.model, name.model_id)
        return self._numbers.take("log"), name, model

    def add_file(self, path: str, kind: str, size: int) -> LogRow:
        """Add a complete file of another tool, and return its row."""
        assert path not in self._logs, "each file is added once"
        number = self._numbers.take("log")
        row = LogRow(number, path, None, None, generation=1, offset=size, complete=1, kind=kind)
        self._logs[path] = row
        return row

    def is_new(self, path: str) -> bool:
        """Return True if a log has no row, or only the row of an announced name."""
        row = self._logs.get(path)
        return row is None or row.is_name

    def model(self, name: str | None, model_id: int | None) -> int:
        """Return the number of a model, a new one where it has none."""
        key = (name or "", -1 if model_id is None else model_id)
        if key not in self._models:
            # Models are stored with displayable names, so a name that is not UTF-8 has to be looked up by that.
            key = (display_text(key[0]), key[1])
        if key not in self._models:
            self._models[key] = number = self._numbers.take("model")
            self._units[number], self._spellings[number] = set(), set()
            self._new_models.append((number, self._job, *key))
        return self._models[key]

    def is_used(self, model: int, unit: str) -> bool:
        """Return True if a model has logs of a unit."""
        return unit in self._units[model]

    def use(self, model: int, unit: str) -> None:
        """Note that a model has logs of a unit."""
        self._units[model].add(unit)
        self._new_units.add(model)

    def spell(self, model: int, spelling: str) -> None:
        """Note a spelling with which names of a model's logs begin."""
        if spelling not in self._spellings[model]:
            self._spellings[model].add(spelling)
            self._new_units.add(model)

    def spellings(self, model: int) -> list[str]:
        """Return the spellings with which names of a model's logs begin, sorted."""
        return sorted(self._spellings[model])

    def pass_over(self, row: LogRow) -> None:
        """Mark a log of an inference as skipped on purpose."""
        row.kept = 0
        if row.model is not None and row.name is not None and row.name.inference is not None:
            self._passed_over.add((row.model, row.name.inference.current_pic_count))

    def write(self, session: int) -> None:
        """Write what has changed. An entry of the ledger belongs to the session that wrote it first."""
        self._connection.executemany(
            "INSERT INTO model (model, job, name, model_id) VALUES (?, ?, ?, ?)", self._new_models
        )
        self._connection.executemany(
            "UPDATE model SET spellings = ?, aicore = ?, aicpu = ? WHERE model = ?",
            [
                (" ".join(self.spellings(model)), *(unit.value in self._units[model] for unit in UNITS), model)
                for model in self._new_units
            ],
        )
        self._connection.executemany(
            "INSERT INTO log (log, job, path, shown_path, kind, model, generation, offset, complete, digest, kept,"
            " whole, fault) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (row.number, self._job, path_to_sql(path), display_text(path), _kind(row), row.model, *row.state)
                for path, row in self._logs.items()
                if path not in self._stored
            ]
            + [
                (number, self._job, path_to_sql(path), display_text(path), _kind_of(name), model, *_OF_A_NAME)
                for path, (number, name, model) in self._names.items()
            ],
        )
        self._connection.executemany(
            "UPDATE log SET generation = ?, offset = ?, complete = ?, digest = ?, kept = ?, whole = ?, fault = ?"
            " WHERE log = ?",
            [
                (*row.state, row.number)
                for path, before in self._stored.items()
                if (row := self._logs[path]).state != before
            ],
        )
        self._write_samples(session)
        self._write_entries(session)

    def _add_sample(self, model: int, name: LogName) -> None:
        count, pictures = name.current_pic_count, name.input_pic_num or 0
        assert count is not None, "its name has a picture count"
        # Counts beyond SQLite's integers are damage in a name, and no sample.
        if count <= LARGEST_INTEGER:
            same = self._samples.setdefault((model, count), pictures) == pictures
            self._samples[model, count] = pictures if same else 0

    def _fetch_sample(self, model: int, name: LogName) -> None:
        count = name.current_pic_count
        if count is not None and count <= LARGEST_INTEGER:
            self._fetched.add((model, count))

    def _write_samples(self, session: int) -> None:
        self._connection.executemany(
            "INSERT INTO sample (model, current_pic_count, input_pic_num, kept) VALUES (?, ?, ?, 1)"
            " ON CONFLICT (model, current_pic_count) DO UPDATE"
            " SET input_pic_num = 0 WHERE input_pic_num <> excluded.input_pic_num",
            [(*sample, pictures) for sample, pictures in self._samples.items()],
        )
        self._connection.executemany(
            "UPDATE sample SET session = ? WHERE model = ? AND current_pic_count = ? AND session IS NULL",
            [(session, *sample) for sample in self._fetched],
        )
        # The stored sampling of these models is out of date; it is computed again when the JOB or the session ends.
        changed = {model for model, _ in (*self._samples, *self._fetched, *self._passed_over)} | self.changed
        self._connection.executemany(
            "DELETE FROM sampling WHERE model = ? AND session = ?", [(model, session) for model in changed]
        )
        self._connection.executemany(
            "UPDATE sample SET kept = 0 WHERE model = ? AND current_pic_count = ?", self._passed_over
        )

    def _write_entries(self, session: int) -> None:
        gone: list[tuple[int]] = []
        new: list[tuple[Any, ...]] = []
        for row in self._logs.values():
            if row.desired is not None:
                gone += [(entry,) for known, entry in row.content.items() if known not in row.desired]
                entries = [entry for entry in row.desired if entry not in row.content]
                new += [entry_row(session, self._job, row.number, "content", entry) for entry in entries]
        self._connection.executemany("DELETE FROM ledger_entry WHERE entry = ?", gone)
        self._connection.executemany(_ENTRY, new)


class LedgerRows:
    """Ledger of one JOB, or of the board itself where `job` is None, for one session."""

    def __init__(self, connection: sqlite3.Connection, session: int, job: int | None) -> None:
        self._connection = connection
        self._session = session
        self._job = job

    def replace(self, row: LogRow, entries: Iterable[Entry]) -> None:
        """Set the entries that follow from a log's bytes; entries that are stored already keep their rows."""
        row.desired = tuple(dict.fromkeys(map(_displayed, entries)))

    def void(self, row: LogRow) -> None:
        """Remove the entries that followed from a log's bytes."""
        row.desired = ()
        row.content.clear()
        self._connection.execute(
            "DELETE FROM ledger_entry WHERE log = ? AND origin IN ('content', 'ring', 'numbers')", (row.number,)
        )

    def replace_all(self, origin: str, entries: Iterable[Entry], *, of_session: bool = False) -> None:
        """Replace the JOB's entries of an origin that name no log; with `of_session`, only this session's."""
        where = "log IS NULL AND job = ? AND origin = ? AND (session = ? OR NOT ?)"
        about = (self._job, origin, self._session, of_session)
        known = self._connection.execute(
            f"SELECT grade, reason, detail, first, last, count FROM ledger_entry WHERE {where} ORDER BY entry",  # noqa: S608
            about,
        ).fetchall()
        desired = [_displayed(entry) for entry in entries]
        if [Entry(*row) for row in known] != desired:
            self._connection.execute(f"DELETE FROM ledger_entry WHERE {where}", about)  # noqa: S608 - a constant
            self.insert(None, origin, *desired)

    def replace_rings(self, by_log: Mapping[int, Entry]) -> None:
        """Replace the entries that follow from the times of the JOB's calls; unchanged ones keep their rows."""
        query = "SELECT log, count FROM ledger_entry WHERE job = ? AND origin = 'ring'"
        if dict(self._connection.execute(query, (self._job,)).fetchall()) == {
            log: e.count for log, e in by_log.items()
        }:
            return
        self._connection.execute("DELETE FROM ledger_entry WHERE job = ? AND origin = 'ring'", (self._job,))
        for log, entry in by_log.items():
            self.insert(log, "ring", entry)

    def add(self, row: LogRow | None, entry: Entry) -> None:
        """Add an entry about the link or the board; one that is repeated after a reconnection adds nothing."""
        entry = _displayed(entry)
        if row is not None:
            if (entry.reason, entry.detail) not in row.noted:
                row.noted.add((entry.reason, entry.detail))
                self.insert(row.number, "link", entry)
            return
        ((count, is_known),) = self._connection.execute(
            "SELECT count(*), ifnull(max(reason = ? AND detail = ?), 0) FROM ledger_entry WHERE log IS NULL"
            " AND job IS ? AND origin = 'link' AND (job IS NOT NULL OR session = ?)",
            (entry.reason, entry.detail, self._job, self._session),
        ).fetchall()
        if is_known:
            return
        # A hostile or broken board must not fill the database: entries beyond the bound share one row.
        if count < MOST_NOTED:
            self.insert(None, "link", entry)
        else:
            self._add_more(entry)

    def keep(self, board: int, loss: RecordedLoss) -> None:
        """Add a loss that the board keeps in its own list, or bring the stored one up to date."""
        key = (board, f"{loss.number:016x}")
        figures = (loss.job or None, loss.lost_logs, loss.lost_bytes, loss.from_us, loss.to_us)
        known = self._connection.execute("SELECT entry FROM kept_loss WHERE board = ? AND id = ?", key).fetchall()
        if known:
            detail, count = _displayed(loss.entry).detail, loss.entry.count
            self._connection.execute(
                "UPDATE ledger_entry SET detail = ?, count = ? WHERE entry = ?", (detail, count, known[0][0])
            )
            self._connection.execute(
                f"UPDATE kept_loss SET {' = ?, '.join(_RECORDED_LOSS)} = ? WHERE board = ? AND id = ?",  # noqa: S608
                (*figures, *key),
            )
            return
        jobs = self._connection.execute(
            "SELECT job FROM job WHERE board = ? AND name = ?", (board, loss.job)
        ).fetchall()
        job = jobs[0][0] if jobs else None
        cursor = self._connection.execute(_ENTRY, entry_row(self._session, job, None, "board", loss.entry))
        self._connection.execute(
            f"INSERT INTO kept_loss (board, id, entry, {', '.join(_RECORDED_LOSS)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
            (*key, cursor.lastrowid, *figures),
        )

    def insert(self, log: int | None, origin: str, *entries: Entry) -> None:
        """Insert entries about the log with this number, or about the JOB where it is None."""
        rows = [entry_row(self._session, self._job, log, origin, entry) for entry in entries]
        self._connection.executemany(_ENTRY, rows)

    def _add_more(self, entry: Entry) -> None:
        known = self._connection.execute(
            "SELECT entry FROM ledger_entry"
            " WHERE session = ? AND log IS NULL AND job IS ? AND reason = ? AND grade = ?",
            (self._session, self._job, ledger.MORE, entry.grade),
        ).fetchall()
        if not known:
            detail = "beyond those that are told one by one; count is the sum of theirs"
            self.insert(None, "link", ledger.entry(ledger.MORE, detail, count=entry.count, grade=entry.grade))
            return
        self._connection.execute(
            "UPDATE ledger_entry SET count = min(count + ?, ?) WHERE entry = ?",
            (entry.count, LARGEST_AMOUNT, known[0][0]),
        )


def replace_layers(connection: sqlite3.Connection, model: int, layers: Iterable[Sequence[Any]]) -> None:
    """Replace all layers of a model; a layer is index, segment, layer ID, name and type."""
    connection.execute("DELETE FROM layer WHERE model = ?", (model,))
    connection.executemany("INSERT INTO layer VALUES (?, ?, ?, ?, ?, ?)", ((model, *layer) for layer in layers))


def entry_row(session: int, job: int | None, log: int | None, origin: str, entry: Entry) -> tuple[Any, ...]:
    """Return an entry of the ledger as a row, with its texts cut to the stored lengths."""
    entry = _displayed(entry)
    place = (entry.first, entry.last, entry.count)
    return (session, job, log, origin, entry.grade, entry.reason, entry.detail, *place)


def _displayed(entry: Entry) -> Entry:
    return replace(
        entry,
        reason=display_text(entry.reason)[:LONGEST_REASON],
        detail=display_text(entry.detail)[:LONGEST_DETAIL],
        count=min(entry.count, LARGEST_AMOUNT),
    )


# Columns of a log of which only the name is known.
_OF_A_NAME = LogRow(0, "", None, None).state


def _kind(row: LogRow) -> str:
    return row.kind or _kind_of(row.name)


def _kind_of(name: LogName | None) -> str:
    return "foreign" if name is None else "done" if name.is_done else name.kind.value
