"""A night's session beside the baseline, and beside the last good night of the same board."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.diff.conditions import parse_condition
from profagent.diff.diff import DiffOptions, Operand, diff
from profagent.errors import ProfagentError
from profagent.nightly.verdict import Compared, Slower, Verdict
from profagent.sessions.baseline import baseline_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagent.diff.comparing import Change
    from profagent.diff.diff import Diff
    from profagent.nightly.ending import PastBoard
    from profagent.nightly.settings import Board, Nightly
    from profagent.store.workspace import Workspace

__all__ = ["compared", "measures"]

LAST_GOOD = "the last good night"
# So many nights of which nobody could tell how they were are tried for one that can be compared with.
MOST_MEASURES = 5


def compared(
    settings: Nightly, board: Board, workspace: Workspace, session: int, earlier: Sequence[PastBoard]
) -> list[Compared]:
    """The comparisons of a session; what cannot be compared is said, and raised by none of them."""
    conditions = [parse_condition(text) for text in settings.fail_if]
    found: list[Compared] = []
    name = board.baseline or settings.baseline
    if name:
        try:
            base = baseline_session(workspace, name)
        except ProfagentError as error:
            found.append(Compared(f"baseline {name}", None, problem=str(error)))
        else:
            found.append(_compared(f"baseline {name}", base, workspace, session, DiffOptions(conditions)))
    tried: list[Compared] = []
    for good in measures(board.name, earlier):
        if good in [each.session for each in found]:
            break
        tried.append(_compared(LAST_GOOD, good, workspace, session, DiffOptions(conditions)))
        if tried[-1].tells:
            return [*found, tried[-1]]
    return [*found, *tried[:1]]


def measures(board: str, earlier: Sequence[PastBoard]) -> list[int]:
    """The sessions of the board's newest good night and of undecided ones since, newest first, of `earlier` as it is.

    The first that tells anything is what the next night is compared with.
    """
    found: list[int] = []
    for past in earlier:
        if past.board != board or past.session is None or len(found) == MOST_MEASURES:
            continue
        if past.verdict in (Verdict.GOOD.word, Verdict.UNDECIDED.word):
            found.append(past.session)
        if past.verdict == Verdict.GOOD.word:
            break
    return found


def _compared(against: str, base: int, workspace: Workspace, session: int, options: DiffOptions) -> Compared:
    database = workspace.readable_database()
    try:
        answer = diff(Operand(against, database, base), Operand(f"session {session}", database, session), options)
    except ProfagentError as error:
        return Compared(against, base, problem=str(error))
    untold = tuple(f"{each.condition.text}: {each.untold}" for each in answer.outcomes if each.untold)
    only = (f"model {name} is only in {side}" for side, name in answer.only)
    return Compared(
        against,
        base,
        tuple(_slower(answer)),
        (*answer.unfair, *only),
        answer.can_tell,
        untold=untold if answer.can_tell else (),
    )


def _slower(answer: Diff) -> list[Slower]:
    return [
        Slower(outcome.condition.text, _name(change), change.percent)
        for outcome in answer.outcomes
        for change in outcome.failing
    ]


def _name(change: Change) -> str:
    return change.scope if change.scope == "total" else f"{change.scope} {change.name}"
