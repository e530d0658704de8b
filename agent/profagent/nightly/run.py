"""`nightly run`: each board in turn, in processes of its own, so that one board's failure stops no other."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from profagent.cli.options import duration_s
from profagent.errors import ProfagentError, WorkspaceBusyError
from profagent.files import make_directory
from profagent.nightly.comparing import compared
from profagent.nightly.verdict import Outcome
from profagent.sessions.clearing import COLLECTED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from profagent.nightly.ending import PastBoard
    from profagent.nightly.settings import Board, Nightly
    from profagent.store.workspace import Workspace


PROGRAM = (sys.executable, "-c", "from profagent.cli.main import main; main()")
# One that is told to end has so long for its summary.
ENDING_S = 60.0
LEAVING_S = 5.0
LONGEST_LINE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Ended:
    """A command's exit code, what it printed as JSON (None: none), and the last line that it said.

    It had to be ended because its time was over (`is_late`), or because the caller was told to stop (`is_stopped`).
    """

    code: int
    document: Mapping[str, Any] | None
    said: str
    is_late: bool = False
    is_stopped: bool = False


async def run_command(
    arguments: Sequence[str], limit_s: float, stop: asyncio.Event, tell: Callable[[str], None]
) -> Ended:
    """Run `profagent` with arguments and pass its remarks on; past the limit, or when `stop` is set, it has to end."""
    process = await asyncio.create_subprocess_exec(
        *PROGRAM,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # A terminal's Ctrl-C is for us: a command that hears it from both would leave at once.
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.TaskGroup() as group:
            output = group.create_task(process.stdout.read())
            said = group.create_task(_passed_on(process.stderr, tell))
            was_ended = await _end(process, limit_s, stop)
    finally:
        code = await _left(process)
    is_stopped = was_ended and stop.is_set()
    return Ended(code, _document(output.result()), said.result(), was_ended and not is_stopped, is_stopped)


async def _end(process: asyncio.subprocess.Process, limit_s: float, stop: asyncio.Event) -> bool:
    """Wait for its end, and have it end when it must; whether it had to."""
    ending, stopping = asyncio.create_task(process.wait()), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({ending, stopping}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        was_ended = not ending.done()
        if was_ended:
            process.send_signal(signal.SIGINT)
            await asyncio.wait({ending}, timeout=ENDING_S)
        if not ending.done():
            process.kill()
        await ending
    finally:
        ending.cancel()
        stopping.cancel()
    return was_ended


async def _left(process: asyncio.subprocess.Process) -> int:
    """Its exit code; one that runs has to leave at once, which it does better by itself."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
        await asyncio.wait({asyncio.ensure_future(process.wait())}, timeout=LEAVING_S)
        process.kill()
    return await process.wait()


async def _passed_on(stream: asyncio.StreamReader, tell: Callable[[str], None]) -> str:
    """Tell each line; the last that says something of itself, and is no hint below one."""
    said, rest = "", b""
    while piece := await stream.read(LONGEST_LINE_BYTES):
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) >= LONGEST_LINE_BYTES:
            # A program may write without end and never a line.
            lines, rest = [*lines, rest], b""
        for line in lines:
            said = _told(line, tell) or said
    if rest:
        said = _told(rest, tell) or said
    return said.removeprefix("profagent: ")


def _told(line: bytes, tell: Callable[[str], None]) -> str:
    """Tell a line; what it says of itself."""
    text = line.decode("utf-8", "replace").rstrip()
    tell(text)
    return "" if text.startswith(" ") else text


def _document(output: bytes) -> Mapping[str, Any] | None:
    lines = output.splitlines()
    try:
        document = json.loads(lines[-1]) if lines else None
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


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
