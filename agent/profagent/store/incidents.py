"""Incidents of a flight recorder: what fired, and the windows of which inferences are kept."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent.errors import UsageError
from profagent.formats.incident_rules import RuleState, RuleSubject
from profagent.formats.inference_times import Spans
from profagent.ingest.marks import NEW_MARKS, NEW_SPANS, marks_of_frames
from profagent.ingest.metrics import NEW_SAMPLES
from profagent.limits import MARKS_SEEN_AGAIN
from profagent.store.database import fetched
from profagent.store.frame_rules import FrameRules
from profagent.units import NS_PER_US

if TYPE_CHECKING:
    import sqlite3

    import aiosqlite
    from numpy.typing import NDArray

    from profagent.formats.incident_rules import IncidentRule, KeepWhen

US_PER_DAY = 86_400_000_000
# Sources whose newest row is remembered: the marks of each log, and the time up to which frames were judged.
_FRAMES, _JUDGED = "frames", "judged"
_SESSION_MARKS = "SELECT rowid, time_us, text FROM session_mark WHERE session = ?1 AND rowid > ?2"
_LOSSES = "SELECT entry, reason FROM ledger_entry WHERE session = ?1 AND entry > ?2 AND grade = 'loss' ORDER BY entry"
_LOGS = (
    "SELECT log FROM session_job s JOIN job j USING (job) JOIN log l ON l.job = j.job"
    " WHERE s.session = ? AND j.name GLOB ? AND l.offset > 0"
)
# Of these inferences, how many are here, and the bytes of their logs.
_KEPT = (
    "SELECT (SELECT count(*) FROM json_each(?1) CROSS JOIN inference ON inference = value),"
    " (SELECT ifnull(sum(offset), 0) FROM log WHERE log IN"
    " (SELECT log FROM json_each(?1) CROSS JOIN segment ON inference = value))"
)
# Inferences that are here and ended before a time.
_BEFORE = (
    "SELECT inference, start_us, end_us FROM inference"
    " WHERE session = ? AND figures = 'final' AND start_us IS NOT NULL AND end_us <= ?"
)


@dataclass(slots=True)
class Incident:
    """Row of the table `incident`, whose comments say what each column means."""

    number: int
    time_us: int
    rule: str
    value: float | None
    bound: float | None
    unit: str
    model: str | None
    inference: int | None
    culprit: str | None
    excess_us: float | None
    begin_us: int
    end_us: int
    kept: int
    inferences: int = 0
    bytes: int = 0

    @property
    def row(self) -> tuple[Any, ...]:
        """Columns of the row behind its session."""
        return tuple(getattr(self, name) for name in _COLUMNS)

    @property
    def rules(self) -> list[str]:
        """Rules that fired in the window."""
        return self.rule.split("; ")

    def take(self, found: Found) -> None:
        """Add what fired another rule, which comes first if it has the larger excess: the incident is about that."""
        rules = self.rules
        if (found.excess_us or 0.0) > (self.excess_us or 0.0):
            rules = [found.rule, *(each for each in rules if each != found.rule)]
            self.value, self.bound, self.unit = found.value, found.bound, found.unit
            self.model, self.culprit, self.excess_us = found.model, found.culprit, found.excess_us
            if self.kept:
                self.inference = found.inference or self.inference
        elif found.rule not in rules:
            rules.append(found.rule)
        self.rule = "; ".join(rules)


_COLUMNS = tuple(each.name for each in fields(Incident))
_ROW = ", ".join(_COLUMNS)
_OF_SESSION = f"SELECT {_ROW} FROM incident WHERE session = ? ORDER BY time_us, number"  # noqa: S608 - names of columns
_WRITE = f"INSERT OR REPLACE INTO incident (session, {_ROW}) VALUES ({', '.join('?' * (len(_COLUMNS) + 1))})"  # noqa: S608 - as above


class Found(NamedTuple):
    """What fired a rule: when, with which value and bound, in which model and inference, and what was slow there."""

    time_us: int
    rule: str
    value: float | None = None
    bound: float | None = None
    unit: str = ""
    model: str | None = None
    inference: int | None = None
    culprit: str | None = None
    excess_us: float | None = None


async def has_recorders(connection: aiosqlite.Connection) -> bool:
    """Return True if a database can have flight recorders; one of an earlier version has no tables for them."""
    return bool(await fetched(connection, "SELECT 1 FROM sqlite_master WHERE name = 'flight_recorder'"))


async def incidents_of(connection: aiosqlite.Connection, session: int) -> list[Incident]:
    """Return the incidents of a session in the order of time."""
    rows = await fetched(connection, _OF_SESSION, (session,)) if await has_recorders(connection) else []
    return [Incident(*row) for row in rows]


async def incident_of(connection: aiosqlite.Connection, session: int, number: int) -> Incident:
    """Return an incident of a session. Raises UsageError if the session has none with this number."""
    found = await incidents_of(connection, session)
    for incident in found:
        if incident.number == number:
            return incident
    if not found:
        hint = "replay or export the session without it: only `record --keep-when` finds incidents"
        raise UsageError(f"session {session} has no incidents", hint=hint)
    raise UsageError(
        f"session {session} has no incident {number}, but {len(found)}",
        hint=f"`profagent incidents {session}` lists them",
    )


async def recorder_of(connection: aiosqlite.Connection, session: int) -> tuple[str, int] | None:
    """Return the rules of a session's flight recorder, and how many values made no incident because of the cool-down.

    None for a session without one.
    """
    query = "SELECT rules, cooled_down FROM flight_recorder WHERE session = ?"
    rows = await fetched(connection, query, (session,)) if await has_recorders(connection) else []
    return (rows[0][0], rows[0][1]) if rows else None


async def incident_counts(connection: aiosqlite.Connection) -> dict[int, int]:
    """Return the number of incidents of each session that has some."""
    if not await has_recorders(connection):
        return {}
    return dict(await fetched(connection, "SELECT session, count(*) FROM incident GROUP BY session"))


class Incidents:
    """Incidents of one session, and the states of the rules; read from the database when it is made."""

    def __init__(self, connection: sqlite3.Connection, session: int, choice: KeepWhen) -> None:
        self._session, self._choice = session, choice
        self.all = [Incident(*row) for row in connection.execute(_OF_SESSION, (session,))]
        # Incidents to write, by number.
        self._changed: dict[int, Incident] = {}
        # Inferences that were kept, by number of their incident.
        self._kept: dict[int, list[int]] = {}
        connection.execute("INSERT OR IGNORE INTO flight_recorder VALUES (?, ?, NULL, '{}', 0)", (session, str(choice)))
        ((self.decided_us, seen, self.cooled_down),) = connection.execute(
            "SELECT decided_us, seen, cooled_down FROM flight_recorder WHERE session = ?", (session,)
        ).fetchall()
        # Numbers of the last rows of other tables that were looked at.
        self._seen: dict[str, int] = json.loads(seen)
        self._framed = FrameRules(choice.rules)
        # The marks before tell what is usual, and have the frames that were not complete.
        for source in [each for each in self._seen if each.startswith(_FRAMES)]:
            self._seen[source] -= MARKS_SEEN_AGAIN
        self._recount(connection)
        # By rule and model.
        self._states = {
            (rule, incident.model or ""): RuleState(fired_us=incident.time_us)
            for incident in self.all
            for rule in incident.rules
        }

    def state(self, rule: IncidentRule, model: str = "") -> RuleState:
        """Return the state of a rule, for one model where it is about inferences."""
        return self._states.setdefault((rule.text, model), RuleState())

    def fires(self, rule: IncidentRule, state: RuleState, value: float, bound: float, time_us: int) -> bool:
        """Pass a value to a rule's state; return True if it makes an incident."""
        before = state.passed_over
        fires = state.fires(rule, value, bound, time_us, self._choice.cool_down_us)
        self.cooled_down += state.passed_over - before
        return fires

    @property
    def kept(self) -> set[int]:
        """Inferences that are kept for an incident."""
        return {number for numbers in self._kept.values() for number in numbers}

    def _recount(self, connection: sqlite3.Connection) -> None:
        """Count the inferences of kept windows by their rows, whatever a process before wrote until it was killed."""
        rows = connection.execute(_BEFORE, (self._session, self.decided_us)).fetchall()
        numbers, begin_us, end_us = np.array(rows, np.int64).reshape(-1, 3).T
        places = self.places(Spans(begin_us.astype(np.float64), end_us.astype(np.float64)))
        for place, incident in enumerate(self.all):
            if incident.kept:
                self._count_kept(connection, incident, numbers[places == place])

    def add(self, found: Found) -> None:
        """Add an incident, or widen the window of one that it overlaps.

        A kept window is not widened any more when the budget of the day is spent.
        """
        begin, end = found.time_us - self._choice.around_us, found.time_us + self._choice.around_us
        has_budget = self._has_budget(found.time_us)
        # Most incidents are found in the order of time.
        for incident in reversed(self.all):
            is_inside = incident.begin_us <= found.time_us <= incident.end_us
            can_widen = has_budget or not incident.kept
            if is_inside or (can_widen and incident.begin_us <= end and begin <= incident.end_us):
                if can_widen:
                    incident.begin_us, incident.end_us = min(begin, incident.begin_us), max(end, incident.end_us)
                if found.time_us == incident.time_us and incident.kept:
                    # The same inference, decoded anew under another number.
                    incident.inference = found.inference or incident.inference
                incident.take(found)
                self._changed[incident.number] = incident
                return
            if incident.end_us < begin - US_PER_DAY:
                break
        number = max((each.number for each in self.all), default=0) + 1
        made = Incident(number, **found._asdict(), begin_us=begin, end_us=end, kept=1)
        self.all.append(made)
        self._changed[number] = made
        if not has_budget:
            self._pass_over(made)

    def _pass_over(self, incident: Incident) -> None:
        """Keep no inference of an incident."""
        incident.kept, incident.inference = 0, None
        self._changed[incident.number] = incident

    def _has_budget(self, time_us: int) -> bool:
        if self._choice.budget_bytes is None:
            return True
        day = time_us // US_PER_DAY
        return sum(each.bytes for each in self.all if each.time_us // US_PER_DAY == day) < self._choice.budget_bytes

    def places(self, whole: Spans) -> NDArray[np.int64]:
        """Return for each inference the place of the incident whose window has a part of it, -1 for none.

        In several windows, one that is kept counts.
        """
        places = np.full(len(whole.begin_us), -1)
        if len(places) and self.all:
            first, last = whole.begin_us.min(), whole.end_us.max()
            near = [
                (place, incident)
                for place, incident in enumerate(self.all)
                if incident.end_us >= first and incident.begin_us <= last
            ]
            for place, incident in sorted(near, key=lambda each: each[1].kept):
                places[(whole.end_us >= incident.begin_us) & (whole.begin_us <= incident.end_us)] = place
        return places

    def keep(self, connection: sqlite3.Connection, numbers: NDArray[np.int64], whole: Spans) -> NDArray[np.bool_]:
        """Decide about inferences; return which of them are kept, and count these.

        An incident found while records came faster than they were decided is kept only if the day has budget left when
        the first inference of its window is decided.
        """
        self.decided_us = int(max(self.decided_us or 0, whole.end_us.max()))
        places = self.places(whole)
        is_kept = np.zeros(len(numbers), np.bool_)
        for place in sorted(np.unique(places[places >= 0]).tolist(), key=lambda place: self.all[place].time_us):
            incident = self.all[place]
            if not incident.inferences and not self._has_budget(incident.time_us):
                self._pass_over(incident)
            if incident.kept:
                ours = places == place
                self._count_kept(connection, incident, numbers[ours])
                is_kept |= ours
        return is_kept

    def _count_kept(self, connection: sqlite3.Connection, incident: Incident, numbers: NDArray[np.int64]) -> None:
        """Add inferences to a window. Those that were decoded anew meanwhile have another number, and count once."""
        kept = self._kept.setdefault(incident.number, [])
        kept += numbers.tolist()
        incident.inferences, incident.bytes = connection.execute(_KEPT, (json.dumps(kept),)).fetchone()
        self._changed[incident.number] = incident

    def count_thinned(self, whole: Spans) -> None:
        """Count inferences that were thinned in this transaction in the incidents that the budget has passed over."""
        places = self.places(whole)
        for place in np.unique(places[places >= 0]).tolist():
            incident = self.all[place]
            incident.inferences += int((places == place).sum())
            self._changed[incident.number] = incident

    def write(self, connection: sqlite3.Connection) -> None:
        """Write what has changed, in the open transaction."""
        connection.executemany(_WRITE, [(self._session, *each.row) for each in self._changed.values()])
        self._changed.clear()
        connection.execute(
            "UPDATE flight_recorder SET decided_us = ?, seen = ?, cooled_down = ? WHERE session = ?",
            (self.decided_us, json.dumps(self._seen), self.cooled_down, self._session),
        )

    # What fires without an inference: marks, metrics, losses, and what a person marked on the screen

    def look_elsewhere(self, connection: sqlite3.Connection, now_us: int | None) -> None:
        """Add the incidents of new marks, metrics and losses; `now_us` is the board's newest time, None if unknown."""
        for _, time_us, text in self._new(connection, "session_mark", _SESSION_MARKS):
            self.add(Found(time_us, f"marked: {text}" if text else "marked"))
        by_subject = {each: [rule for rule in self._choice.rules if rule.subject is each] for each in RuleSubject}
        if by_subject[RuleSubject.LOSS] and now_us is not None:
            for _, reason in self._new(connection, "ledger_entry", _LOSSES):
                self.add(Found(now_us, f"loss: {reason}"))
        for subject, kind, query in (
            (RuleSubject.MARK, "MARKS-*", NEW_MARKS),
            (RuleSubject.METRIC, "METRICS-*", NEW_SAMPLES),
        ):
            if rules := by_subject[subject]:
                for (log,) in connection.execute(_LOGS, (self._session, kind)).fetchall():
                    for _, time_us, name, value in self._new(connection, f"{subject} {log}", query, log):
                        for rule in rules:
                            if rule.name in ("", name):
                                self._take(rule, time_us, value)

    def look_at_frames(self, connection: sqlite3.Connection, *, is_over: bool) -> None:
        """Add the incidents of frames and stages; with `is_over` no frame gets further stages."""
        if not self._framed.rules:
            return
        for (log,) in connection.execute(_LOGS, (self._session, "MARKS-*")).fetchall():
            rows = self._new(connection, f"{_FRAMES} {log}", NEW_SPANS, log)
            self._framed.take(marks_of_frames(rows))
        for rule, time_us, value, bound, culprit, excess_us in self._framed.judged(
            self._seen.get(_JUDGED, -1), is_over=is_over
        ):
            if self.fires(rule, self.state(rule), value, bound, time_us):
                found = Found(time_us, rule.text, value, bound, rule.unit, culprit=culprit, excess_us=excess_us)
                self.add(found)
        if until_ns := self._framed.judged_until_ns:
            self._seen[_JUDGED] = until_ns

    @property
    def judged_until_us(self) -> float | None:
        """Time before which rules about frames have judged everything, by the board's clock; None without any frame."""
        until_ns = self._framed.judged_until_ns
        return until_ns / NS_PER_US if until_ns else None

    def _take(self, rule: IncidentRule, time_us: int, value: float | None) -> None:
        state, bound = self.state(rule), rule.bound(None)
        if value is None or bound is None:
            # A mark is met and left at once.
            state.is_ready, value, bound = True, None, None
        if self.fires(rule, state, *((1.0, 0.0) if value is None or bound is None else (value, bound)), time_us):
            self.add(Found(time_us, rule.text, value, bound))

    def _new(self, connection: sqlite3.Connection, source: str, query: str, *more: int) -> list[tuple[Any, ...]]:
        rows = connection.execute(query, (self._session, self._seen.get(source, -1), *more)).fetchall()
        if rows:
            self._seen[source] = max(row[0] for row in rows)
        return rows
