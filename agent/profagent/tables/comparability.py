"""Policy of comparisons: the facts in which two runs differ, and the figures that may therefore not be compared.

`diff`, `trend`, `nightly` and `fleet` ask it before they form a difference. Every rule has a code by which `--allow`
overrides it; the reference page of the rules is generated from this table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from profagent.codes import IssueCode, IssueFamily, Severity
from profagent.errors import IncompleteError, UsageError
from profagent.limits import MOST_NAMED
from profagent.link.boards_file import BoardNames
from profagent.store.sessions import NO_BOARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# Values of each fact, by the code of its rule; a run of several JOBs may have several, and none if it is not known.
Facts = Mapping[str, Sequence[str]]
# Names and types of a model's layers, in order.
Topology = Sequence[tuple[str, str]]


class Subject(StrEnum):
    """Subject of a comparison that a rule may block."""

    ALL = "all figures"
    LAYERS = "layers"
    LATENCY = "latency"
    CALLS = "API calls"
    COUNTERS = "counters"


class ComparisonRule(NamedTuple):
    """Rule of the policy: the fact that must be alike, the figures blocked if it is not, and the reason."""

    code: str
    blocks: tuple[Subject, ...]
    reason: str

    @property
    def issue(self) -> IssueCode:
        """The rule as an issue code; severity and remedy follow from what it blocks."""
        remedy = (
            f"Compare runs that are alike in this, or override the rule: `--allow {self.code}`." if self.blocks else ""
        )
        exit_code = IncompleteError.exit_code if self.blocks else 0
        return IssueCode(IssueFamily.COMPARISON, self.code, self._severity, self.reason, remedy, exit_code)

    @property
    def _severity(self) -> Severity:
        if Subject.ALL in self.blocks:
            return Severity.BLOCKING
        return Severity.BLOCKS_METRIC if self.blocks else Severity.INFORMATIVE


_ON_THE_HOST = (Subject.LATENCY, Subject.CALLS)
RULES: Mapping[str, ComparisonRule] = {
    rule.code: rule
    for rule in (
        ComparisonRule("simulated", (Subject.ALL,), "Figures of a simulated board are invented."),
        ComparisonRule("device", (Subject.ALL,), "Results of another Ascend device come from another NPU."),
        ComparisonRule("board-model", (Subject.ALL,), "Boards of two models differ in NPU, memory and cooling."),
        ComparisonRule("npu-clock", (Subject.ALL,), "Every time on the NPU changes with its clock."),
        ComparisonRule("batch", (Subject.ALL,), "An inference of more pictures takes longer."),
        ComparisonRule(
            "model",
            (Subject.ALL,),
            "Fewer than half of the layers have a counterpart of the same name or type: it is another network.",
        ),
        ComparisonRule(
            "interval",
            _ON_THE_HOST,
            "The runtime writes its records at each sample, which delays the program; layers are timed on the NPU.",
        ),
        ComparisonRule(
            "recorded",
            _ON_THE_HOST,
            "Recording API calls takes time in the program.",
        ),
        ComparisonRule("counter-map", (Subject.COUNTERS,), "Another counter map reads other words of a record."),
        ComparisonRule("sdk", (), "Another SDK may be what is tested; it also changes the runtime itself."),
        ComparisonRule("board", (), "Two boards of one model differ a little in speed and temperature."),
        ComparisonRule("layers", (), "Some layers were added, removed, fused or renamed; the others are compared."),
        ComparisonRule("incomplete", (), "Data is missing: the figures are of the inferences that came."),
        ComparisonRule("unknown", (), "A fact is not known, so that it was not checked."),
    )
}
# Facts of a run, other than those of its models.
_OF_RUNS: Mapping[str, Callable[[Mapping[str, Any]], str | None]] = {
    "simulated": lambda job: "simulated" if job["simulated"] else "measured",
    "device": lambda job: "another Ascend device" if "imported_from" in job else "SS928",
    "board-model": lambda job: job.get("board_model") or None,
    "npu-clock": lambda job: f"{job['frequency_mhz']} MHz" if job["frequency_mhz"] else None,
    "interval": lambda job: None if job["sampling"]["interval"] is None else str(job["sampling"]["interval"]),
    "recorded": lambda job: _recorded(job.get("recorded", ())),
    "counter-map": lambda job: job["counter_map_digest"] or "none",
    "sdk": lambda job: job["sdk_version"] or None,
    "board": lambda job: None if job["board"] == NO_BOARD else BoardNames.known().of(job["board"], job["hostname"]),
    "incomplete": lambda job: "; ".join(job["incomplete"]) if job.get("incomplete") else None,
}
# Forms of values that would say little, or the same twice, behind the code of their rule.
_VALUES = {**dict.fromkeys(("simulated", "device", "batch", "recorded"), "{}"), "model": "another model of {} layers"}
# Facts without which a comparison is not sure; results of another tool never have them.
_WANTED = ("npu-clock", "interval")
# Models of which a smaller share of layers is alike are different networks.
LEAST_ALIKE = 0.5


class Difference(NamedTuple):
    """Difference of two runs in one fact, or the lack of a fact; `model` is None if it concerns the whole run.

    `base` and `new` are the values on both sides. `is_allowed` says that `--allow` names the rule.
    """

    rule: ComparisonRule
    model: str | None
    text: str
    base: str | None = None
    new: str | None = None
    is_allowed: bool = False

    @property
    def blocks(self) -> tuple[Subject, ...]:
        """The figures that may not be compared; none if the rule was overridden."""
        return () if self.is_allowed else self.rule.blocks

    def of_base(self) -> str:
        """Return the value of the base, with what it is a value of."""
        return _VALUES.get(self.rule.code, f"{self.rule.code} {{}}").format(self.base)

    def __str__(self) -> str:
        """Return the code, the values on both sides, and what follows from them."""
        what = f"{self.rule.code}: {self.text}"
        if self.is_allowed:
            return f"{what} (allowed)"
        return f"{what}; not compared: {' and '.join(self.blocks)}" if self.blocks else what

    def document(self) -> dict[str, Any]:
        """Return the difference as JSON fields."""
        return {
            "code": self.rule.code,
            "grade": self.rule.issue.severity.value,
            "blocks": [str(each) for each in self.rule.blocks],
            "model": self.model,
            "base": self.base,
            "new": self.new,
            "text": self.text,
            "allowed": self.is_allowed,
        }


class Comparability(NamedTuple):
    """Verdict of the policy about two runs of `models`: all differences, in the order of the rules."""

    differences: Sequence[Difference]
    models: Sequence[str] = ()

    def blocking(self, subject: Subject, model: str | None = None) -> list[Difference]:
        """Return the differences that forbid comparing a subject, of the whole run or of a model."""
        return [
            each for each in self.differences if each.model in (None, model) and {subject, Subject.ALL} & {*each.blocks}
        ]

    @property
    def is_blocked(self) -> bool:
        """True if nothing of the runs may be compared: each model, or the whole run, is blocked."""
        return all(self.blocking(Subject.ALL, model) for model in self.models or (None,))

    @property
    def verdict(self) -> str:
        """Verdict in a word: `comparable`, `in part` or `not comparable`."""
        if self.is_blocked:
            return "not comparable"
        return "in part" if any(each.blocks for each in self.differences) else "comparable"

    def line(self) -> str:
        """Return the verdict as the first line of a report, with the codes and their override."""
        blocking = [each for each in self.differences if each.blocks]
        if not blocking:
            allowed = [each.rule.code for each in self.differences if each.is_allowed]
            return f"comparable, as --allow {' '.join(dict.fromkeys(allowed))} demands" if allowed else "comparable"
        codes = dict.fromkeys(each.rule.code for each in blocking)
        said = "not comparable" if self.is_blocked else "comparable in part"
        return f"{said}: {', '.join(codes)} ({' '.join(f'--allow {code}' for code in codes)} compares anyway)"

    def document(self) -> dict[str, Any]:
        """Return the verdict as JSON fields."""
        return {"verdict": self.verdict, "differences": [each.document() for each in self.differences]}


def allowed_codes(codes: Iterable[str]) -> frozenset[str]:
    """Return the codes of rules that are to be overridden. Raises UsageError for an unknown or informative one."""
    known = [rule.code for rule in RULES.values() if rule.blocks]
    for code in codes:
        if code not in known:
            raise UsageError(f"{code!r} is not the code of a rule that blocks", hint=f"write one of {', '.join(known)}")
    return frozenset(codes)


def _recorded(kinds: Sequence[str]) -> str | None:
    # Other kinds depend on the model: one without layers on the CPU has no records of these.
    if not kinds:
        return None
    return "with API calls" if "acl_api" in kinds else "without API calls"


def facts_of(provenance: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the facts of a run from the provenance of its JOBs."""
    jobs = [*provenance]
    return {
        code: sorted({value for job in jobs if (value := fact(job)) is not None}) for code, fact in _OF_RUNS.items()
    }


