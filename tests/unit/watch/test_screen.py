"""The screen by its keys: what each does, and what it looks like: wide, narrow, without colour."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from profagent.store.marks import marks_of
from profagent.store.sessions import SessionStart
from profagent.store.store import Store
from profagent.store.workspace import Workspace
from profagent.watch.against import Against
from profagent.watch.layers import ModelLayers, Sort
from profagent.watch.model import BoardModel, LinkState
from profagent.watch.replay import Pace, Replayed
from profagent.watch.screen.app import BoardScreen, WatchApp
from profagent.watch.screen.detail import KEYS, HelpScreen, LayerScreen
from profagent.watch.screen.paint import Lines
from profagent.watch.screen.run import BoardKeeper, play_into, until_left
from tests.unit.record.link import board

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from pathlib import Path

    from textual.pilot import Pilot


NOW_US = 1_767_225_605_000_000
# A baseline in which the first layer was faster.
AGAINST = Against("last night", {"yolov5s": {"model.0.conv+model.0.sigmoid+model.0.mul": 150.0}})
WIDE, NARROW = (120, 34), (80, 24)


class Keeper:
    """Notes what it is asked to keep."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def mark(self, model: BoardModel, text: str) -> None:
        self.asked.append(f"mark {text}")
        model.note("mark", text, NOW_US)

    async def save(self, model: BoardModel) -> None:
        self.asked.append(f"save {model.name}")

    def pause(self, *, is_paused: bool) -> None:
        self.asked.append("pause" if is_paused else "go on")


class Screen:
    """The screen over a replayed session and, where it is wanted, another board that is away."""

    def __init__(self, stored: Workspace, boards: int = 1, budgets: Mapping[str, float] | None = None) -> None:
        self.keeper = Keeper()
        self.models = [BoardModel(f"board {number}", lambda: NOW_US, LinkState.REPLAYED) for number in range(boards)]
        stop = asyncio.Event()
        playing = play_into(self.models[0], Replayed(stored, 1), Pace(float("inf"), stop), stop)
        _in_a_loop_of_its_own(playing)
        self.models[0].enter(LinkState.LINKED, "")
        for model in self.models[1:]:
            model.enter(LinkState.AWAY, "connection refused; retrying in 1 s")
        self.app = WatchApp(self.models, self.keeper, against=AGAINST, budgets=budgets, now_s=lambda: 0.0)

    def text(self, name: str) -> str:
        """What a pane shows."""
        pane = self.app.screen.query_one(f"#{name}", Lines)
        return "\n".join(pane.render_line(y).text.rstrip() for y in range(pane.size.height))


def _in_a_loop_of_its_own(work: Coroutine[Any, Any, None]) -> None:
    thread = threading.Thread(target=asyncio.run, args=(work,))
    thread.start()
    thread.join()


async def opened(screen: Screen, pilot: Pilot[None], *keys: str) -> None:
    """Press keys, of which the last opens a board, and wait until its panes have their sizes."""
    await pilot.press(*keys)
    while not (isinstance(screen.app.screen, BoardScreen) and screen.text("tabs") and screen.text("layers")):
        await pilot.pause()


@pytest.fixture
def screen(stored: Workspace) -> Screen:
    return Screen(stored)


async def test_the_keys_find_the_slowest_layer_its_distribution_and_what_bounds_it(screen: Screen) -> None:
    async with screen.app.run_test(size=WIDE) as pilot:
        await pilot.press("s", "s", "s")
        assert screen.app.sort is Sort.NAME
        await pilot.press("s", "s")
        assert "by median" in str(screen.app.screen.query_one("#layers", Lines).border_title)
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(screen.app.screen, LayerScreen)
        assert "model.0.conv+model.0.sigmoid" in screen.text("about")
        assert "[simulated]" in screen.text("about")
        assert "bound by mac: cube instructions take most of the time" in screen.text("about")
        assert screen.text("histogram").count(" ms ") >= 5
        assert "loading maps (DLD)" in screen.text("counters")
        await pilot.press("down")
        assert "model.1.conv" in screen.text("about")
        await pilot.press("escape")
        assert isinstance(screen.app.screen, BoardScreen)


