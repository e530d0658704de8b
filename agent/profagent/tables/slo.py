"""Objectives such as `frame.p99 < 33ms`: their grammar, the verdict on them, and the part that is guilty. Pure."""

from __future__ import annotations

import math
import operator
import re
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

import numpy as np

from profagent.errors import IncompleteError, ProfagentError, UsageError
from profagent.formats.durations import RESOLUTION, WeightedDurations
from profagent.limits import FEWEST_JUDGED, SHOWN_CASES
from profagent.tables.table import counted
from profagent.units import US_BY_UNIT, US_PER_MS, US_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from profagent.documents import ObjectiveDocument
    from profagent.formats.durations import Distribution

    Floats = NDArray[np.float64]

# What one value of a subject is.
SUBJECTS = {"frame": "frame", "latency": "inference", "layer": "inference", "stage": "frame"}
FRAMED = ("frame", "stage")
# Subjects of which there are several: a name chooses one, and without it each is judged.
_NAMED = ("latency", "layer", "stage")
OPERATORS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
_STATS = r"p\d{1,2}(?:\.\d+)?|median|mean|max|min|rate"
_RATES = ("/s", "fps")
EXAMPLES = "frame.p99 < 33ms, latency[yolov5s].mean < 8ms, layer[conv1].p95 <= 350us, frame.rate >= 30fps"
# The standard deviation of normally distributed values is this factor times their MAD.
_MAD_TO_SIGMA = 1.4826
# The guilty part explains at least this share of what the values that exceed a bound take more than usual.
LEAST_EXPLAINED = 0.5
# Mark behind the name of a layer that runs on the CPU.
ON_CPU = " (cpu)"
NOTHING = np.empty(0)
_UNRESOLVED = f"a flight recorder left a histogram, and the bound is within its {RESOLUTION:.1%} of the figure"


def subject_pattern(subjects: Iterable[str], figures: str) -> str:
    """Return the pattern of `SUBJECT[NAME].FIGURE OP`, with which conditions and objectives begin."""
    return (
        rf"(?P<subject>{'|'.join(subjects)})\s*(?:\[(?P<name>[^\]]+)\])?\s*\.\s*(?P<figure>{figures})\s*"
        rf"(?P<operator>{'|'.join(OPERATORS)})\s*"
    )


_OBJECTIVE = re.compile(
    subject_pattern(SUBJECTS, _STATS) + rf"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>{'|'.join((*US_BY_UNIT, *_RATES))})"
)
_FIGURES: Mapping[str, Callable[[Floats], np.floating]] = {"mean": np.mean, "max": np.max, "min": np.min}
Verdict = Literal["holds", "exceeded", "unknown"]
# In the order of severity.
VERDICTS: tuple[Verdict, ...] = ("holds", "unknown", "exceeded")


