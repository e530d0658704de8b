"""`nightly run`: all boards side by side, each in processes of its own, so that none waits for another or ends it."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from profagent.cli.options import duration_s
from profagent.diff.diff import Operand, diff, parse_condition
from profagent.errors import UNKNOWN_NAME, IncompleteError, ProfagentError, UnreachableError
from profagent.limits import EXPORT_S, LONGEST_OUTPUT_LINE_BYTES, LONGEST_WAIT_S, NIGHT_ENDING_S
from profagent.link.backoff import Backoff
from profagent.nightly.night import BoardOutcome, Compared, NightVerdict, Slower
from profagent.nightly.page import report_name
from profagent.sessions.clearing import COLLECTED
from profagent.store.database import reading
from profagent.store.queries import find_session
from profagent.store.workspace import baseline_session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from profagent.nightly.night import Nightly, NightlyBoard
    from profagent.nightly.page import PastBoard
    from profagent.store.workspace import Workspace

PROGRAM = (sys.executable, "-c", "from profagent.cli.main import main; main()")
LAST_GOOD = "the last good night"


class Pushing(NamedTuple):
    """What came of pushing: a remark for the night, and whether the lake has all that it was to get."""

    remark: str
    is_done: bool


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
        limit=LONGEST_OUTPUT_LINE_BYTES,
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
        with suppress(ProcessLookupError):
            process.kill()
        code = await process.wait()
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
            await asyncio.wait({ending}, timeout=NIGHT_ENDING_S)
        if not ending.done():
            process.kill()
        await ending
    finally:
        ending.cancel()
        stopping.cancel()
    return was_ended


async def _passed_on(stream: asyncio.StreamReader, tell: Callable[[str], None]) -> str:
    """Tell each line; the last that says something of itself, and is no hint below one."""
    said = ""
    while line := await stream.readline():
        text = line.decode("utf-8", "replace").rstrip()
        tell(text)
        if text and not text.startswith(" "):
            said = text
    return said.removeprefix("profagent: ")


def _document(output: bytes) -> Mapping[str, Any] | None:
    lines = output.splitlines()
    try:
        document = json.loads(lines[-1]) if lines else None
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def capture_call(board: NightlyBoard, folder: Path, workspace: Path, run: str, counter_map: str = "") -> list[str]:
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


def captured(board: str, ended: Ended) -> BoardOutcome:
    """What came of an attempt."""
    code, document, said = ended.code, ended.document, ended.said
    if code == UnreachableError.exit_code and document is None:
        # A name that nobody knows is a mistake in the settings: to try it again is of no use.
        why = said or "the board cannot be reached"
        return BoardOutcome(board, problems=[why], is_away=UNKNOWN_NAME not in said)
    # `record` prints a session's summary, `collect` has one in its document.
    found = None if document is None else document["session"]
    session = found["session"] if isinstance(found, dict) else found
    if document is None or session is None:
        return BoardOutcome(board, problems=[said or f"the capture ended with exit code {code} and no session"])
    summary = found if isinstance(found, dict) else document
    coverage = summary.get("coverage")
    # A program's own exit code may be any number.
    if code == IncompleteError.exit_code and not document.get("status"):
        problems = list(summary.get("incomplete", ())) or [said or "data is missing"]
        return BoardOutcome(board, session, problems=problems, is_incomplete=True, coverage=coverage)
    if code:
        problem = "; ".join(str(cause["text"]) for cause in document.get("causes", []))
        is_lost = document.get("status", code) is None
        problems = [problem or f"the program ended with exit code {code}"]
        return BoardOutcome(board, session, problems=problems, is_lost=is_lost, coverage=coverage)
    if not any(summary["records"].values()):
        problems = ["no record of a program came: did it run, and was profiling on?"]
        return BoardOutcome(board, session, problems=problems, is_incomplete=True, coverage=coverage)
    return BoardOutcome(board, session, coverage=coverage)


@dataclass(frozen=True, slots=True)
class NightRun:
    """A night: its settings, the folder that they stand in, and boards of earlier nights, newest first."""

    settings: Nightly
    folder: Path
    workspace: Workspace
    run: str
    earlier: Sequence[PastBoard]
    tell: Callable[[str], None]

    async def boards(self, stop: asyncio.Event) -> list[BoardOutcome]:
        """Return every board's night. Captures go on side by side; what follows them is done for one at a time."""
        turn = asyncio.Lock()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._board(board, turn, stop)) for board in self.settings.boards]
        return [task.result() for task in tasks]

    async def pushed(self, lake: str, stop: asyncio.Event) -> Pushing:
        """Push all ended sessions into a lake: also those of nights on which it was away."""
        if stop.is_set():
            return Pushing("nothing was pushed: the night was stopped", is_done=False)
        call = ["push", "--all", "--lake", lake, "--workspace", str(self.workspace.root)]
        ended = await run_command(call, EXPORT_S, stop, self.tell)
        if ended.code:
            why = f"push failed: {ended.said}; the next night goes on with it, and until then nothing is cleared"
            return Pushing(why, is_done=False)
        return Pushing(f"push: {ended.said}", is_done=True)

    async def _board(self, board: NightlyBoard, turn: asyncio.Lock, stop: asyncio.Event) -> BoardOutcome:
        now = asyncio.get_running_loop().time
        begun = now()
        outcome = await self._captured(board, stop)
        async with turn:
            try:
                await self._answered(board, outcome, stop)
            except ProfagentError as error:
                # Raised, it would end the captures of other boards.
                outcome.problems.append(str(error))
        outcome.seconds = now() - begun
        return outcome

    async def _answered(self, board: NightlyBoard, outcome: BoardOutcome, stop: asyncio.Event) -> None:
        """Export the session, compare it, and write its report."""
        if outcome.session is not None:
            async with reading(self.workspace.database) as connection:
                outcome.is_simulated = (await find_session(connection, outcome.session)).simulated
            await self._exported(outcome.session, outcome, stop)
            outcome.compared = await compared(self.settings, board, self.workspace, outcome.session, self.earlier)
            outcome.problems += [each.problem for each in outcome.compared if each.is_missing]
            await self._reported(outcome.session, outcome, stop)

    async def _captured(self, board: NightlyBoard, stop: asyncio.Event) -> BoardOutcome:
        """Attempts until one reaches the board, which is not restarted meanwhile, or its time is over."""
        now = asyncio.get_running_loop().time
        deadline = now() + duration_s(self.settings.time_limit)
        backoff = Backoff(duration_s(self.settings.wait), LONGEST_WAIT_S, draw=max)  # boards do not fail together
        attempts = 0
        while not stop.is_set():
            attempts += 1
            found = await self._attempt(board, max(0.0, deadline - now()), stop)
            found.attempts = attempts
            left_s = deadline - now()
            if not (found.is_away or found.is_lost) or attempts >= self.settings.attempts or left_s <= 0:
                return found
            delay_s = min(backoff.wait_s(), left_s)
            self.tell(f"{board.name}: {found.problems[0]}; the next attempt is in {delay_s:.0f} s")
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), delay_s)
        return BoardOutcome(
            board.name, None, attempts, problems=["the night was stopped before this board was reached"]
        )

    async def _attempt(self, board: NightlyBoard, limit_s: float, stop: asyncio.Event) -> BoardOutcome:
        call = capture_call(board, self.folder, self.workspace.root, self.run, self.settings.counter_map)
        self.tell(f"{board.name}: profagent {' '.join(call)}")
        ended = await run_command(call, limit_s, stop, lambda line: self.tell(f"{board.name}: {line}"))
        found = captured(board.name, ended)
        if ended.is_stopped:
            found.problems.insert(0, "the night was stopped while this board was captured")
            found.is_away = False
        elif ended.is_late:
            found.problems.insert(0, f"its time, {self.settings.time_limit}, was over")
        return found

    async def _exported(self, session: int, outcome: BoardOutcome, stop: asyncio.Event) -> None:
        for kind in () if stop.is_set() else self.settings.exports:
            call = ["export", kind, str(session), "--workspace", str(self.workspace.root)]
            ended = await run_command(call, EXPORT_S, stop, lambda line: self.tell(f"{outcome.board}: {line}"))
            if ended.code:
                outcome.problems.append(f"export {kind} failed: {ended.said}")

    async def _reported(self, session: int, outcome: BoardOutcome, stop: asyncio.Event) -> None:
        """Write the report of a session beside what the night compares it with."""
        if stop.is_set() or "report" not in self.settings.reports:
            return
        call = ["report", str(session), "--workspace", str(self.workspace.root)]
        bases = [str(each.session) for each in outcome.compared if each.session is not None]
        call += ["--against", bases[0]] if bases else []
        call += ["-o", str(self.workspace.root / "nightly" / report_name(self.run, outcome))]
        ended = await run_command(call, EXPORT_S, stop, lambda line: self.tell(f"{outcome.board}: {line}"))
        if ended.code:
            outcome.problems.append(f"report failed: {ended.said}")


