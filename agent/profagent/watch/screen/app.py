"""Full-screen `watch`: panes, keys, and the timer that redraws them."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, Protocol

from textual.app import App
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.css.query import NoMatches
from textual.screen import Screen
from textual.widgets import Input

from profagent.watch.layers import LayerQuery, Sort
from profagent.watch.screen import panes
from profagent.watch.screen.detail import KEYS, HelpScreen, LayerScreen
from profagent.watch.screen.paint import FAINT, TITLE, Lines, word
from profagent.watch.screen.panes import ScreenState
from profagent.watch.screen.rack import RackScreen, row_of, worst_first

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from textual.app import ComposeResult
    from textual.events import Click, Resize

    from profagent.watch.against import Against
    from profagent.watch.layers import InferencesView, LayerDetail, LayersView, ModelLayers
    from profagent.watch.model import BoardModel, LinkState
    from profagent.watch.screen.paint import Line
    from profagent.watch.screen.rack import RackRow

# Interval of the timer: nobody reads faster. A key redraws at once.
REDRAW_S = 1.0
# On a narrower screen, the panes on the right take turns.
WIDE_COLUMNS = 110
# A narrow screen with fewer lines has room for the layers alone.
HIGH_LINES = 22
# More rows than a model has layers: a move by so many ends at the first or the last one.
FAR = 1_000_000
MOVES = {"up,k": -1, "down,j": 1, "pageup": -10, "pagedown": 10, "home,g": -FAR, "end,G": FAR}
SIDE_PANES = {
    "calls": "API calls",
    "metrics": "Metrics",
    "frames": "Frames",
    "ranges": "Ranges and ops",
    "events": "Events",
}
# Panes that a wide screen has only where there is something in them.
SELDOM = ("frames", "ranges")

SHORT_KEYS = tuple((key, about) for key, about, _ in KEYS)
# Keys of the prompt: all others are part of its text.
ASKING = (("enter", "keep"), ("esc", "drop"))


class Keeper(Protocol):
    """Interface to the owner of marks, sessions and pauses: watched boards or a replay."""

    async def mark(self, model: BoardModel, text: str) -> None:
        """Store a mark of this moment, if there is a session for it."""

    async def save(self, model: BoardModel) -> None:
        """Begin to save a session of the board, or end the running one."""

    def pause(self, *, is_paused: bool) -> None:
        """Freeze the figures, or release them."""


class BoardScreen(Screen[None]):
    """Screen with all panes of one board."""

    app: WatchApp

    CSS = """
    BoardScreen { layout: vertical; }
    #header { height: 2; padding: 0 1; background: #24283b; }
    #tabs { height: 1; padding: 0 1; background: #24283b; display: none; }
    #alarms { height: 1; padding: 0 1; display: none; }
    #keys { height: 1; padding: 0 1; background: #24283b; }
    #body { height: 1fr; }
    #layers { width: 1fr; border: round $primary-darken-1; border-title-color: $accent; height: 1fr; }
    #side { width: 37%; min-width: 44; }
    #side Lines { height: 1fr; border: round $primary-darken-1; border-title-color: $accent; padding: 0 1; }
    Input { height: 1; border: none; padding: 0 1; display: none; }
    Input:focus { border: none; }
    BoardScreen.-narrow #body { layout: vertical; }
    BoardScreen.-narrow #layers { width: 100%; }
    BoardScreen.-narrow #side { width: 100%; height: 10; }
    BoardScreen.-narrow #side Lines { height: 5; }
    BoardScreen.-narrow #keys { height: 2; }
    BoardScreen.-narrow.-low #side { display: none; }
    """

    def compose(self) -> ComposeResult:
        """Yield the panes, from the top."""
        yield Lines(id="tabs")
        yield Lines(id="header")
        yield Lines(id="alarms")
        with Horizontal(id="body"):
            yield Lines("Layers", id="layers")
            with Vertical(id="side"):
                yield Lines("Latency", id="inferences")
                for name, title in SIDE_PANES.items():
                    yield Lines(title, id=name)
        yield Input(id="prompt")
        yield Lines(id="keys")

    def on_resize(self, event: Resize) -> None:
        """Choose the layout for the new size, and redraw once the panes have their sizes."""
        self.set_class(event.size.width < WIDE_COLUMNS, "-narrow")
        self.set_class(event.size.height < HIGH_LINES, "-low")
        self.call_after_refresh(self.app.redraw)

    def on_click(self, event: Click) -> None:
        """Choose the layer, or the board of the tab, that was clicked."""
        if event.widget is self.pane("layers") and event.y >= 2:
            self.app.choose(event.y - 2)
        elif event.widget is self.pane("tabs"):
            board = panes.tab_at(self._tabs(), event.x - 1)
            if board is not None:
                self.app.see_board(board)

    def pane(self, name: str) -> Lines:
        """Return a pane by its name."""
        return self.query_one(f"#{name}", Lines)

    def redraw(self) -> None:
        """Draw the panes that have changed."""
        app = self.app
        model, layers = app.model, app.layers
        self.pane("tabs").display = len(app.models) > 1
        if len(app.models) > 1:
            self.pane("tabs").show([panes.tab_line(self._tabs(), app.board)])
        header, width = model.header(), self.size.width - 2
        self.pane("header").show(panes.header_lines(header, app.screen_state, width))
        panes.show_alarms(self.pane("alarms"), [*model.alarms.values()], width)
        pane, inferences = self.pane("inferences"), layers.inferences()
        lines = panes.inference_lines(inferences, pane.size.width, pane.size.height)
        pane.show(lines, panes.inference_title(inferences))
        self._draw_layers(inferences, header.likely)
        self._draw_side(model)
        self.pane("keys").show(key_lines(width, ASKING if app.asked else SHORT_KEYS))

    def _tabs(self) -> list[tuple[str, LinkState]]:
        return [(each.name, each.header().link) for each in self.app.models]

    def _draw_layers(self, inferences: InferencesView, likely: Sequence[str]) -> None:
        app, pane = self.app, self.pane("layers")
        view = app.view_layers(max(1, pane.size.height - 1))
        columns = panes.columns_for(pane.size.width, has_baseline=bool(app.baseline), has_counters=view.has_counters)
        title = panes.layers_title(view, inferences, app.sort, app.text)
        pane.show(panes.layer_lines(view, columns, app.chosen, likely), title)

    def _draw_side(self, model: BoardModel) -> None:
        is_narrow = self.has_class("-narrow")
        names = list(SIDE_PANES)
        for name in names:
            pane = self.pane(name)
            has_any = name not in SELDOM or bool(model.frames().number if name == "frames" else model.series("ranges"))
            is_shown = name == names[self.app.side] if is_narrow else has_any
            if pane.display != is_shown:
                pane.display = is_shown
                self.call_after_refresh(self.app.redraw)  # the other panes change their sizes
            elif is_shown:
                title = f"{SIDE_PANES[name]} (v: next)" if is_narrow else SIDE_PANES[name]
                pane.show(side_lines(model, name, pane.size.width, pane.size.height), title)


def side_lines(model: BoardModel, name: str, width: int, height: int) -> list[Line]:
    """Return the contents of a pane on the right."""
    match name:
        case "calls":
            return panes.call_lines(model.calls(), width)
        case "frames":
            return panes.frame_lines(model.frames(), width, height)
        case "events":
            return panes.event_lines(model.events(height), width)
    return panes.series_lines(model.series(name), width, height)


def key_lines(width: int, keys: Sequence[tuple[str, str]]) -> list[Line]:
    """Return the keys and their meanings, in as many lines as they need."""
    lines: list[Line] = [[]]
    gap = "  " if width >= WIDE_COLUMNS - 2 else " "
    for key, about in keys:
        parts = [word(key, TITLE), word(f" {about}{gap}", FAINT)]
        if sum(part.cell_length for part in [*lines[-1], *parts]) > width:
            lines.append([])
        lines[-1] += parts
    return lines


class WatchApp(App[None]):
    """Screen over the models of some boards. It redraws each second what has changed, and nothing while paused.

    Several boards have an overview with a row each, and a screen of its own for each. `budgets` are latencies in µs by
    model.
    """

    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = None  # keys belong to the screen unless the prompt is open
    TITLE = "profagent watch"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pause"),
        Binding("s", "sort"),
        Binding("slash", "ask('filter')"),
        Binding("enter", "open"),
        Binding("n", "next_model"),
        Binding("b", "next_board"),
        Binding("m", "ask('mark')"),
        Binding("w", "save"),
        Binding("c", "shot"),
        Binding("v", "next_side"),
        Binding("question_mark", "help"),
        Binding("q,ctrl+c", "quit", priority=False),
        Binding("escape", "all"),
        *(Binding(keys, f"move({rows})") for keys, rows in MOVES.items()),
    ]

    def __init__(
        self,
        models: Sequence[BoardModel],
        keeper: Keeper,
        *,
        against: Against,
        budgets: Mapping[str, float] | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._budgets = budgets or {}
        self.models, self._keeper = list(models), keeper
        # Numbers of the visible board and of the visible side pane.
        self.board, self.side = 0, 0
        # Order and filter of the layers, and the place of the chosen one; -1 if none is chosen.
        self.sort, self.text, self.chosen = Sort.MEDIAN, "", -1
        self._against = against
        # Chosen network model of each board.
        self._model_names: dict[int, str] = {}
        # First visible layer, by its row.
        self._first = 0
        self._is_paused = False
        # Purpose of the open prompt, `filter` or `mark`; empty if it is closed.
        self.asked = ""
        self._now_s = now_s
        # State at the last tick that redrew.
        self._drawn: tuple[object, ...] = ()

    def on_mount(self) -> None:
        """Show the first screen and start the timer."""
        self.theme = "tokyo-night"
        self.push_screen(BoardScreen() if len(self.models) == 1 else RackScreen())
        self._ticking = self.set_interval(REDRAW_S, self.tick)

    def tick(self) -> None:
        """Redraw if anything has changed, or if a second has passed, which changes the age of the newest record."""
        state = (sum(each.version for each in self.models), int(self._now_s()), len(self.screen_stack))
        if state != self._drawn:
            self._drawn = state
            self.redraw()

    def redraw(self) -> None:
        """Redraw the visible screen."""
        if isinstance(self.screen, BoardScreen | LayerScreen | RackScreen):
            with suppress(NoMatches):  # the screen is being composed or removed
                self.screen.redraw()

    @property
    def model(self) -> BoardModel:
        """Model of the visible board."""
        return self.models[self.board]

    @property
    def model_name(self) -> str:
        """Name of the visible network model: the chosen one, or else the first."""
        names = self.model.models()
        chosen = self._model_names.get(self.board, "")
        return chosen if chosen in names else names[0] if names else ""

    @property
    def layers(self) -> ModelLayers:
        """Layers of the visible network model."""
        return self.model.layers(self.model_name)

    @property
    def baseline(self) -> Mapping[str, float]:
        """Medians in µs by layer that the visible layers are compared with."""
        return self._against.medians.get(self.model_name.rpartition(".")[0], {})

    @property
    def screen_state(self) -> ScreenState:
        """State of the screen, for the header."""
        names = self.model.models()
        place = names.index(self.model_name) + 1 if names else 0
        return ScreenState(self._is_paused, self.model_name, place, len(names), self._against.name)

    @property
    def detail(self) -> LayerDetail | None:
        """Details of the chosen layer; None if there is no such layer."""
        return self.layers.detail(self.chosen, self.baseline)

    @property
    def rows(self) -> list[RackRow]:
        """Rows of the boards, the worst first."""
        return worst_first(row_of(number, model, self._budgets) for number, model in enumerate(self.models))

    @property
    def is_paused(self) -> bool:
        """True while the figures are frozen."""
        return self._is_paused

    def view_layers(self, number: int) -> LayersView:
        """Return a view of `number` lines that contains the chosen layer; without a choice, choose the first layer."""
        every = self.layers.places(LayerQuery(self.sort, self.text), self.baseline)
        if self.chosen not in every:
            self.chosen = every[0] if every else -1
        at = every.index(self.chosen) if every else 0
        self._first = max(0, min(self._first, at, max(0, len(every) - number)))
        self._first = max(self._first, at - number + 1)
        return self.layers.view(LayerQuery(self.sort, self.text, self._first, number), self.baseline)

    def choose(self, row: int) -> None:
        """Choose the layer in a visible row, counted from 0."""
        every = self.layers.places(LayerQuery(self.sort, self.text), self.baseline)
        if 0 <= self._first + row < len(every):
            self.chosen = every[self._first + row]
            self.redraw()

    def action_move(self, rows: int) -> None:
        """Move the choice by a number of rows, among the layers or among the boards."""
        if isinstance(self.screen, RackScreen):
            numbers = [row.number for row in self.rows]
            at = numbers.index(self.board) + rows
            self.see_board(numbers[max(0, min(len(numbers) - 1, at))])
            return
        every = self.layers.places(LayerQuery(self.sort, self.text), self.baseline)
        if every:
            at = every.index(self.chosen) if self.chosen in every else 0
            self.chosen = every[max(0, min(len(every) - 1, at + rows))]
        self.redraw()

    def action_pause(self) -> None:
        """Freeze the figures, or release them."""
        self._is_paused = not self._is_paused
        self._keeper.pause(is_paused=self._is_paused)
        self.redraw()
        if self._is_paused:
            self._ticking.pause()
        else:
            self._ticking.resume()

    def action_sort(self) -> None:
        """Sort the layers by the next order; by change only if there is a baseline."""
        sorts = [sort for sort in Sort if sort is not Sort.CHANGE or self.baseline]
        self.sort = sorts[(sorts.index(self.sort) + 1) % len(sorts)] if self.sort in sorts else Sort.MEDIAN
        self.redraw()

    def action_next_model(self) -> None:
        """Show the next model."""
        names = self.model.models()
        if names:
            self._model_names[self.board] = names[(names.index(self.model_name) + 1) % len(names)]
            self.chosen = -1
        self.redraw()

    def action_next_board(self) -> None:
        """Show the next board."""
        self.see_board((self.board + 1) % len(self.models))

    def see_board(self, number: int) -> None:
        """Show the board with this number, from 0."""
        self.board, self.chosen = number, -1
        self.redraw()

    def action_next_side(self) -> None:
        """Show the next of the side panes, which take turns on a narrow screen."""
        self.side = (self.side + 1) % len(SIDE_PANES)
        self.redraw()

    def action_open(self) -> None:
        """Open the screen of the chosen board or of the chosen layer."""
        if isinstance(self.screen, RackScreen):
            self.push_screen(BoardScreen())
        elif isinstance(self.screen, BoardScreen) and self.detail is not None:
            self.push_screen(LayerScreen())

    def action_help(self) -> None:
        """Open the help."""
        if isinstance(self.screen, BoardScreen | RackScreen):
            self.push_screen(HelpScreen())

    def action_all(self) -> None:
        """Remove the filter or end the prompt; else go back from a layer or from a board."""
        if isinstance(self.screen, RackScreen):
            return
        is_board = isinstance(self.screen, BoardScreen)
        if is_board and (self.text or self.asked or len(self.models) == 1):
            self.text = self.text if self.asked == "mark" else ""
            self.end_asking()
        else:
            self.pop_screen()
            self.redraw()

    async def action_save(self) -> None:
        """Begin or end the session of the visible board."""
        await self._keeper.save(self.model)
        self.redraw()

    def action_shot(self) -> None:
        """Write the visible screen into an SVG file."""
        path = self.save_screenshot(path=".")
        self.model.note("shot", f"the screen is in {path}")
        self.notify(f"the screen is in {path}")
        self.redraw()

    def action_ask(self, what: str) -> None:
        """Open the prompt for the text of a `filter` or of a `mark`."""
        if not isinstance(self.screen, BoardScreen):
            return
        self.asked = what
        prompt = self.screen.query_one(Input)
        prompt.placeholder = "text in a layer's name or type" if what == "filter" else "what happens just now"
        prompt.value = self.text if what == "filter" else ""
        prompt.display = True
        prompt.focus()
        self.redraw()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Apply the filter while it is being typed."""
        if self.asked == "filter":
            self.text = event.value
            self.redraw()

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        """Close the prompt, and store the mark if the text is one."""
        is_mark = self.asked == "mark"
        self.end_asking()
        if is_mark:
            await self._keeper.mark(self.model, event.value.strip() or "mark")
            self.redraw()

    def end_asking(self) -> None:
        """Close the prompt, so that keys are commands again."""
        self.asked = ""
        prompt = self.screen.query_one(Input)
        prompt.display = False
        self.screen.set_focus(None)
        self.redraw()
