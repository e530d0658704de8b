"""Replay of a stored session, at the pace of its recorded times (`watch SESSION`)."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from profagent.formats.records import FIRST_WALL_US
from profagent.limits import LONGEST_PAUSE_S
from profagent.store.database import fetched, reading
from profagent.store.events import Composer
from profagent.store.incidents import incident_of
from profagent.store.queries import find_session
from profagent.store.sampling import sampling_of
from profagent.store.sessions import require_records
from profagent.tables.provenance import session_title
from profagent.units import US_PER_S
from profagent.watch.live_board import LiveBoard
from profagent.watch.stored import ReplayedSession, StoredInferences, called_models, first_start_us, jobs_of
from profagent.watch.watch import BOARD_EACH_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import aiosqlite

    from profagent.ingest.changes import JobChanges
    from profagent.store.events import Event
    from profagent.store.queries import SessionRow
    from profagent.store.workspace import Workspace
    from profagent.watch.stored import StoredJob

_PASSED_OVER = (
    "SELECT j.name, m.name, m.model_id, x.current_pic_count FROM sample x JOIN model m USING (model)"
    " JOIN job j USING (job)"
    " WHERE x.session = ? AND NOT x.kept ORDER BY x.model, x.current_pic_count"
)
RECORDED_WITHOUT_MAP = (
    "no counter map: the session was recorded without one, so PMU columns are missing; `profagent redecode` fills them"
)


@dataclass(frozen=True, slots=True)
class Replayed:
    """Session to replay, and the factor by which the replay is faster than the recording.

    With `at` the replay begins at the window of that incident.
    """

    workspace: Workspace
    session: int
    speed: float = 1.0
    with_records: bool = False
    at: int | None = None


class Pace:
    """Clock of a replay: it waits until the recorded time of an event has come, and can be paused."""

    def __init__(self, speed: float, stop: asyncio.Event, now_s: Callable[[], float] = time.monotonic) -> None:
        self._speed, self._stop, self._now_s = speed, stop, now_s
        # Latest time of the board that was reached, in µs; None before the first.
        self._latest_us: int | None = None
        # When that time is due, by the host's clock. Delays of the display do not add up, because each due time
        # follows from the one before and not from the present.
        self._due_s = 0.0
        # Cleared while the replay is paused.
        self._goes_on = asyncio.Event()
        self._goes_on.set()

    def begin(self, time_us: int | None) -> None:
        """Set the time of the board from which on the pace counts; earlier events are not waited for."""
        self._latest_us, self._due_s = time_us, self._now_s()

    def pause(self, *, is_paused: bool) -> None:
        """Stop the clock, or let it go on."""
        if is_paused:
            self._goes_on.clear()
        else:
            self._goes_on.set()

    async def reach(self, time_us: int | None) -> float:
        """Wait for a time of the board; return the seconds of the board's clock by which a long pause was shortened."""
        if time_us is None:
            return 0.0
        if self._latest_us is None:
            self._latest_us, self._due_s = time_us, self._now_s()
        gap_s = max(0, time_us - self._latest_us) / US_PER_S / self._speed
        self._latest_us = max(self._latest_us, time_us)
        self._due_s += min(gap_s, LONGEST_PAUSE_S)
        if (left_s := self._due_s - self._now_s()) > 0:
            await self._wait(left_s)
        if not self._goes_on.is_set():
            await self._go_on()
        return max(0.0, gap_s - LONGEST_PAUSE_S) * self._speed

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()

    async def _go_on(self) -> None:
        stopping = asyncio.create_task(self._stop.wait())
        going = asyncio.create_task(self._goes_on.wait())
        await asyncio.wait([stopping, going], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        going.cancel()
        # The pause itself must not make the events after it late.
        self._due_s = self._now_s()


class Player:
    """Player of a session's events. `with_layers` has the meaning that it has for Composer."""

    def __init__(self, replayed: Replayed, *, with_layers: bool = False) -> None:
        self._replayed = replayed
        self.events = Composer(with_records=replayed.with_records, with_layers=with_layers)
        self._board = LiveBoard(with_all=with_layers)
        self._board_each_us = (BOARD_EACH_S / 4 if with_layers else BOARD_EACH_S) * US_PER_S
        # Time of the last board event in µs by the board's clock.
        self._board_us = 0

    async def play(
        self,
        begin: Callable[[SessionRow], None],
        show: Callable[[Event], None],
        mark: Callable[[int, str], None],
        tell: Callable[[str], None],
        pace: Pace,
        stop: asyncio.Event,
    ) -> Event:
        """Show the session until its end or until `stop`; return the summary. Raises UsageError, StoreError."""
        replayed = self._replayed
        async with reading(replayed.workspace.readable_database()) as connection:
            found = await find_session(connection, replayed.session)
            await require_records(connection, found.session)
            jobs = await jobs_of(connection, found.session)
            await self._pass_over(connection, found.session)
            sampling = await sampling_of(connection, found.session)
            self._know(found, jobs)
            for called in await called_models(connection, found.session):
                self.events.expect_calls(*called)
            begin(found)
            if found.counter_map is None and any(job.frequency_mhz and job.family is None for job in jobs):
                tell(RECORDED_WITHOUT_MAP)
            session = ReplayedSession(connection, found.session, jobs, self.events.slowest)
            # The pace begins at the first inference, because a ring of calls goes back further than the session.
            first_us = await first_start_us(connection, found.session)
            if replayed.at is not None:
                first_us = (await incident_of(connection, found.session, replayed.at)).begin_us
            pace.begin(first_us)
            if first_us is not None and first_us < FIRST_WALL_US:
                tell("its times come from no wall clock: the date is unknown")
            async for time_us, what in session.stream():
                if replayed.at is not None and time_us is not None and first_us is not None and time_us < first_us:
                    continue
                passed_s = await pace.reach(time_us)
                if stop.is_set():
                    break
                if passed_s > 0:
                    tell(f"nothing came for {passed_s:,.0f} s more: the replay skips this time")
                if isinstance(what, str):
                    mark(time_us or 0, what)
                else:
                    self._take(what, time_us, show)
        self._tell_board(show)
        summary = self.events.summary()
        # After a complete replay the sampling is that of the store, which also knows what other sessions had of the
        # JOBs, and which samples were passed over.
        return summary if stop.is_set() else {**summary, "sampling": sampling}

    async def _pass_over(self, connection: aiosqlite.Connection, session: int) -> None:
        """Register the samples that the session did not keep: they took place, and count as sampled."""
        rows = await fetched(connection, _PASSED_OVER, (session,))
        for (job, name, model_id), of_model in groupby(rows, itemgetter(0, 1, 2)):
            self.events.samples.pass_over(job, (name, model_id), [count for *_, count in of_model])

    def _know(self, found: SessionRow, jobs: Sequence[StoredJob]) -> None:
        for job in jobs:
            self.events.samples.set_interval(job.name, job.interval)
            self.events.samples.list(job.name)
        self.events.simulated = found.simulated
        if found.counter_map_likely:
            self.events.likely = found.counter_map_likely.split(",")

    def _take(self, what: JobChanges | StoredInferences, time_us: int | None, show: Callable[[Event], None]) -> None:
        if isinstance(what, StoredInferences):
            for event in self.events.inference_events(*what):
                show(event)
            return
        self._board.take(what)
        for event in self.events.change_events(what):
            show(event)
        if time_us is not None and time_us - self._board_us >= self._board_each_us:
            self._board_us = time_us
            self._tell_board(show)

    def _tell_board(self, show: Callable[[Event], None]) -> None:
        event = self._board.event()
        if event is not None:
            show({**event, "simulated": self.events.simulated})


async def replay(
    replayed: Replayed, show: Callable[[Event], None], tell: Callable[[str], None], stop: asyncio.Event
) -> Event:
    """Show a session as lines until its end or until `stop`; return the summary. Raises UsageError, StoreError."""

    def begin(session: SessionRow) -> None:
        mark = " [simulated]" if session.simulated else ""
        tell(f"replaying {session_title(session._asdict())}{mark}")

    def mark(_time_us: int, text: str) -> None:
        tell(f"mark: {text}")

    return await Player(replayed).play(begin, show, mark, tell, Pace(replayed.speed, stop), stop)
