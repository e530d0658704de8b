"""`diff`: reads two runs, compares them, and judges the conditions of --fail-if."""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent.diff.comparing import Change, Floor, ModelDiff, compare, compare_calls
from profagent.diff.runs import ModelRun, joined_runs, model_runs, on_unit, read_exported, thinned_run
from profagent.errors import UsageError
from profagent.formats.durations import RESOLUTION
from profagent.limits import READERS
from profagent.stats.figures import UNITS
from profagent.stats.records import calls_by_function, read_jobs
from profagent.stats.thinned import refuse_skip, thinned_of
from profagent.store.database import readings
from profagent.store.queries import Scope, find_session, jobs_of
from profagent.tables.comparability import Subject, facts_of, model_differences, run_differences, verdict
from profagent.tables.provenance import provenance_of
from profagent.tables.slo import OPERATORS, subject_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from profagent.tables.comparability import Comparability, Difference
    from profagent.tables.slo import Judgement


SCOPES = ("latency", "layers", "layer", "type", "api")
FIGURES = ("mean", "median", "mad", "p95", "p99", "max")
# Scopes of earlier versions, which knew only one time of an inference: they get a hint.
_FORMER = re.compile(r"(total|model)(?P<rest>\s*[.\[].*)")
_UNITS = ("%", "us", "ms")
DEFAULT_FLOOR = Floor()
_CONDITION = re.compile(
    subject_pattern(SCOPES, "|".join(FIGURES))
    + rf"(?P<sign>[+-])\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>{'|'.join(_UNITS)})"
)


class Condition(NamedTuple):
    """A condition on changes of `scope` (of `name`, unless None): their `figure` differs by more than the limit."""

    text: str
    scope: str
    name: str | None
    figure: str
    operator: str
    limit: float
    unit: str

    def about(self, changes: Sequence[Change]) -> list[Change]:
        """Return the changes that the condition is about."""
        return [change for change in changes if change.scope == self.scope and self.name in (None, change.name)]

    def failing(self, changes: Sequence[Change]) -> list[Change]:
        """Return the changes for which the condition holds; a change within noise or floor never fails."""
        return [change for change in self.about(changes) if change.is_significant and self._holds(change)]

    def baseless(self, changes: Sequence[Change]) -> list[Change]:
        """Return the changes that cannot be judged: the limit is in % of a figure that is 0 in the base only."""
        undecided = (change for change in self.about(changes) if change.is_significant or change.p is None)
        sides = ((change, *self._sides(change)) for change in undecided)
        return [change for change, base, new in sides if self.unit == "%" and base == 0 and new]

    def _holds(self, change: Change) -> bool:
        base, new = self._sides(change)
        if base is None or new is None or (self.unit == "%" and not base):
            return False
        found = (new - base) / {"%": base / 100, "us": 1, "ms": 1000}[self.unit]
        return bool(OPERATORS[self.operator](found, self.limit))

    def _sides(self, change: Change) -> tuple[float | None, float | None]:
        return getattr(change.base, self.figure), getattr(change.new, self.figure)


def parse_condition(text: str) -> Condition:
    """Return the condition that a text states; raise UsageError for any other text."""
    found = _CONDITION.fullmatch(text.strip())
    if found is None and (former := _FORMER.fullmatch(text.strip())):
        rest = former["rest"]
        raise UsageError(
            f"--fail-if {text}: the condition is ambiguous: an inference has two times",
            hint=f"write latency{rest} for the time that the program waits, or layers{rest} for the sum of the layers",
        )
    if found is None:
        raise UsageError(
            f"--fail-if {text}: no such condition",
            hint=f"write SCOPE.FIGURE>+5% or layer[conv1].p95>+20us; scopes: {', '.join(SCOPES)};"
            f" figures: {', '.join(FIGURES)}; {' '.join(OPERATORS)}; + slower, - faster; {', '.join(_UNITS)}",
        )
    limit = float(found["sign"] + found["number"])
    return Condition(text, found["subject"], found["name"], found["figure"], found["operator"], limit, found["unit"])


class Operand(NamedTuple):
    """A run to compare: a session of a database (None: its newest; `job`: that JOB only), or tables op_summary."""

    name: str
    database: Path | None = None
    session: int | None = None
    job: str | None = None
    tables: Sequence[Path] = ()


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A run that was read: its models, the durations of its API calls in µs by function, and its provenance."""

    name: str
    models: list[ModelRun]
    calls: Mapping[str, NDArray[np.float64]]
    provenance: list[dict[str, Any]]

    @property
    def is_simulated(self) -> bool:
        """True if any of the figures are invented."""
        return any(job["simulated"] for job in self.provenance)

    @property
    def is_imported(self) -> bool:
        """True if the figures come from another tool's results, of another device."""
        return any("imported_from" in job for job in self.provenance)

    @property
    def incomplete(self) -> list[str]:
        """The reasons why the capture is not complete; tables have none."""
        return list(dict.fromkeys(why for job in self.provenance for why in job.get("incomplete", ())))


