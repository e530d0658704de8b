"""Which JOBs a capture takes, and from where on: those of one program, those that run, what comes from now on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from cachetools import LRUCache

from profagent.formats.names import DONE_SUFFIX, LogKind, display_text, parse_log_name
from profagent.ingest.source import SOURCES, decoder_of
from profagent.limits import AWAY_S, GONE_S, REMEMBERED_SHOWN_INFERENCES, REMEMBERED_SHOWN_MODELS, STRADDLING_INFERENCES
from profagent.link.messages import JOB_SOURCE, QUIET

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from profagent.formats.names import InferenceKey, LogName
    from profagent.link.messages import JobStatus, Profiling
    from profagent.store.writer import Applied

_Model = tuple[str, int | None, int | None, int | None]


class Beginnings:
    """For each JOB, whether it is still catching up with the past, and how far it was shown.

    A JOB that was there when watching began is shown from now on, or `from_start`; one that appears later, whole.
    After a lost link the board offers everything again: what was shown is passed over.
    """

    def __init__(self, *, from_start: bool) -> None:
        self._from_start = from_start
        self._in_past: set[str] = set()
        self._were_there: set[str] = set()
        self._returning: set[str] = set()
        self._shown: dict[str, LRUCache[_Model, LRUCache[int, None]]] = {}
        # How far each model's inferences were passed over.
        self._passed: dict[str, LRUCache[_Model, int]] = {}
        # Inferences that had begun when what the JOB held was passed over, and the units that had no `.done` yet.
        self._straddling: dict[str, LRUCache[InferenceKey, set[LogKind]]] = {}
        self._first_segments: dict[str, str] = {}

    def wants(self, job: JobStatus, listed: bool) -> bool:
        """Whether to watch a JOB, as JobChoice asks: what is running, and what appears later.

        Another source that is quiet is followed at once: where it goes on, what it held by then is from before.
        """
        may_go_on = not job.is_job and job.state == QUIET
        if listed and job.has_ended and not may_go_on:
            return False
        self._shown[job.name] = LRUCache(REMEMBERED_SHOWN_MODELS)
        if listed and not self._from_start:
            self._in_past.add(job.name)
            self._were_there.add(job.name)
        return True

    def was_there(self, job: str) -> bool:
        """Return True for a JOB that is shown from now on: it was there when watching began."""
        return job in self._were_there

    def link_is_new(self) -> None:
        """The link was lost and is back."""
        self._returning = set(self._shown)

    def caught_up(self, job: str) -> None:
        """Everything that the JOB held has come, or was passed over: what follows is new."""
        self._in_past.discard(job)
        self._returning.discard(job)

    def is_in_past(self, job: str) -> bool:
        """Whether what comes of the JOB now is from before the watching began."""
        return job in self._in_past

    def passes_over(self, job: str, name: LogName) -> bool:
        """Whether a log is from before the beginning, or of an inference that began before."""
        straddling = self._straddling.setdefault(job, LRUCache(STRADDLING_INFERENCES))
        passed = self._passed.setdefault(job, LRUCache(REMEMBERED_SHOWN_MODELS))
        if name.inference is None or name.kind is LogKind.CONT:
            return self.is_in_past(job)
        model = _model_of(name)
        if not self.is_in_past(job):
            is_offered_again = job in self._returning and name.inference.current_pic_count <= passed.get(model, -1)
            return is_offered_again or name.inference in straddling
        passed[model] = max(name.inference.current_pic_count, passed.get(model, -1))
        # A `.done` is told after the data of its inference.
        units = straddling.pop(name.inference, set())
        units = units - {name.kind} if name.is_done else units | {name.kind}
        if units:
            straddling[name.inference] = units
        return True

    def leaves_out(self, job: str, source: str, path: str, newest: str) -> bool:
        """Whether a file is not taken, being from before; of another source the `newest` segment is, and later ones."""
        if source == JOB_SOURCE:
            name = parse_log_name(path)
            is_log = name is not None and (name.is_data or name.is_done or name.kind is LogKind.CONT)
            return name is not None and is_log and (self.passes_over(job, name) or self.was_shown(job, name))
        if source not in SOURCES:
            return False  # its files may have any names
        if self.is_in_past(job):
            self._first_segments.setdefault(job, newest)
        segment = path.removesuffix(DONE_SUFFIX)
        return decoder_of(source).growing(segment) and segment < self._first_segments.get(job, "")

    def has_passed_later(self, job: str) -> bool:
        """Whether what was passed over shows inferences that are not the first after a load."""
        return any(self._passed.get(job, {}).values())

    def was_shown(self, job: str, name: LogName) -> bool:
        """Whether a file of an inference is offered again that was shown, or passed over, before."""
        if job not in self._returning or name.current_pic_count is None:
            return False
        return name.current_pic_count in self._shown[job].get(_model_of(name), ())

    def note_shown(self, event: dict[str, Any]) -> None:
        """An inference was shown; pictures count from 0 again when a model is loaded again."""
        model = (event["model"], event["model_id"], event["device_id"], event["stream_id"])
        of_job = self._shown[event["job"]]
        shown = of_job[model] = of_job.get(model) or LRUCache(REMEMBERED_SHOWN_INFERENCES)
        if event["current_pic_count"] in shown:
            shown.clear()  # the model was loaded again
        shown[event["current_pic_count"]] = None


def _model_of(name: LogName) -> _Model:
    """As events call it."""
    return display_text(name.model or ""), name.model_id, name.device, name.stream


# When the program is gone: what has come and rests for so long is all that comes.
REST_S = 3.0
# So often the board is asked whether somebody still writes.
GROWTH_S = 10.0
_LOOK_S = 0.1


class MadeJobs:
    """JOBs that come into one directory of the board while the program runs."""

    def __init__(self, directory: str, before: Collection[str], profiling: Profiling | None = None) -> None:
        """`before` are the paths of JOBs that stood there; `profiling` is what the program's acl.json says."""
        self.profiling = profiling
        self.growing: set[str] = set()
        """JOBs that are written to when the program is gone."""
        self.has_ended = False
        """Whether the program is gone."""
        self._directory = directory
        self._before = frozenset(before)
        self._has_begun = False
        self._passed_over: set[str] = set()
        self._made: frozenset[str] = frozenset()  # known when the program is gone
        self._jobs: Sequence[JobStatus] = ()
        self._changes = 0
        self._is_linked = asyncio.Event()
        self._is_listed = asyncio.Event()

    def begin(self) -> None:
        """The program is about to be started."""
        self._has_begun = True

    def wants(self, job: JobStatus, listed: bool) -> bool:
        """Whether the program may have made it; what the board lists first was there, though it may be gone by now."""
        path = f"{self._directory}/{job.name}"
        if job.directory != path:
            return False
        runs = self._has_begun and (not self.has_ended or job.name in self._made)
        is_made = runs and not listed and path not in self._before
        if not is_made:
            self._passed_over.add(job.name)
        return is_made

    def linked(self) -> None:
        """The board can be heard."""
        self._changes += 1
        self._is_linked.set()

    def unlinked(self) -> None:
        """It cannot."""
        self._is_linked.clear()

    def changed(self, applied: Sequence[Applied]) -> None:
        """Something has come."""
        self._changes += any(each.batch.job not in self.growing for each in applied)

    def jobs_changed(self, jobs: Sequence[JobStatus]) -> None:
        """The JOBs are these."""
        before = self._its_own()
        self._jobs = jobs
        self._changes += self._its_own() != before
        self._is_listed.set()

    async def ready(self) -> None:
        """Wait until the board has listed what it had before the program."""
        await self._is_listed.wait()

    async def settled(
        self,
        names: Collection[str],
        stop: asyncio.Event,
        tell: Callable[[str], None],
        written: Callable[[], Awaitable[Collection[str]]],
    ) -> bool:
        """Wait until these have come whole, once the program is gone. Whether they have, before `stop` and in time.

        `written` asks the board which JOBs were written to since then: they are not waited for.
        """
        now = asyncio.get_running_loop().time
        self.has_ended, self._made = True, frozenset(names)
        seen, since = self._changes, now()
        look_at = since + REST_S
        while not stop.is_set():
            if seen != self._changes:
                seen, since = self._changes, now()
            if now() > look_at:
                self.growing |= {*await written()}
                look_at = now() + GROWTH_S
            quiet_s = now() - since
            jobs = self._its_own()
            has_all = self._made - self._passed_over <= {job.name for job in self._jobs}
            have_come = self._is_linked.is_set() and all(job.caught_up for job in jobs) and quiet_s > REST_S
            if has_all and (have_come or all(job.is_over for job in jobs)):
                self.growing |= {*await written()}
                return not self.growing
            if quiet_s > (GONE_S if self._is_linked.is_set() else AWAY_S):
                tell(f"nothing has come for {quiet_s:.0f} s: what is missing stays on the board")
                return False
            await asyncio.sleep(_LOOK_S)
        return False

    def _its_own(self) -> list[JobStatus]:
        return [job for job in self._jobs if job.name not in self.growing]
