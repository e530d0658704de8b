"""Thinning of a session: figures of inferences per minute take the place of their records.

An inference is in the database either as rows or as part of `minute_figure`: one transaction moves it. Its mirrored
files are removed after that transaction, and removed once more at the start, in case the process ended in between.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.formats.durations import Distribution
from profagent.formats.inference_times import Recorded, completed
from profagent.formats.names import DONE_SUFFIX, LogKind, joined_unit, split_unit
from profagent.limits import THINNED_LOGS_S
from profagent.store.database import fetched_of, keys_of
from profagent.store.rows import path_from_sql, path_to_sql

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from profagent.formats.inference_times import Spans

    Floats = NDArray[np.float64]
    # Figures of a minute by subject: how many inferences have it, and their values.
    Minute = dict[str, tuple[int, Distribution]]

SCHEMA = """
-- Flight recorder of a session: its rules, and how far they have looked.
CREATE TABLE IF NOT EXISTS flight_recorder (
    session     INTEGER PRIMARY KEY REFERENCES session,
    rules       TEXT NOT NULL,          -- as `record --keep-when` shows them
    decided_us  INTEGER,                -- board time up to which inferences were kept or thinned
    seen        TEXT NOT NULL,          -- numbers of the last rows of other tables that were looked at: a JSON object
    cooled_down INTEGER NOT NULL        -- values beyond a bound that made no incident, because of the cool-down
);

-- What a flight recorder found, and the window of which it kept the inferences.
CREATE TABLE IF NOT EXISTS incident (
    session    INTEGER NOT NULL REFERENCES session,
    number     INTEGER NOT NULL,        -- counts the session's incidents, from 1
    time_us    INTEGER NOT NULL,        -- board wall clock, as all times here
    rule       TEXT NOT NULL,           -- rules that fired in the window, with `; ` between
    value      REAL,                    -- what the first rule found, and its bound; NULL where nothing is compared
    bound      REAL,
    unit       TEXT NOT NULL,           -- us, or empty for a metric's own
    model      TEXT,
    inference  INTEGER REFERENCES inference,
    culprit    TEXT,                    -- layer or stage with the largest excess over its median so far
    excess_us  REAL,
    begin_us   INTEGER NOT NULL,
    end_us     INTEGER NOT NULL,
    kept       INTEGER NOT NULL,        -- 0 where the day's budget was spent
    inferences INTEGER NOT NULL,        -- in the window
    bytes      INTEGER NOT NULL,        -- of their files
    PRIMARY KEY (session, number)
) WITHOUT ROWID;

-- Figures of thinned inferences by the minute in which they began, by the board's clock; those of an earlier day are
-- folded into the first minute of their hour.
CREATE TABLE IF NOT EXISTS minute_figure (
    session    INTEGER NOT NULL REFERENCES session,
    model      INTEGER NOT NULL REFERENCES model,
    device_id  INTEGER NOT NULL,
    subject    TEXT NOT NULL,           -- as `Thinnable.subjects` names them
    minute     INTEGER NOT NULL,
    inferences INTEGER NOT NULL,        -- that have it; of `layers` those that lack no layer's record
    number     INTEGER NOT NULL,        -- values: of a layer its records
    total      REAL NOT NULL,
    squares    REAL NOT NULL,
    least      REAL NOT NULL,
    most       REAL NOT NULL,
    bins       BLOB NOT NULL,           -- histogram, see profagent.formats.durations
    PRIMARY KEY (session, model, device_id, subject, minute)
) WITHOUT ROWID;

-- Logs whose records were thinned a short time ago, and whose files may still have to be removed.
CREATE TABLE IF NOT EXISTS thinned_log (
    log       INTEGER PRIMARY KEY REFERENCES log,
    thinned_s INTEGER NOT NULL          -- host clock, seconds since 1970
);

-- Incidents of flight recorders.
--   number      counts the session's incidents, from 1
--   time_us     time of what fired, by the board's clock
--   rule        rules that fired in the window, with `; ` between
--   value       what the first rule found, the one with the largest excess
--   bound       its bound; NULL where nothing is compared
--   unit        of both: us, or empty for a metric's own
--   culprit     layer or stage with the largest excess over its median so far
--   excess_us   that excess
--   begin_us    begin of the window
--   end_us      end of the window
--   kept        0 where the day's budget was spent: the inferences of the window were not kept
--   inferences  inferences in the window
--   bytes       size of their files
--   model, inference
CREATE VIEW IF NOT EXISTS incidents AS
SELECT session, number, time_us, rule, value, bound, unit, model, inference, culprit, excess_us, begin_us, end_us, kept,
       inferences, bytes
