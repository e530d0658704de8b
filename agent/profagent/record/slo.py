"""Objectives while a board is captured: a verdict each second over the last minute, and alarms."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from cachetools import LRUCache

from profagent.errors import ProfagentError
from profagent.formats.figure_states import FigureState
from profagent.formats.inference_times import NOT_IN_ANY_LAYER, Spans, completed, latency_of
from profagent.formats.names import model_text
from profagent.ingest.changes import SourceRows
from profagent.ingest.source import RowReader
from profagent.limits import JUDGED_MODELS, JUDGED_S, MOST_JUDGED
from profagent.link.messages import OPEN
from profagent.store.live_events import LiveComposer
from profagent.store.live_frames import LiveFrames
from profagent.tables.frame_series import FrameSeries
from profagent.tables.slo import FRAMED, ON_CPU, JudgedSeries, is_of_layer, judged
from profagent.units import NS_PER_US, US_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from profagent.documents import AlarmsDocument
    from profagent.formats.inference_layers import LayerTimes
    from profagent.ingest.live_latency import InferenceTimes
    from profagent.ingest.source import Marked
    from profagent.link.messages import Board, JobStatus
    from profagent.record.capture import Observer
    from profagent.store.events import Event
    from profagent.store.frames import Frame
    from profagent.store.writer import Applied
    from profagent.tables.slo import Judged, Objective

    Floats = NDArray[np.float64]

# An alarm follows within this time and the one that data takes to come.
JUDGE_EACH_S = 1.0
# Frames come this much later than their program has them; no frame for longer lowers their rate.
STILL_S = 5.0
UNKNOWN_LAYERS = "layers without a name"


class Alarm(NamedTuple):
    """Alarm that began or ended (`is_on` False), the verdict that says why, and the board's time."""

    judged: Judged
    is_on: bool
    time_us: int

    def event(self) -> dict[str, Any]:
        """Return the alarm as an event of `watch`."""
        found = self.judged
        return {
            "event": "slo",
            "objective": found.objective.text,
            "name": found.name,
            "alarm": self.is_on,
            "value": found.value,
            "unit": "1/s" if found.objective.is_rate else "us",
            "share": found.share,
            "guilty": found.guilty and found.guilty.part,
            "text": self.line(),
        }

    def line(self) -> str:
        """Return the alarm as a line for people."""
        if self.is_on:
            return f"ALARM {self.judged.line().removeprefix('EXCEEDED ')}; over the last {JUDGED_S:.0f} s"
        name = f" ({self.judged.name})" if self.judged.name else ""
        return f"alarm over: {self.judged.objective.text}{name} was not exceeded for {JUDGED_S:.0f} s"


class _ModelWindow:
    """Newest inferences of a model: their times, and each layer's time by its place."""

    def __init__(self) -> None:
        self._inferences: dict[int, tuple[InferenceTimes, Floats]] = {}
        self._layers: LayerTimes | None = None

    def take(self, times: InferenceTimes, layers: LayerTimes) -> None:
        self._inferences[times.number] = times, layers.by_place
        self._layers = layers
        if len(self._inferences) > MOST_JUDGED:
            del self._inferences[next(iter(self._inferences))]

    def renew(self, times: InferenceTimes) -> None:
        if times.number in self._inferences:
            self._inferences[times.number] = times, self._inferences[times.number][1]

    def forget_before(self, time_us: float) -> None:
        for number in [number for number, (times, _) in self._inferences.items() if times.end_us < time_us]:
            del self._inferences[number]

    def latency(self, model: str) -> JudgedSeries:
        spans = np.array([each[2:6] for each, _ in self._inferences.values()], np.float64).reshape(-1, 4).T
        found = latency_of(Spans(*spans[:2]), Spans(*spans[2:]))
        begin_us = found.spans.begin_us
        ran_before = np.array([each.ran_before for each, _ in self._inferences.values()], np.float64)
        step_us, steps = np.diff(begin_us), np.diff(ran_before)
        is_forward = (step_us > 0) & (steps > 0)
        return JudgedSeries(model, found.us, step_us[is_forward], steps[is_forward])

    def with_parts(self, series: JudgedSeries) -> JudgedSeries:
        names, times = self._columns()
        times = completed(times)
        rest = series.us - times.sum(axis=1)
        return series._replace(names=[*names, NOT_IN_ANY_LAYER], parts=np.column_stack([times, rest]))

    def layers(self, model: str, wanted: str | None) -> Iterator[JudgedSeries]:
        names, times = self._columns()
        places: dict[str, list[int]] = {}
        for place, name in enumerate(names):
            if name != UNKNOWN_LAYERS and is_of_layer(wanted, name):
                places.setdefault(name, []).append(place)
        for name, at in places.items():
            found = times[:, at]
            us = np.where(np.isnan(found).all(axis=1), np.nan, np.nansum(found, axis=1))
            if not np.isnan(us).all():
                yield JudgedSeries(f"{name} of {model}", us)

    def _columns(self) -> tuple[list[str], Floats]:
        runs = () if self._layers is None or self._layers.table is None else self._layers.table.runs
        own = [*(run.name for run in runs), UNKNOWN_LAYERS]
        names = [*own, *(name + ON_CPU for name in own)]
        # An inference that came before the table of layers has fewer places.
        none = np.full(len(names), np.nan)
        rows = [layers if len(layers) == len(names) else none for _, layers in self._inferences.values()]
        return names, np.array(rows, np.float64).reshape(-1, len(names))


