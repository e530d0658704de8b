"""Execution of a night: all boards side by side, each in its own processes, so that no board delays or ends another."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent.cli.options import duration_s
from profagent.diff.comparing import Change
from profagent.diff.diff import Operand, diff, parse_condition
from profagent.errors import Failure, IncompleteError, ProfagentError, UnknownHostError, UnreachableError
from profagent.limits import EXPORT_S, LONGEST_OUTPUT_LINE_BYTES, LONGEST_WAIT_S, NIGHT_ENDING_S
from profagent.link.backoff import Backoff
from profagent.nightly.night import BoardOutcome, Compared, NightVerdict, Slower
from profagent.nightly.page import report_name
from profagent.sessions.clearing import COLLECTED
from profagent.stats.figures import figures_of
from profagent.stats.stats import judgements
from profagent.stats.thinned import is_thinned
from profagent.stats.trend import history, newest_run, summed
from profagent.store.database import reading
from profagent.store.queries import find_session
from profagent.store.workspace import baseline_session
from profagent.tables.slo import Objective
from profagent.tables.table import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from profagent.diff.comparing import Scope
    from profagent.nightly.night import Nightly, NightlyBoard
    from profagent.nightly.page import PastBoard
    from profagent.stats.trend import BoardTrend
    from profagent.store.workspace import Workspace

PROGRAM = (sys.executable, "-c", "from profagent.cli.main import main; main()")
LAST_GOOD = "the last good night"
BEFORE = "the level of earlier nights"
_THINNED = "a flight recorder keeps too few inferences; from the sixth night on, all nights are judged together"


class Pushing(NamedTuple):
    """Result of pushing: a remark for the night, and True if the lake has all sessions that it should have."""

    remark: str
    is_done: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """Result of a command that was called with `--json`: exit code, its answer, or the failure that it printed.

    `document` and `failure` are both None if it printed no JSON. `is_late` says that the time limit ended it,
    `is_stopped` that the caller was asked to stop.
    """

    code: int
    document: Any
    failure: Failure | None = None
    is_late: bool = False
    is_stopped: bool = False

    @property
    def why(self) -> str:
        """Reason why the exit code is not 0."""
        if self.failure is not None:
            return self.failure.error
        return "data is incomplete" if self.code == IncompleteError.exit_code else f"exit code {self.code}"


async def run_command(
    arguments: Sequence[str], limit_s: float, stop: asyncio.Event, tell: Callable[[str], None]
) -> Ended:
    """Run `profagent` with arguments, and pass its messages to `tell`.

    The command is interrupted after `limit_s` seconds or when `stop` is set, and killed if it does not end then.
    """
    process = await asyncio.create_subprocess_exec(
        *PROGRAM,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=LONGEST_OUTPUT_LINE_BYTES,
        # Ctrl-C must reach only this process, which passes it on: a second interrupt makes a command quit at once.
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.TaskGroup() as group:
            # Both pipes are read while the command runs: a full one would block it.
            output = group.create_task(process.stdout.read())
            group.create_task(_passed_on(process.stderr, tell))
            was_ended = await _end(process, limit_s, stop)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        # Also when this task is cancelled, no process stays behind: it was killed, and is reaped here.
        code = await process.wait()
    is_stopped = was_ended and stop.is_set()
    document = _document(output.result())
    failure = None
    if isinstance(document, dict) and document.keys() == {*Failure._fields}:
        failure = Failure(**document)
        document = None
    return Ended(code, document, failure, was_ended and not is_stopped, is_stopped)


async def _end(process: asyncio.subprocess.Process, limit_s: float, stop: asyncio.Event) -> bool:
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


async def _passed_on(stream: asyncio.StreamReader, tell: Callable[[str], None]) -> None:
    while line := await stream.readline():
        tell(line.decode("utf-8", "replace").rstrip())


def _document(output: bytes) -> Any:
    lines = output.splitlines()
    try:
        return json.loads(lines[-1]) if lines else None
    except ValueError:
        return None


def capture_call(board: NightlyBoard, folder: Path, workspace: Path, run: str, counter_map: str = "") -> list[str]:
    """Return the arguments of `profagent` that capture a board.

    Paths are relative to `folder`, the directory of the settings. `counter_map` is empty for none.
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


