"""A night as text and as Markdown, the verdict first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.export.markdown import markdown
from profagent.export.table import printable
from profagent.nightly.verdict import Verdict, headlines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagent.nightly.verdict import Compared, Night, Outcome

__all__ = ["junit_cases", "report_lines"]


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