async def test_a_filter_works_as_it_is_typed(screen: Screen) -> None:
    async with screen.app.run_test(size=WIDE) as pilot:
        await pilot.press("slash", *"detect")
        shown = screen.text("layers")
        assert "detect.nms" in shown
        assert "detect.decode" in shown
        assert "model." not in shown
        await pilot.press("enter", "s")
        assert screen.app.sort is Sort.LAST  # keys are keys again
        await pilot.press("escape")
        assert screen.app.text == ""
        assert "model.0.conv+2" in screen.text("layers")


@pytest.mark.parametrize("key", ["slash", "m"])
async def test_while_a_text_is_asked_for_only_its_keys_are_told(screen: Screen, key: str) -> None:
    async with screen.app.run_test(size=NARROW) as pilot:
        await pilot.press(key)
        assert screen.text("keys").strip() == "enter keep esc drop"
        await pilot.press("q", "escape")
        assert "q quit" in screen.text("keys")
        assert not screen.keeper.asked


async def test_keys_lead_to_the_first_and_the_last_layer_and_one_by_one(screen: Screen) -> None:
    async with screen.app.run_test(size=NARROW) as pilot:
        await pilot.pause()
        first = screen.app.chosen
        chosen = []
        for key in ("j", "down", "k", "G", "home", "end", "g"):
            await pilot.press(key)
            chosen.append(screen.app.chosen)
        one, two, back, last, home, end, top = chosen
        assert len({first, one, two, last}) == 4
        assert (back, home, top, end) == (one, first, first, last)
        lines = screen.text("layers").splitlines()
        assert "▸" in lines[1]
        await pilot.press("end")
        assert "▸" in screen.text("layers").splitlines()[-1]


@pytest.mark.parametrize(("size", "layers"), [((80, 12), 5), ((80, 17), 7), ((80, 24), 6), ((120, 12), 6)])
async def test_a_low_terminal_shows_layers_first(screen: Screen, size: tuple[int, int], layers: int) -> None:
    async with screen.app.run_test(size=size) as pilot:
        await pilot.pause()
        await pilot.pause()
        assert sum(".conv" in line or "detect" in line for line in screen.text("layers").splitlines()) == layers


async def test_a_click_on_a_tab_shows_its_board(stored: Workspace) -> None:
    screen = Screen(stored, boards=3)
    async with screen.app.run_test(size=WIDE) as pilot:
        await opened(screen, pilot, "enter")
        for board, name in ((2, "board 2"), (0, "euler"), (1, "board 1")):
            await pilot.click("#tabs", offset=(screen.text("tabs").index(name) + 1, 0))
            assert screen.app.board == board
        await pilot.click("#tabs", offset=(110, 0))
        assert screen.app.board == 1


async def test_a_mark_is_in_the_session_that_another_process_records(tmp_path: Path) -> None:
    workspace, model = Workspace(tmp_path), BoardModel("euler", lambda: NOW_US)
    keeper = BoardKeeper(workspace, {}, None)
    model.linked(board())
    await keeper.mark(model, "too early")
    start = SessionStart(model.identity, "vm", "SS928", "record", "here", NOW_US, False)
    async with Store(workspace.database) as store:
        session = await store.begin(start)
        await keeper.mark(model, "not recorded")
        with workspace.board_locked(model.identity):
            await keeper.mark(model, "slow")
        async with store.reading() as connection:
            assert [text for _, text in await marks_of(connection, session.number)] == ["slow"]


async def test_marks_saving_and_pausing_are_the_keepers(screen: Screen) -> None:
    async with screen.app.run_test(size=WIDE) as pilot:
        await pilot.press("m", *"now", "enter", "w", "space")
        assert screen.keeper.asked == ["mark now", "save euler", "pause"]
        assert "mark   now" in screen.text("events")
        assert "PAUSED" in screen.text("header")
        await pilot.press("space")
        assert screen.keeper.asked[-1] == "go on"


async def test_boards_are_tabs_and_the_one_that_is_away_stays(stored: Workspace) -> None:
    screen = Screen(stored, boards=2)
    async with screen.app.run_test(size=NARROW) as pilot:
        await opened(screen, pilot, "enter")
        assert " 1 ● euler   2 ○ board 1" in screen.text("tabs")
        await pilot.press("b")
        assert "○ away: connection refused; retrying in 1 s" in screen.text("header")
        assert "no inference yet" in screen.text("layers")
        screen.models[1].enter(LinkState.LINKED, "")
        screen.app.tick()
        assert "● linked" in screen.text("header")
        screen.models[1].linked(board())
        screen.app.tick()
        assert "board 1 (euler)  ● linked" in screen.text("header")
        assert "2 ● board 1" in screen.text("tabs")


