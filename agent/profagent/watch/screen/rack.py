"""Overview of several boards: a row for each, the worst on top."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from rich.segment import Segment
from textual.screen import Screen

from profagent.tables.table import UNKNOWN, counted
from profagent.watch.model import LinkState
from profagent.watch.screen import paint
from profagent.watch.screen.paint import BAD, CHOSEN, FAINT, GOOD, INK, STRONG, TITLE, WARN, Lines, joined, word
from profagent.watch.screen.panes import show_alarms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from textual.app import ComposeResult

    from profagent.watch.model import BoardModel
    from profagent.watch.screen.app import WatchApp
    from profagent.watch.screen.paint import Line

# A board that is followed for a smaller share of the time is highlighted.
WELL_COVERED = 0.99
NAME_COLUMNS = 14
FIGURES = {"p50 ms": 10, "p99 ms": 10, "budget": 8, "losses": 8, "covered": 9, "lag": 9}
# Narrower than this, a row has no room for the figures that matter least.
WIDE_COLUMNS = 100
LEFT_OUT = ("p50 ms", "lag")
LINKS = {LinkState.LINKED: GOOD, LinkState.AWAY: BAD, LinkState.ENDED: FAINT}


class RackRow(NamedTuple):
    """Row of one board: its number, its link, and the model whose p99 is worst against its budget.

    None means not known. `used` is p99 as a share of the budget, `covered` the share of the time in which the board was
    followed.
    """

    number: int
    name: str
    link: LinkState
    link_text: str
    model: str
    median_us: float | None
    p99_us: float | None
    used: float | None
    losses: int
    covered: float | None
    age_s: float | None

    @property
    def badness(self) -> tuple[float, ...]:
        """Sort key: boards that are not linked, over budget, with losses or gaps; then by share of the budget."""
        used, covered = self.used or 0.0, 1.0 if self.covered is None else self.covered
        return (
            self.link is not LinkState.LINKED,
            used > 1,
            self.losses > 0,
            covered < WELL_COVERED,
            used,
            self.p99_us or 0.0,
        )


def row_of(number: int, model: BoardModel, budgets: Mapping[str, float]) -> RackRow:
    """Return a board's row; `budgets` are in µs by model, and "" is the budget of every other model."""
    header, worst = model.header(), (0.0, 0.0)
    which, median_us, p99_us, used = "", None, None, None
    for name in model.models():
        latencies = model.layers(name).inferences().latencies_us
        if not len(latencies):
            continue
        median, p99 = np.quantile(latencies, (0.5, 0.99)).tolist()
        budget_us = budgets.get(name, budgets.get(name.rpartition(".")[0], budgets.get("")))
        share = None if budget_us is None else p99 / budget_us
        if not which or (share or 0.0, p99) > worst:
            worst = share or 0.0, p99
            which, median_us, p99_us, used = name, median, p99, share
    return RackRow(
        *(number, header.who, header.link, header.link_text, which, median_us, p99_us, used),
        *(header.losses, model.covered(), header.age_s),
    )


def worst_first(rows: Iterable[RackRow]) -> list[RackRow]:
    """Return the rows sorted by badness; equally bad ones keep the order of their boards."""
    return sorted(rows, key=lambda row: tuple(-each for each in row.badness))


def rack_lines(rows: Sequence[RackRow], chosen: int, width: int, height: int) -> list[Line]:
    """Return a heading and a row for each board; if they exceed the height, the rows around the chosen board."""
    at = next((place for place, row in enumerate(rows) if row.number == chosen), 0)
    first = max(0, at - max(1, height - 1) + 1)
    shown = [_row_line(row, width) for row in rows[first : first + max(1, height - 1)]]
    if 0 <= at - first < len(shown):
        shown[at - first] = [Segment(each.text, (each.style or INK) + CHOSEN) for each in shown[at - first]]
    name, state, shown_figures = _columns(width)
    titles = (word(title, FAINT, FIGURES[title], right=True) for title in shown_figures)
    return [[word("  board", FAINT, name + 2), word("state", FAINT, state), *titles], *shown]


