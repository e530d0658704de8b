"""The JOB directories of this board and their states, kept for all clients at once."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Protocol

from profagentd.clock import Clock, moment
from profagentd.state import Activity, JobState
from profagentd.survey import survey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from profagentd.changes import Touch
    from profagentd.opening import Place

_LOGGER = logging.getLogger(__name__)

# How often the states of JOBs that may change by mere time are looked at.
TICK_S = 0.2


class Listener(Protocol):
    """Who wants to know; called on the loop, and must not block."""

    def job_changed_state(self, job: Job) -> None:
        """The JOB is new or has another state."""

    def names_changed(self, job: Job, touches: Mapping[bytes, Touch]) -> None:
        """These names of the JOB may have changed."""

    def anything_changed(self, job: Job) -> None:
        """Any name of the JOB may have changed."""


class Job:
    """A JOB directory."""

    def __init__(self, place: Place, made_wall_us: int, changed_wall_us: int, activity: Activity) -> None:
        self.place = place
        self.name = os.path.basename(place.path).decode("ascii")
        self.made_wall_us = made_wall_us
        self.changed_wall_us = changed_wall_us
        self.activity = activity
        self.state = activity.state  # as it was last told


class Board:
    """Takes what the watch sees, and tells listeners of JOBs, names and states."""

    def __init__(self, clock: Clock, quiet_after_s: float) -> None:
        self._clock = clock
        self._quiet_after_s = quiet_after_s
        self._jobs: dict[Place, Job] = {}
        self._unsettled: dict[Job, None] = {}
        self._listeners: list[Listener] = []
        self._busy = asyncio.Event()

    @property
    def jobs(self) -> list[Job]:
        """All JOBs, oldest first."""
        return sorted(self._jobs.values(), key=lambda job: (job.made_wall_us, job.name))

    def add_listener(self, listener: Listener) -> None:
        """Tell it what happens from now on."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        """Tell it nothing more."""
        self._listeners.remove(listener)

    # What the watch sees

    def found(self, place: Place, made_wall_us: int, changed_wall_us: int) -> None:
        """There is a JOB directory."""
        if place in self._jobs:
            return
        now = moment(self._clock)
        activity = Activity(now.seen(changed_wall_us), self._quiet_after_s)
        activity.see(now.monotonic)
        job = self._jobs[place] = Job(place, made_wall_us, changed_wall_us, activity)
        self._unsettle(job)
        for listener in self._listeners:
            listener.job_changed_state(job)

    def gone(self, place: Place) -> None:
        """A JOB directory is not there any more."""
        job = self._jobs.pop(place, None)
        if job:
            job.activity.remove()
            self._unsettled.pop(job, None)
            self._tell_state(job)

    def changed(self, place: Place, touches: Mapping[bytes, Touch]) -> None:
        """These names may have changed."""
        job = self._jobs.get(place)
        if job:
            self._change(job)
            for listener in self._listeners:
                listener.names_changed(job, touches)

    def unsure(self, place: Place) -> None:
        """Anything in the JOB may have changed."""
        job = self._jobs.get(place)
        if job:
            self._change(job)
            for listener in self._listeners:
                listener.anything_changed(job)

    def seen(self, place: Place, until: float) -> None:
        """Whatever changed in the JOB until then was told."""
        job = self._jobs.get(place)
        if job:
            job.activity.see(until)

    # States

    async def keep_states(self) -> None:
        """Let JOBs become finished or quiet as time passes. Runs until it is cancelled."""
        while True:
            await self._busy.wait()
            for job in sorted(self._unsettled, key=lambda each: -each.changed_wall_us):
                await self._look_at(job)
            if not self._unsettled:
                self._busy.clear()
            await self._clock.sleep(TICK_S)

    async def _look_at(self, job: Job) -> None:
        activity = job.activity
        if activity.wants_survey:
            begun = self._clock.monotonic()
            found = await asyncio.to_thread(survey, job.place)
            activity.survey(complete=found.is_complete, begun=begun)
        self._tell_state(job)
        if activity.is_settled:
            self._unsettled.pop(job, None)

    def _change(self, job: Job) -> None:
        now = moment(self._clock)
        job.changed_wall_us = now.wall_us
        job.activity.change(now.monotonic)
        self._unsettle(job)
        self._tell_state(job)

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
