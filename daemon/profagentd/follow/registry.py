"""The JOBs of this board and their states, kept for all clients at once."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable, Optional, Protocol

from profagentd.limits import KNOW_ALL_S, SURVEY_NAMES, SURVEY_SHARE
from profagentd.loop import DaemonClock, NoAnswerError, in_time, moment
from profagentd.sources import source_of
from profagentd.sources.files import JobGone, OpenCollection
from profagentd.sources.state import JobState, is_npu_open, since_boot_us

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from profagentd.follow.log import FileEvent
    from profagentd.sources.acl_json import Profiling
    from profagentd.sources.files import FolderPlace

_LOGGER = logging.getLogger(__name__)

# How often the states of JOBs that may change by mere time are looked at.
TICK_S = 0.5
# After a standstill of so long, what has happened meanwhile is heard before time counts.
STANDSTILL_S = 1.0
# A JOB whose logs are complete is finished after so long without a change (format page 1).
FINISHED_AFTER_S = 2.0
# How often it is looked whether a process still has the NPU open.
NPU_LOOK_S = 5.0


class JobStateTracker:
    """One JOB's changes and what a survey found.

    open → finished  nothing changed for FINISHED_AFTER_S, and a survey since then found everything complete
    open → quiet     nothing changed for `quiet_after_s`, and no process that may write has the NPU open
    quiet → finished a survey found everything complete
    finished, quiet → open   a change
    any → removed    the directory is gone
    """

    def __init__(self, changed: float, quiet_after_s: float) -> None:
        self._changed = changed  # of the newest change
        self._quiet_after_s = quiet_after_s
        self._seen_until = changed  # changes up to then would have been seen
        self._complete: bool | None = None  # None: not surveyed since the newest change
        self._npu_open = False
        self._npu_looked = float("-inf")
        self._removed = False

    def change(self, at: float) -> None:
        """Something changed."""
        self._changed = max(self._changed, at)
        self._seen_until = max(self._seen_until, at)
        self._complete = None

    def lose(self) -> None:
        """Names are gone, which is no sign of work; what was waited for may be among them."""
        if not self._complete:
            self._complete = None

    def see(self, until: float) -> None:
        """Nothing else has changed until then."""
        self._seen_until = max(self._seen_until, until)

    def survey(self, *, complete: bool, begun: float) -> None:
        """A survey that began then found all expected logs complete, or not."""
        if begun >= self._changed:
            self._complete = complete

    def npu(self, is_open: bool, at: float) -> None:
        """Whether a process that may write has the NPU open."""
        self._npu_open = is_open
        self._npu_looked = at

    def remove(self) -> None:
        """The directory is gone."""
        self._removed = True

    @property
    def wants_survey(self) -> bool:
        """Whether it is time to look whether everything is complete."""
        return not self._removed and self._complete is None and self.rest_s >= FINISHED_AFTER_S

    def wants_npu(self, now: float) -> bool:
        """Whether the state depends on who has the NPU open, and that was not looked at lately."""
        would_be_quiet = self.rest_s >= self._quiet_after_s and not self._complete
        return would_be_quiet and not self._removed and now - self._npu_looked >= NPU_LOOK_S

    @property
    def is_settled(self) -> bool:
        """Whether the state stays as it is until something changes."""
        return self._removed or (self._complete is not None and self.state is not JobState.OPEN)

    @property
    def state(self) -> JobState:
        """What the JOB is doing."""
        if self._removed:
            return JobState.REMOVED
        if self._complete and self.rest_s >= FINISHED_AFTER_S:
            return JobState.FINISHED
        if self.rest_s >= self._quiet_after_s and not self._npu_open:
            return JobState.QUIET
        return JobState.OPEN

    @property
    def rest_s(self) -> float:
        """How long nothing changed, as far as it was seen."""
        return self._seen_until - self._changed


# What may have happened to names: None for anything to any of them; where none is named, some may be gone.
Touches = Optional["Mapping[bytes, FileEvent]"]


class JobListener(Protocol):
    """Who wants to know; called on the loop, and must not block."""

    def job_changed_state(self, job: FollowedJob) -> None:
        """The JOB is new or has another state."""

    def names_changed(self, job: FollowedJob, touches: Touches) -> None:
        """These names of the JOB may have changed."""


@dataclass(eq=False)
class FollowedJob:
    """A JOB directory, or another source's collection."""

    place: FolderPlace
    made_wall_us: int
    changed_wall_us: int
    activity: JobStateTracker
    is_scanned: bool  # its changes are found by looking, in no order
    profiling: Profiling | None = None  # what its program was told, where that is known
    next_survey: float = float("-inf")  # monotonic

    def __post_init__(self) -> None:
        source = source_of(self.place.name)
        assert source is not None, "only a source's collections are found"
        self.source = source
        self.name = self.place.name.decode("utf-8", "backslashreplace")
        # By the clock that dated it: a board may wake in 1970 and have its clock set while the program runs.
        self.made_since_boot_us = since_boot_us(self.made_wall_us)
        self.state = self.activity.state  # as it was last told