class Objective(NamedTuple):
    """Objective: a figure of a subject is to be below or above a bound, in µs, or in 1/s for a rate.

    `name` is the model, layer or stage; None stands for each of them.
    """

    text: str
    subject: str
    name: str | None
    stat: str
    operator: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the objective that a text states. Raises UsageError."""
        found = _OBJECTIVE.fullmatch(text.strip())
        if found is None:
            raise UsageError(
                f"{text!r} is not an objective",
                hint=f"write SUBJECT.FIGURE < TIME, such as: {EXAMPLES}; subjects: frame, latency[MODEL],"
                " layer[NAME], stage[NAME]; figures: p50, p95, p99, p99.9, median, mean, max, min, rate;"
                f" {' '.join(OPERATORS)}; {', '.join(US_BY_UNIT)}, and fps or /s of a rate",
            )
        subject, name, stat, unit = (found[each] for each in ("subject", "name", "figure", "unit"))
        if name is not None and subject not in _NAMED:
            raise UsageError(
                f"{text!r}: a {subject} has no name", hint="write frame.p99 < 33ms, or stage[NAME].p99 < 8ms"
            )
        if (stat == "rate") is not (unit in _RATES):
            is_rate = stat == "rate"
            raise UsageError(
                f"{text!r}: {f'a rate is not in {unit}' if is_rate else f'a {stat} is a time, not a rate'}",
                hint="write frame.rate >= 30fps" if is_rate else "write frame.p99 < 33ms",
            )
        if stat == "rate" and subject not in ("frame", "latency"):
            raise UsageError(f"{text!r}: only frame and latency have a rate", hint="write frame.rate >= 30fps")
        if stat.startswith("p") and float(stat[1:]) == 0:
            raise UsageError(f"{text!r}: there is no {stat}", hint=f"write {subject}.min")
        return cls(
            text.strip(), subject, name, stat, found["operator"], float(found["number"]) * US_BY_UNIT.get(unit, 1.0)
        )

    @property
    def is_rate(self) -> bool:
        """True if the figure is a rate, in 1/s, and the bound too."""
        return self.stat == "rate"

    def is_met(self, value: float | Floats) -> bool | NDArray[np.bool_]:
        """Return True if a value, or each of several, meets the bound."""
        found: bool | NDArray[np.bool_] = OPERATORS[self.operator](value, self.bound)
        return found

    def quantile(self) -> float | None:
        """Return the quantile that the figure is, from 0 to 1; None if it is no percentile."""
        if self.stat == "median":
            return 0.5
        return float(self.stat[1:]) / 100 if self.stat.startswith("p") else None

    def text_of(self, value: float) -> str:
        """Return a value of the figure with its unit, as a person reads it."""
        scale, digits, unit = (1.0, 2, "/s") if self.is_rate else (1.0, 3, "us")
        if not self.is_rate and value >= US_PER_MS:
            scale, unit = US_PER_MS, "ms"
        # A value that misses its bound by less than is shown would look like the bound.
        is_near = value != self.bound and round(value / scale, digits) == round(self.bound / scale, digits)
        return f"{value / scale:,.{digits + 3 * is_near}f} {unit}"


class JudgedSeries(NamedTuple):
    """Values of one thing: a model's latencies, a layer's or stage's times, frames; in µs, NaN where not known.

    For a rate, `steps_us` are the µs from each to the next, and `steps` how many came in that time. `parts` has the
    shape (values, parts): the parts of the first values, which sum to them, called `names`. `why` says why there is no
    value, or what the values lack. `thinned` has further values in a histogram; the rate of all is then in one step.
    """

    name: str
    us: Floats
    steps_us: Floats = NOTHING
    steps: Floats = NOTHING
    names: Sequence[str] = ()
    parts: NDArray[np.floating] = NOTHING
    why: str = ""
    thinned: Distribution | None = None

    def values(self, objective: Objective) -> Floats:
        """Return the known values that an objective is about: µs, or 1/s in each step for a rate."""
        if objective.is_rate:
            return US_PER_S * self.steps / self.steps_us
        return self.us[~np.isnan(self.us)]

    def figure(self, objective: Objective) -> float:
        """Return the figure that an objective is about, of at least one value."""
        if objective.is_rate:
            return US_PER_S * float(self.steps.sum()) / float(self.steps_us.sum())
        quantile, values, thinned = objective.quantile(), self.values(objective), self.thinned
        if thinned is None:
            return float(np.quantile(values, quantile) if quantile is not None else _FIGURES[objective.stat](values))
        if quantile is not None:
            most = float(values.max(initial=thinned.most))
            return min(WeightedDurations.of(values, thinned).quantiles([quantile])[0], most)
        if objective.stat == "mean":
            return (float(values.sum()) + thinned.total) / (len(values) + thinned.number)
        return float(_FIGURES[objective.stat](np.append(values, [thinned.least, thinned.most])))

    def outcomes(self, objective: Objective) -> Iterator[tuple[bool, int]]:
        """Yield if the figure meets an objective, and how many values do not.

        With thinned values there are two outcomes, between which the truth is: these values lie at the lower ends of
        their bins, or at the upper ones.
        """
        values, is_met = self.values(objective), bool(objective.is_met(self.figure(objective)))
        if self.thinned is None:
            yield is_met, _missing(objective, values)
            return
        if objective.is_rate:
            yield from ((is_met, 0), (is_met, int(self.steps.sum())))
            return
        *ends, counts = self.thinned.edges()
        quantile, weights = objective.quantile(), np.concatenate([np.ones(len(values), np.int64), counts])
        for end in ends:
            found = WeightedDurations(np.concatenate([values, end]), weights)
            if quantile is not None:
                is_met = bool(objective.is_met(found.quantiles([quantile], growth=1.0)[0]))
            yield is_met, _missing(objective, *found)

    def number(self, objective: Objective) -> int:
        """Return the number of values that an objective is about, those that were thinned among them."""
        if self.thinned is None:
            return len(self.values(objective))
        return int(self.steps.sum()) if objective.is_rate else len(self.values(objective)) + self.thinned.number


def _missing(objective: Objective, values: Floats, weights: NDArray[np.int64] | None = None) -> int:
    is_beyond = ~np.asarray(objective.is_met(values))
    return int(is_beyond.sum() if weights is None else weights[is_beyond].sum())


class Guilt(NamedTuple):
    """Part that makes values exceed a bound, and the share of their excess that it explains, from 0 to 1."""

    part: str
    share: float


class Judged(NamedTuple):
    """Verdict on an objective for one thing.

    `value` is the figure, in the unit of the bound; `exceeded` of `number` values do not meet the bound, for a rate the
    intervals between values; `unsure` further ones may not. `guilty` is None if no single part is, or none can be told;
    `why` says why.
    """

    objective: Objective
    name: str
    verdict: Verdict
    value: float | None
    number: int
    exceeded: int
    guilty: Guilt | None = None
    why: str = ""
    unsure: int = 0

    @property
    def share(self) -> float | None:
        """Share of the values that do not meet the bound, from 0 to 1; None without a value, or if it is not known."""
        return self.exceeded / self.number if self.number and not self.unsure else None

    @property
    def head(self) -> str:
        """Verdict and objective, with which lines begin."""
        return f"{self.verdict.upper() if self.verdict == 'exceeded' else self.verdict} {self.objective.text}"

    def line(self) -> str:
        """Return the verdict as a line for people."""
        objective, head = self.objective, self.head
        about = f"{self.name}: " if self.name and self.name != objective.name else ""
        if self.value is None:
            return f"{head}: {about}{self.why}"
        of = "interval" if objective.is_rate else SUBJECTS[objective.subject]
        unmet = f"{self.exceeded:,} of {counted(self.number, of)} ({100 * (self.share or 0.0):.2f} %) miss it"
        if self.unsure:
            unmet = f"{self.exceeded:,} to {self.exceeded + self.unsure:,} of {counted(self.number, of)} miss it"
        said = [f"{objective.stat} is {objective.text_of(self.value)}", unmet]
        if self.guilty is not None:
            said.append(f"{self.guilty.part} explains {100 * self.guilty.share:.0f} % of the excess")
        return f"{head}: {about}{'; '.join([*said, *([self.why] if self.why else [])])}"


def judged(objective: Objective, series: JudgedSeries) -> Judged:
    """Return the verdict on an objective for the values of one thing."""
    number = series.number(objective)
    if not number:
        return Judged(objective, series.name, "unknown", None, 0, 0, why=series.why or "nothing is known of it")
    are_met, missing = zip(*series.outcomes(objective), strict=True)
    found = decided(objective, series.name, series.figure(objective), number, max(missing), series.why)
    found = found._replace(exceeded=min(missing), unsure=max(missing) - min(missing))
    if len({*are_met}) > 1:
        return found._replace(verdict="unknown", why=_UNRESOLVED)
    if found.verdict != "exceeded":
        return found
    guilty, why = None, ""
    if series.names and not objective.is_rate and objective.operator.startswith("<"):
        parts = series.parts[~np.isnan(series.us[: len(series.parts)])]
        is_beyond = ~np.asarray(objective.is_met(series.values(objective)))
        guilty, why = guilty_part(series.names, parts, is_beyond[: len(parts)])
    why = "; ".join(each for each in (why, series.why) if each)
    return found._replace(guilty=guilty, why=why)


def decided(objective: Objective, name: str, value: float, number: int, exceeded: int, why: str = "") -> Judged:
    """Return the verdict on a figure of `number` values, `exceeded` of which miss the bound; no part is guilty yet."""
    if few := _too_few(objective, number, exceeded):
        return Judged(objective, name, "unknown", value, number, exceeded, why=few)
    verdict: Verdict = "holds" if objective.is_met(value) else "exceeded"
    return Judged(objective, name, verdict, value, number, exceeded, why=why)


def _too_few(objective: Objective, count: int, exceeded: int) -> str:
    """Return why so few values cannot decide; empty if they can.

    The largest of few values is their p99: one value beyond the bound may be the hundredth that it allows.
    """
    if objective.stat in ("max", "min"):
        return ""
    if count < FEWEST_JUDGED:
        return f"{count} of the {FEWEST_JUDGED} values that it takes"
    quantile = objective.quantile()
    if quantile is None or exceeded != 1:
        return ""
    allowed = 1 - quantile if objective.operator.startswith("<") else quantile
    return f"one value of {count} beyond the bound decides no {objective.stat}" if count * allowed < 1 else ""


def guilty_part(
    names: Sequence[str], parts: NDArray[np.floating], is_beyond: NDArray[np.bool_]
) -> tuple[Guilt | None, str]:
    """Return the part that makes values exceed their bound, or None and why there is none.

    `parts` has the shape (values, parts). What a part takes usually is its median where the bound is met. The guilty
    part explains at least half of what the other values take more, and exceeds what its own noise reaches in so many
    values.
    """
    usual = parts[~is_beyond]
    if not is_beyond.any():
        return None, "none of those that miss it was kept whole"
    if len(usual) < FEWEST_JUDGED:
        means = parts.mean(axis=0)
        place = int(means.argmax())
        share = float(means[place]) / float(means.sum())
        most = f"; {names[place]} takes {100 * share:.0f} %" if share >= LEAST_EXPLAINED else ""
        return None, f"too few values meet the bound to tell what is usual{most}"
    medians = np.median(usual, axis=0)
    sigma = _MAD_TO_SIGMA * np.median(np.abs(usual - medians), axis=0)
    beyond = parts[is_beyond] - medians
    excess = beyond.mean(axis=0)
    whole = float(excess.sum())
    largest = int(excess.argmax())
    # The largest of n normally distributed values is about sqrt(2 ln n) standard deviations above their mean.
    reach = (math.sqrt(2 * math.log(len(parts))) + 1) * float(sigma[largest])
    is_real = whole > 0 and float(np.median(beyond[:, largest])) > reach
    if not is_real or excess[largest] < LEAST_EXPLAINED * whole:
        return None, "no single part explains it"
    return Guilt(names[largest], min(1.0, float(excess[largest]) / whole)), ""


class Judgement(NamedTuple):
    """Verdict on an objective over everything that it is about, each with its own verdict."""

    objective: Objective
    cases: list[Judged]

    @property
    def verdict(self) -> Verdict:
        """Most severe verdict; unknown without a case."""
        return max((each.verdict for each in self.cases), key=VERDICTS.index, default="unknown")

    def lines(self) -> list[str]:
        """Return a line for each of the worst cases; if all hold, one line with the one that is missed most often."""
        worst = [each for each in self.cases if each.verdict == self.verdict]
        if not worst:
            return [f"unknown {self.objective.text}: nothing of it was recorded"]
        worst.sort(key=lambda each: -(each.share or 0.0))
        if self.verdict == "holds":
            more = f"; it holds for {len(worst) - 1:,} more" if len(worst) > 1 else ""
            return [worst[0].line() + more]
        left = len(worst) - SHOWN_CASES
        rest = [f"{worst[-1].head}: {left:,} more"] if left > 0 else []
        return [*(each.line() for each in worst[:SHOWN_CASES]), *rest]

    def document(self) -> ObjectiveDocument:
        """Return the verdict as JSON fields."""
        return {
            "objective": self.objective.text,
            "verdict": self.verdict,
            "bound": self.objective.bound,
            "unit": "1/s" if self.objective.is_rate else "us",
            "cases": [
                {
                    "name": each.name,
                    "verdict": each.verdict,
                    "value": each.value,
                    "count": each.number,
                    "exceeded": None if each.unsure else each.exceeded,
                    "share": each.share,
                    "guilty": each.guilty and each.guilty.part,
                    "guilty_share": each.guilty and each.guilty.share,
                    "why": each.why,
                }
                for each in self.cases
            ],
        }


def judgement(objective: Objective, found: Iterable[JudgedSeries]) -> Judgement:
    """Return the verdict on an objective over the series that it is about.

    Of all stages, those that a few frames have, fewer than FEWEST_JUDGED, are left out, such as that of a call whose
    record did not come before the capture ended.
    """
    cases = [judged(objective, each) for each in found]
    if objective.subject == "stage" and objective.name is None:
        cases = [each for each in cases if each.verdict != "unknown" or not 0 < each.number < FEWEST_JUDGED] or cases
    return Judgement(objective, cases)


def is_of_layer(wanted: str | None, name: str) -> bool:
    """Return True if an objective on layers is about this one; of fused layers one name is enough."""
    own = name.removesuffix(ON_CPU)
    return wanted in (None, name, own) or wanted in own.split("+")


def unjudged(objective: Objective, why: str) -> Judgement:
    """Return an unknown verdict with its reason."""
    return Judgement(objective, [Judged(objective, "", "unknown", None, 0, 0, why=why)])


def exit_code_of(verdicts: Collection[str]) -> int:
    """Return the exit code of a command that judges: 1 if an objective is exceeded, 4 if a verdict is unknown."""
    if "exceeded" in verdicts:
        return ProfagentError.exit_code
    return IncompleteError.exit_code if "unknown" in verdicts else 0
