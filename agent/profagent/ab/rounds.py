"""The rounds of `ab`: runs of two programs side by side, each recorded as a session, and what each run says."""

from __future__ import annotations

import warnings
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.ab.paired import PairedModel, compare_rounds
from profagent.ab.temperature import NO_TEMPERATURE, Temperature, temperature_of
from profagent.collect.collecting import Collecting
from profagent.diff.diff import ComparedRun, Operand, differences_of_models, read_run, run_pairs
from profagent.diff.runs import with_all_layers
from profagent.errors import IncompleteError, ProfagentError, UnreachableError, UsageError
from profagent.limits import SHOWN_OUTPUT_LINES
from profagent.tables.comparability import Subject, facts_of, run_differences, verdict

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from profagent.collect.collecting import CollectOptions
    from profagent.diff.comparing import Floor
    from profagent.diff.runs import ModelRun
    from profagent.tables.comparability import Comparability

SIDES = ("a", "b")


@dataclass(frozen=True, slots=True)
class AbRun:
    """Run of a side; each of its models has one inference, whose times are the medians."""

    session: int
    run: ComparedRun


class Round(NamedTuple):
    """Runs of both sides, next to each other."""

    a: AbRun
    b: AbRun


@dataclass(frozen=True, slots=True)
class AbOptions:
    """Options of both sides; their sessions get `name` as the label `ab`. `skip` is as in `stats`."""

    a: CollectOptions
    b: CollectOptions
    rounds: int
    name: str
    floor: Floor
    skip: int | None = None
    allowed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AbResult:
    """Comparison over the rounds that were completed. Figures that `comparability` blocks are not in `models`.

    `stopped` is the reason why there are fewer rounds than wanted, empty if there are not; `failure` is the error that
    was this reason.
    """

    rounds: Sequence[Round]
    comparability: Comparability
    models: Sequence[PairedModel]
    stopped: str = ""
    failure: ProfagentError | None = None
    temperature: Temperature = NO_TEMPERATURE

    @property
    def incomplete(self) -> list[str]:
        """Reasons why the capture of any run is not complete."""
        return list(dict.fromkeys(why for pair in self.rounds for each in pair for why in each.run.incomplete))

    @property
    def can_tell(self) -> bool:
        """True if any model has enough rounds to tell a difference from noise."""
        return any(model.inference.p is not None for model in self.models)

    @property
    def exit_code(self) -> int:
        """1 if A is slower; else 3 if the board was lost, 4 if data is missing or nothing can be told, and 0."""
        if self.is_slower:
            return ProfagentError.exit_code
        if isinstance(self.failure, UnreachableError):
            return UnreachableError.exit_code
        is_answered = self.can_tell and not self.incomplete and self.failure is None
        return 0 if is_answered else IncompleteError.exit_code

    @property
    def is_slower(self) -> bool:
        """True if an inference of any model takes longer on side A, by more than noise and floor."""
        changes = [model.inference for model in self.models]
        return any(each.is_significant and (each.percent or 0.0) > 0 for each in changes)


@dataclass(slots=True)
class AbRounds:
    """Rounds of two programs on a board. `stop` ends the present run, which is then left out."""

    options: AbOptions
    tell: Callable[[str], None]
    on_progress: Callable[[int, int], None]
    stop: asyncio.Event
    # Remarks that were made: those of the next runs are mostly the same.
    _remarks: set[str] = field(default_factory=set)

    async def run(self) -> AbResult:
        """Run all rounds, or those before a stop or a failure, and return their comparison.

        The first round is judged at once: programs that are not comparable are not run again. Raises the errors of
        Collecting, and UsageError, if not even one round is complete.
        """
        rounds: list[Round] = []
        stopped, failure = "", None
        begin = await temperature_of(self.options.a)
        try:
            while len(rounds) < self.options.rounds and not stopped:
                found = await self._round(len(rounds))
                if found is None:
                    stopped = "stopped"
                else:
                    rounds.append(found)
                    self.tell(_round_line(found, len(rounds), self.options.rounds))
                if len(rounds) == 1 and compared_rounds(rounds, self.options).comparability.is_blocked:
                    stopped = "the programs are not comparable"
        except ProfagentError as error:
            if not rounds:
                raise
            stopped, failure = f"{error}; {error.hint}", error
        if not rounds:
            raise ProfagentError("the command was stopped before a round was complete", hint="start it again")
        temperature = Temperature(begin, await temperature_of(self.options.a))
        result = compared_rounds(rounds, self.options)
        return replace(result, stopped=stopped, failure=failure, temperature=temperature)

    async def _round(self, number: int) -> Round | None:
        """Run both sides, A first in every other round; None if that was stopped."""
        found: dict[str, AbRun] = {}
        # A B B A: what drifts steadily falls on both sides alike.
        for side in SIDES if number % 2 == 0 else SIDES[::-1]:
            if self.stop.is_set():
                return None
            options: CollectOptions = getattr(self.options, side)
            labels = {**options.labels, "ab": self.options.name, "side": side, "round": str(number + 1)}
            session = await self._collected(replace(options, labels=labels), f"{side.upper()} in round {number + 1}")
            if session is None:
                return None
            found[side] = await self._read(options, session)
        return Round(found["a"], found["b"])

    async def _collected(self, options: CollectOptions, what: str) -> int | None:
        """Run a program; return its session, None if it was stopped. Raises ProfagentError if it failed."""
        output: deque[bytes] = deque(maxlen=SHOWN_OUTPUT_LINES)
        try:
            collecting = Collecting(
                options, lambda piece, _: output.append(piece), self._tell_once, self.on_progress, self.stop
            )
            done = await collecting.collect()
        except ProfagentError:
            if self.stop.is_set():
                return None
            raise
        if self.stop.is_set():
            return None
        if done.status == 0 and done.summary is not None and done.jobs:
            return int(done.summary["session"])
        for line in b"".join(output).decode("utf-8", "replace").splitlines()[-SHOWN_OUTPUT_LINES:]:
            self.tell(line)
        why = done.causes[0] if done.causes else None
        raise ProfagentError(
            f"{what}: {why.text if why else f'{options.main} recorded nothing'}",
            hint=why.remedy if why else "`profagent collect` with the same words shows what the program does",
        )

    async def _read(self, options: CollectOptions, session: int) -> AbRun:
        database = options.workspace.database
        run = await read_run(Operand(str(session), database, session), self.options.skip)
        if not run.models:
            hint = "give the program more work, or --interval 1 to record each inference"
            raise UsageError(f"session {session} has no inference of a model", hint=hint)
        # All runs stay in memory until the end: each keeps one value for a layer, and no calls.
        return AbRun(session, replace(run, models=[_medians(model) for model in run.models], calls={}))

    def _tell_once(self, text: str) -> None:
        if text not in self._remarks:
            self._remarks.add(text)
            self.tell(text)