def verdict(
    differences: Iterable[Difference], allowed: Iterable[str] = (), models: Sequence[str] = ()
) -> Comparability:
    """Return the verdict that follows from differences; rules whose codes are `allowed` block nothing."""
    codes = frozenset(allowed)
    order = [*RULES]
    found = [each._replace(is_allowed=each.rule.code in codes and bool(each.rule.blocks)) for each in differences]
    return Comparability(sorted(found, key=lambda each: order.index(each.rule.code)), models)


def run_differences(base: Facts, new: Facts) -> Iterator[Difference]:
    """Yield the differences of two runs other than those of their models; `base` is the one to compare with."""
    for code in _OF_RUNS:
        ones, others = base.get(code, ()), new.get(code, ())
        if code != "incomplete" and ones and others and [*ones] != [*others]:
            yield _different(code, None, _text_of(ones), _text_of(others))
    for side, facts in (("BASE", base), ("NEW", new)):
        for text in facts.get("incomplete", ()):
            yield Difference(RULES["incomplete"], None, f"{side}: {text}")
        is_another_tool = "SS928" not in facts.get("device", ("SS928",))
        missing = [code for code in _WANTED if not facts.get(code)]
        if missing and not is_another_tool:
            yield Difference(RULES["unknown"], None, f"{side} does not tell {' and '.join(missing)}")