def _with_pause(series: JudgedSeries, still_us: float) -> JudgedSeries:
    """Return a series whose rate counts a time in which nothing came."""
    return series._replace(steps_us=np.append(series.steps_us, still_us), steps=np.append(series.steps, 0.0))


class LiveObjectives:
    """Verdicts on objectives over the last JUDGED_S of a board's time, and their alarms.

    An alarm begins when an objective is exceeded, and ends when it was not for as long.
    """

    def __init__(self, objectives: Sequence[Objective]) -> None:
        self._objectives = objectives
        # By name and number of the model.
        self._models: LRUCache[tuple[str, int], _ModelWindow] = LRUCache(JUDGED_MODELS)
        # The newest time of the board, and when it came by the monotonic clock.
        self._newest_us, self._newest_s = 0.0, 0.0
        self._live_frames = LiveFrames()
        # Frames by process.
        self._frames: LRUCache[int, deque[Frame]] = LRUCache(JUDGED_MODELS)
        # True while a program runs: then frames that do not come lower a rate.
        self.is_running = False
        # Objectives that had a verdict.
        self._decided: set[str] = set()
        # When each objective was exceeded last, by objective and name, while its alarm is on.
        self._alarms: dict[tuple[str, str], tuple[float, Judged]] = {}
        # The last verdict of each objective and name, and how many alarms it had.
        self.figures: dict[tuple[str, str], Judged] = {}
        self.counts: dict[tuple[str, str], int] = {}

    @property
    def exit_code(self) -> int:
        """Exit code of a command that judged: 1 if an alarm was on at any time."""
        return ProfagentError.exit_code if any(self.counts.values()) else 0

    def documents(self) -> list[AlarmsDocument]:
        """Return the alarms of each objective and name as JSON fields, and the objectives that were never decided."""
        found: list[AlarmsDocument] = [
            {"objective": objective, "name": name, "alarms": count, "on": (objective, name) in self._alarms}
            for (objective, name), count in self.counts.items()
        ]
        undecided: list[AlarmsDocument] = [
            {"objective": each.text, "name": "", "alarms": None, "on": False} for each in self.undecided
        ]
        return found + undecided

    def undecided_lines(self) -> list[str]:
        """Return a line for each objective that had no verdict."""
        why = "nothing of it came that is known while it comes, or too little; frames need numbers"
        return [f"unknown {each.text}: {why}" for each in self.undecided]

    @property
    def undecided(self) -> list[Objective]:
        """Objectives that had no verdict: nothing of it came that is known while it comes, or too little."""
        return [each for each in self._objectives if each.text not in self._decided]

    def is_on(self, key: tuple[str, str]) -> bool:
        """Return True if the alarm of an objective and name is on."""
        return key in self._alarms

    def take(self, event: Event, now_s: float) -> None:
        """Take an event of a composer with layers; `now_s` is a monotonic clock."""
        if event["event"] not in ("inference", "latency"):
            return
        model = event["model"], event["model_id"]
        if event["event"] == "latency":
            if model in self._models:
                self._models[model].renew(event["times"])
        elif event["figures"] == FigureState.FINAL:
            window = self._models[model] = self._models.get(model) or _ModelWindow()
            window.take(event["times"], event["layers"])
            self._know(event["times"].end_us, now_s)

    def take_marks(self, marks: Sequence[Marked], now_s: float) -> None:
        """Take marks of frames, if any objective is about frames."""
        if not any(each.subject in FRAMED for each in self._objectives):
            return
        for frame in self._live_frames.take(marks):
            of_process = self._frames[frame.process] = self._frames.get(frame.process) or deque(maxlen=MOST_JUDGED)
            of_process.append(frame)
        self._know(max(each.end_ns for each in marks) / NS_PER_US, now_s)

    def _know(self, time_us: float, now_s: float) -> None:
        if time_us > self._newest_us:
            self._newest_us, self._newest_s = time_us, now_s

    def judge(self, now_s: float) -> list[Alarm]:
        """Judge all objectives, and return the alarms that began or ended."""
        now_us = self._newest_us + (now_s - self._newest_s) * US_PER_S
        self._forget_before(now_us - JUDGED_S * US_PER_S)
        framed = FrameSeries()
        for frames in self._frames.values():
            framed.add(frames)
        found: list[Alarm] = []
        self.figures = {}
        for objective in self._objectives:
            for series, with_parts in self._series(objective, framed, now_us):
                verdict, key = judged(objective, series), (objective.text, series.name)
                self.figures[key] = verdict
                if verdict.verdict != "unknown":
                    self._decided.add(objective.text)
                if verdict.verdict == "exceeded":
                    if key not in self._alarms:
                        found.append(Alarm(judged(objective, with_parts(series)), is_on=True, time_us=int(now_us)))
                        self.counts[key] = self.counts.get(key, 0) + 1
                    self._alarms[key] = now_s, verdict
        for key, (last_s, verdict) in [*self._alarms.items()]:
            if now_s - last_s >= JUDGED_S:
                del self._alarms[key]
                found.append(Alarm(verdict, is_on=False, time_us=int(now_us)))
        return found

    def _forget_before(self, time_us: float) -> None:
        for window in self._models.values():
            window.forget_before(time_us)
        for frames in self._frames.values():
            while frames and frames[0].end_ns < time_us * NS_PER_US:
                frames.popleft()

    def _series(
        self, objective: Objective, framed: FrameSeries, now_us: float
    ) -> Iterator[tuple[JudgedSeries, Callable[[JudgedSeries], JudgedSeries]]]:
        if objective.subject in FRAMED:
            ends_ns = [frames[-1].end_ns for frames in self._frames.values() if frames]
            still_us = now_us - max(ends_ns, default=0) / NS_PER_US - STILL_S * US_PER_S
            for found in framed.of(objective):
                is_still = objective.is_rate and self.is_running and still_us > 0
                yield (_with_pause(found, still_us) if is_still else found), lambda series: series
            return
        names = [name for name, _ in self._models]
        for (name, number), window in self._models.items():
            # As in `stats`, where the name tells the models apart.
            model = name if names.count(name) == 1 else model_text(name, number)
            if objective.subject == "latency" and objective.name in (None, name, model):
                yield window.latency(model), window.with_parts
            elif objective.subject == "layer":
                yield from ((each, lambda series: series) for each in window.layers(model, objective.name))


