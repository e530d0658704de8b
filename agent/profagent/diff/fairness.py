"""What makes two runs hard to compare: facts about them that differ, or that are not known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from profagent.diff.model_runs import ModelRun

__all__ = ["Facts", "facts_of", "unfair"]

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
