"""What a night came to: for each board, and for all."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from profagent.cli.table import markdown, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def report_lines(night: Night, *, as_markdown: bool) -> Iterator[str]:
    """The verdict, then each board with its session, what it was compared with, and what went wrong."""
    shown = markdown if as_markdown else printable
    for line in map(shown, headlines(night)):
        yield f"**{line}**  " if as_markdown else line
    yield ""
    for outcome in night.outcomes:
        yield f"{'### ' if as_markdown else ''}{shown(outcome.board)}: {outcome.verdict.word}"
        bullet = "- " if as_markdown else "  "
        yield from (bullet + shown(line) for line in _board_lines(outcome))
    yield from map(shown, night.remarks)


def junit_cases(night: Night) -> list[tuple[str, str | None]]:
    """A test case for each board: its name, and why it failed or None."""
    return [(outcome.board, "; ".join(_faults(outcome)) or None) for outcome in night.outcomes]


def _faults(outcome: Outcome) -> Iterator[str]:
    yield from outcome.problems
    for compared in outcome.compared:
        yield from (line for line in _compared_lines(compared) if compared.slower)


def _board_lines(outcome: Outcome) -> Iterator[str]:
    session = "no session" if outcome.session is None else f"session {outcome.session}"
    attempts = f"{outcome.attempts} attempt{'' if outcome.attempts == 1 else 's'}"
    yield f"{session}, {attempts}, {outcome.seconds:.0f} s"
    yield from outcome.problems
    if outcome.verdict is Verdict.UNDECIDED and not outcome.compared:
        yield "nothing to compare with: no good night before, and no baseline"
    for compared in outcome.compared:
        yield from _compared_lines(compared)


def _compared_lines(compared: Compared) -> Iterator[str]:
    against = compared.against if compared.session is None else f"{compared.against} (session {compared.session})"
    if compared.problem:
        yield f"not compared with {against}: {compared.problem}"
        return
    if not compared.can_tell:
        yield f"too few inferences to tell anything beside {against}"
    elif not compared.slower and not compared.untold:
        yield f"as {against}"
    for slower in compared.slower:
        percent = "" if slower.percent is None else f" {slower.percent:+.1f} %"
        yield f"beside {against}: {slower.what}{percent}, and {slower.condition} holds"
    yield from (f"nobody can tell beside {against}: {line}" for line in compared.untold)
    yield from (f"unfair beside {against}: {line}" for line in compared.unfair)


class Verdict(IntEnum):
    """How a board's night was; the largest is the whole night's."""

    GOOD = 0
    UNDECIDED = 1  # it ran, and was not compared with all that it was to be compared with
    INCOMPLETE = 2
    AWAY = 3
    FAILED = 4
    SLOWER = 5

    @property
    def word(self) -> str:
        """For people and programs."""
        return self.name.lower()


# SLOWER is the answer that was asked for; what else went wrong has the codes of every command.
_EXIT_CODES = {
    Verdict.GOOD: 0,
    Verdict.UNDECIDED: 0,
    Verdict.INCOMPLETE: 4,
    Verdict.AWAY: 3,
    Verdict.FAILED: 1,
    Verdict.SLOWER: 1,
}


@dataclass(frozen=True, slots=True)
class Slower:
    """What a condition held for: `total`, or a layer, by how much (%, None where the base is 0)."""

    condition: str
    what: str
    percent: float | None


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison: with what, what it found, what makes it unfair; `problem` where there was none.

    `untold` says of which conditions nobody can tell, and why, where there was enough to tell others.
    """

    against: str
    session: int | None
    slower: tuple[Slower, ...] = ()
    unfair: tuple[str, ...] = ()
    can_tell: bool = True
    problem: str = ""
    untold: tuple[str, ...] = ()

    @property
    def tells(self) -> bool:
        """Whether it is an answer at all."""
        return self.can_tell and not self.problem


@dataclass(slots=True)
class Outcome:
    """A board's night."""

    board: str
    session: int | None = None
    attempts: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    is_away: bool = False
    is_incomplete: bool = False
    compared: list[Compared] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        """The worst that can be said of it."""
        if any(each.slower for each in self.compared):
            return Verdict.SLOWER
        if self.is_away:
            return Verdict.AWAY
        if self.problems and not self.is_incomplete:
            return Verdict.FAILED
        if self.is_incomplete:
            return Verdict.INCOMPLETE
        told = any(each.can_tell for each in self.compared) and not any(
            each.problem or each.untold for each in self.compared
        )
        return Verdict.GOOD if told else Verdict.UNDECIDED


@dataclass(frozen=True, slots=True)
class Night:
    """All boards; `run` is its name, by the host's clock; `remarks` are about none of them."""

    run: str
    outcomes: Sequence[Outcome]
    remarks: Sequence[str] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst of the boards'."""
        return max((outcome.verdict for outcome in self.outcomes), default=Verdict.UNDECIDED)

    def document(self) -> dict[str, Any]:
        """The night for programs."""
        return {
            "run": self.run,
            "verdict": self.verdict.word,
            "headlines": headlines(self),
            "boards": [_document(outcome) for outcome in self.outcomes],
            "remarks": list(self.remarks),
        }


def exit_code_of(verdict: Verdict) -> int:
    """What a script is told."""
    return _EXIT_CODES[verdict]


def headlines(night: Night) -> list[str]:
    """The verdict in lines, the worst first: which boards, and what of them; good ones where there are no others."""
    found = sorted({outcome.verdict for outcome in night.outcomes} - {Verdict.GOOD}, reverse=True)
    lines = [
        f"{verdict.word.upper()}: {'; '.join(_named(each) for each in night.outcomes if each.verdict is verdict)}"
        for verdict in found
    ]
    return lines or ["GOOD: all boards"]


def _named(outcome: Outcome) -> str:
    """A board, with what is to be known of it in a few words."""
    match outcome.verdict:
        case Verdict.SLOWER:
            found = dict.fromkeys(_slower(each) for one in outcome.compared for each in one.slower)
            return f"{outcome.board}: {', '.join(found)}"
        case Verdict.FAILED | Verdict.INCOMPLETE:
            return f"{outcome.board}: {outcome.problems[0]}"
    return outcome.board


def _slower(found: Slower) -> str:
    return f"{found.what} {'' if found.percent is None else f'{found.percent:+.1f} %'}".rstrip()


def _document(outcome: Outcome) -> dict[str, Any]:
    return {
        "board": outcome.board,
        "verdict": outcome.verdict.word,
        "session": outcome.session,
        "attempts": outcome.attempts,
        "seconds": round(outcome.seconds, 1),
        "problems": outcome.problems,
        "compared": [
            {
                "against": each.against,
                "session": each.session,
                "slower": [
                    {"condition": one.condition, "what": one.what, "percent": one.percent} for one in each.slower
                ],
                "unfair": list(each.unfair),
                "can_tell": each.can_tell,
                "untold": list(each.untold),
                "problem": each.problem,
            }
            for each in outcome.compared
        ],
    }
