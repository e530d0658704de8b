"""Rules of a flight recorder about frames and their stages, applied while the marks of a program come."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.formats.durations import Distribution
from profagent.formats.incident_rules import RuleSubject
from profagent.limits import JUDGED_BY_RULES
from profagent.store.frame_times import FrameTimes, PartName
from profagent.store.live_frames import LiveFrames
from profagent.units import NS_PER_US

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from profagent.formats.incident_rules import IncidentRule
    from profagent.ingest.source import Marked
    from profagent.store.frames import Frame

FRAMED = (RuleSubject.FRAME, RuleSubject.STAGE)


class JudgedValue(NamedTuple):
    """Value of a frame or stage beside the bound of a rule, and the part that took longest beyond its median so far."""

    rule: IncidentRule
    time_us: int
    value: float
    bound: float
    culprit: str | None
    excess_us: float | None


class FrameRules:
    """Rules about frames and stages, with the past of both. Only frames that have numbers are known in time."""

    def __init__(self, rules: Sequence[IncidentRule]) -> None:
        self.rules = [rule for rule in rules if rule.subject in FRAMED]
        self._live = LiveFrames()
        self._complete: list[Frame] = []  # not judged yet
        # Times of whole frames (None) and of their parts.
        self._past: dict[PartName | None, Distribution] = {}

    @property
    def judged_until_ns(self) -> int:
        """Time before which all frames are judged, by the board's clock; 0 while no frame has come."""
        return self._live.complete_ns

    def take(self, marks: Sequence[Marked]) -> None:
        """Take marks of frames, in the order in which they came."""
        self._complete += self._live.take(marks)

    def judged(self, since_ns: int, *, is_over: bool) -> Iterator[JudgedValue]:
        """Yield the values of frames that are complete, in their order; with `is_over` those of all frames.

        Frames that ended up to `since_ns` were judged before a restart: they only belong to the past.
        """
        complete = [frame for frame in (*self._complete, *(self._live.end() if is_over else ())) if frame.parts]
        self._complete.clear()
        for first in range(0, len(complete), JUDGED_BY_RULES):
            frames = complete[first : first + JUDGED_BY_RULES]
            self._learn([frame for frame in frames if frame.end_ns <= since_ns])
            if new := [frame for frame in frames if frame.end_ns > since_ns]:
                yield from self._judged(new)

    def _judged(self, frames: Sequence[Frame]) -> Iterator[JudgedValue]:
        names = [*dict.fromkeys(PartName(*key) for frame in frames for key in frame.times())]
        subjects = [*self._subjects(names)]
        before = [rule.bound(self._past.get(stage)) for rule, stage in subjects]
        parts = self._learn(frames)
        for (rule, stage), known in zip(subjects, before, strict=True):
            # The first frames are judged by a quantile of themselves.
            bound = rule.bound(self._past.get(stage)) if known is None else known
            if bound is not None and stage is None:
                yield from self._of_frames(rule, bound, frames, names, parts)
            elif bound is not None and stage is not None:
                yield from self._of_stage(rule, bound, frames, stage)

    def _learn(self, frames: Sequence[Frame]) -> NDArray[np.floating]:
        """Add frames to the past; return the times of their parts, shape (frames, parts)."""
        times = FrameTimes()
        times.add(frames)
        self._past.setdefault(None, Distribution()).add(times.us)
        for part in times.part_names():
            self._past.setdefault(part, Distribution()).add(times.part_us(part))
        return times.matrix()

    def _subjects(self, names: Sequence[PartName]) -> Iterator[tuple[IncidentRule, PartName | None]]:
        """Yield each rule with what it is about: a stage, or the whole frame (None)."""
        for rule in self.rules:
            if rule.subject is RuleSubject.FRAME:
                yield rule, None
                continue
            yield from ((rule, part) for part in names if not part.is_wait and rule.name in ("", part.name))

    def _of_frames(
        self,
        rule: IncidentRule,
        bound: float,
        frames: Sequence[Frame],
        names: Sequence[PartName],
        parts: NDArray[np.floating],
    ) -> Iterator[JudgedValue]:
        usual = np.array([self._median(part) for part in names])
        for frame, us in zip(frames, parts, strict=True):
            over = us - usual
            largest = int(over.argmax())
            culprit = (_shown(names[largest]), float(over[largest])) if over[largest] > 0 else (None, None)
            yield JudgedValue(rule, frame.begin_ns // NS_PER_US, frame.us, bound, *culprit)

    def _of_stage(
        self, rule: IncidentRule, bound: float, frames: Sequence[Frame], stage: PartName
    ) -> Iterator[JudgedValue]:
        usual = self._median(stage)
        for frame in frames:
            if (us := frame.times().get(stage)) is not None:
                begin_ns = next(part.begin_ns for part in frame.parts if part[:2] == stage)
                about = (stage.name, us - usual if us > usual else None)
                yield JudgedValue(rule, begin_ns // NS_PER_US, us, bound, *about)

    def _median(self, part: PartName) -> float:
        return self._past[part].quantile(0.5)


def _shown(part: PartName) -> str:
    return f"{part.name} (wait)" if part.is_wait else part.name