class JobRegistry:
    """Takes what the watch sees, and tells listeners of JOBs, names and states."""

    def __init__(self, clock: DaemonClock, quiet_after_s: float) -> None:
        self.quiet_after_s = quiet_after_s
        self._clock = clock
        self._jobs: dict[FolderPlace, FollowedJob] = {}
        self._unsettled: dict[FollowedJob, None] = {}
        self._listeners: dict[JobListener, Callable[[], object]] = {}  # each with what is called after a telling
        self._busy = asyncio.Event()
        self._strangers: set[FollowedJob] = set()  # JOBs that were never looked at
        self._knows_all = asyncio.Event()
        self._knows_all.set()

    @property
    def jobs(self) -> list[FollowedJob]:
        """All JOBs, oldest first."""
        return sorted(self._jobs.values(), key=lambda job: (job.made_wall_us, job.name))

    def has(self, place: FolderPlace) -> bool:
        """Whether the JOB is known."""
        return place in self._jobs

    def rest_s(self, job: FollowedJob) -> float:
        """How long nothing changed in a JOB, as far as it was seen."""
        self._see(job)
        return job.activity.rest_s

    def add_listener(self, listener: JobListener, wake: Callable[[], object] = bool) -> None:
        """Tell it what happens from now on, and call `wake` after each telling."""
        self._listeners[listener] = wake

    def remove_listener(self, listener: JobListener) -> None:
        """Tell it nothing more."""
        del self._listeners[listener]

    async def know_all(self) -> None:
        """Wait until each JOB's state was looked at once, but not for long: there may be very many."""
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._knows_all.wait(), KNOW_ALL_S)

    # What the watch sees

    def found(
        self,
        place: FolderPlace,
        made_wall_us: int,
        changed_wall_us: int,
        *,
        is_scanned: bool,
        profiling: Profiling | None = None,
    ) -> None:
        """There is a JOB directory that was not known."""
        now = moment(self._clock)
        activity = JobStateTracker(now.seen(changed_wall_us), self.quiet_after_s)
        activity.see(now.monotonic)
        job = self._jobs[place] = FollowedJob(place, made_wall_us, changed_wall_us, activity, is_scanned, profiling)
        self._strangers.add(job)
        self._knows_all.clear()
        self._unsettle(job)
        _LOGGER.info("found %s, %s", os.fsdecode(place.directory), job.state.name.lower())
        self._tell(lambda listener: listener.job_changed_state(job))

    def gone(self, place: FolderPlace) -> None:
        """A JOB directory is not there any more."""
        job = self._jobs.pop(place, None)
        if job:
            job.activity.remove()
            self._unsettled.pop(job, None)
            self._note_known(job)
            self._tell_state(job)

    def changed(self, place: FolderPlace, touches: Touches) -> None:
        """These names may have changed; a JOB from which names only go is not at work."""
        job = self._jobs.get(place)
        if job is None:
            return
        if touches is None or any(touch.has_content for touch in touches.values()):
            now = moment(self._clock)
            job.changed_wall_us = now.wall_us
            job.activity.change(now.monotonic)
        else:
            job.activity.lose()
        self._unsettle(job)
        self._tell_state(job)
        self._tell(lambda listener: listener.names_changed(job, touches))

    def seen(self, place: FolderPlace, until: float) -> None:
        """Whatever changed in the JOB until then was told."""
        job = self._jobs.get(place)
        if job:
            job.activity.see(until)

    # States

    async def keep_states(self) -> None:
        """Let JOBs become finished or quiet as time passes. Runs until cancelled."""
        while True:
            await self._busy.wait()
            for job in sorted(self._unsettled, key=lambda each: -each.changed_wall_us):
                await self._look_at(job)
            if not self._unsettled:
                self._busy.clear()
            begun = self._clock.monotonic()
            await self._clock.sleep(TICK_S)
            if self._clock.monotonic() > begun + STANDSTILL_S:
                await self._clock.sleep(TICK_S)

    async def _look_at(self, job: FollowedJob) -> None:
        now = self._clock.monotonic()
        self._see(job)
        if job.activity.wants_survey and now >= job.next_survey:
            await self._survey(job)
        if job.activity.wants_npu(now):
            is_open = await asyncio.to_thread(is_npu_open, job.made_since_boot_us)
            job.activity.npu(is_open=bool(is_open), at=now)
        self._tell_state(job)
        self._note_known(job)
        if job.activity.is_settled:
            self._unsettled.pop(job, None)

    def _see(self, job: FollowedJob) -> None:
        """What changes with an event has not changed until now."""
        if not job.is_scanned:
            job.activity.see(self._clock.monotonic())

    async def _survey(self, job: FollowedJob) -> None:
        """Find out whether the JOB has ended, a slice at a time, so that no thread is held for long."""
        begun = self._clock.monotonic()
        looks, verdict = _has_ended(job), None
        with suppress(NoAnswerError):
            while verdict is None and job.activity.wants_survey:
                verdict = await in_time(job.place.root, _next_verdict, looks)
        if verdict is not None:
            job.activity.survey(complete=verdict, begun=begun)
        ended = self._clock.monotonic()
        job.next_survey = ended + (ended - begun) / SURVEY_SHARE

    def _note_known(self, job: FollowedJob) -> None:
        self._strangers.discard(job)
        if not self._strangers:
            self._knows_all.set()

    def _unsettle(self, job: FollowedJob) -> None:
        self._unsettled[job] = None
        self._busy.set()

    def _tell(self, tell: Callable[[JobListener], None]) -> None:
        for listener, wake in self._listeners.items():
            tell(listener)
            wake()

    def _tell_state(self, job: FollowedJob) -> None:
        if job.state is job.activity.state:
            return
        job.state = job.activity.state
        _LOGGER.info("%s is %s", job.name, job.state.name.lower())
        self._tell(lambda listener: listener.job_changed_state(job))


def _has_ended(job: FollowedJob) -> Iterator[bool | None]:
    with OpenCollection(job.place) as files:
        yield from job.source.has_ended(files)


def _next_verdict(looks: Iterator[bool | None]) -> bool | None:
    """What so many looks more decide. Blocks."""
    try:
        return next((verdict for verdict in itertools.islice(looks, SURVEY_NAMES) if verdict is not None), None)
    except (OSError, JobGone):
        return False