async def test_several_boards_have_a_row_each_the_worst_on_top(stored: Workspace) -> None:
    screen = Screen(stored, boards=4, budgets={"yolov5s": 3000.0})
    _, lossy, away, seldom = screen.models
    for model, ledger, covered in ((lossy, {"loss": 2}, 1.0), (seldom, {}, 0.5)):
        model.enter(LinkState.LINKED, "")
        model.summary = partial(dict, model.summary(), ledger=ledger)
        model.covered = partial(float, covered)
    async with screen.app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        rows = [" ".join(line.split()) for line in screen.text("rack").splitlines() if line]
        assert rows == [
            "board state p50 ms p99 ms budget losses covered lag",
            "○ board 2 away: connection refused; retrying in 1 s N/A N/A N/A 0 N/A N/A",
            "● euler linked yolov5s.0 3.478 3.494 116% 0 N/A N/A",
            "● board 1 linked N/A N/A N/A 2 100.0% N/A",
            "● board 3 linked N/A N/A N/A 0 50.0% N/A",
        ]
        assert "4 boards  1 away  1 over budget  1 with losses" in screen.text("header")
        await opened(screen, pilot, "up", "up", "down", "enter")
        assert screen.app.model.name == "euler"
        assert "model.0.conv+2" in screen.text("layers")
        await pilot.press("slash", *"detect", "enter", "escape")
        assert isinstance(screen.app.screen, BoardScreen)
        await pilot.press("escape", "down", "w")
        assert screen.keeper.asked == ["save board 1"]
        away.enter(LinkState.LINKED, "")
        screen.app.tick()
        assert "0 away" in screen.text("header")


async def test_an_alarm_is_a_line_until_it_is_over(stored: Workspace) -> None:
    screen = Screen(stored, boards=2)
    text = "ALARM frame.p99 < 33ms: p99 is 41.000 ms"
    alarm = {"event": "slo", "objective": "frame.p99 < 33ms", "name": "", "text": text, "simulated": True}
    async with screen.app.run_test(size=WIDE) as pilot:
        screen.models[0].take({**alarm, "alarm": True})
        screen.models[1].take({**alarm, "alarm": True, "name": "process 7"})
        await pilot.pause()
        screen.app.tick()
        await pilot.pause()
        assert screen.text("alarms").strip() == f"(1 more) board 1: {text}"
        await opened(screen, pilot, "enter")
        assert screen.text("alarms").strip() == text
        assert "alarm" in screen.text("events")
        screen.app.model.take({**alarm, "alarm": False, "text": "alarm over: frame.p99 < 33ms"})
        screen.app.tick()
        await pilot.pause()
        assert not screen.app.screen.query_one("#alarms", Lines).display


async def test_models_are_seen_in_turn(screen: Screen) -> None:
    screen.models[0]._models["other.1"] = ModelLayers()
    async with screen.app.run_test(size=WIDE) as pilot:
        await pilot.press("n")
        assert "yolov5s.0 (2 of 2)" in screen.text("header")
        await pilot.press("n")
        assert "other.1 (1 of 2)" in screen.text("header")
        assert "no inference yet" in screen.text("layers")


async def test_large_losses_leave_room_for_lag_and_cost(screen: Screen) -> None:
    found = screen.models[0].summary()
    ledger = {"loss": 12_533_760, "note": 4}
    screen.models[0].summary = lambda: {**found, "ledger": ledger, "sampling": {"sampled": 1234, "due": 9999}}
    screen.models[0]._models[f"{'a-long-name' * 5}.1"] = ModelLayers()
    async with screen.app.run_test(size=NARROW) as pilot:
        await pilot.pause()
        assert "…" in screen.text("header")
        assert " (1 of 2)  lag N/A  profagentd 3.0 %  losses 12.5M  captured" in screen.text("header")