def model_differences(
    name: str,
    batches: tuple[Iterable[tuple[int, int]], Iterable[tuple[int, int]]],
    topologies: tuple[Topology, Topology],
) -> Iterator[Difference]:
    """Yield the differences of two runs of one model, each as a pair of base and new.

    `batches` are pairs of batch and input pictures of the inferences; any of the sequences is empty if it is not known.
    """
    ones, others = ([f"batch {batch} of {count} pictures" for batch, count in sorted(side)] for side in batches)
    if ones and others and ones != others:
        yield _different("batch", name, _text_of(ones), _text_of(others))
    base, new = topologies
    if base and new and [*base] != [*new]:
        share = _alike_share(base, new)
        code = "layers" if share >= LEAST_ALIKE else "model"
        counts = f"{len(base):,} layers in BASE, {len(new):,} in NEW of {name}; {share:.0%} alike"
        yield Difference(RULES[code], name, counts, str(len(base)), str(len(new)))


def _alike_share(base: Topology, new: Topology) -> float:
    """Return the share of layers, from 0 to 1, that have a counterpart of the same name, or if larger, type.

    The parts of fused layers, whose names a `+` joins, count one by one.
    """
    shares = []
    for place in (0, 1):
        ones, others = (Counter(part for layer in side for part in layer[place].split("+")) for side in (base, new))
        shares.append((ones & others).total() / max(ones.total(), others.total(), 1))
    return max(shares)


def _different(code: str, model: str | None, base: str, new: str) -> Difference:
    of_model = "" if model is None else f" of {model}"
    return Difference(RULES[code], model, f"{base} in BASE, {new} in NEW{of_model}", base, new)


def _text_of(values: Sequence[str]) -> str:
    more = len(values) - MOST_NAMED
    return ", ".join(values[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