class Outcome(NamedTuple):
    """A condition and the changes for which it holds; `undecided` gives the reason if it cannot be judged."""

    condition: Condition
    failing: list[Change]
    undecided: str = ""


@dataclass(frozen=True, slots=True)
class Diff:
    """The comparison of two runs.

    Figures that `comparability` blocks are in no list. `only` lists models that only one run has, as pairs of side and
    name. `slo` has the verdicts on each objective, of the base and of the new run.
    """

    base: ComparedRun
    new: ComparedRun
    models: list[ModelDiff]
    calls: list[Change]
    only: list[tuple[str, str]]
    comparability: Comparability
    remarks: list[str]
    outcomes: list[Outcome]
    slo: Sequence[tuple[Judgement, Judgement]] = ()

    @property
    def is_complete(self) -> bool:
        """True if the captures of both runs are complete."""
        return not (self.base.incomplete or self.new.incomplete)

    @property
    def can_tell(self) -> bool:
        """True if any model has enough inferences to tell a change from noise."""
        return any(model.inference.p is not None for model in self.models)

    @property
    def is_thinned(self) -> bool:
        """True if a flight recorder has thinned a run of any model, whose changes no test tells from noise."""
        return any(model.inference.is_thinned for model in self.models)


# What results of another device do not contain.
_NOT_OF_OTHERS = ("sampling", "NPU clock", "DDR bytes", "effective shares of cube and vector")
_THINNED = (
    f"figures are of all inferences, with the warm-up, percentiles within {RESOLUTION:.1%}; most were thinned:"
    " no test tells a change from noise, and of several layers or records together only the mean is known"
)
UNDECIDED_THINNED = "a flight recorder thinned inferences: no test tells a change from noise"
# Figures that conditions of a scope are about.
_SUBJECTS = {"latency": Subject.LATENCY, "layers": Subject.ALL, "api": Subject.CALLS}


async def diff(
    base: Operand,
    new: Operand,
    conditions: Sequence[Condition] = (),
    floor: Floor = DEFAULT_FLOOR,
    skip: int | None = None,
    allowed: Iterable[str] = (),
) -> Diff:
    """Return the comparison of two runs; `skip` is as in `stats`, `allowed` are codes of rules to override.

    Raises UsageError if no model is in both runs, and StoreError.
    """
    one, other = await read_run(base, skip), await read_run(new, skip)
    remarks = []
    if bool(base.tables) != bool(new.tables):
        one, other = (replace(run, models=[_as_of_tables(model) for model in run.models]) for run in (one, other))
        remarks.append("tables op_summary have no layers on the CPU: those of the other run are left out")
    pairs = run_pairs(one.models, other.models)
    if not pairs:
        names = [", ".join(sorted({model.name for model in run.models})) or "none" for run in (one, other)]
        raise UsageError(
            f"no model is in both runs: BASE has {names[0]}, NEW has {names[1]}",
            hint="compare runs of one network; `profagent stats` tells what a run has",
        )
    names = [pair[1].name for pair in pairs]
    differences = [
        *run_differences(facts_of(one.provenance), facts_of(other.provenance)),
        *differences_of_models(pairs),
    ]
    found = verdict(differences, allowed, names)
    comparable = [pair for pair in pairs if not found.blocking(Subject.ALL, pair[1].name)]
    models = [_without_blocked(model, found) for model in compare(comparable, floor)]
    wants_calls = any(condition.scope == "api" for condition in conditions)
    may_compare_calls = not any(found.blocking(Subject.CALLS, name) for name in names)
    calls = compare_calls(one.calls, other.calls, floor) if wants_calls and may_compare_calls else []
    changes = [*calls, *(change for model in models for change in model.all_changes())]
    outcomes = [_outcome(condition, changes, _blocking(condition, found)) for condition in conditions]
    only = [*_only("BASE", one, pairs), *_only("NEW", other, pairs)]
    for side, run in (("BASE", one), ("NEW", other)):
        if any(model.thinned for model in run.models):
            remarks.append(f"{side}: {_THINNED}")
        if run.is_imported:
            remarks.append(f"{side} has no {', '.join(_NOT_OF_OTHERS)}: these are not compared")
    return Diff(one, other, models, calls, only, found, remarks, outcomes)


