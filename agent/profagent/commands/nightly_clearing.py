"""What `gc` does at the end of a night, by the night's own rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.commands.baselines import Baselines
from profagent.commands.clearing import chosen_sessions, clear, fitting_sessions
from profagent.commands.clearing_choice import Rules

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from profagent.commands.labels import Condition
    from profagent.commands.workspace import Workspace

__all__ = ["cleared_after_night"]


def cleared_after_night(
    workspace: Workspace,
    rules: Rules,
    conditions: Sequence[Condition],
    measures: Collection[int],
    *,
    now_us: int,
    tell: Callable[[str], None],
) -> list[int]:
    """Let go of what rules and conditions name, but for baselines and `measures`: what the next night is compared with.

    The sessions that went; without rules and conditions none. Raises StoreError.
    """
    if (rules == Rules() and not conditions) or not workspace.database.exists():
        return []
    with workspace.locked():
        asked = fitting_sessions(workspace, conditions)
        baselines = {each.session: name for name, each in Baselines(workspace).all().items()}
        staying = {**dict.fromkeys(measures, "of the next night"), **baselines}
        chosen = chosen_sessions(workspace, rules, asked=asked, baselines=staying)
        clear(workspace, chosen, now_us=now_us, tell=tell)
    return sorted(each.session for group in chosen.groups for each in group)
