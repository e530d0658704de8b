"""`nightly run`: each board in turn, in processes of its own, so that one board's failure stops no other."""

from __future__ import annotations

import asyncio
import fcntl
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from profagent.cli.options import duration_s
from profagent.errors import ProfagentError, WorkspaceBusyError
from profagent.files import make_directory
from profagent.nightly.child_command import run_command
from profagent.nightly.comparing import compared
from profagent.nightly.verdict import Outcome
from profagent.sessions.clearing import COLLECTED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from profagent.nightly.ending import PastBoard
    from profagent.nightly.settings import Board, Nightly
    from profagent.store.workspace import Workspace


# What `record` and `collect` say of a board that cannot be reached, and of data that is missing.
UNREACHABLE, INCOMPLETE = 3, 4


class Captured(NamedTuple):
    """What came of one attempt. `session` is None where there is none; `problem` is empty where all is well.

    `is_away`: the board could not be reached, and may be later. `is_incomplete`: data that existed is missing.
    `is_lost`: the board was restarted while its program ran.
    """

    session: int | None
    problem: str = ""
    is_away: bool = False
    is_incomplete: bool = False
    is_lost: bool = False


def capture_call(board: Board, folder: Path, workspace: Path, run: str, counter_map: str = "") -> list[str]:
    """The arguments of `profagent` that capture a board; paths are relative to `folder`, where the settings are.

    `counter_map` is empty where none is named.
    """
    labels = {**board.labels, "nightly": run}
    common = ["--board", board.name, "--workspace", str(workspace), "--json"]
    common += [part for key, value in labels.items() for part in ("--label", f"{key}={value}")]
    common += ["--counter-map", str(folder / counter_map)] if counter_map else []
    if board.record is not None:
        ends = [] if board.record.for_ is None else ["--for", board.record.for_]
        ends += ["--until-finished"] if board.record.until_finished else []
        return ["record", "--new", *common, *ends, *board.record.more]
    assert board.collect is not None, "settings have either"
    collect = board.collect
    options = ["--output", str(workspace / COLLECTED)]
    options += [] if collect.project is None else ["--project", str(folder / collect.project)]
    options += [] if collect.acl_json is None else ["--acl-json", collect.acl_json]
    options += [] if collect.interval is None else ["--interval", str(collect.interval)]
    arguments = ["--", *collect.arguments] if collect.arguments else []
    return ["collect", "-m", collect.main, *common, *options, *collect.more, *arguments]


def export_call(kind: str, session: int, workspace: Path) -> list[str]:
    """The arguments of `profagent` that export a session."""
    return ["export", kind, "--session", str(session), "--workspace", str(workspace)]


def captured(code: int, document: Mapping[str, Any] | None, said: str) -> Captured:
    """Read what a capture ended with: its exit code, its JSON (None: none), and the last that it said."""
    if code == UNREACHABLE and document is None:
        return Captured(None, said or "the board cannot be reached", is_away=True)
    session = _session(document)
    if document is None or session is None:
        return Captured(None, said or f"the capture ended with exit code {code} and no session")
    causes = [str(cause["text"]) for cause in document.get("causes", [])]
    # A program's own exit code may be any number.
    if code == INCOMPLETE and not document.get("status"):
        return Captured(session, said or "data is missing", is_incomplete=True)
    if code:
        problem = "; ".join(causes) or f"the program ended with exit code {code}"
        return Captured(session, problem, is_lost=document.get("status", code) is None)
    return Captured(session)


def _session(document: Mapping[str, Any] | None) -> int | None:
    """`record` prints a session's summary, `collect` has one in its document."""
    if document is None:
        return None
    found = document["session"]
    number = found["session"] if isinstance(found, dict) else found
    return None if number is None else int(number)


# A board that is away is tried again so often at least before its time is over.
LONGEST_WAIT_S = 900.0


async def wait_for_stop(delay_s: float, stop: asyncio.Event) -> None:
    """Return after `delay_s`, or when `stop` is set."""
    try:
        async with asyncio.timeout(delay_s):
            await stop.wait()
    except TimeoutError:
        return


@dataclass(frozen=True, slots=True)
class Attempts:
    """How often a board is tried, and how far apart: `clock` is in seconds, `wait` is done with one of its own."""

    settings: Nightly
    tell: Callable[[str], None]
    clock: Callable[[], float]
    wait: Callable[[float, asyncio.Event], Awaitable[None]] = wait_for_stop

    async def made(
        self, outcome: Outcome, attempt: Callable[[float], Awaitable[Captured]], stop: asyncio.Event
    ) -> Captured:
        """Attempts until one reaches the board, which is not restarted meanwhile, or its time is over.

        `attempt` is given its deadline by `clock`; the outcome counts them.
        """
        deadline = self.clock() + duration_s(self.settings.time_limit)
        wait_s = duration_s(self.settings.wait)
        while not stop.is_set():
            outcome.attempts += 1
            found = await attempt(deadline)
            left_s = deadline - self.clock()
            if not (found.is_away or found.is_lost) or outcome.attempts >= self.settings.attempts or left_s <= 0:
                return found
            delay_s = min(wait_s, left_s)
            self.tell(f"{outcome.board}: {found.problem}; the next attempt is in {delay_s:.0f} s")
            await self.wait(delay_s, stop)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)
        return Captured(None, "the night was stopped before it was this board's turn")


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
