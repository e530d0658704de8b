"""The registry of this board's JOBs and their states, shared by all clients."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable, Optional, Protocol

from profagentd.limits import KNOW_ALL_S, SURVEY_NAMES, SURVEY_SHARE
from profagentd.loop import DaemonClock, NoAnswerError, in_time, read_clocks
from profagentd.sources import source_of
from profagentd.sources.files import JobGone, OpenCollection
from profagentd.sources.state import JobState, is_npu_open, since_boot_us

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from profagentd.follow.log import FileEvent
    from profagentd.sources.acl_json import Profiling
    from profagentd.sources.files import FolderPlace

_LOGGER = logging.getLogger(__name__)

# Interval of checking JOBs whose state changes by the mere passing of time.
TICK_S = 0.5
# After a suspension of this length, events that wait are handled before the elapsed time counts as rest.
STANDSTILL_S = 1.0
# A JOB whose logs are complete is finished after this time without a change (the-format.md 1).
FINISHED_AFTER_S = 2.0
# Interval of checking whether a process has the NPU open: each check walks /proc.
NPU_LOOK_S = 5.0


class JobStateTracker:
    """State machine of one JOB: its changes, and the result of the last survey.

    open → finished          nothing changed for FINISHED_AFTER_S, and a survey since then found all logs complete
    open → quiet             nothing changed for `quiet_after_s`, and no process that may write has the NPU open
    quiet → finished         a survey found all logs complete
    finished, quiet → open   something changed
    any → removed            the directory is gone

    All times are of the monotonic clock. Rest is counted only up to the time until which changes would have been seen:
    a daemon that was suspended must not take its own absence for the JOB's rest.
    """

    def __init__(self, changed: float, quiet_after_s: float) -> None:
        self._changed = changed  # time of the newest change
        self._quiet_after_s = quiet_after_s
        self._seen_until = changed  # every change up to this time was seen
        self._complete: bool | None = None  # None: not surveyed since the newest change
        self._npu_open = False  # result of the last check for processes
        self._npu_looked = float("-inf")  # time of that check
        self._removed = False  # the directory is gone

    def note_change(self, at: float) -> None:
        """Record a change at the time `at`; surveys that began before it no longer count."""
        self._changed = max(self._changed, at)
        self._seen_until = max(self._seen_until, at)
        self._complete = None

    def note_removed_names(self) -> None:
        """Record that names are gone, which is no sign of work; logs that a survey waited for may be among them."""
        # A complete JOB stays complete without these names. An incomplete one may have waited for one of them.
        if not self._complete:
            self._complete = None

    def note_seen_until(self, until: float) -> None:
        """Record that every change up to that time was seen."""
        self._seen_until = max(self._seen_until, until)

    def note_survey(self, *, complete: bool, begun: float) -> None:
        """Record the result of a survey that began at that time: all expected logs complete, or not."""
        # A survey that began before the newest change may have missed it.
        if begun >= self._changed:
            self._complete = complete

    def note_npu(self, is_open: bool, at: float) -> None:
        """Record at the time `at` whether a process that may write has the NPU open."""
        self._npu_open = is_open
        self._npu_looked = at

    def mark_removed(self) -> None:
        """Record that the directory is gone."""
        self._removed = True

    @property
    def wants_survey(self) -> bool:
        """True if a survey is due."""
        return not self._removed and self._complete is None and self.rest_s >= FINISHED_AFTER_S

    def wants_npu(self, now: float) -> bool:
        """Return True if the state depends on who has the NPU open and the last check is too old."""
        would_be_quiet = self.rest_s >= self._quiet_after_s and not self._complete
        return would_be_quiet and not self._removed and now - self._npu_looked >= NPU_LOOK_S

    @property
    def is_settled(self) -> bool:
        """True if the state stays as it is until something changes."""
        return self._removed or (self._complete is not None and self.state is not JobState.OPEN)

    @property
    def state(self) -> JobState:
        """State of the JOB now."""
        if self._removed:
            return JobState.REMOVED
        if self._complete and self.rest_s >= FINISHED_AFTER_S:
            return JobState.FINISHED
        if self.rest_s >= self._quiet_after_s and not self._npu_open:
            return JobState.QUIET
        return JobState.OPEN

    @property
    def rest_s(self) -> float:
        """Seconds without a change, up to the time until which changes were seen."""
        return self._seen_until - self._changed


# Changes by path. None: any name may have changed. Empty: some names may be gone.
Touches = Optional["Mapping[bytes, FileEvent]"]


class JobListener(Protocol):
    """Listener of the registry. It is called on the loop, and must not block."""

    def job_changed_state(self, job: FollowedJob) -> None:
        """Handle a JOB that is new or has another state."""

    def names_changed(self, job: FollowedJob, touches: Touches) -> None:
        """Handle changes of these names of the JOB."""


@dataclass(eq=False)
class FollowedJob:
    """JOB directory, or another source's collection, and its state."""

    place: FolderPlace
    made_wall_us: int
    changed_wall_us: int
    activity: JobStateTracker
    is_scanned: bool  # its changes are found by scanning, which gives them in no order
    profiling: Profiling | None = None  # the program's profiling settings, where they are known
    next_survey: float = float("-inf")  # monotonic time before which no survey begins

    def __post_init__(self) -> None:
        source = source_of(self.place.name)
        assert source is not None, "only a source's collections are found"
        self.source = source
        self.name = self.place.name.decode("utf-8", "backslashreplace")
        # Taken now, by the clock that dated the directory: a board may boot in 1970 and have its clock set while the
        # program runs.
        self.made_since_boot_us = since_boot_us(self.made_wall_us)
        self.state = self.activity.state  # as listeners last heard it