class JudgingObserver:
    """Observer that judges objectives on what arrives, and passes each call on to another observer.

    `alarmed` is called with each alarm that begins or ends, `seen` with the verdicts after each judgement.
    """

    def __init__(
        self,
        observer: Observer,
        objectives: Sequence[Objective],
        alarmed: Callable[[Alarm], None],
        seen: Callable[[LiveObjectives], None] = lambda _: None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.live = LiveObjectives(objectives)
        self._observer, self._alarmed, self._seen, self._now_s = observer, alarmed, seen, now_s
        self._events = LiveComposer(with_layers=True)
        self._rows = RowReader()

    def linked(self, board: Board, role: str) -> None:
        """Pass the call on."""
        self._observer.linked(board, role)

    def unlinked(self, error: ProfagentError, wait_s: float) -> None:
        """Note that nothing is known of the program, and pass the call on."""
        self.live.is_running = False
        self._observer.unlinked(error, wait_s)

    def remark(self, text: str) -> None:
        """Pass the text on."""
        self._observer.remark(text)

    def jobs_changed(self, jobs: Sequence[JobStatus]) -> None:
        """Note if a program runs, and pass the call on."""
        self.live.is_running = any(job.is_job and job.state == OPEN for job in jobs)
        self._observer.jobs_changed(jobs)

    def changed(self, applied: Sequence[Applied]) -> None:
        """Take what the objectives are about from applied batches."""
        for each in applied:
            now_s = self._now_s()
            for change in each.batch.changes:
                if isinstance(change, SourceRows):
                    seen = self._rows.read(each.batch.job, change)
                    if seen is not None and seen.framed:
                        self.live.take_marks(seen.framed, now_s)
            for event in self._events.batch_events(each, now_s):
                self.live.take(event, now_s)
        self._observer.changed(applied)

    def judge(self) -> None:
        """Judge now; call `alarmed` for what changed, then `seen`."""
        for alarm in self.live.judge(self._now_s()):
            self._alarmed(alarm)
        self._seen(self.live)

    async def mind(self) -> None:
        """Judge each second, until cancelled."""
        while True:
            await asyncio.sleep(JUDGE_EACH_S)
            self.judge()
