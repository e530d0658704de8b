"""The JOB directories of this board and their states, kept for all clients at once."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from profagentd.follow.log import FileEvent
from profagentd.loop import Clock, NoAnswerError, in_time, moment
from profagentd.sources.job import (
    DATA_DIRECTORY,
    Gone,
    LogKind,
    NotAFile,
    OpenJob,
    Place,
    Unreadable,
    api_model,
    in_data,
    kind_of,
    open_directory,
    profiled_model,
)
from profagentd.sources.state import JobStateTracker, is_npu_open, since_boot_us

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Callable

    from profagentd.sources.acl_json import Profiling
    from profagentd.sources.job import DirectoryId


class Survey:
    """One survey, a slice at a time, so that no thread is held for long.

    A JOB has ended when at least one model's acl_api has its `.done`, and each log that is waited for has one that
    parses: the acl_api of a model built for profiling, and whatever has data. Empty files are not waited for.
    """

    def __init__(self, place: Place) -> None:
        self._looks = _looks(place)

    def look(self, names: int) -> bool | None:
        """Look at so many names more: whether the JOB has ended, or None when that is still open. Blocks."""
        try:
            for _ in range(names):
                verdict = next(self._looks)
                if verdict is not None:
                    return verdict
        except OSError:
            return False
        return None


def _looks(place: Place) -> Iterator[bool | None]:
    """None for each name that is no reason to decide; at last whether the JOB has ended."""
    with OpenJob(place) as files:
        profiled = set()
        interfaces = []
        for name in _names(place):
            profiled.add(profiled_model(name))
            if api_model(name) is not None:
                interfaces.append(name)
            yield None
        yield from _api_looks(files, interfaces, profiled)
        for name in _names(place):
            if kind_of(name) is LogKind.DATA and _is_waited_for(files, name):
                yield False
            yield None
    yield True


def _api_looks(files: OpenJob, interfaces: list[bytes], profiled: set[bytes | None]) -> Iterator[bool | None]:
    ended = False
    for name in interfaces:
        if files.done_length(in_data(name)) is not None:
            ended = True
        elif api_model(name) in profiled:
            yield False
        yield None
    if not ended:
        yield False


def _is_waited_for(files: OpenJob, name: bytes) -> bool:
    """Whether there is data and no end of it."""
    path = in_data(name)
    try:
        return files.done_length(path) is None and files.status(path).st_size > 0
    except (Gone, NotAFile, Unreadable):
        return False


def _names(place: Place) -> Iterator[bytes]:
    descriptor = open_directory(Place(place.root, os.path.join(place.path, DATA_DIRECTORY)))
    try:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                yield os.fsencode(entry.name)
    finally:
        os.close(descriptor)


_LOGGER = logging.getLogger(__name__)

# How often the states of JOBs that may change by mere time are looked at.
TICK_S = 0.2
# How long a client is kept waiting for the states of JOBs that were just found.
KNOW_ALL_S = 2.0
# Names that a survey looks at in one go.
SURVEY_NAMES = 2000
# Surveys of one JOB take at most this share of the time.
SURVEY_SHARE = 0.1


class JobListener(Protocol):
    """Who wants to know; called on the loop, and must not block."""

    def job_changed_state(self, job: Job) -> None:
        """The JOB is new or has another state."""

    def names_changed(self, job: Job, touches: Mapping[bytes, FileEvent]) -> None:
        """These names of the JOB may have changed."""

    def names_removed(self, job: Job) -> None:
        """Names of the JOB may be gone."""

    def anything_changed(self, job: Job) -> None:
        """Any name of the JOB may have changed."""


class Job:
    """A JOB directory."""

    def __init__(
        self,
        place: Place,
        made_wall_us: int,
        changed_wall_us: int,
        activity: JobStateTracker,
        *,
        is_scanned: bool,
        profiling: Profiling | None = None,
        directory: DirectoryId | None = None,
    ) -> None:
        self.place = place
        self.directory = directory  # that stands there
        self.name = os.path.basename(place.path).decode("ascii")
        self.made_wall_us = made_wall_us
        # By the clock that dated it: a board may wake in 1970 and have its clock set while the program runs.
        self.made_since_boot_us = since_boot_us(made_wall_us)
        self.changed_wall_us = changed_wall_us
        self.activity = activity
        self.is_scanned = is_scanned  # its changes are found by looking: between two looks a file may be replaced
        self.profiling = profiling  # what its program was told, where that is known
        self.state = activity.state  # as it was last told
        self.next_survey = float("-inf")  # monotonic


class JobRegistry:
    """Takes what the watch sees, and tells listeners of JOBs, names and states."""

    def __init__(self, clock: Clock, quiet_after_s: float) -> None:
        self.quiet_after_s = quiet_after_s
        self.on_missed: Callable[[Place], None] | None = None  # it answers with `found_again` or `gone`
        self.catch_up: Callable[[], None] = lambda: None  # have what waits to be told of JOBs told at once
        self._clock = clock
        self._jobs: dict[Place, Job] = {}
        self._unsettled: dict[Job, None] = {}
        self._listeners: list[JobListener] = []
        self._busy = asyncio.Event()
        self._strangers: set[Job] = set()  # JOBs that were never looked at
        self._knows_all = asyncio.Event()
        self._knows_all.set()

    @property
    def jobs(self) -> list[Job]:
        """All JOBs, oldest first."""
        return sorted(self._jobs.values(), key=lambda job: (job.made_wall_us, job.name))

    def has(self, place: Place) -> bool:
        """Whether the JOB is known."""
        return place in self._jobs

    def rest_s(self, job: Job) -> float:
        """How long nothing changed in a JOB, as far as it was seen."""
        self._see(job)
        return job.activity.rest_s

    def add_listener(self, listener: JobListener) -> None:
        """Tell it what happens from now on."""
        self._listeners.append(listener)

    def remove_listener(self, listener: JobListener) -> None:
        """Tell it nothing more."""
        self._listeners.remove(listener)

    async def know_all(self) -> None:
        """Wait until each JOB's state was looked at once, but not for long: there may be very many."""
        timer = asyncio.get_running_loop().call_later(KNOW_ALL_S, self._knows_all.set)
        try:
            await self._knows_all.wait()
        finally:
            timer.cancel()

    # What the watch sees

    def found(
        self,
        place: Place,
        made_wall_us: int,
        changed_wall_us: int,
        *,
        is_scanned: bool,
        profiling: Profiling | None = None,
        directory: DirectoryId | None = None,
    ) -> None:
        """There is a JOB directory that was not known."""
        now = moment(self._clock)
        activity = JobStateTracker(now.seen(changed_wall_us), self.quiet_after_s)
        activity.see(now.monotonic)
        job = self._jobs[place] = Job(
            place,
            made_wall_us,
            changed_wall_us,
            activity,
            is_scanned=is_scanned,
            profiling=profiling,
            directory=directory,
        )
        self._strangers.add(job)
        self._knows_all.clear()
        self._unsettle(job)
        _LOGGER.info("found %s, %s", os.fsdecode(place.directory), job.state.name.lower())
        for listener in self._listeners:
            listener.job_changed_state(job)

    def gone(self, place: Place) -> None:
        """A JOB directory is not there any more."""
        job = self._jobs.pop(place, None)
        if job:
            job.activity.remove()
            self._unsettled.pop(job, None)
            self._note_known(job)
            self._tell_state(job)

    def changed(self, place: Place, touches: Mapping[bytes, FileEvent]) -> None:
        """These names may have changed; a JOB from which names only go is not at work."""
        is_work = any(touch & (FileEvent.WRITTEN | FileEvent.CLOSED | FileEvent.MADE) for touch in touches.values())
        job = self._changed_job(place) if is_work else self._shrunk_job(place)
        if job:
            for listener in self._listeners:
                listener.names_changed(job, touches)

    def names_removed(self, place: Place) -> None:
        """Names of the JOB may be gone."""
        job = self._shrunk_job(place)
        if job:
            for listener in self._listeners:
                listener.names_removed(job)

    def unsure(self, place: Place) -> None:
        """Anything in the JOB may have changed."""
        job = self._changed_job(place)
        if job:
            for listener in self._listeners:
                listener.anything_changed(job)

    def missed(self, place: Place) -> None:
        """The JOB's directory was not there when somebody wanted to read it: whether it is gone is to be found out."""
        if self.on_missed and place in self._jobs:
            self.on_missed(place)

    def found_again(self, place: Place, directory: DirectoryId) -> None:
        """The JOB stands there after all, maybe in another directory."""
        if place in self._jobs:
            self._jobs[place].directory = directory
        self.unsure(place)

    def seen(self, place: Place, until: float) -> None:
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
            await self._clock.sleep(TICK_S)

    async def _look_at(self, job: Job) -> None:
        now = self._clock.monotonic()
        self._see(job)
        if job.activity.wants_survey and now >= job.next_survey:
            await self._survey(job)
        if job.activity.wants_npu(now):
            is_open = await asyncio.to_thread(is_npu_open, job.made_since_boot_us)
            job.activity.npu(is_open=bool(is_open), at=now)
        if job.state is not job.activity.state:
            self.catch_up()  # after a standstill a change waits where time has passed already
        self._tell_state(job)
        self._note_known(job)
        if job.activity.is_settled:
            self._unsettled.pop(job, None)

    def _see(self, job: Job) -> None:
        """What changes with a notice has not changed until now."""
        if not job.is_scanned:
            job.activity.see(self._clock.monotonic())

    async def _survey(self, job: Job) -> None:
        begun = self._clock.monotonic()
        survey, verdict = Survey(job.place), None
        with suppress(NoAnswerError):
            while verdict is None and job.activity.wants_survey:
                verdict = await in_time(job.place.root, survey.look, SURVEY_NAMES)
        if verdict is not None:
            job.activity.survey(complete=verdict, begun=begun)
        ended = self._clock.monotonic()
        job.next_survey = ended + (ended - begun) / SURVEY_SHARE

    def _changed_job(self, place: Place) -> Job | None:
        job = self._jobs.get(place)
        if job:
            now = moment(self._clock)
            job.changed_wall_us = now.wall_us
            job.activity.change(now.monotonic)
            self._unsettle(job)
            self._tell_state(job)
        return job

    def _shrunk_job(self, place: Place) -> Job | None:
        job = self._jobs.get(place)
        if job:
            job.activity.lose()
            self._unsettle(job)
            self._tell_state(job)
        return job

    def _note_known(self, job: Job) -> None:
        self._strangers.discard(job)
        if not self._strangers:
            self._knows_all.set()

    def _unsettle(self, job: Job) -> None:
        self._unsettled[job] = None
        self._busy.set()

    def _tell_state(self, job: Job) -> None:
        if job.state is job.activity.state:
            return
        job.state = job.activity.state
        _LOGGER.info("%s is %s", job.name, job.state.name.lower())
        for listener in self._listeners:
            listener.job_changed_state(job)