def _medians(model: ModelRun) -> ModelRun:
    """Return the model with one inference: the medians of the layers and of the latencies."""
    usual = [round(model.usual_records(place)) for place in range(len(model.layers))]
    return replace(
        model,
        times=_median(model.times)[np.newaxis],
        records=np.array([usual]),
        latencies={origin: _median(values[:, np.newaxis]) for origin, values in model.latencies.items()},
        counters={},
    )


def _median(values: NDArray[np.float64]) -> NDArray[np.float64]:
    with warnings.catch_warnings():
        # A column may have no value.
        warnings.simplefilter("ignore", RuntimeWarning)
        found: NDArray[np.float64] = np.nanmedian(values, axis=0)
    return found


def compared_rounds(rounds: Sequence[Round], options: AbOptions) -> AbResult:
    """Return the comparison of side A with side B over at least one round."""
    pairs = _paired_models(rounds)
    names = [a.name for a, _ in pairs]
    if not pairs:
        raise UsageError(
            "no model is on both sides in every round", hint="compare programs that run one network on both sides"
        )
    # A is the program that may be slower, so it stands where `diff` has the newer run.
    base, new = (
        facts_of(job for pair in rounds for job in getattr(pair, side).run.provenance) for side in reversed(SIDES)
    )
    differences = [*run_differences(base, new), *differences_of_models((b, a) for a, b in pairs)]
    found = verdict(differences, options.allowed, names)
    comparable = [(a, b) for a, b in pairs if not found.blocking(Subject.ALL, a.name)]
    models = [_without_blocked(compare_rounds(a, b, options.floor, len(comparable)), found) for a, b in comparable]
    return AbResult(rounds, found, models)


def _paired_models(rounds: Sequence[Round]) -> list[tuple[ModelRun, ModelRun]]:
    """Return the models of A and B that are in all rounds, each with one inference for each round."""
    # The test is of pairs: a model that a round lacks has no pair there, and is left out.
    found: dict[tuple[str, str], list[tuple[ModelRun, ModelRun]]] = {}
    for pair in rounds:
        for base, new in run_pairs(pair.b.run.models, pair.a.run.models):
            found.setdefault((new.name, base.name), []).append((new, base))
    return [
        (_stacked([a for a, _ in models]), _stacked([b for _, b in models]))
        for models in found.values()
        if len(models) == len(rounds)
    ]


def _stacked(runs: Sequence[ModelRun]) -> ModelRun:
    widened = with_all_layers(runs)
    first = widened[0]
    return replace(
        first,
        times=np.concatenate([run.times for run in widened]),
        records=np.concatenate([run.records for run in widened]),
        latencies={origin: np.concatenate([run.latency(origin) for run in widened]) for origin in first.latencies},
        pictures=frozenset().union(*(run.pictures for run in widened)),
    )


def _without_blocked(model: PairedModel, found: Comparability) -> PairedModel:
    if found.blocking(Subject.LATENCY, model.name):
        model = model._replace(latency=None, latency_from=None)
    return model


def _round_line(found: Round, number: int, rounds: int) -> str:
    sessions = " and ".join(f"{side.upper()} is session {getattr(found, side).session}" for side in SIDES)
    return f"round {number} of {rounds}: {sessions}"