async def test_a_narrow_screen_has_panes_in_turn_and_every_key(screen: Screen) -> None:
    async with screen.app.run_test(size=NARROW) as pilot:
        await pilot.pause()
        for key, about, _ in KEYS:
            assert f"{key} {about}" in screen.text("keys")
        seen = []
        for _ in range(5):
            await pilot.press("v")
            await pilot.pause()
            seen += [pane.id for pane in screen.app.screen.query("#side Lines") if pane.display]
        assert [name for name in seen if name != "inferences"] == ["metrics", "frames", "ranges", "events", "calls"]


async def test_it_survives_any_size(screen: Screen) -> None:
    async with screen.app.run_test(size=WIDE) as pilot:
        for size in ((200, 60), (80, 24), (40, 10), (10, 4), (120, 34)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            await pilot.press("enter", "escape")
        assert "model.0.conv+2" in screen.text("layers")


async def test_a_picture_is_written_into_this_folder(
    screen: Screen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with screen.app.run_test(size=WIDE) as pilot:
        await pilot.press("c")
        await pilot.pause()
    (picture,) = await asyncio.to_thread(lambda: list(tmp_path.glob("*.svg")))
    assert "model.0.conv+2" in await asyncio.to_thread(picture.read_text, "utf-8")


async def test_only_what_changed_is_drawn(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[object] = []
    async with screen.app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        monkeypatch.setattr(Lines, "refresh", lambda self, *regions, **_: drawn.extend(regions))
        screen.app.redraw()
        assert not drawn
        screen.models[0].note("note", "something", NOW_US)
        screen.app.tick()
        assert len(drawn) == 1


async def test_help_has_every_key(screen: Screen) -> None:
    async with screen.app.run_test(size=NARROW) as pilot:
        await pilot.press("question_mark")
        await pilot.pause()
        assert isinstance(screen.app.screen, HelpScreen)
        for _, _, text in KEYS:
            assert text[:40] in screen.text("help")


@pytest.mark.parametrize("key", ["escape", "question_mark", "enter"])
async def test_help_closes_and_opens_again(screen: Screen, key: str) -> None:
    async with screen.app.run_test(size=NARROW) as pilot:
        for _ in range(2):
            await pilot.press("question_mark")
            assert isinstance(screen.app.screen, HelpScreen)
            await pilot.press(key)
            assert isinstance(screen.app.screen, BoardScreen)


async def test_the_screen_can_be_left_from_help(screen: Screen) -> None:
    async with screen.app.run_test(size=NARROW) as pilot:
        await pilot.press("question_mark", "q")
        await pilot.pause()
        assert not screen.app.is_running


SNAPSHOTS = {"wide": (WIDE, ()), "narrow": (NARROW, ("v",) * 4), "layer": (WIDE, ("enter",))}


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_it_looks_as_it_did(name: str, screen: Screen, snap_compare: Callable[..., bool]) -> None:
    size, keys = SNAPSHOTS[name]

    async def press(pilot: Pilot[None]) -> None:
        await pilot.press(*keys)
        await pilot.pause()
        screen.app.redraw()

    assert snap_compare(screen.app, terminal_size=size, run_before=press)


def test_without_colour_it_says_the_same(
    screen: Screen, snap_compare: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    screen.app = WatchApp(screen.models, screen.keeper, against=AGAINST, now_s=lambda: 0.0)
    assert snap_compare(screen.app, terminal_size=NARROW)


class Shown:
    """A screen that is there until it is told to go."""

    return_code = 0

    def __init__(self) -> None:
        self._left = asyncio.Event()

    async def run_async(self) -> None:
        await self._left.wait()

    def exit(self) -> None:
        self._left.set()


@pytest.mark.parametrize("is_failing", [False, True])
async def test_the_screen_stays_while_one_board_is_followed_and_goes_at_a_failure(is_failing: bool) -> None:
    async def follow() -> None:
        if is_failing:
            raise OSError("the database is gone")
        await asyncio.Event().wait()

    app: Any = Shown()
    stop, ended, other = asyncio.Event(), asyncio.create_task(asyncio.sleep(0)), asyncio.create_task(follow())
    screen = asyncio.create_task(until_left(app, [ended, other], stop))
    await ended
    for _ in range(5):  # turns of the loop in which it would go
        await asyncio.sleep(0)
    assert stop.is_set() is is_failing
    stop.set()
    await screen
    other.cancel()
