"""From where on JOBs of a watched board are shown: what is there already is passed over, and nothing comes twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from profagent.formats.lru import Lru
from profagent.formats.names import LogKind, display_text

if TYPE_CHECKING:
    from profagent.formats.names import InferenceKey, LogName
    from profagent.link.messages import JobStatus

# Models of a JOB, those of which an inference was shown last.
REMEMBERED_MODELS = 1_000
# Inferences of a model that were shown, the last ones.
REMEMBERED_INFERENCES = 100_000
# More than can be under way at a time.
STRADDLING_INFERENCES = 1_000
_Model = tuple[str, int | None, int | None, int | None]


class Beginnings:
    """For each JOB, whether it is still catching up with the past, and how far it was shown.

    A JOB that was there when watching began is shown from now on, or `from_start`; one that appears later, whole.
    After a lost link the board offers everything again: what was shown is passed over.
    """

    def __init__(self, *, from_start: bool) -> None:
        self._from_start = from_start
        self._in_past: set[str] = set()
        self._returning: set[str] = set()
        self._shown: dict[str, Lru[_Model, Lru[int, None]]] = {}
        # How far each model's inferences were passed over.
        self._passed: dict[str, Lru[_Model, int]] = {}
        # Inferences that had begun when what the JOB held was passed over, and the units that had no `.done` yet.
        self._straddling: dict[str, Lru[InferenceKey, set[LogKind]]] = {}

    def wants(self, job: JobStatus, listed: bool) -> bool:
        """Whether to watch a JOB, as JobChoice asks: what is running, and what appears later."""
        if listed and job.has_ended:
            return False
        self._shown[job.name] = Lru(REMEMBERED_MODELS)
        if listed and not self._from_start:
            self._in_past.add(job.name)
        return True

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
        straddling = self._straddling.setdefault(job, Lru(STRADDLING_INFERENCES))
        passed = self._passed.setdefault(job, Lru(REMEMBERED_MODELS))
        model = (display_text(name.model or ""), name.model_id, name.device, name.stream)
        if name.inference is None or name.kind is LogKind.CONT:
            return self.is_in_past(job)
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

    def has_passed_later(self, job: str) -> bool:
        """Whether what was passed over shows inferences that are not the first after a load."""
        return any(self._passed.get(job, {}).values())

    def was_shown(self, job: str, name: LogName) -> bool:
        """Whether a file of an inference is offered again that was shown, or passed over, before."""
        if job not in self._returning or name.current_pic_count is None:
            return False
        model = (display_text(name.model or ""), name.model_id, name.device, name.stream)
        return name.current_pic_count in self._shown[job].get(model, ())

    def note_shown(self, event: dict[str, Any]) -> None:
        """An inference was shown; pictures count from 0 again when a model is loaded again."""
        model = (event["model"], event["model_id"], event["device_id"], event["stream_id"])
        of_job = self._shown[event["job"]]
        shown = of_job[model] = of_job.get(model) or Lru(REMEMBERED_INFERENCES)
        if event["current_pic_count"] in shown:
            shown.clear()  # the model was loaded again
        shown[event["current_pic_count"]] = None
