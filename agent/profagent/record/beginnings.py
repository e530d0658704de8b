"""Choice of the JOBs that a capture takes, and of where each begins: one program's, those that run, or what is new."""

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

_ModelKey = tuple[str, int | None, int | None, int | None]


class PastFilter:
    """Record of the past of each JOB: whether it is still catching up, and which inferences were shown.

    A JOB that existed when watching began is shown from now on, or completely with `from_start`; a JOB that appears
    later is shown completely. After a lost link the board offers every log again: logs that were shown are passed over.
    """

    def __init__(self, *, from_start: bool) -> None:
        self._from_start = from_start
        # JOBs that existed when watching began and have not caught up: what arrives of them is from before.
        self._in_past: set[str] = set()
        # JOBs that are shown only from now on; unlike `_in_past`, never emptied.
        self._were_there: set[str] = set()
        # JOBs that were shown on an earlier stream and have not caught up on the present one.
        self._returning: set[str] = set()
        # By JOB and model, the current_pic_count of inferences that were shown; bounded, since a JOB has no largest
        # size.
        self._shown: dict[str, LRUCache[_ModelKey, LRUCache[int, None]]] = {}
        # By JOB and model, the largest current_pic_count that was passed over.
        self._passed: dict[str, LRUCache[_ModelKey, int]] = {}
        # By JOB, inferences that were under way when the JOB's past was passed over, with the units that had no `.done`
        # yet.
        self._straddling: dict[str, LRUCache[InferenceKey, set[LogKind]]] = {}
        # By collection of another source, the segment that was the newest when watching began; earlier ones are left
        # out.
        self._first_segments: dict[str, str] = {}

    def wants(self, job: JobStatus, listed: bool) -> bool:
        """Return True if a JOB is to be watched: it runs, or it appeared after the first list (`listed` is False).

        A quiet collection of another source is followed too, because its daemon may go on with it; the part that it
        holds by then counts as past.
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
        """Return True if a JOB existed when watching began, and is shown only from now on."""
        return job in self._were_there

    def link_is_new(self) -> None:
        """Expect every JOB to be offered again from its beginning, because the link was lost."""
        self._returning = set(self._shown)

    def caught_up(self, job: str) -> None:
        """Note that everything that a JOB held has arrived or was passed over: what follows is new."""
        self._in_past.discard(job)
        self._returning.discard(job)

    def is_in_past(self, job: str) -> bool:
        """Return True if what arrives of a JOB now is from before watching began."""
        return job in self._in_past

    def passes_over(self, job: str, name: LogName) -> bool:
        """Return True if a log is from before watching began, or belongs to an inference that began before."""
        straddling = self._straddling.setdefault(job, LRUCache(STRADDLING_INFERENCES))
        passed = self._passed.setdefault(job, LRUCache(REMEMBERED_SHOWN_MODELS))
        if name.inference is None or name.kind is LogKind.CONT:
            return self.is_in_past(job)
        model = _model_of(name)
        if not self.is_in_past(job):
            is_offered_again = job in self._returning and name.inference.current_pic_count <= passed.get(model, -1)
            return is_offered_again or name.inference in straddling
        passed[model] = max(name.inference.current_pic_count, passed.get(model, -1))
        # A board announces the `.done` of a unit after its data, so a unit without one may still grow.
        units = straddling.pop(name.inference, set())
        units = units - {name.kind} if name.is_done else units | {name.kind}
        if units:
            straddling[name.inference] = units
        return True

    def leaves_out(self, job: str, source: str, path: str, newest: str) -> bool:
        """Return True if a file is from before the capture and is not taken.

        Of another source `newest` is the newest segment that is announced: that segment and later ones are taken.
        """
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
        """Return True if an inference was passed over that is not the first one after its model was loaded."""
        return any(self._passed.get(job, {}).values())

    def was_shown(self, job: str, name: LogName) -> bool:
        """Return True if a file is offered again and its inference was shown or passed over on an earlier stream."""
        if job not in self._returning or name.current_pic_count is None:
            return False
        return name.current_pic_count in self._shown[job].get(_model_of(name), ())

    def note_shown(self, event: dict[str, Any]) -> None:
        """Remember that the inference of an event was shown. Counts begin at 0 again when its model is loaded again."""
        model = (event["model"], event["model_id"], event["device_id"], event["stream_id"])
        of_job = self._shown[event["job"]]
        shown = of_job[model] = of_job.get(model) or LRUCache(REMEMBERED_SHOWN_INFERENCES)
        if event["current_pic_count"] in shown:
            shown.clear()  # the model was loaded again
        shown[event["current_pic_count"]] = None


def _model_of(name: LogName) -> _ModelKey:
    return display_text(name.model or ""), name.model_id, name.device, name.stream


# After the program has exited, its JOBs count as complete once nothing has arrived for this time.
REST_S = 3.0
# Interval between questions to the board for JOBs that another process still writes.
GROWTH_S = 10.0
_LOOK_S = 0.1


class ProgramJobs:
    """JOBs that appear in one directory of the board while one program runs."""

    def __init__(self, directory: str, before: Collection[str], profiling: Profiling | None = None) -> None:
        """`before` are paths of JOBs that existed earlier; `profiling` is the configuration in the program's acl."""
        self.profiling = profiling
        self.growing: set[str] = set()
        """JOBs that are still written after the program has exited: nobody waits for them."""
        self.has_ended = False
        """True once the program has exited."""
        self._directory = directory
        self._before = frozenset(before)
        # True from just before the program is started.
        self._has_begun = False
        # Names of JOBs in the directory that the program did not make.
        self._passed_over: set[str] = set()
        self._made: frozenset[str] = frozenset()  # names of the program's JOBs, known once it has exited
        # The followed JOBs, as the session showed them last.
        self._jobs: Sequence[JobStatus] = ()
        # A counter of everything that arrived; settled() compares it to find out how long nothing has.
        self._changes = 0
        # Set while a stream is open: without one, what the board has cannot arrive.
        self._is_linked = asyncio.Event()
        # Set once the board has listed its JOBs; ready() waits for that before the program starts.
        self._is_listed = asyncio.Event()

    def begin(self) -> None:
        """Note that the program is about to be started: JOBs that appear from now on may be its own."""
        self._has_begun = True

    def wants(self, job: JobStatus, listed: bool) -> bool:
        """Return True if the program may have made a JOB.

        A JOB in the board's first list existed before the program, although its directory may be gone by now.
        """
        path = f"{self._directory}/{job.name}"
        if job.directory != path:
            return False
        runs = self._has_begun and (not self.has_ended or job.name in self._made)
        is_made = runs and not listed and path not in self._before
        if not is_made:
            self._passed_over.add(job.name)
        return is_made

    def linked(self) -> None:
        """Note that the stream to the board is open."""
        self._changes += 1
        self._is_linked.set()

    def unlinked(self) -> None:
        """Note that the stream to the board is lost."""
        self._is_linked.clear()

    def changed(self, applied: Sequence[Applied]) -> None:
        """Note that batches were applied; those of JOBs in `growing` do not count."""
        self._changes += any(each.batch.job not in self.growing for each in applied)

    def jobs_changed(self, jobs: Sequence[JobStatus]) -> None:
        """Take the followed JOBs as they are now."""
        before = self._its_own()
        self._jobs = jobs
        self._changes += self._its_own() != before
        self._is_listed.set()

    async def ready(self) -> None:
        """Wait until the board has listed the JOBs that existed before the program."""
        await self._is_listed.wait()

    async def settled(
        self,
        names: Collection[str],
        stop: asyncio.Event,
        tell: Callable[[str], None],
        written: Callable[[], Awaitable[Collection[str]]],
    ) -> bool:
        """Wait until the JOBs of these names are complete, once the program has exited.

        Returns True if they are complete; False if `stop` was set before, if nothing arrived for GONE_S (AWAY_S without
        a link), or if a JOB is still written. `written` asks the board which JOBs were written since the exit: nobody
        waits for those.
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
                tell(f"nothing has arrived for {quiet_s:.0f} s: the missing data stays on the board")
                return False
            await asyncio.sleep(_LOOK_S)
        return False

    def _its_own(self) -> list[JobStatus]:
        return [job for job in self._jobs if job.name not in self.growing]
