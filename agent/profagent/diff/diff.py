"""`diff`: two runs beside each other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent.cli.provenance import provenance_of
from profagent.diff.comparing import Change, Floor, ModelDiff, compare, compare_calls
from profagent.diff.exported_run import read_exported
from profagent.diff.model_runs import ModelRun, joined_runs, model_runs, on_unit
from profagent.errors import UsageError
from profagent.stats.figures import Figures
from profagent.stats.gathering import UNITS
from profagent.stats.stats import records_of
from profagent.store.queries import Scope, find_session, jobs_of, open_readers
from profagent.store.series import READERS, call_series

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from profagent.diff.conditions import Condition
    from profagent.diff.model_runs import ModelRun


Known = frozenset[str]


class Facts(NamedTuple):
    """What is known of a run, each a set of the values that its JOBs have; empty where nothing is known."""

    figures: Known
    board: Known
    frequency: Known
    interval: Known
    sdk: Known
    counter_map: Known
    losses: int

    @property
    def is_simulated(self) -> bool:
        """Whether any of its figures are invented."""
        return "simulated" in self.figures


def facts_of(provenance: Sequence[Mapping[str, Any]]) -> Facts:
    """The facts in the provenance of a run's JOBs."""
    return Facts(
        _known("simulated" if job["simulated"] else "measured" for job in provenance),
        _known(job["hostname"] or job["board"] for job in provenance if job["board"] != "import"),
        _known(f"{job['frequency_mhz']} MHz" for job in provenance if job["frequency_mhz"]),
        _known(job["sampling"]["interval"] for job in provenance if job["sampling"]["interval"] is not None),
        _known(job["sdk_version"] for job in provenance if job["sdk_version"]),
        _known(job["counter_map"] or "none" for job in provenance),
        sum(sum(job["ledger"]["loss"].values()) for job in provenance),
    )


def unfair(base: Facts, new: Facts, models: Iterable[tuple[ModelRun, ModelRun]]) -> list[str]:
    """A line for each thing that differs or is missing."""
    return [*_different(base, new), *_incomplete(base, new), *_pictures(models)]


def _different(base: Facts, new: Facts) -> Iterator[str]:
    for name in ("figures", "board", "frequency", "interval", "sdk", "counter_map"):
        one, other = getattr(base, name), getattr(new, name)
        if one and other and one != other:
            yield f"{name.replace('_', ' ')}: {_text(one)} in BASE, {_text(other)} in NEW"


def _incomplete(base: Facts, new: Facts) -> Iterator[str]:
    for name, facts in (("BASE", base), ("NEW", new)):
        if facts.losses:
            yield f"{name} is incomplete: its ledger has losses of {facts.losses:,}"
        missing = [field for field in ("figures", "frequency", "interval") if not getattr(facts, field)]
        if missing:
            yield f"{name} does not tell: {', '.join(missing)}"


def _pictures(models: Iterable[tuple[ModelRun, ModelRun]]) -> Iterator[str]:
    for base, new in models:
        if base.pictures and new.pictures and base.pictures != new.pictures:
            yield f"batch and pictures of {new.name}: {_pairs(base)} in BASE, {_pairs(new)} in NEW"


def _pairs(run: ModelRun) -> str:
    return ", ".join(f"{batch} and {pictures}" for batch, pictures in sorted(run.pictures))


def _known(values: Iterable[Any]) -> Known:
    return frozenset(map(str, values))


def _text(values: Known) -> str:
    return ", ".join(sorted(values))


class Operand(NamedTuple):
    """A run: a session of a database (None: its newest, with `job` only that JOB), or tables op_summary."""

    called: str
    database: Path | None = None
    session: int | None = None
    job: str | None = None
    tables: Sequence[Path] = ()