FROM incident;
"""
CALL, WHOLE, LAYERS, CALL_REST, WHOLE_REST, BEGIN, RAN = (
    "call",
    "whole",
    "layers",
    "call rest",
    "whole rest",
    "begin",
    "ran",
)
US_PER_MINUTE = 60_000_000
MINUTES_PER_HOUR = 60
MINUTES_PER_DAY = 24 * MINUTES_PER_HOUR
_UNFOLDED = "SELECT DISTINCT minute / ?3 FROM minute_figure WHERE session = ?1 AND minute < ?2 AND minute % ?3 <> 0"
_OF_HOUR = (
    "SELECT model, device_id, subject, inferences, number, total, squares, least, most, bins FROM minute_figure"
    " WHERE session = ? AND minute >= ? AND minute < ?"
)
# Spaces in the subject of a layer: unit, net and layer.
_LAYER_SPACES = 2
# The figures of a minute, or where it has none, those of the last minute before it. Each subject is found by a search
# in the index: a scan would read all minutes of weeks.
_OWN = "FROM minute_figure WHERE session = ?1 AND model = ?2 AND device_id = ?3"
_MINUTE = f"""
WITH RECURSIVE
newest (at) AS (SELECT max(minute) {_OWN} AND subject = '{LAYERS}' AND minute <= ?4),
subjects (name) AS (
    SELECT min(subject) {_OWN}
    UNION ALL SELECT (SELECT min(subject) {_OWN} AND subject > name) FROM subjects WHERE name IS NOT NULL
)
SELECT minute, subject, inferences, number, total, squares, least, most, bins
FROM newest CROSS JOIN subjects CROSS JOIN minute_figure
WHERE session = ?1 AND model = ?2 AND device_id = ?3 AND subject = name AND minute = at
"""  # noqa: S608 - constants
_WRITE = "INSERT OR REPLACE INTO minute_figure VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
# Inferences that share a log with one that stays, or whose log has not come completely: they stay as well.
_STAYING = (
    "SELECT DISTINCT g.inference FROM going JOIN segment g USING (inference) JOIN log l USING (log)"
    " WHERE l.complete <> 1 OR EXISTS (SELECT 1 FROM segment o WHERE o.log = g.log AND NOT EXISTS"
    " (SELECT 1 FROM going WHERE going.inference = o.inference))"
)
_LOGS = (
    "SELECT DISTINCT l.log, l.job, l.path, m.spellings"
    " FROM going JOIN segment g USING (inference) JOIN log l USING (log) JOIN model m ON m.model = l.model"
)
_AT = "SELECT log, kind, path, complete FROM log WHERE job = ? AND path IN ({})"
_PARTS = "SELECT part FROM part JOIN log USING (log) WHERE kind = ? AND log IN (SELECT log FROM going_log)"
_SAMPLES = "SELECT model, current_pic_count FROM going JOIN inference USING (inference)"
_ENTRIES = (
    "SELECT session, job, grade, reason, sum(count) FROM ledger_entry WHERE log IN (SELECT log FROM going_log)"
    " GROUP BY session, job, grade, reason"
)
_ADD_TO_ENTRY = (
    "UPDATE ledger_entry SET count = count + ? WHERE session = ? AND job IS ? AND log IS NULL AND origin = 'thinned'"
    " AND grade = ? AND reason = ?"
)
_ADD_ENTRY = (
    "INSERT INTO ledger_entry (session, job, origin, grade, reason, detail, count) VALUES (?, ?, 'thinned', ?, ?, ?, ?)"
)
_THINNED = "SELECT j.name, l.path FROM thinned_log JOIN log l USING (log) JOIN job j USING (job) WHERE j.board = ?"
# Samples that were thinned and have no log any more.
_KNOWN = (
    "SELECT m.name, m.model_id, x.current_pic_count FROM job j JOIN model m USING (job) JOIN sample x USING (model)"
    " WHERE j.board = ? AND j.name = ? AND NOT x.kept AND x.current_pic_count IN ({})"
)


class Thinnable(NamedTuple):
    """Inferences of one model on one device, with their records as columns of one length.

    `columns` are unit, net and layer of the places in `column`; `inference` is the place of each record's inference.
    """

    model: int
    name: str
    device: int
    numbers: NDArray[np.int64]
    whole: Spans
    calls: Spans
    ran_before: Floats
    columns: Sequence[tuple[str, int, int]]
    inference: NDArray[np.int64]
    column: NDArray[np.int64]
    us: Floats

    @property
    def layer_times(self) -> Floats:
        """Time of each column in each inference, NaN where it has no record."""
        width = len(self.columns)
        cells = self.inference * width + self.column
        size = len(self.numbers) * width
        counts = np.bincount(cells, minlength=size)
        return np.where(counts > 0, np.bincount(cells, self.us, size), np.nan).reshape(-1, width)

    def at(self, places: NDArray[np.int64]) -> Thinnable:
        """Return some of the inferences."""
        new = np.full(len(self.numbers), -1)
        new[places] = np.arange(len(places))
        records = new[self.inference] >= 0
        return self._replace(
            numbers=self.numbers[places],
            whole=self.whole.at(places),
            calls=self.calls.at(places),
            ran_before=self.ran_before[places],
            inference=new[self.inference[records]],
            column=self.column[records],
            us=self.us[records],
        )

    def subjects(self, before: Minute) -> Iterator[tuple[str, int, Floats]]:
        """Yield each subject with the number of inferences that have it and its values.

        A layer whose record is missing has its mean in the sums, which counts what was thinned `before`.
        """
        own = [" ".join(map(str, column)) for column in self.columns]
        names = [*own, *(each for each in before if each.count(" ") == _LAYER_SPACES and each not in own)]
        times = np.full((len(self.numbers), len(names)), np.nan)
        times[:, : len(own)] = self.layer_times
        filled = completed(times, _recorded(before, names))
        layers = filled.sum(axis=1)
        by_call, by_records = self.calls.us, self.whole.us
        for subject, values in (
            (CALL, by_call),
            (WHOLE, by_records),
            (CALL_REST, by_call - layers),
            (WHOLE_REST, by_records - layers),
            (BEGIN, self.whole.begin_us),
            (RAN, self.ran_before),
        ):
            yield subject, int((~np.isnan(values)).sum()), values
        is_lacking = (np.isnan(times) & (filled > 0)).any(axis=1)
        yield LAYERS, int((~is_lacking).sum()), layers
        order = np.argsort(self.column, kind="stable")
        ends = np.cumsum(np.bincount(self.column, minlength=len(own)))[:-1]
        for place, us in enumerate(np.split(self.us[order], ends)):
            yield own[place], int((~np.isnan(times[:, place])).sum()), us
        of_segments = [name.rpartition(" ")[0] for name in names]
        for segment in dict.fromkeys(of_segments):
            places = [place for place, each in enumerate(of_segments) if each == segment]
            is_known = ~np.isnan(times[:, places]).all(axis=1)
            yield segment, int(is_known.sum()), filled[:, places].sum(axis=1)[is_known]


def thin(
    connection: sqlite3.Connection,
    session: int,
    found: Sequence[Thinnable],
    now_s: int,
    is_busy: Callable[[str, str], bool],
) -> tuple[set[int], list[tuple[str, str]]]:
    """Move inferences into the minute figures in the open transaction.

    Returns the numbers of inferences that could not go, and JOB and path of the files to remove after the commit.
    `is_busy` returns True for JOB and path of a log of which more is being written: its inference stays.
    """
    connection.execute("CREATE TEMP TABLE going (inference INTEGER PRIMARY KEY)")
    connection.execute("CREATE TEMP TABLE going_log (log INTEGER PRIMARY KEY)")
    try:
        numbers = [number for each in found for number in each.numbers.tolist()]
        connection.execute("INSERT INTO going SELECT value FROM json_each(?)", (json.dumps(numbers),))
        # A log that was decoded anew has another inference now, which is judged by itself.
        connection.execute("DELETE FROM going WHERE inference NOT IN (SELECT inference FROM inference)")
        known = {number for (number,) in connection.execute("SELECT inference FROM going")}
        # The largest number stays, for numbers must never be given twice.
        connection.execute("DELETE FROM going WHERE inference = (SELECT max(inference) FROM inference)")
        files = _choose_logs(connection, is_busy)
        going = {number for (number,) in connection.execute("SELECT inference FROM going")}
        _add_figures(connection, session, [each.at(np.flatnonzero(np.isin(each.numbers, [*going]))) for each in found])
        _delete(connection, now_s)
    finally:
        connection.execute("DROP TABLE IF EXISTS going")
        connection.execute("DROP TABLE IF EXISTS going_log")
    return known - going, files


def forget_logs(connection: sqlite3.Connection, now_s: int) -> None:
    """Delete the rows of logs whose files were removed long ago: their inference alone is known from now on."""
    old = "log IN (SELECT log FROM thinned_log WHERE thinned_s < ?)"
    connection.execute(f"DELETE FROM log WHERE {old}", (now_s - THINNED_LOGS_S,))  # noqa: S608 - a constant
    connection.execute("DELETE FROM thinned_log WHERE thinned_s < ?", (now_s - THINNED_LOGS_S,))


def files_to_remove(connection: sqlite3.Connection, board: int) -> list[tuple[str, str]]:
    """Return JOB and path of thinned logs whose files may still be in the mirror."""
    return [(job, path_from_sql(path)) for job, path in connection.execute(_THINNED, (board,))]


def thinned_inferences(
    connection: sqlite3.Connection, board: int, job: str, counts: Iterable[int]
) -> set[tuple[str, int, int]]:
    """Return name, model ID and picture count of a JOB's inferences that were thinned, of those with these counts."""
    return {tuple(row) for row in fetched_of(connection, _KNOWN, (board, job), sorted({*counts}))}