async def compared(
    settings: Nightly, board: NightlyBoard, workspace: Workspace, session: int, earlier: Sequence[PastBoard]
) -> list[Compared]:
    """A session beside the baseline, and beside the last good night; what cannot be compared is said."""
    found: list[Compared] = []
    name = board.baseline or settings.baseline
    if name:
        try:
            base = await baseline_session(workspace, name)
        except ProfagentError as error:
            found.append(Compared(f"baseline {name}", None, problem=str(error), is_missing=True))
        else:
            found.append(await _compared(settings, f"baseline {name}", base, workspace, session))
    good = measure(board.name, earlier)
    if good is not None and good not in [each.session for each in found]:
        found.append(await _compared(settings, LAST_GOOD, good, workspace, session))
    return found


def measure(board: str, earlier: Sequence[PastBoard]) -> int | None:
    """What the board's next night is compared with: its last good night, else its last undecided one."""
    own = [past for past in earlier if past.board == board and past.session is not None]
    for verdict in (NightVerdict.GOOD.word, NightVerdict.UNDECIDED.word):
        for past in own:
            if past.verdict == verdict:
                return past.session
    return None


async def _compared(settings: Nightly, against: str, base: int, workspace: Workspace, session: int) -> Compared:
    database = workspace.readable_database()
    conditions = [parse_condition(text) for text in settings.fail_if]
    try:
        answer = await diff(
            Operand(against, database, base), Operand(f"session {session}", database, session), conditions
        )
    except ProfagentError as error:
        return Compared(against, base, problem=str(error))
    slower = tuple(
        Slower(each.condition.text, f"{change.scope} {change.name}", change.percent)
        for each in answer.outcomes
        for change in each.failing
    )
    undecided = tuple(f"{each.condition.text}: {each.undecided}" for each in answer.outcomes if each.undecided)
    only = tuple(f"model {name} is only in {side}" for side, name in answer.only)
    unfair = (*answer.unfair, *only)
    return Compared(against, base, slower, unfair, answer.can_tell, undecided=undecided if answer.can_tell else ())
