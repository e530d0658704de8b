"""A night's session beside the baseline, and beside the last good night of the same board."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.analyse.conditions import parse_condition
from profagent.commands.baselines import Baselines
from profagent.commands.diff import DiffOptions, Operand, diff
from profagent.errors import ProfagentError
from profagent.nightly.verdict import Compared, Slower, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagent.analyse.comparing import Change
    from profagent.commands.diff import Diff
    from profagent.commands.nightly_history import PastBoard
    from profagent.commands.workspace import Workspace
    from profagent.nightly.settings import Board, Nightly

__all__ = ["compared"]

LAST_GOOD = "the last good night"
GOOD = (Verdict.GOOD.word, Verdict.UNDECIDED.word)


def compared(
    settings: Nightly, board: Board, workspace: Workspace, session: int, earlier: Sequence[PastBoard]
) -> list[Compared]:
    """The comparisons of a session; what cannot be compared is said, and raised by none of them."""
    conditions = [parse_condition(text) for text in settings.fail_if]
    found: list[Compared] = []
    name = board.baseline or settings.baseline
    if name:
        try:
            base = Baselines(workspace).get(name).session
        except ProfagentError as error:
            found.append(Compared(f"baseline {name}", None, problem=str(error)))
        else:
            found.append(_compared(f"baseline {name}", base, workspace, session, DiffOptions(conditions)))
    good = last_good(board.name, earlier)
    if good is not None and good not in [each.session for each in found]:
        found.append(_compared(LAST_GOOD, good, workspace, session, DiffOptions(conditions)))
    return found


def last_good(board: str, earlier: Sequence[PastBoard]) -> int | None:
    """The session of the board's newest night that was good, or that there was nothing to compare with."""
    return next(
        (past.session for past in earlier if past.board == board and past.verdict in GOOD and past.session), None
    )


def _compared(against: str, base: int, workspace: Workspace, session: int, options: DiffOptions) -> Compared:
    database = workspace.readable_database()
    try:
        answer = diff(Operand(against, database, base), Operand(f"session {session}", database, session), options)
    except ProfagentError as error:
        return Compared(against, base, problem=str(error))
    return Compared(against, base, tuple(_slower(answer)), tuple(answer.unfair), answer.can_tell)


def _slower(answer: Diff) -> list[Slower]:
    return [
        Slower(outcome.condition.text, _name(change), change.percent)
        for outcome in answer.outcomes
        for change in outcome.failing
    ]


def _name(change: Change) -> str:
    return change.scope if change.scope == "total" else f"{change.scope} {change.name}"