class DiffOptions(NamedTuple):
    """`skip` as of `stats`."""

    conditions: Sequence[Condition] = ()
    floor: Floor = Floor()
    skip: int | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A run as it is compared."""

    called: str
    models: list[ModelRun]
    calls: Mapping[str, NDArray[np.float64]]
    provenance: list[dict[str, Any]]
    facts: Facts


class Outcome(NamedTuple):
    """A condition, and the changes for which it holds; `untold` says why nobody can tell whether it does."""

    condition: Condition
    failing: list[Change]
    untold: str = ""


@dataclass(frozen=True, slots=True)
class Diff:
    """What is to be said about two runs. `only` are models that one of them has: its name, and theirs."""

    base: Run
    new: Run
    models: list[ModelDiff]
    calls: list[Change]
    total: Change
    only: list[tuple[str, str]]
    unfair: list[str]
    outcomes: list[Outcome]

    @property
    def is_complete(self) -> bool:
        """Whether nothing that existed is missing in either run."""
        return not (self.base.facts.losses or self.new.facts.losses)

    @property
    def can_tell(self) -> bool:
        """Whether there are inferences enough to tell a change of any model from noise."""
        return any(model.total.p is not None for model in self.models)

    @property
    def is_decided(self) -> bool:
        """Whether it can be told of every condition if it holds."""
        return not any(outcome.untold for outcome in self.outcomes)


def diff(base: Operand, new: Operand, options: DiffOptions) -> Diff:
    """Compare two runs. Raises UsageError where there is nothing to compare, and StoreError."""
    one, other = (_read(operand, options.skip) for operand in (base, new))
    remarks = []
    if bool(base.tables) != bool(new.tables):
        one, other = (replace(run, models=[on_unit(model, UNITS[0]) for model in run.models]) for run in (one, other))
        remarks.append("tables op_summary have no layers on the CPU: those of the other run are left out")
    pairs = _run_pairs(one.models, other.models)
    if not pairs:
        names = [", ".join(sorted({model.name for model in run.models})) or "none" for run in (one, other)]
        raise UsageError(
            f"no model is in both runs: BASE has {names[0]}, NEW has {names[1]}",
            hint="compare runs of one network; `profagent stats` tells what a run has",
        )
    models = compare(pairs, options.floor)
    wants_calls = any(condition.scope == "api" for condition in options.conditions)
    calls = compare_calls(one.calls, other.calls, options.floor) if wants_calls else []
    total = _total(models)
    changes = [total, *calls, *(change for model in models for change in _changes(model))]
    outcomes = [_outcome(condition, changes) for condition in options.conditions]
    only = [*_only("BASE", one, pairs), *_only("NEW", other, pairs)]
    remarks += unfair(one.facts, other.facts, pairs)
    return Diff(one, other, models, calls, total, only, remarks, outcomes)


def _outcome(condition: Condition, changes: Sequence[Change]) -> Outcome:
    about, failing = condition.about(changes), condition.failing(changes)
    untold = ""
    if not about:
        untold = f"not in both runs: {condition.scope}{'' if condition.name is None else f' {condition.name}'}"
    elif all(change.p is None for change in about):
        untold = "too few different inferences"
    elif not failing and (baseless := condition.baseless(changes)):
        untold = f"nothing is a % of BASE's {condition.figure}, 0: {', '.join(change.name for change in baseless)}"
    return Outcome(condition, failing, untold)


def _changes(model: ModelDiff) -> Iterable[Change]:
    return (model.total, *model.changes.values(), *model.types)


def _read(operand: Operand, skip: int | None) -> Run:
    if operand.database is None:
        models, provenance = read_exported(operand.tables, skip)
        return Run(operand.called, joined_runs(models), {}, provenance, facts_of(provenance))
    with open_readers(operand.database, READERS) as readers:
        connection = readers[0]
        session = find_session(connection, operand.session)
        scopes = [Scope(session, job) for job in jobs_of(connection, session.session, operand.job)]
        provenance = [provenance_of(connection, scope) for scope in scopes]
        for scope in scopes:
            if not scope.job.frequency_mhz:
                raise UsageError(
                    f"how long a tick takes in {scope.job.name} of {operand.called} is not known",
                    hint="it has no info.json: compare another run, or look at `profagent stats`, which tells ticks",
                )
        models = joined_runs(
            run for scope in scopes for run in model_runs(records_of(readers, scope, in_us=True), skip)
        )
        calls: dict[str, list[NDArray[np.float64]]] = {}
        for scope in scopes:
            for (name, _), durations, _ in call_series(connection, scope):
                calls.setdefault(name, []).append(durations)
    joined = {name: np.concatenate(parts) for name, parts in calls.items()}
    return Run(operand.called, models, joined, provenance, facts_of(provenance))


def _run_pairs(base: Sequence[ModelRun], new: Sequence[ModelRun]) -> list[tuple[ModelRun, ModelRun]]:
    """Models of one name, of each the layers with the most inferences; else the only ones that there are."""
    ones, others = _largest(base), _largest(new)
    if len(ones) == len(others) == 1:
        return list(zip(ones.values(), others.values(), strict=True))
    return [(ones[name], others[name]) for name in ones if name in others]


def _largest(models: Sequence[ModelRun]) -> dict[str, ModelRun]:
    ordered = sorted(models, key=lambda model: len(model.times))
    return {model.name: model for model in ordered}


def _only(side: str, run: Run, pairs: Sequence[tuple[ModelRun, ModelRun]]) -> list[tuple[str, str]]:
    compared = [model for pair in pairs for model in pair]
    return [(side, model.name) for model in run.models if not any(model is each for each in compared)]


def _total(models: Sequence[ModelDiff]) -> Change:
    """An inference of every model, one after the other: figures added up."""
    p = min((model.total.p for model in models if model.total.p is not None), default=None)
    sums = [_sum([getattr(model.total, side) for model in models]) for side in ("base", "new")]
    return Change("total", "total", sums[0], sums[1], p, any(model.total.is_significant for model in models))


def _sum(figures: Sequence[Figures]) -> Figures:
    columns = zip(*(each[1:] for each in figures), strict=True)
    return Figures(min(each.number for each in figures), *(sum(value or 0.0 for value in column) for column in columns))