def outcome_of(board: str, ended: Ended) -> BoardOutcome:
    """Return the result of one attempt."""
    code, document = ended.code, ended.document
    if code == UnreachableError.exit_code and document is None:
        # An unknown host name is a mistake in the settings, which a further attempt would not correct.
        is_unknown = ended.failure is not None and ended.failure.code == UnknownHostError.code
        return BoardOutcome(board, problems=[ended.why], is_away=not is_unknown)
    # `record` prints the session's summary itself; `collect` prints a document that contains it.
    found = None if document is None else document["session"]
    session = found["session"] if isinstance(found, dict) else found
    if document is None or session is None:
        return BoardOutcome(board, problems=[f"the capture ended without a session: {ended.why}"])
    summary = found if isinstance(found, dict) else document
    coverage = summary.get("coverage")
    # The code may be that of the program on the board, which `collect` passes on along with `status`.
    if code == IncompleteError.exit_code and not document.get("status"):
        problems = list(summary.get("incomplete", ())) or ["data is missing"]
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
    """One night: its settings and their directory, and the results of earlier nights, newest first."""

    settings: Nightly
    folder: Path
    workspace: Workspace
    run: str
    earlier: Sequence[PastBoard]
    tell: Callable[[str], None]

    async def boards(self, stop: asyncio.Event) -> list[BoardOutcome]:
        """Return the results of all boards, in the order of the settings.

        Captures run side by side; export, comparison and report are done for one board at a time.
        """
        turn = asyncio.Lock()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._board(board, turn, stop)) for board in self.settings.boards]
        return [task.result() for task in tasks]

    async def pushed(self, lake: str, stop: asyncio.Event) -> Pushing:
        """Push all ended sessions into a lake, those of nights without the lake included."""
        if stop.is_set():
            return Pushing("nothing was pushed: the night was stopped", is_done=False)
        call = ["push", "--all", "--lake", lake, "--workspace", str(self.workspace.root), "--json"]
        ended = await run_command(call, EXPORT_S, stop, self.tell)
        if ended.code:
            why = f"push failed: {ended.why}; the next night goes on with it, and until then nothing is cleared"
            return Pushing(why, is_done=False)
        came = sum(not each["was_there"] for each in ended.document)
        sessions = counted(len(ended.document), "session")
        return Pushing(f"push: {came} of {sessions} came into {lake}, the others were there", is_done=True)

    async def _board(self, board: NightlyBoard, turn: asyncio.Lock, stop: asyncio.Event) -> BoardOutcome:
        now = asyncio.get_running_loop().time
        begun = now()
        outcome = await self._capture(board, stop)
        async with turn:
            try:
                await self._evaluate(board, outcome, stop)
            except ProfagentError as error:
                # An exception would leave the task group, which would cancel the captures of the other boards.
                outcome.problems.append(str(error))
        outcome.seconds = now() - begun
        return outcome

    async def _evaluate(self, board: NightlyBoard, outcome: BoardOutcome, stop: asyncio.Event) -> None:
        """Export the session, compare it, and write its report; problems are added to the outcome."""
        if outcome.session is not None:
            async with reading(self.workspace.database) as connection:
                outcome.is_simulated = (await find_session(connection, outcome.session)).simulated
            await self._exported(outcome.session, outcome, stop)
            outcome.slo = await judgements(
                self.workspace.readable_database(),
                [Objective.parse(text) for text in self.settings.slo],
                session=outcome.session,
            )
            outcome.compared = await compared(self.settings, board, self.workspace, outcome.session, self.earlier)
            outcome.problems += [each.problem for each in outcome.compared if each.is_missing]
            await self.with_history(board, outcome)
            await self._reported(outcome.session, outcome, stop)

    async def _capture(self, board: NightlyBoard, stop: asyncio.Event) -> BoardOutcome:
        """Return the result of the last attempt.

        Attempts are repeated while the board is away or was restarted, within `attempts` and the time limit.
        """
        now = asyncio.get_running_loop().time
        deadline = now() + duration_s(self.settings.time_limit)
        # The delay is not randomised: boards do not fail together, so their attempts need not be spread.
        backoff = Backoff(duration_s(self.settings.wait), LONGEST_WAIT_S, draw=max)
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
        found = outcome_of(board.name, ended)
        if ended.is_stopped:
            found.problems.insert(0, "the night was stopped while this board was captured")
            found.is_away = False
        elif ended.is_late:
            found.problems.insert(0, f"its time, {self.settings.time_limit}, was over")
        return found

    async def with_history(self, board: NightlyBoard, outcome: BoardOutcome) -> None:
        """Add the trends over the nights of a board to its result, and what became slower by these."""
        assert outcome.session is not None
        try:
            outcome.trends = await trends_of(self.settings, board, self.workspace, outcome.session)
        except ProfagentError as error:
            outcome.problems.append(f"the nights before could not be read: {error}")
        slower = slower_than_before(outcome.trends, self.settings)
        outcome.compared += [Compared(BEFORE, None, slower)] if slower else []

    async def _exported(self, session: int, outcome: BoardOutcome, stop: asyncio.Event) -> None:
        for kind in () if stop.is_set() else self.settings.exports:
            call = ["export", kind, str(session), "--workspace", str(self.workspace.root), "--json"]
            ended = await run_command(call, EXPORT_S, stop, lambda line: self.tell(f"{outcome.board}: {line}"))
            if ended.code:
                outcome.problems.append(f"export {kind} failed: {ended.why}")

    async def _reported(self, session: int, outcome: BoardOutcome, stop: asyncio.Event) -> None:
        if stop.is_set() or "report" not in self.settings.reports:
            return
        call = ["report", str(session), "--workspace", str(self.workspace.root), "--json"]
        bases = [str(each.session) for each in outcome.compared if each.session is not None and not each.is_thinned]
        call += ["--against", bases[0]] if bases else []
        call += [word for objective in self.settings.slo for word in ("--slo", objective)]
        file = self.workspace.root / "nightly" / report_name(self.run, outcome)
        ended = await run_command(
            [*call, "-o", str(file)], EXPORT_S, stop, lambda line: self.tell(f"{outcome.board}: {line}")
        )
        # The code of a report that was written is that of its objectives.
        if not file.exists():
            outcome.problems.append(f"report failed: {ended.why}")


