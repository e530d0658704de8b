"""What a JOB is doing, from when it changed and what was found in it; no I/O, and only the monotonic clock."""

from __future__ import annotations

import enum

# A JOB whose logs are complete is finished after so long without a change (format page 1).
FINISHED_AFTER_S = 2.0
# How often it is looked whether a process still has the NPU open.
NPU_LOOK_S = 5.0


class JobState(enum.Enum):
    """What a JOB directory is doing; the numbers are the wire's."""

    OPEN = 1  # it grows, or may grow
    FINISHED = 2  # every expected log is complete, and nothing changed for FINISHED_AFTER_S
    QUIET = 3  # nothing changed for long
    REMOVED = 4  # the directory is gone


class Activity:
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
