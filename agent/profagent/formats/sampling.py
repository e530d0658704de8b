"""Samples of the runtime: which inferences it should have recorded, and which it did (the-format.md 2.3). Pure.

The runtime samples a model's first inference, and a later one when at least `interval` inferences were run since the
last sample. While an earlier sample is still being written it postpones, and the count restarts where it sampled. So of
two neighbouring samples, `interval` or more inferences apart, one was due for each whole `interval` between them: the
last of these came, late by the remainder; the others never came. No name shows what was due after the last sample of a
file.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from profagent.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from profagent.formats.names import InferenceKey


# How samples are assigned to the loads of a model that was loaded again under its name in one JOB. Each load counts its
# pictures from 0, and its first inference is always sampled (the-format.md 2.3). Samples of two loads at one picture
# count are in one file, one after the other. So the file of picture 0 has a part for each load, and the begin of that
# part shows to which load an inference of another file belongs.
def counts_of_loads(times: Mapping[int, Sequence[int | None]]) -> list[list[int]] | None:
    """Return the picture counts of each load's samples, rising; None where the loads cannot be told apart.

    `times` has by picture count when each inference in that file began, in order, in microseconds of the board's clock;
    None is unknown.
    """
    begins = times.get(0)
    if begins is None:
        return None
    loads: list[list[int]] = [[] for _ in begins]
    # Latest begin of each load so far: within a load, higher picture counts come later.
    newest: list[int] = [0 for _ in begins]
    for count in sorted(times):
        numbers = _numbers(times[count], begins)
        if numbers is None:
            return None
        for number, time in zip(numbers, times[count], strict=True):
            if time is not None and time < newest[number]:
                return None  # the board's clock was set
            newest[number] = time or newest[number]
            loads[number].append(count)
    return loads


def _numbers(times: Sequence[int | None], begins: Sequence[int | None]) -> list[int] | None:
    """Return the loads of one file's inferences, each later than the one before; None if they cannot be told apart."""
    if len(times) == len(begins):
        return list(range(len(begins)))
    numbers: list[int] = []
    for time in times:
        number = None if time is None else _number(time, begins)
        if number is None or (numbers and number <= numbers[-1]):
            return None
        numbers.append(number)
    return numbers


def _number(time: int, begins: Sequence[int | None]) -> int | None:
    """Return the last load that had begun at this time; None where the next one may have begun, too."""
    begun = (number for number, begin in enumerate(begins) if begin is not None and begin <= time)
    number = max(begun, default=0)
    is_sure = number + 1 == len(begins) or begins[number + 1] is not None
    return number if is_sure else None