def _choose_logs(connection: sqlite3.Connection, is_busy: Callable[[str, str], bool]) -> list[tuple[str, str]]:
    """Fill `going_log`, and take back inferences whose logs cannot go; return JOB and path of the logs."""
    while staying := connection.execute(_STAYING).fetchall():
        connection.executemany("DELETE FROM going WHERE inference = ?", staying)
    names: dict[int, str] = dict(connection.execute("SELECT job, name FROM job").fetchall())
    wanted: dict[int, dict[str, None]] = {}
    for _, job, stored, spellings in connection.execute(_LOGS).fetchall():
        rest = split_unit(path_from_sql(stored))[1]
        for spelling in spellings.split():
            path = joined_unit(spelling, rest)
            wanted.setdefault(job, {}).update({path: None, path + DONE_SUFFIX: None})
    files: list[tuple[str, str]] = []
    staying_logs: list[tuple[int, str]] = []
    for job, paths in wanted.items():
        rows = fetched_of(connection, _AT, (job,), [path_to_sql(path) for path in paths])
        open_rests = {
            _rest_of(path) for _, _, path, complete in rows if complete != 1 or is_busy(names[job], path_from_sql(path))
        }
        for log, _, path, _ in rows:
            if _rest_of(path) in open_rests:
                staying_logs.append((log, ""))
            else:
                files.append((names[job], path_from_sql(path)))
                connection.execute("INSERT INTO going_log VALUES (?)", (log,))
    connection.executemany(
        "DELETE FROM going WHERE inference IN (SELECT inference FROM segment WHERE log = ?)",
        [(log,) for log, _ in staying_logs],
    )
    return files


