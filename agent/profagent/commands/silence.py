"""Why nothing comes of a watched board whose program goes on, as far as that can be known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.formats.sampling import interval_of
from profagent.ingest.changes import SegmentRecords

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from profagent.ingest.changes import JobChanges
    from profagent.link.messages import JobStatus

__all__ = ["INTERVAL_ZERO", "SILENCE_S", "Silence"]

# After so long without an inference something is said.
SILENCE_S = 5.0
# Models of all JOBs of which the first inference that was seen is remembered.
REMEMBERED_MODELS = 1_000
INTERVAL_ZERO = (
    "no inference for some seconds. If the program goes on, its interval is 0, the runtime's default: only the first"
    ' inference after a load is recorded. Set "interval" in its acl.json, and start it again'
)


class Silence:
    """When the last inference came, and of which JOBs the interval may be 0. Each remark is made once."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._since_s = now_s()
        self._going_on: frozenset[str] = frozenset()
        self._counts: dict[tuple[str, str | None, int | None, int | None, int | None], int | None] = {}
        self._sampled: set[str] = set()  # JOBs whose interval is not 0
        self._told: set[bool] = set()

    def take(self, batch: JobChanges) -> None:
        """What came of a JOB: with interval 0 each inference is the first after a load, and has the same count."""
        for change in batch.changes:
            if isinstance(change, SegmentRecords):
                self._since_s = self._now_s()
                name = change.name
                model = (batch.job, name.model, name.model_id, name.device, name.stream)
                if self._counts.setdefault(model, name.current_pic_count) != name.current_pic_count:
                    self._sampled.add(batch.job)
                if len(self._counts) > REMEMBERED_MODELS:
                    del self._counts[next(iter(self._counts))]

    def is_sampled(self, job: str) -> None:
        """The JOB's interval is not 0."""
        self._sampled.add(job)

    def jobs_changed(self, jobs: Sequence[JobStatus]) -> None:
        """The JOBs are these."""
        self._sampled |= {job.name for job in jobs if job.profiling is not None and interval_of(job.profiling.interval)}
        going_on = frozenset(job.name for job in jobs if job.caught_up and job.state in ("open", "quiet"))
        if going_on - self._going_on:
            self._since_s = self._now_s()
        self._going_on = going_on

    def unlinked(self) -> None:
        """Nobody knows whether the program goes on; the silence begins anew with the next link."""
        self._going_on = frozenset()

    def remark(self) -> str | None:
        """What is to be said now, if anything."""
        silent_s = self._now_s() - self._since_s
        may_be_zero = not self._going_on & self._sampled
        if not self._going_on or silent_s < SILENCE_S or may_be_zero in self._told:
            return None
        self._told.add(may_be_zero)
        return INTERVAL_ZERO if may_be_zero else f"no inference has come for {SILENCE_S:.0f} s"
