"""A stored session behind the screen."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from profagent.watch.model import BoardModel, LinkState
from profagent.watch.replay import Pace, Player
from profagent.watch.screen.app import WatchApp
from profagent.watch.screen.run import until_left

if TYPE_CHECKING:
    from profagent.store.queries import SessionRow
    from profagent.watch.against import Against
    from profagent.watch.replay import Replayed


class ReplayKeeper:
    """A replay keeps nothing: what it shows is kept already."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    async def mark(self, model: BoardModel, text: str) -> None:
        """It is to be seen, and no more."""
        model.note("mark", f"{text} (not stored: this is a replay)")

    async def save(self, model: BoardModel) -> None:
        """There is nothing to save."""
        model.note("save", "this is a replay: its session is stored already")

    def pause(self, *, is_paused: bool) -> None:
        """The replay stands still."""
        self._pace.pause(is_paused=is_paused)


async def play_into(model: BoardModel, replayed: Replayed, pace: Pace, stop: asyncio.Event) -> None:
    """Let a model take all of a session. Raises UsageError, StoreError."""
    player = Player(replayed, with_layers=True)
    model.summary = player.events.summary

    def begin(session: SessionRow) -> None:
        model.likely = tuple(player.events.likely)
        model.replays(session.hostname or session.board, f"session {session.session}", replayed.speed)

    await player.play(
        begin,
        model.take,
        lambda time_us, text: model.note("mark", text, time_us),
        lambda text: model.note("remark", text),
        pace,
        stop,
    )


async def replay_on_screen(replayed: Replayed, stop: asyncio.Event, against: Against) -> None:
    """Show a session on the screen until the person leaves, or `stop`. Raises UsageError, StoreError."""
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