class JobRegistry:
    """Table of all known JOBs. The discovery reports changes to it, and it notifies the listeners."""

    def __init__(self, clock: DaemonClock, quiet_after_s: float) -> None:
        self.quiet_after_s = quiet_after_s
        self._clock = clock
        # The JOBs whose directories exist.
        self._jobs: dict[FolderPlace, FollowedJob] = {}
        # JOBs whose state may change by time; a dict, so that order stays and removal is cheap.
        self._unsettled: dict[FollowedJob, None] = {}
        self._listeners: dict[JobListener, Callable[[], object]] = {}  # each with what is called after it
        self._busy = asyncio.Event()  # set while some JOB is unsettled
        self._unexamined: set[FollowedJob] = set()  # JOBs whose state was never examined
        self._all_examined = asyncio.Event()  # set while there are no unexamined JOBs
        self._all_examined.set()

    @property
    def jobs(self) -> list[FollowedJob]:
        """All JOBs, oldest first."""
        return sorted(self._jobs.values(), key=lambda job: (job.made_wall_us, job.name))

    def has(self, place: FolderPlace) -> bool:
        """Return True if the JOB is known."""
        return place in self._jobs

    def rest_s(self, job: FollowedJob) -> float:
        """Return the seconds without a change in a JOB, up to the time until which changes were seen."""
        self._note_seen_now(job)
        return job.activity.rest_s

    def add_listener(self, listener: JobListener, wake: Callable[[], object] = bool) -> None:
        """Notify the listener of everything from now on, and call `wake` after each notification."""
        self._listeners[listener] = wake

    def remove_listener(self, listener: JobListener) -> None:
        """Notify the listener no more."""
        del self._listeners[listener]

    async def wait_until_examined(self) -> None:
        """Wait until each JOB's state was examined once, at most KNOW_ALL_S: there may be very many JOBs."""
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._all_examined.wait(), KNOW_ALL_S)

    # What the discovery reports

    def add_job(
        self,
        place: FolderPlace,
        made_wall_us: int,
        changed_wall_us: int,
        *,
        is_scanned: bool,
        profiling: Profiling | None = None,
    ) -> None:
        """Add a JOB directory that was not known."""
        now = read_clocks(self._clock)
        activity = JobStateTracker(now.monotonic_of(changed_wall_us), self.quiet_after_s)
        activity.note_seen_until(now.monotonic)
        job = self._jobs[place] = FollowedJob(place, made_wall_us, changed_wall_us, activity, is_scanned, profiling)
        self._unexamined.add(job)
        self._all_examined.clear()
        self._unsettle(job)
        _LOGGER.info("found %s, %s", os.fsdecode(place.directory), job.state.name.lower())
        self._notify(lambda listener: listener.job_changed_state(job))

    def remove_job(self, place: FolderPlace) -> None:
        """Remove a JOB whose directory is gone."""
        job = self._jobs.pop(place, None)
        if job:
            job.activity.mark_removed()
            self._unsettled.pop(job, None)
            self._note_examined(job)
            self._notify_state(job)

    def note_changes(self, place: FolderPlace, touches: Touches) -> None:
        """Record changes of these names. Names that only go away do not make a JOB open."""
        job = self._jobs.get(place)
        if job is None:
            return
        if touches is None or any(touch.brings_content for touch in touches.values()):
            now = read_clocks(self._clock)
            job.changed_wall_us = now.wall_us
            job.activity.note_change(now.monotonic)
        else:
            job.activity.note_removed_names()
        self._unsettle(job)
        self._notify_state(job)
        self._notify(lambda listener: listener.names_changed(job, touches))

    def note_seen_until(self, place: FolderPlace, until: float) -> None:
        """Record that every change in the JOB up to that time was reported."""
        job = self._jobs.get(place)
        if job:
            job.activity.note_seen_until(until)

    # States

    async def update_states(self) -> None:
        """Let JOBs become finished or quiet as time passes. Runs until cancelled."""
        while True:
            await self._busy.wait()
            # Newest changes first: surveys of many old JOBs must not delay the state of the one that runs now.
            for job in sorted(self._unsettled, key=lambda each: -each.changed_wall_us):
                await self._examine(job)
            if not self._unsettled:
                self._busy.clear()
            begun = self._clock.monotonic()
            await self._clock.sleep(TICK_S)
            # The machine was suspended, or the loop was blocked: give the events that wait one more tick.
            if self._clock.monotonic() > begun + STANDSTILL_S:
                await self._clock.sleep(TICK_S)

    async def _examine(self, job: FollowedJob) -> None:
        now = self._clock.monotonic()
        self._note_seen_now(job)
        if job.activity.wants_survey and now >= job.next_survey:
            await self._survey(job)
        if job.activity.wants_npu(now):
            is_open = await asyncio.to_thread(is_npu_open, job.made_since_boot_us)
            job.activity.note_npu(is_open=bool(is_open), at=now)
        self._notify_state(job)
        self._note_examined(job)
        if job.activity.is_settled:
            self._unsettled.pop(job, None)

    def _note_seen_now(self, job: FollowedJob) -> None:
        """Record that nothing changed until now, for a JOB whose changes arrive as events."""
        if not job.is_scanned:
            job.activity.note_seen_until(self._clock.monotonic())

    async def _survey(self, job: FollowedJob) -> None:
        """Find out if the JOB has ended, a slice at a time, so that no thread of the root is held for long."""
        begun = self._clock.monotonic()
        looks, verdict = _has_ended(job), None
        with suppress(NoAnswerError):
            while verdict is None and job.activity.wants_survey:
                verdict = await in_time(job.place.root, _next_verdict, looks)
        if verdict is not None:
            job.activity.note_survey(complete=verdict, begun=begun)
        ended = self._clock.monotonic()
        # Surveys of one JOB take SURVEY_SHARE of the time at most: a JOB may hold a million names.
        job.next_survey = ended + (ended - begun) / SURVEY_SHARE

    def _note_examined(self, job: FollowedJob) -> None:
        self._unexamined.discard(job)
        if not self._unexamined:
            self._all_examined.set()

    def _unsettle(self, job: FollowedJob) -> None:
        self._unsettled[job] = None
        self._busy.set()

    def _notify(self, call: Callable[[JobListener], None]) -> None:
        for listener, wake in self._listeners.items():
            call(listener)
            wake()

    def _notify_state(self, job: FollowedJob) -> None:
        if job.state is job.activity.state:
            return
        job.state = job.activity.state
        _LOGGER.info("%s is %s", job.name, job.state.name.lower())
        self._notify(lambda listener: listener.job_changed_state(job))


def _has_ended(job: FollowedJob) -> Iterator[bool | None]:
    with OpenCollection(job.place) as files:
        yield from job.source.has_ended(files)


def _next_verdict(looks: Iterator[bool | None]) -> bool | None:
    """Return the first verdict within the next SURVEY_NAMES names, None if there is none, False on errors. Blocks."""
    try:
        return next((verdict for verdict in itertools.islice(looks, SURVEY_NAMES) if verdict is not None), None)
    except (OSError, JobGone):
        return False
