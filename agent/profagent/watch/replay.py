"""`watch SESSION`: a stored session again, at the pace of its recorded times."""

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
from profagent.store.queries import find_session
from profagent.store.sampling import sampling_of
from profagent.store.sessions import require_records
from profagent.tables.provenance import session_title
from profagent.watch.live_board import LiveBoard
from profagent.watch.stored import Ran, ReplayedSession, called_models, first_start_us, jobs_of
from profagent.watch.watch import BOARD_EACH_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import aiosqlite

    from profagent.ingest.changes import JobChanges
    from profagent.store.events import Event
    from profagent.store.queries import SessionRow
    from profagent.store.workspace import Workspace
    from profagent.watch.stored import StoredJob

US_PER_S = 1_000_000
_PASSED_OVER = (
    "SELECT j.name, m.name, m.model_id, x.current_pic_count FROM sample x JOIN model m USING (model)"
    " JOIN job j USING (job)"
    " WHERE x.session = ? AND NOT x.kept ORDER BY x.model, x.current_pic_count"
)
NO_COUNTER_MAP = (
    "no counter map: the session was recorded without one, so PMU columns are missing; `profagent redecode` fills them"
)


@dataclass(frozen=True, slots=True)
class Replayed:
    """Which session to replay, and so many times as fast as it was."""

    workspace: Workspace
    session: int
    speed: float = 1.0
    with_records: bool = False


class Pace:
    """Waits until it is a moment's turn. It can stand still."""

    def __init__(self, speed: float, stop: asyncio.Event, now_s: Callable[[], float] = time.monotonic) -> None:
        self._speed, self._stop, self._now_s = speed, stop, now_s
        self._latest_us: int | None = None
        self._due_s = 0.0
        self._goes_on = asyncio.Event()
        self._goes_on.set()

    def begin(self, time_us: int | None) -> None:
        """What came before this time of the board is not waited for."""
        self._latest_us, self._due_s = time_us, self._now_s()

    def pause(self, *, is_paused: bool) -> None:
        """Stand still, or go on."""
        if is_paused:
            self._goes_on.clear()
        else:
            self._goes_on.set()

    async def reach(self, time_us: int | None) -> float:
        """Wait for this time of the board; by how many seconds of its clock the waiting was cut short."""
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
        self._due_s = self._now_s()


class Player:
    """Gives the events of a session. `with_layers` as of Composer."""

    def __init__(self, replayed: Replayed, *, with_layers: bool = False) -> None:
        self._replayed = replayed
        self.events = Composer(with_records=replayed.with_records, with_layers=with_layers)
        self._board = LiveBoard(with_all=with_layers)
        self._board_each_us = (BOARD_EACH_S / 4 if with_layers else BOARD_EACH_S) * US_PER_S
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
        """Show all of it, until `stop`; the summary. Raises UsageError, StoreError."""
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
                tell(NO_COUNTER_MAP)
            session = ReplayedSession(connection, found.session, jobs, self.events.slowest)
            # A ring of calls goes back further than the session.
            first_us = await first_start_us(connection, found.session)
            pace.begin(first_us)
            if first_us is not None and first_us < FIRST_WALL_US:
                tell("its times are of no wall clock: the day is not known")
            async for time_us, what in session.moments():
                passed_s = await pace.reach(time_us)
                if stop.is_set():
                    break
                if passed_s > 0:
                    tell(f"nothing came for {passed_s:,.0f} s more: that is passed over")
                if isinstance(what, str):
                    mark(time_us or 0, what)
                else:
                    self._take(what, time_us, show)
        self._tell_board(show)
        summary = self.events.summary()
        # Of all of it the store knows more: what other sessions had of its JOBs, and what a program passed over.
        return summary if stop.is_set() else {**summary, "sampling": sampling}

    async def _pass_over(self, connection: aiosqlite.Connection, session: int) -> None:
        """Let events know of the samples that the session did not keep: they came all the same."""
        rows = await fetched(connection, _PASSED_OVER, (session,))
        for (job, name, model_id), of_model in groupby(rows, itemgetter(0, 1, 2)):
            self.events.samples.pass_over(job, (name, model_id), [count for *_, count in of_model])

    def _know(self, found: SessionRow, jobs: Sequence[StoredJob]) -> None:
        """What events say of samples and counters."""
        for job in jobs:
            self.events.samples.tell(job.name, job.interval)
            self.events.samples.list(job.name)
        self.events.simulated = found.simulated
        if found.counter_map_likely:
            self.events.likely = found.counter_map_likely.split(",")

    def _take(self, what: JobChanges | Ran, time_us: int | None, show: Callable[[Event], None]) -> None:
        if isinstance(what, Ran):
            for event in self.events.ran(*what):
                show(event)
            return
        self._board.take(what)
        for event in self.events.changed(what):
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
    """Show a session in lines; the summary. Raises UsageError, StoreError."""

    def begin(session: SessionRow) -> None:
        mark = " [simulated]" if session.simulated else ""
        tell(f"replaying {session_title(session._asdict())}{mark}")

    def mark(_time_us: int, text: str) -> None:
        tell(f"mark: {text}")

    return await Player(replayed).play(begin, show, mark, tell, Pace(replayed.speed, stop), stop)
