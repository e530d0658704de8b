"""`nightly run`: each board in turn, in processes of its own, so that one board's failure stops no other."""

from __future__ import annotations

import asyncio
import fcntl
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagent.commands.atomic import make_directory
from profagent.commands.child_command import run_command
from profagent.commands.durations import duration_s
from profagent.commands.nightly_attempts import Attempts
from profagent.commands.nightly_comparing import compared
from profagent.errors import ProfagentError, WorkspaceBusyError
from profagent.nightly.calls import Captured, capture_call, captured, export_call
from profagent.nightly.verdict import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from profagent.commands.nightly_history import PastBoard
    from profagent.commands.workspace import Workspace
    from profagent.nightly.settings import Board, Nightly

__all__ = ["NightRun", "check_durations", "locked_for_night"]

# An export of a night that takes longer is given up.
EXPORT_S = 1800.0


@contextmanager
def locked_for_night(workspace: Workspace) -> Iterator[None]:
    """Be the only night that uses the workspace. Raises WorkspaceBusyError, ProfagentError."""
    folder = workspace.root / "nightly"
    make_directory(folder)
    try:
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise ProfagentError(
            f"cannot use {folder}: {error.strerror or error}", hint="name another workspace in the settings"
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise WorkspaceBusyError(
            f"another `profagent nightly run` uses {workspace.root}", hint="wait for it, or end it"
        ) from error
    try:
        yield
    finally:
        os.close(handle)


@dataclass(frozen=True, slots=True)
class NightRun:
    """A night: its settings, the folder that they stand in, and boards of earlier nights, newest first."""

    settings: Nightly
    folder: Path
    workspace: Workspace
    run: str
    earlier: Sequence[PastBoard]
    tell: Callable[[str], None]
    clock: Callable[[], float]

    async def boards(self, stop: asyncio.Event) -> list[Outcome]:
        """Every board's night, one after the other; those that come after `stop` was set are not begun."""
        return [await self._board(board, stop) for board in self.settings.boards]

    async def _board(self, board: Board, stop: asyncio.Event) -> Outcome:
        begun = self.clock()
        outcome = Outcome(board.name)
        attempts = Attempts(self.settings, self.tell, self.clock)
        found = await attempts.made(outcome, lambda deadline: self._attempt(board, deadline, stop), stop)
        outcome.session = found.session
        outcome.is_away, outcome.is_incomplete = found.is_away, found.is_incomplete
        outcome.problems += [found.problem] if found.problem else []
        if found.session is not None:
            await self._exported(found.session, outcome, stop)
            outcome.compared = await asyncio.to_thread(
                compared, self.settings, board, self.workspace, found.session, self.earlier
            )
        outcome.seconds = self.clock() - begun
        return outcome

    async def _attempt(self, board: Board, deadline: float, stop: asyncio.Event) -> Captured:
        call = capture_call(board, self.folder, self.workspace.root, self.run, self.settings.counter_map)
        self.tell(f"{board.name}: profagent {' '.join(call)}")
        ended = await run_command(
            call, max(0.0, deadline - self.clock()), stop, lambda line: self.tell(f"{board.name}: {line}")
        )
        found = captured(ended.code, ended.document, ended.said)
        if ended.is_stopped:
            return Captured(found.session, "the night was stopped in this board's turn")
        if not ended.is_late:
            return found
        return Captured(found.session, f"its time, {self.settings.time_limit}, was over", is_away=found.is_away)

    async def _exported(self, session: int, outcome: Outcome, stop: asyncio.Event) -> None:
        for kind in () if stop.is_set() else self.settings.exports:
            call = export_call(kind, session, self.workspace.root)
            ended = await run_command(call, EXPORT_S, stop, lambda line: self.tell(f"{outcome.board}: {line}"))
            if ended.code:
                outcome.problems.append(f"export {kind} failed: {ended.said}")


def check_durations(settings: Nightly) -> None:
    """Raises UsageError for durations that are none, before anything is begun."""
    for text in (settings.time_limit, settings.wait):
        duration_s(text)
    for board in settings.boards:
        if board.record is not None and board.record.for_ is not None:
            duration_s(board.record.for_)
