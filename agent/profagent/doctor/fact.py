"""A fact that no public source tells for certain, its alternatives, and what a JOB says of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

__all__ = ["FEWEST_AGAINST", "Alternative", "Answer", "Fact", "Verdict", "cannot_tell", "settled"]

# Of what was looked at, so much must allow an alternative: a record may be disturbed, a file torn.
MOST = 0.8
# One disturbed record may speak against the truth in one inference, and there may be few.
FEWEST_AGAINST = 2


class Verdict(StrEnum):
    """What a JOB does to a fact's alternatives."""

    CONFIRMS = "confirms"
    REFUTES = "refutes"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way it may be; `is_read` says whether profagent reads a JOB right that is so."""

    name: str
    text: str
    is_read: bool = True


@dataclass(frozen=True, slots=True)
class Fact:
    """An open point; the first alternative is the one that is taken for likely (format page 8)."""

    name: str
    alternatives: tuple[Alternative, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """What the alternatives are called."""
        return tuple(each.name for each in self.alternatives)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a JOB says: the alternatives that are `possible` by it, and the numbers that it shows, or lacks."""

    fact: Fact
    possible: tuple[Alternative, ...]
    seen: str

    @property
    def verdict(self) -> Verdict:
        """Whether one alternative is left, or some are gone, or nothing is told."""
        if len(self.possible) == len(self.fact.alternatives):
            return Verdict.CANNOT_TELL
        return Verdict.CONFIRMS if len(self.possible) == 1 else Verdict.REFUTES

    @property
    def confirmed(self) -> str:
        """The name of the only alternative that is left; empty where there is not one."""
        return self.possible[0].name if self.verdict is Verdict.CONFIRMS else ""

    @property
    def refuted(self) -> tuple[str, ...]:
        """The names of those that cannot be."""
        return tuple(each.name for each in self.fact.alternatives if each not in self.possible)

    @property
    def is_misread(self) -> bool:
        """Whether profagent reads this JOB wrong, whichever of the possible alternatives is true."""
        return not any(each.is_read for each in self.possible)

    def __str__(self) -> str:
        if self.verdict is Verdict.CANNOT_TELL:
            return f"cannot tell: {self.seen}"
        refuted = f"refutes {', '.join(self.refuted)}"
        if self.verdict is Verdict.CONFIRMS:
            return f"confirms {self.confirmed}: {self.possible[0].text}; {refuted}: {self.seen}"
        left = " or ".join(each.name for each in self.possible) or "none that is known"
        return f"{refuted}; left is {left}: {self.seen}"


def cannot_tell(fact: Fact, why: str) -> Answer:
    """The answer of a JOB that has no evidence."""
    return Answer(fact, fact.alternatives, why)


def settled(
    fact: Fact,
    allowed: Sequence[Collection[str]],
    likely: Sequence[Collection[str]],
    seen: str,
    inferences: Sequence[str] = (),
) -> Answer:
    """The answer of a JOB with evidence: for each thing that was looked at, the names of what it allows.

    What is `likely` by it decides; where that leaves nothing, what is `allowed` at all. Where each is of one of
    `inferences`, only two of them or more refute.
    """
    return Answer(fact, _voted(fact, likely, inferences) or _voted(fact, allowed, inferences), seen)


def _voted(fact: Fact, votes: Sequence[Collection[str]], inferences: Sequence[str]) -> tuple[Alternative, ...]:
    return tuple(each for each in fact.alternatives if _stays(each.name, votes, inferences))


def _stays(name: str, votes: Sequence[Collection[str]], inferences: Sequence[str]) -> bool:
    if sum(name in vote for vote in votes) >= MOST * len(votes):
        return True
    if not inferences:
        return False
    against = {inference for inference, vote in zip(inferences, votes, strict=True) if name not in vote}
    return len(against) < FEWEST_AGAINST
