"""Whether the figures of stored inferences are known: judged anew whenever one of their logs tells something new."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.formats.figure_states import Figure, FigureState, Part, UnitLog, clock_part, log_part, state_of
from profagent.formats.names import LogKind, parse_log_name, path_beside
from profagent.store.logs import path_from_sql, path_to_sql

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping, Sequence

    from profagent.formats.figure_states import Has
    from profagent.formats.names import LogName
    from profagent.store.inferences import InferenceRows
    from profagent.store.logs import LogRows

# Of `inference i`, for `:clockless` JOBs as well: without a clock, figures in ticks are known of whole inferences.
KNOWN = "(i.figures = 'final' OR (i.whole AND :clockless))"
UNITS = (LogKind.AICORE, LogKind.AICPU)
# Each has four logs, and SQLite's own limit of variables in a statement is far above.
SAMPLES_PER_QUERY = 200
DONE_SUFFIX = ".done"
REMOVED = 2
_UNKNOWN = (
    "SELECT DISTINCT l.path FROM inference i JOIN model m USING (model) JOIN segment g USING (inference)"
    " JOIN log l USING (log) WHERE m.job = ? AND i.figures {states}"
)
_PENDING = _UNKNOWN.format(states="= 'pending'")
_NOT_FINAL = _UNKNOWN.format(states="<> 'final'")
_UNITS_OF_MODELS = (
    "SELECT DISTINCT model, kind FROM log WHERE job = ? AND model IS NOT NULL AND kind IN ('aicore', 'aicpu')"
)
_FINAL_OF_MODEL = _UNKNOWN.format(states="= 'final' AND i.model = ?")
_CLOCK = (
    "SELECT frequency_mhz, EXISTS (SELECT 1 FROM log WHERE job = ?1 AND path = 'info.json.0' AND complete = 1)"
    " FROM job WHERE job = ?1"
)


class FigureRows:
    """The states of one JOB's inferences. Those whose logs were touched are judged by `flush`."""

    def __init__(self, connection: sqlite3.Connection, job: int, inferences: InferenceRows, logs: LogRows) -> None:
        self._connection = connection
        self._job = job
        self._inferences = inferences
        self._rows = logs
        self._touched: dict[str, LogName] = {}  # by the path of the aicore log
        # Models and the units that any inference of theirs has records of.
        self._used: set[tuple[int, str]] = set(connection.execute(_UNITS_OF_MODELS, (job,)))

    def touch(self, path: str) -> None:
        """Something new is known of a log."""
        name = parse_log_name(path)
        if name is None or name.kind not in UNITS:
            return
        data = path.removesuffix(DONE_SUFFIX)
        used = (self._rows.model(name.model, name.model_id), name.kind.value)
        if path == data and used not in self._used:
            self._used.add(used)
            self._touch_found(_FINAL_OF_MODEL, used[0])
        self._touched[data if name.kind is LogKind.AICORE else path_beside(data)] = name

    def touch_unknown(self) -> None:
        """Something is known on which the figures of any inference may hang."""
        self._touch_found(_NOT_FINAL)

    def settle(self, ended: str) -> None:
        """Nothing more comes, for this reason: what is pending stays as it is."""
        self._touch_found(_PENDING)
        self.flush(ended)

    def flush(self, ended: str = "") -> None:
        """Judge the inferences that were touched."""
        if not self._touched:
            return
        frequency_mhz, has_come = self._connection.execute(_CLOCK, (self._job,)).fetchone()
        clock = clock_part(frequency_mhz, has_come=bool(has_come), ended=ended)
        touched, self._touched = list(self._touched.items()), {}
        for start in range(0, len(touched), SAMPLES_PER_QUERY):
            page = touched[start : start + SAMPLES_PER_QUERY]
            logs = self._logs(path for path, _ in page)
            for path, name in page:
                self._judge(name, {Part.AICORE: logs.get(path), Part.AICPU: logs.get(path_beside(path))}, clock, ended)

    def _judge(self, name: LogName, logs: Mapping[Part, UnitLog | None], clock: Has, ended: str) -> None:
        model = self._rows.model(name.model, name.model_id)
        for inference, number, *before in self._inferences.of_file(model, name):
            parts = {
                part: log_part(part, log, number, ended, is_used=(model, part.value) in self._used)
                for part, log in logs.items()
            }
            records = state_of(Figure.RECORDS, parts)
            time = state_of(Figure.TIME, {**parts, Part.CLOCK: clock})
            found = [int(records.state is FigureState.FINAL), time.state.value, time.why]
            if found != before:
                self._inferences.set_state(inference, found)

    def _logs(self, aicore_paths: Iterable[str]) -> dict[str, UnitLog]:
        """What is known of the logs of inferences, by the paths of data; a `.done` alone tells that there was data."""
        data = [path for aicore in aicore_paths for path in (aicore, path_beside(aicore))]
        asked = [path_to_sql(path) for each in data for path in (each, each + DONE_SUFFIX)]
        rows = self._connection.execute(
            f"SELECT path, whole, complete, fault FROM log WHERE job = ? AND path IN ({','.join('?' * len(asked))})",  # noqa: S608 - question marks only
            (self._job, *asked),
        )
        found: dict[str, UnitLog] = {}
        for stored, whole, complete, fault in rows:
            path = path_from_sql(stored)
            if path.endswith(DONE_SUFFIX):
                found.setdefault(path.removesuffix(DONE_SUFFIX), UnitLog())
            else:
                found[path] = UnitLog(whole, complete == 1, fault or "", complete == REMOVED)
        return found

    def _touch_found(self, sql: str, *model: int) -> None:
        found: Sequence[tuple[str | bytes]] = self._connection.execute(sql, (self._job, *model)).fetchall()
        for (path,) in found:
            self.touch(path_from_sql(path))