# Choice of inferences that a host stores. A step is an inference of the program since its model was loaded, or, where
# the board's interval is known, a place in that grid of samples. It follows from a file's name alone, so a restart,
# another order of arrival and another host choose the same inferences.
EXAMPLE = "write it like skip_first=10,wait=5,warmup=2,active=3,repeat=4"
_STEPS = re.compile(r"\s*(skip_first|wait|warmup|active|repeat)\s*=\s*(\d{1,9})\s*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Cycles of steps: `wait`, then `warmup`, then `active`; only active ones are stored. `repeat` 0 never ends.

    Meaning and names are those of MindSpore's profiler: the first `skip_first` steps belong to no cycle.
    """

    wait: int
    active: int
    warmup: int = 0
    repeat: int = 0
    skip_first: int = 0

    def keeps(self, step: int) -> bool:
        """Return True if the step, counted from 0, is active."""
        length = self.wait + self.warmup + self.active
        cycle, place = divmod(step - self.skip_first, length)
        return cycle >= 0 and not 0 < self.repeat <= cycle and place >= self.wait + self.warmup

    def __str__(self) -> str:
        fields = ("skip_first", "wait", "warmup", "active", "repeat")
        return "schedule " + ",".join(f"{name}={getattr(self, name)}" for name in fields)


@dataclass(frozen=True, slots=True)
class EachNth:
    """Choice of the first step and each `number`th after it."""

    number: int

    def __post_init__(self) -> None:
        """Raise UsageError for a number below 1."""
        if self.number < 1:
            raise UsageError(f"of every {self.number} none is recorded", hint="every is a whole number from 1 on")

    def keeps(self, step: int) -> bool:
        """Return True if the step, counted from 0, is chosen."""
        return step % self.number == 0

    def __str__(self) -> str:
        return f"every {self.number}"


Keeping = Schedule | EachNth


def step_of(inference: InferenceKey, interval: int | None) -> int:
    """Return the step of an inference; `interval` is the board's, None where unknown."""
    number = inference.current_pic_count // max(inference.input_pic_num, 1)
    return number // max(interval or 1, 1)


def parse_schedule(text: str) -> Schedule:
    """Return the schedule in `name=number` pairs. Raises UsageError for anything without a clear meaning."""
    pairs = [_STEPS.fullmatch(pair) for pair in text.split(",")]
    given = {pair[1]: int(pair[2]) for pair in pairs if pair is not None}
    if len(given) < len(pairs):
        raise UsageError(f"schedule: {text!r} is not each name once, with a whole number", hint=EXAMPLE)
    if "wait" not in given or not given.get("active"):
        raise UsageError("schedule: wait, and active of at least 1, must be given", hint=EXAMPLE)
    return Schedule(**given)


INTERVAL_MAX = 9999
FROM_FILE = "acl.json"
INFERRED = "inferred"


class Gap(NamedTuple):
    """Meaning of a distance between neighbouring samples: delay of the later one, and how many due ones never came."""

    late_by: int
    never_came: int


class SampleCounts(NamedTuple):
    """Counts of a model's samples. `due` includes what came; None is unknown, for the reason `why`.

    `origin` is that of the interval: FROM_FILE or INFERRED. `late` counts samples that came late.
    """

    interval: int | None
    origin: str | None
    sampled: int
    due: int | None
    late: int | None
    never_came: int | None
    why: str | None = None

    def fields(self) -> dict[str, int | str | None]:
        """Return the counts as fields for JSON."""
        names = ("sampled", "due", "late", "never_came", "interval", "why")
        return {**{name: getattr(self, name) for name in names}, "interval_from": self.origin}


# Reasons why it is unknown what was due.
NOT_LISTED = "the capture had not caught up with the JOB"
NAMELESS_LOSS = "files were lost whose names are not known"
LOADS = "the model was loaded again, and the samples of its loads cannot be told apart"
SIZES = "its inferences differ in their number of pictures"
NO_INTERVAL = "no acl.json tells the interval, and picture counts do not show it"
MISMATCH = "its picture counts do not fit the interval"
MAY_HAVE_STOPPED = "between samples the program may have stopped recording, and no calls tell"
UNKNOWN_FIGURES = SampleCounts(None, None, 0, None, None, None)


def interval_of(text: str) -> int | None:
    """Return the interval in a text of an acl.json; 0 for an empty one, None where the runtime would refuse it."""
    digits = text.strip(" \t\r\n")
    if not text:
        return 0
    is_number = digits.isascii() and digits.isdecimal() and len(digits) <= len(str(INTERVAL_MAX))
    return int(digits) if is_number else None


def gap_of(inferences: int, interval: int) -> Gap | None:
    """Return the meaning of a distance between two samples; None if the runtime cannot leave it with this interval."""
    if interval < 1 or inferences < interval:
        return None
    due, late_by = divmod(inferences, interval)
    return Gap(late_by, due - 1)


def infer_interval(gaps: Mapping[int, int]) -> int | None:
    """Return the interval that distances show, given how often each occurred; None if they show none.

    It is the smallest distance, as nothing comes early, if at least two samples and half of all came at that distance.
    A writer that is always busy for the same time cannot be told from a larger interval.
    """
    if not gaps:
        return None
    # One occurrence may be chance; a distance that half of all samples have is none.
    smallest = min(gaps)
    is_clear = gaps[smallest] >= 2 and 2 * gaps[smallest] >= sum(gaps.values())
    return smallest if is_clear else None


def figures_of(
    sampled: int,
    gaps: Mapping[int, int] | None,
    acl_interval: int | None,
    *,
    shown_by: Mapping[int, int] | None = None,
    why: str | None = None,
    has_calls: bool = False,
) -> SampleCounts:
    """Return the counts from the distances between samples, in inferences; None: unknown, for the reason `why`.

    `acl_interval` is that of an acl.json. Distances that it does not allow show that the program had another one.
    Without it, the interval is inferred from `shown_by`, where these are more distances than `gaps`. A program that
    starts and stops recording by itself owes each inference that runs while it records: so with an inferred interval of
    1 the distances are right only if they count the recorded calls, `has_calls`.
    """
    interval = acl_interval
    if interval is None and gaps is not None:
        interval = infer_interval(shown_by or gaps)
    origin = None if interval is None else INFERRED if acl_interval is None else FROM_FILE
    if why is None and gaps is not None:
        why = _doubt(gaps, interval, is_sure=has_calls or origin == FROM_FILE)
    if why is not None or gaps is None or not sampled:
        return SampleCounts(interval, origin, sampled, None, None, None, why)
    meanings = [(gap_of(gap, interval), count) for gap, count in gaps.items() if interval is not None]
    late = sum(count for meaning, count in meanings if meaning is not None and meaning.late_by)
    never_came = sum(meaning.never_came * count for meaning, count in meanings if meaning is not None)
    return SampleCounts(interval, origin, sampled, sampled + never_came, late, never_came)


def _doubt(gaps: Mapping[int, int], interval: int | None, *, is_sure: bool) -> str | None:
    """Return why distances do not show what was due, None where they do: a first sample was due in any case."""
    if not gaps:
        return None
    if interval is None:
        return NO_INTERVAL
    if any(gap_of(gap, interval) is None for gap in gaps):
        return f"{MISMATCH} {interval}"
    return MAY_HAVE_STOPPED if interval == 1 and not is_sure and max(gaps) > 1 else None


def sum_of(figures: Iterable[SampleCounts]) -> SampleCounts:
    """Return the counts of several models together; an interval that differs between them is None."""
    each = list(figures)
    if not each:
        return UNKNOWN_FIGURES
    origins = {(one.interval, one.origin) for one in each}
    interval, origin = origins.pop() if len(origins) == 1 else (None, None)
    sampled = sum(one.sampled for one in each)
    return SampleCounts(
        interval,
        origin,
        sampled,
        due=_sum([one.due for one in each]),
        late=_sum([one.late for one in each]),
        never_came=_sum([one.never_came for one in each]),
        why=next((one.why for one in each if one.why is not None), None),
    )


@dataclass(slots=True)
class SampleTally:
    """Samples of one model, counted as they come in any order.

    `gaps` counts the distances between neighbours, in pictures. `pictures` is the number in each inference: None before
    the first sample, 0 where they differ, so that inferences cannot be counted.
    """

    sampled: int = 0
    pictures: int | None = None
    gaps: Counter[int] = field(default_factory=Counter)

    def insert(self, before: int | None, pic_count: int, after: int | None, pictures: int) -> None:
        """Add a sample after `pic_count` pictures, between neighbours with the counts `before` and `after`, if any."""
        self.sampled += 1
        self.pictures = pictures if self.pictures in (None, pictures) else 0
        if before is not None and after is not None:
            self._drop(after - before)
        if before is not None:
            self.gaps[pic_count - before] += 1
        if after is not None:
            self.gaps[after - pic_count] += 1

    def figures(self, acl_interval: int | None) -> SampleCounts:
        """Return the counts of the model; `acl_interval` is that of its acl.json, None where unknown."""
        gaps = self._inferences()
        return figures_of(self.sampled, gaps, acl_interval, why=SIZES if gaps is None else None)

    def _inferences(self) -> dict[int, int] | None:
        pictures = self.pictures
        if not self.gaps:
            return {}
        if not pictures or any(gap % pictures for gap in self.gaps):
            return None
        return {gap // pictures: count for gap, count in self.gaps.items()}

    def _drop(self, gap: int) -> None:
        self.gaps[gap] -= 1
        if not self.gaps[gap]:
            del self.gaps[gap]


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
