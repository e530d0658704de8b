"""Which sessions may lose their records: by age, size, and how many are to stay; no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from profagent.store.clearing import HeldSession

__all__ = ["Chosen", "Rules", "choose"]


@dataclass(frozen=True, slots=True)
class Rules:
    """What may go: sessions begun before `before_us`, of each board all but the last `keep_last`.

    With `most_bytes` only as many, oldest first, as it takes for all that is held to fit. None: no such rule.
    """

    before_us: int | None = None
    keep_last: int | None = None
    most_bytes: int | None = None


@dataclass(slots=True)
class Chosen:
    """The sessions that go, in groups that go together; why others that the rules name stay; bytes, about."""

    groups: list[list[HeldSession]] = field(default_factory=list)
    staying: dict[int, str] = field(default_factory=dict)
    freed_bytes: int = 0


def choose(
    held: Sequence[HeldSession], rules: Rules, *, asked: Collection[int], baselines: Mapping[int, str], held_bytes: int
) -> Chosen:
    """Apply the rules to sessions, oldest first; `asked` are those that other conditions leave.

    `held_bytes` is what all take on the disk, with the database. Sessions that share a JOB go together, or stay.
    """
    wanted = _wanted(held, rules).intersection(asked)
    chosen = Chosen()
    whole = sum(each.bytes for each in held) or 1
    for group in _groups(held):
        reasons = {each.session: _why_it_stays(each, wanted, baselines) for each in group}
        holder = next((session for session, reason in reasons.items() if reason is not None), None)
        if holder is not None:
            for session in reasons.keys() & {*wanted}:
                chosen.staying[session] = reasons[session] or f"shares a JOB with session {holder}, which stays"
        elif rules.most_bytes is None or held_bytes - chosen.freed_bytes > rules.most_bytes:
            chosen.groups.append(group)
            chosen.freed_bytes += held_bytes * sum(each.bytes for each in group) // whole
    return chosen


def _wanted(held: Sequence[HeldSession], rules: Rules) -> set[int]:
    last: set[int] = set()
    for board in {each.board for each in held}:
        of_board = [each.session for each in held if each.board == board]
        last.update(of_board[len(of_board) - min(rules.keep_last or 0, len(of_board)) :])
    old = {each.session for each in held if rules.before_us is None or each.started_us < rules.before_us}
    return old - last


def _why_it_stays(held: HeldSession, wanted: Collection[int], baselines: Mapping[int, str]) -> str | None:
    if held.session not in wanted:
        return "is not to go"
    if held.session in baselines:
        return f"is the baseline {baselines[held.session]}"
    return None if held.is_over else "is not over"


def _groups(held: Sequence[HeldSession]) -> list[list[HeldSession]]:
    """Sessions by the JOBs that they share, those groups first whose newest session is oldest."""
    groups: list[list[HeldSession]] = []
    for each in held:
        sharing = [group for group in groups if any(other.jobs & each.jobs for other in group)]
        groups = [group for group in groups if group not in sharing]
        groups.append([*(other for group in sharing for other in group), each])
    return sorted(groups, key=lambda group: group[-1].started_us)