async def compared(
    settings: Nightly, board: NightlyBoard, workspace: Workspace, session: int, earlier: Sequence[PastBoard]
) -> list[Compared]:
    """Return the comparisons of a session with the baseline and with the last good night.

    A comparison that is not possible is in the list, with its problem.
    """
    found: list[Compared] = []
    name = board.baseline or settings.baseline
    if name:
        try:
            base = await baseline_session(workspace, name)
        except ProfagentError as error:
            found.append(Compared(f"baseline {name}", None, problem=str(error), is_missing=True))
        else:
            found.append(await _compared(settings, f"baseline {name}", base, workspace, session))
    good = session_to_compare(board.name, earlier)
    if good is not None and good not in [each.session for each in found]:
        found.append(await _compared(settings, LAST_GOOD, good, workspace, session))
    return found


async def trends_of(settings: Nightly, board: NightlyBoard, workspace: Workspace, session: int) -> list[BoardTrend]:
    """Return the trends of a session's models over its board's nights, from the session of the baseline on.

    Raises StoreError.
    """
    name = board.baseline or settings.baseline
    base = 0
    if name:
        with suppress(ProfagentError):
            base = await baseline_session(workspace, name)

    def is_chosen(row: Mapping[str, Any]) -> bool:
        return "nightly" in row["labels_by_key"] and row["session"] >= base

    return await history(workspace.readable_database(), session, chosen=is_chosen, allowed=settings.allow)


def slower_than_before(trends: Sequence[BoardTrend], settings: Nightly) -> tuple[Slower, ...]:
    """Return the latencies and layers whose newest changes of level, taken together, meet a condition on the median."""
    conditions = [parse_condition(text) for text in settings.fail_if]
    found: list[Slower] = []
    for trend in trends:
        for kind, name in dict.fromkeys((each.kind, each.name) for each in trend.changes if each.kind != "metric"):
            run = newest_run([each for each in trend.changes if (each.kind, each.name) == (kind, name)])
            whole, named = summed(run), trend.model if kind == "latency" else name
            scope: Scope = "layer" if kind == "layer" else "layers" if name == "layers" else "latency"
            base, new = (figures_of(np.array([level])) for level in (whole.before, whole.after))
            change = Change(scope, named, base, new, p=0.0, is_significant=True)
            found += [
                Slower(each.text, f"{scope} {named} since session {whole.session}", whole.percent)
                for each in conditions
                if each.figure == "median" and each.failing([change])
            ]
    return (*found,)


def session_to_compare(board: str, earlier: Sequence[PastBoard]) -> int | None:
    """Return the session to compare the board's next night with, or None.

    It is that of the last good night, else of the last undecided one, else of the last that exceeded an objective.
    `earlier` begins with the newest night.
    """
    own = [past for past in earlier if past.board == board and past.session is not None]
    for verdict in (NightVerdict.GOOD.word, NightVerdict.UNDECIDED.word, NightVerdict.EXCEEDED.word):
        for past in own:
            if past.verdict == verdict:
                return past.session
    return None


async def _compared(settings: Nightly, against: str, base: int, workspace: Workspace, session: int) -> Compared:
    database = workspace.readable_database()
    conditions = [parse_condition(text) for text in settings.fail_if]
    async with reading(database) as connection:
        if await is_thinned(connection, base) or await is_thinned(connection, session):
            return Compared(against, base, can_tell=False, undecided=(_THINNED,))
    try:
        answer = await diff(
            Operand(against, database, base),
            Operand(f"session {session}", database, session),
            conditions,
            allowed=settings.allow,
        )
    except ProfagentError as error:
        return Compared(against, base, problem=str(error))
    if answer.comparability.is_blocked:
        return Compared(against, base, problem=answer.comparability.line())
    slower = tuple(
        Slower(each.condition.text, f"{change.scope} {change.name}", change.percent)
        for each in answer.outcomes
        for change in each.failing
    )
    undecided = tuple(f"{each.condition.text}: {each.undecided}" for each in answer.outcomes if each.undecided)
    only = tuple(f"model {name} is only in {side}" for side, name in answer.only)
    differences = (*map(str, answer.comparability.differences), *answer.remarks, *only)
    return Compared(against, base, slower, differences, answer.can_tell, undecided=undecided if answer.can_tell else ())