def _rest_of(stored: str | bytes) -> str:
    return split_unit(path_from_sql(stored).removesuffix(DONE_SUFFIX))[1]


def _add_figures(connection: sqlite3.Connection, session: int, found: Iterable[Thinnable]) -> None:
    sums: dict[tuple[int, int, int], Minute] = {}
    for each in found:
        minutes = (each.whole.begin_us // US_PER_MINUTE).astype(np.int64)
        for minute in np.unique(minutes).tolist():
            key = (each.model, each.device, minute)
            newest, before = _newest(connection, session, key) if key not in sums else (minute, sums[key])
            known = sums.setdefault(key, before if newest == minute else {})
            for subject, inferences, values in [*each.at(np.flatnonzero(minutes == minute)).subjects(before)]:
                count, distribution = known.get(subject) or (0, Distribution())
                distribution.add(values)
                known[subject] = count + inferences, distribution
    _write_figures(connection, session, sums)


def fold_figures(connection: sqlite3.Connection, session: int, newest_us: float) -> None:
    """Fold the minutes of each hour that ended a day before a time into one, so that weeks take little room.

    Minutes of which an inference comes later are folded the next time.
    """
    end = int(newest_us // US_PER_MINUTE - MINUTES_PER_DAY) // MINUTES_PER_HOUR * MINUTES_PER_HOUR
    for (hour,) in connection.execute(_UNFOLDED, (session, end, MINUTES_PER_HOUR)).fetchall():
        first = hour * MINUTES_PER_HOUR
        range_ = (session, first, first + MINUTES_PER_HOUR)
        sums: dict[tuple[int, int, int], Minute] = {}
        for model, device, subject, inferences, *columns, bins in connection.execute(_OF_HOUR, range_):
            figures = sums.setdefault((model, device, first), {})
            known, distribution = figures.get(subject) or (0, Distribution())
            distribution.merge(Distribution.unpacked(columns, bins))
            figures[subject] = known + inferences, distribution
        connection.execute("DELETE FROM minute_figure WHERE session = ? AND minute >= ? AND minute < ?", range_)
        _write_figures(connection, session, sums)


def _write_figures(connection: sqlite3.Connection, session: int, sums: Mapping[tuple[int, int, int], Minute]) -> None:
    connection.executemany(
        _WRITE,
        [
            (*(session, model, device, subject, minute, inferences), *each.columns, each.packed())
            for (model, device, minute), figures in sums.items()
            for subject, (inferences, each) in figures.items()
            if each.number
        ],
    )


def _newest(connection: sqlite3.Connection, session: int, key: tuple[int, int, int]) -> tuple[int | None, Minute]:
    """Return the newest minute up to that of the key which has figures, and these."""
    rows = connection.execute(_MINUTE, (session, *key)).fetchall()
    found = {
        subject: (inferences, Distribution.unpacked(columns, bins)) for _, subject, inferences, *columns, bins in rows
    }
    return rows[0][0] if rows else None, found


def _recorded(before: Minute, names: Sequence[str]) -> Recorded:
    """Return the times of layers that were thinned before."""
    known = [before.get(name, (0, None)) for name in names]
    sums = np.array([0.0 if each is None else each.total for _, each in known])
    inferences = before[LAYERS][1].number if LAYERS in before else 0
    return Recorded(sums, np.array([count for count, _ in known], np.int64), inferences)


def _delete(connection: sqlite3.Connection, now_s: int) -> None:
    for kind, table in ((LogKind.AICORE, "aicore"), (LogKind.AICPU, "aicpu")):
        parts = connection.execute(_PARTS, (kind.value,)).fetchall()
        connection.executemany(
            f"DELETE FROM {table} WHERE record BETWEEN ? AND ?",  # noqa: S608 - one of two names
            [keys_of(part) for (part,) in parts],
        )
    _pass_over_samples(connection)
    for session, job, grade, reason, count in connection.execute(_ENTRIES).fetchall():
        if not connection.execute(_ADD_TO_ENTRY, (count, session, job, grade, reason)).rowcount:
            detail = "in logs of inferences that were not kept by rule; count is the sum"
            connection.execute(_ADD_ENTRY, (session, job, grade, reason, detail, count))
    of_logs = "log IN (SELECT log FROM going_log)"
    for statement in (
        f"DELETE FROM ledger_entry WHERE {of_logs}",  # noqa: S608 - a constant, as below
        f"DELETE FROM part WHERE {of_logs}",  # noqa: S608
        f"DELETE FROM segment WHERE {of_logs}",  # noqa: S608
        "DELETE FROM inference WHERE inference IN (SELECT inference FROM going)",
        f"UPDATE log SET kept = 0, whole = 0, fault = NULL WHERE {of_logs}",  # noqa: S608
    ):
        connection.execute(statement)
    connection.execute("INSERT OR REPLACE INTO thinned_log SELECT log, ? FROM going_log", (now_s,))


def _pass_over_samples(connection: sqlite3.Connection) -> None:
    """Mark the samples as skipped on purpose, also in figures of sampling that are stored already."""
    samples = connection.execute(_SAMPLES).fetchall()
    changed: dict[tuple[int, int | None], int] = {}
    for sample in samples:
        for model, session in connection.execute(
            "UPDATE sample SET kept = 0 WHERE model = ? AND current_pic_count = ? AND kept RETURNING model, session",
            sample,
        ).fetchall():
            changed[model, session] = changed.get((model, session), 0) + 1
    connection.executemany(
        "UPDATE sampling SET passed_over = passed_over + ? WHERE model = ? AND session = ?",
        [(count, *key) for key, count in changed.items()],
    )