def differences_of_models(pairs: Iterable[tuple[ModelRun, ModelRun]]) -> Iterator[Difference]:
    """Yield the differences of each pair of models, base and new, as the rules of comparability see them."""
    for base, new in pairs:
        layers = [[(layer.name, layer.type) for layer in run.layers] for run in (base, new)]
        yield from model_differences(new.name, (base.pictures, new.pictures), (layers[0], layers[1]))


def _without_blocked(model: ModelDiff, found: Comparability) -> ModelDiff:
    if found.blocking(Subject.LATENCY, model.name):
        model = replace(model, latency=None, latency_from=None)
    if found.blocking(Subject.COUNTERS, model.name):
        model = replace(model, changes={at: replace(change, moved=()) for at, change in model.changes.items()})
    return model


def _blocking(condition: Condition, found: Comparability) -> str:
    subject = _SUBJECTS.get(condition.scope, Subject.LAYERS)
    codes = dict.fromkeys(each.rule.code for model in found.models for each in found.blocking(subject, model))
    return ", ".join(codes)


def _as_of_tables(run: ModelRun) -> ModelRun:
    found = on_unit(run, UNITS[0])
    return replace(found, records=np.minimum(found.records, 1))


def _outcome(condition: Condition, changes: Sequence[Change], blocking: str) -> Outcome:
    about, failing = condition.about(changes), condition.failing(changes)
    undecided = ""
    if not failing and blocking:
        undecided = f"not comparable: {blocking}"
    elif not about and condition.scope == "latency":
        undecided = "both runs do not know the latency by their calls, nor both by their records: ask for layers"
    elif not about:
        undecided = f"not in both runs: {condition.scope}{'' if condition.name is None else f' {condition.name}'}"
    elif not failing and any(change.is_thinned for change in about):
        undecided = UNDECIDED_THINNED
    elif all(change.p is None for change in about):
        undecided = "too few different inferences"
    elif not failing and (baseless := condition.baseless(changes)):
        undecided = f"nothing is a % of BASE's {condition.figure}, 0: {', '.join(change.name for change in baseless)}"
    elif not failing and (others := [change.name for change in about if change.times]):
        undecided = f"BASE and NEW have other numbers of records in an inference: {', '.join(others)}"
    return Outcome(condition, failing, undecided)


async def read_run(operand: Operand, skip: int | None) -> ComparedRun:
    """Return a run with its models. Raises UsageError if the length of a tick is unknown, and StoreError."""
    if operand.database is None:
        models, provenance = read_exported(operand.tables, skip)
        return ComparedRun(operand.name, joined_runs(models), {}, provenance)
    async with readings(operand.database, READERS) as readers:
        connection = readers[0]
        session = await find_session(connection, operand.session)
        scopes = [Scope(session, job) for job in await jobs_of(connection, session.session, operand.job)]
        provenance = [await provenance_of(connection, scope) for scope in scopes]
        thinned = [each for scope in scopes for each in await thinned_of(connection, scope)]
        refuse_skip(skip, thinned)
        for scope in scopes:
            if not scope.job.frequency_mhz:
                raise UsageError(
                    f"the length of a tick is unknown in {scope.job.name} of {operand.name}",
                    hint="it has no info.json: compare another run, or use `profagent stats`, which shows ticks",
                )
        runs: list[ModelRun] = []
        async with aclosing(read_jobs(readers, scopes, in_us=True)) as jobs:
            async for _, job in jobs:
                runs += await asyncio.to_thread(model_runs, job, 0 if thinned else skip)
        runs += map(thinned_run, thinned)
        models = await asyncio.to_thread(joined_runs, runs)
        calls: dict[str, list[NDArray[np.float64]]] = {}
        for scope in scopes:
            for each in await calls_by_function(connection, scope):
                calls.setdefault(each.key[0], []).append(each.duration)
    joined = {name: np.concatenate(parts) for name, parts in calls.items()}
    return ComparedRun(operand.name, models, joined, provenance)


def run_pairs(base: Sequence[ModelRun], new: Sequence[ModelRun]) -> list[tuple[ModelRun, ModelRun]]:
    """Return pairs of models of one name, each with the most inferences; or the only model of both runs."""
    ones, others = (
        {model.name: model for model in sorted(run, key=lambda each: each.inferences)} for run in (base, new)
    )
    if len(ones) == len(others) == 1:
        return list(zip(ones.values(), others.values(), strict=True))
    return [(ones[name], others[name]) for name in ones if name in others]


def _only(side: str, run: ComparedRun, pairs: Sequence[tuple[ModelRun, ModelRun]]) -> list[tuple[str, str]]:
    compared = [model for pair in pairs for model in pair]
    return [(side, model.name) for model in run.models if not any(model is each for each in compared)]