def _columns(width: int) -> tuple[int, int, tuple[str, ...]]:
    shown = tuple(FIGURES) if width >= WIDE_COLUMNS else tuple(each for each in FIGURES if each not in LEFT_OUT)
    left = width - 2 - sum(FIGURES[each] for each in shown)
    name = max(NAME_COLUMNS, left // 3)
    return name, max(0, left - name), shown


def _row_line(row: RackRow, width: int) -> Line:
    name, state, shown = _columns(width)
    link = f"{row.link.value}: {row.link_text}" if row.link_text else f"{row.link.value} {row.model}"
    is_over = row.used is not None and row.used > 1
    is_gappy = row.covered is not None and row.covered < WELL_COVERED
    figures = {
        "p50 ms": (paint.ms(row.median_us), INK),
        "p99 ms": (paint.ms(row.p99_us), BAD if is_over else INK),
        "budget": (UNKNOWN if row.used is None else f"{row.used:.0%}", BAD if is_over else INK),
        "losses": (paint.compact(row.losses), BAD if row.losses else GOOD),
        "covered": (UNKNOWN if row.covered is None else f"{row.covered:.1%}", WARN if is_gappy else INK),
        "lag": (UNKNOWN if row.age_s is None else f"{row.age_s:.1f} s", INK),
    }
    style = LINKS.get(row.link, WARN)
    return [
        word("○ " if row.link is LinkState.AWAY else "● ", style),
        word(row.name, STRONG, name),
        word(paint.cut(f" {link}", state), style, state),
        *(word(*figures[each], FIGURES[each], right=True) for each in shown),
    ]


def rack_title(rows: Sequence[RackRow], width: int, *, is_simulated: bool, is_paused: bool) -> Line:
    """Return the title: the number of boards, and how many are away, over budget or with losses."""
    counts = (
        ("away", sum(row.link is not LinkState.LINKED for row in rows), BAD),
        ("over budget", sum(row.used is not None and row.used > 1 for row in rows), BAD),
        ("with losses", sum(row.losses > 0 for row in rows), BAD),
    )
    line = joined(
        [
            word(counted(len(rows), "board"), STRONG),
            *(word(f"{number} {what}", style if number else GOOD) for what, number, style in counts),
            word("[simulated]", WARN) if is_simulated else None,
            word("PAUSED", BAD) if is_paused else None,
        ]
    )
    return line if sum(part.cell_length for part in line) <= width else line[:3]


class RackScreen(Screen[None]):
    """Screen with a row for each board."""

    app: WatchApp

    CSS = """
    RackScreen { layout: vertical; }
    #header { height: 1; padding: 0 1; background: #24283b; }
    #alarms { height: 1; padding: 0 1; display: none; }
    #rack { height: 1fr; padding: 0 1; }
    #keys { height: 1; padding: 0 1; background: #24283b; }
    """

    def compose(self) -> ComposeResult:
        """Yield the title, the rows and the keys."""
        yield Lines(id="header")
        yield Lines(id="alarms")
        yield Lines(id="rack")
        yield Lines(id="keys")

    def on_resize(self) -> None:
        """Redraw after a change of size, once the panes have their new sizes."""
        self.call_after_refresh(self.app.redraw)

    def redraw(self) -> None:
        """Draw the panes that have changed."""
        app, rows, width = self.app, self.app.rows, self.size.width - 2
        is_simulated = any(each.header().is_simulated for each in app.models)
        title = rack_title(rows, width, is_simulated=is_simulated, is_paused=app.is_paused)
        self.query_one("#header", Lines).show([title])
        alarms = [f"{each.name}: {line}" for each in app.models for line in each.alarms.values()]
        show_alarms(self.query_one("#alarms", Lines), alarms, width)
        pane = self.query_one("#rack", Lines)
        pane.show(rack_lines(rows, app.board, width, pane.size.height))
        keys = [word(f"{key} {about}", TITLE) for key, about in KEYS]
        self.query_one("#keys", Lines).show([joined(keys)])


# Keys of this screen and what they do.
KEYS = (
    ("↑↓", "board"),
    ("enter", "open"),
    ("space", "pause"),
    ("w", "save"),
    ("c", "shot"),
    ("?", "help"),
    ("q", "quit"),
)
