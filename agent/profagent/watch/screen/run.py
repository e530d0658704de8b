"""Tasks behind the screen: boards that are watched and optionally saved, or a stored session that is replayed."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from profagent.errors import ProfagentError, WorkspaceBusyError
from profagent.link.backoff import retrying
from profagent.link.boards_file import BoardNames
from profagent.link.coverage import Standing
from profagent.record.options import RecordOptions
from profagent.record.record import BoardRecord
from profagent.store.marks import add_mark, session_going_on
from profagent.store.writer import Applied
from profagent.tables.table import counted
from profagent.watch.model import BoardModel, LinkState
from profagent.watch.replay import Pace, Player
from profagent.watch.screen.app import WatchApp
from profagent.watch.watch import WatchView, follow, own_name, store_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from profagent.link.messages import Board
    from profagent.store.events import Event
    from profagent.store.queries import SessionRow
    from profagent.store.store import Store
    from profagent.store.workspace import Workspace
    from profagent.watch.against import Against
    from profagent.watch.replay import Replayed
    from profagent.watch.watch import WatchOptions

# Events within this time are decoded and drawn together.
GATHER_S = 0.4
BOARD_EACH_S = 1.0
SESSION_LOOK_S = 0.1


class ScreenView(WatchView):
    """Observer of a board on the screen: it passes all events to the board's model."""

    gather_s = GATHER_S
    board_each_s = BOARD_EACH_S

    def __init__(self, options: WatchOptions, model: BoardModel) -> None:
        super().__init__(options, model.take, lambda text: model.note("remark", text))
        self._model = model
        model.summary = self.events.summary
        model.covered = self._covered

    def _covered(self) -> float | None:
        if self.coverage is None:
            return None
        lasted_us = {each: self.coverage.lasted_us(each, time.time_ns() // 1000) for each in Standing}
        return lasted_us[Standing.COVERED] / max(1, sum(lasted_us.values()))

    def changed(self, applied: Sequence[Applied]) -> None:
        """Show the changes of each JOB as one batch, so that inferences do not appear file by file."""
        together: list[Applied] = []
        for _, neighbours in groupby(applied, key=lambda each: (each.batch.job, each.batch.state)):
            found = [*neighbours]
            first = found[0].batch
            if first.state is None:
                changes = [change for each in found for change in each.batch.changes]
                columns = [each for one in found for each in one.columns]
                found = [Applied(replace(first, changes=changes), found[0].job, columns=columns)]
            together += found
        super().changed(together)

    def linked(self, board: Board, role: str) -> None:
        """Update the model's link, session and uncertain counters."""
        self._model.linked(board)
        if self.saving is not None:
            self._model.session = self.saving.session.number
        super().linked(board, role)
        self._model.likely = tuple(self.events.likely)

    def unlinked(self, error: ProfagentError, wait_s: float) -> None:
        """Set the model's link to AWAY; the screen keeps its figures."""
        super().unlinked(error, wait_s)
        self._model.enter(LinkState.AWAY, f"{error}; {retrying(wait_s)}")


@dataclass(slots=True)
class _Saving:
    """Running save of a board: its record and the task that runs it."""

    record: BoardRecord
    task: asyncio.Task[None]


@dataclass(slots=True)
class BoardKeeper:
    """Keeper of marks and sessions of watched boards, all in one workspace.

    It is the only writer of the workspace while any session runs. `store` is that of the workspace if boards are saved
    from the start.
    """

    workspace: Workspace
    options: Mapping[BoardModel, WatchOptions]
    store: Store | None
    # Running sessions by board.
    savings: dict[BoardModel, _Saving] = field(default_factory=dict)
    # Holds `own_store` open, and with it the workspace's lock, while any session runs.
    opened: AsyncExitStack = field(default_factory=AsyncExitStack)
    # Store that this keeper opened; None if no session runs, or if `store` serves.
    own_store: Store | None = None

    async def mark(self, model: BoardModel, text: str) -> None:
        """Store a mark in the session that is being saved, here or by `record`; without one, only show it."""
        time_us = model.board_us()
        model.note("mark", text, time_us)
        try:
            session = model.session or await self._recorded(model)
            if session is None:
                model.note("note", "the mark is on the screen only: w saves a session, which keeps marks")
                return
            await add_mark(self.workspace.database, session, time_us, text)
        except ProfagentError as error:
            model.note("loss", f"the mark is not stored: {error}")
            return
        if model.session is None:
            model.note("save", f"the mark is in session {session}, which another profagent records")

    async def _recorded(self, model: BoardModel) -> int | None:
        """Return the session as which another profagent records the board into this workspace, None without one."""
        if not (model.identity and self.workspace.database.exists()):
            return None
        try:
            with self.workspace.board_locked(model.identity):
                return None
        except WorkspaceBusyError:
            return await session_going_on(self.workspace.database, model.identity)

    async def save(self, model: BoardModel) -> None:
        """Begin a session of everything that comes from now on, or end the running one."""
        saving = self.savings.get(model)
        if saving is not None:
            model.note("save", "ending the session")
            saving.record.stop()
        elif model.session is not None:
            model.note("save", f"session {model.session} is saved from the start: it ends with the screen")
        else:
            await self._begin(model)

    def pause(self, *, is_paused: bool) -> None:
        """Freeze or release the figures of all boards; the boards are still followed and saved."""
        for model in self.options:
            model.is_paused = is_paused
            if not is_paused and model.passed_over:
                model.note("note", f"{counted(model.passed_over, 'inference')} came meanwhile, not in these figures")
                model.passed_over = 0

    async def end(self) -> None:
        """End all running sessions and wait for them."""
        for saving in list(self.savings.values()):
            saving.record.stop()
            await saving.task

    async def _begin(self, model: BoardModel) -> None:
        options = self.options[model]
        try:
            if self.store is None and self.own_store is None:
                self.own_store = await self.opened.enter_async_context(store_in(self.workspace))
        except ProfagentError as error:
            model.note("away", f"not saved: {error}; {error.hint}")
            return
        store = self.store or self.own_store
        assert store is not None, "a workspace has a store"
        chosen = RecordOptions(
            (options.address,),
            self.workspace,
            maps=options.maps,
            access=options.access,
            source="watch",
            from_now=True,
            new=True,
            consumer=f"{own_name()}-save",
        )
        record = BoardRecord(options.address, chosen, store, lambda text: model.note("save", text))
        self.savings[model] = _Saving(record, asyncio.create_task(self._run(model, record)))

    async def _run(self, model: BoardModel, record: BoardRecord) -> None:
        running = asyncio.create_task(record.run())
        while not running.done():
            if record.session is not None and model.session is None:
                model.session = record.session
                model.note("save", f"saving as session {record.session} of {self.workspace.root}")
            await asyncio.wait([running], timeout=SESSION_LOOK_S)
        try:
            await running
        except ProfagentError as error:
            model.note("away", f"not saved any more: {error}")
        finally:
            if model.session is not None:
                model.note("save", f"session {model.session} has ended: profagent show {model.session}")
            model.session = None
            del self.savings[model]
            # The last session that ends releases the workspace for other commands.
            if not self.savings:
                self.own_store = None
                await self.opened.aclose()


async def watch_on_screen(
    boards: Sequence[WatchOptions],
    stop: asyncio.Event,
    workspace: Workspace,
    *,
    against: Against,
    budgets: Mapping[str, float],
) -> list[Event]:
    """Show boards on the screen until the user leaves or `stop` is set; return their summaries.

    A single board that cannot be reached at first raises UnreachableError; several are waited for.
    """
    models = [BoardModel(each.address, lambda: time.time_ns() // 1000) for each in boards]
    wanted = {
        model: replace(each, with_layers=True, with_records=False) for model, each in zip(models, boards, strict=True)
    }
    async with store_in(boards[0].save) as store:
        keeper = BoardKeeper(workspace, wanted, store)
        following = [
            asyncio.create_task(_follow(model, options, stop, store, is_patient=len(boards) > 1))
            for model, options in wanted.items()
        ]
        try:
            await until_left(WatchApp(models, keeper, against=against, budgets=budgets), following, stop)
        finally:
            # The sessions must end before their store closes.
            await keeper.end()
            await asyncio.wait(following)
        return [each.result() for each in following]


async def _follow(
    model: BoardModel, options: WatchOptions, stop: asyncio.Event, store: Store | None, *, is_patient: bool
) -> Event:
    view = ScreenView(options, model)
    return await follow(options, view, stop, store, is_patient=is_patient, compared=model.compared)


class ReplayKeeper:
    """Keeper for a replay, which stores nothing: its session is stored already."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    async def mark(self, model: BoardModel, text: str) -> None:
        """Show a mark without storing it."""
        model.note("mark", f"{text} (not stored: this is a replay)")

    async def save(self, model: BoardModel) -> None:
        """Explain that there is nothing to save."""
        model.note("save", "this is a replay: its session is stored already")

    def pause(self, *, is_paused: bool) -> None:
        """Pause or resume the replay."""
        self._pace.pause(is_paused=is_paused)


async def play_into(model: BoardModel, replayed: Replayed, pace: Pace, stop: asyncio.Event) -> None:
    """Play a session into a model until its end or `stop`. Raises UsageError, StoreError."""
    player = Player(replayed, with_layers=True)
    model.summary = player.events.summary

    def begin(session: SessionRow) -> None:
        model.likely = tuple(player.events.likely)
        board = BoardNames.known().of(session.board, session.hostname)
        model.replays(board, f"session {session.session}", replayed.speed)

    await player.play(
        begin,
        model.take,
        lambda time_us, text: model.note("mark", text, time_us),
        lambda text: model.note("remark", text),
        pace,
        stop,
    )


async def replay_on_screen(replayed: Replayed, stop: asyncio.Event, against: Against) -> None:
    """Show a session on the screen until the user leaves or `stop` is set. Raises UsageError, StoreError."""
    pace = Pace(replayed.speed, stop)
    model = BoardModel("replay", lambda: time.time_ns() // 1000, LinkState.REPLAYED)

    async def play() -> None:
        await play_into(model, replayed, pace, stop)
        model.enter(LinkState.ENDED, "this was all of the session")
        await stop.wait()

    app = WatchApp([model], ReplayKeeper(pace), against=against)
    playing = asyncio.create_task(play())
    await until_left(app, [playing], stop)
    await playing


async def until_left(app: WatchApp, following: Sequence[asyncio.Task[Any]], stop: asyncio.Event) -> None:
    """Run the screen until the user leaves, `stop` is set, a task fails, or no board is followed any more."""
    shown = asyncio.create_task(app.run_async())
    stopping = asyncio.create_task(stop.wait())
    ended: asyncio.Future[Any] = asyncio.gather(*following)
    ended.add_done_callback(
        lambda each: each.cancelled() or each.exception()
    )  # the caller gets the error from the tasks
    ends: list[asyncio.Future[Any]] = [shown, stopping, ended]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    # Whichever ended first, the others must end too: the screen is left, and the boards are let go.
    stop.set()
    if not shown.done():
        app.exit()
    await shown
    await stopping
    if app.return_code:
        raise ProfagentError("the screen failed", hint="the message above says why; --plain shows lines instead")
