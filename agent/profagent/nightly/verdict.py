"""What a night came to: for each board, and for all."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from profagent.cli.table import markdown, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


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
_EXIT_CODES = {Verdict.INCOMPLETE: 4, Verdict.AWAY: 3, Verdict.FAILED: 1, Verdict.SLOWER: 1}


@dataclass(frozen=True, slots=True)
class Slower:
    """What a condition held for: `total`, or a layer, by how much (%, None where the base is 0)."""

    condition: str
    what: str
    percent: float | None

    def __str__(self) -> str:
        """What, and by how much."""
        return self.what if self.percent is None else f"{self.what} {self.percent:+.1f} %"


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

    def lines(self) -> Iterator[str]:
        """For people."""
        against = self.against if self.session is None else f"{self.against} (session {self.session})"
        if self.problem:
            yield f"not compared with {against}: {self.problem}"
            return
        if not self.can_tell:
            yield f"too few inferences to tell anything beside {against}"
        elif not self.slower and not self.untold:
            yield f"as {against}"
        yield from (f"beside {against}: {slower}, and {slower.condition} holds" for slower in self.slower)
        yield from (f"nobody can tell beside {against}: {line}" for line in self.untold)
        yield from (f"unfair beside {against}: {line}" for line in self.unfair)


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
        if self.is_incomplete:
            return Verdict.INCOMPLETE
        if self.problems:
            return Verdict.FAILED
        is_told = any(each.can_tell for each in self.compared)
        is_open = any(each.problem or each.untold for each in self.compared)
        return Verdict.GOOD if is_told and not is_open else Verdict.UNDECIDED

    def lines(self) -> Iterator[str]:
        """Its session, what it was compared with, and what went wrong."""
        session = "no session" if self.session is None else f"session {self.session}"
        yield f"{session}, {self.attempts} attempt{'' if self.attempts == 1 else 's'}, {self.seconds:.0f} s"
        yield from self.problems
        if self.verdict is Verdict.UNDECIDED and not self.compared:
            yield "nothing to compare with: no good night before, and no baseline"
        for compared in self.compared:
            yield from compared.lines()

    @property
    def headline(self) -> str:
        """The board, with what is to be known of it in a few words."""
        match self.verdict:
            case Verdict.SLOWER:
                found = dict.fromkeys(str(each) for one in self.compared for each in one.slower)
                return f"{self.board}: {', '.join(found)}"
            case Verdict.FAILED | Verdict.INCOMPLETE:
                return f"{self.board}: {self.problems[0]}"
        return self.board

    def document(self) -> dict[str, Any]:
        """The same for programs."""
        found = asdict(self)
        kept = {name: found[name] for name in ("board", "session", "attempts", "problems", "compared")}
        return {**kept, "verdict": self.verdict.word, "seconds": round(self.seconds, 1)}


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

    @property
    def exit_code(self) -> int:
        """What a script is told."""
        return _EXIT_CODES.get(self.verdict, 0)

    def document(self) -> dict[str, Any]:
        """The night for programs."""
        return {
            "run": self.run,
            "verdict": self.verdict.word,
            "headlines": self.headlines(),
            "boards": [outcome.document() for outcome in self.outcomes],
            "remarks": list(self.remarks),
        }

    def headlines(self) -> list[str]:
        """The verdict in lines, the worst first: which boards, and what of them; good ones where all are."""
        found = sorted({outcome.verdict for outcome in self.outcomes} - {Verdict.GOOD}, reverse=True)
        lines = [
            f"{verdict.word.upper()}: {'; '.join(each.headline for each in self.outcomes if each.verdict is verdict)}"
            for verdict in found
        ]
        return lines or ["GOOD: all boards"]


def report_lines(night: Night, *, as_markdown: bool) -> Iterator[str]:
    """The verdict, then each board with its session, what it was compared with, and what went wrong."""
    shown = markdown if as_markdown else printable
    for line in map(shown, night.headlines()):
        yield f"**{line}**  " if as_markdown else line
    yield ""
    for outcome in night.outcomes:
        yield f"{'### ' if as_markdown else ''}{shown(outcome.board)}: {outcome.verdict.word}"
        bullet = "- " if as_markdown else "  "
        yield from (bullet + shown(line) for line in outcome.lines())
    yield from map(shown, night.remarks)


def junit_cases(night: Night) -> list[tuple[str, str | None]]:
    """A test case for each board: its name, and why it failed or None."""
    return [(outcome.board, "; ".join(_faults(outcome)) or None) for outcome in night.outcomes]


def _faults(outcome: Outcome) -> Iterator[str]:
    yield from outcome.problems
    for compared in outcome.compared:
        yield from compared.lines() if compared.slower else ()
