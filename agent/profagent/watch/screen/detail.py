"""Screens over the panes: a single layer, and the help."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from rich.segment import Segment
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen, Screen

from profagent.formats.countermap import COUNTERS, RATIOS, bound_mark
from profagent.formats.inference_times import NOT_IN_ANY_LAYER
from profagent.tables.table import UNKNOWN, counted, shortened
from profagent.watch.screen import paint
from profagent.watch.screen.paint import BAR, FAINT, GOOD, INK, STRONG, TITLE, WARN, Lines, joined, word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult
    from textual.binding import BindingType

    from profagent.watch.layers import LayerDetail
    from profagent.watch.screen.app import WatchApp
    from profagent.watch.screen.paint import Line

# Meanings of the words of `bound by`; docs/reference/figures.md has the rules.
MEANINGS = {
    "cube": "the cube unit works well: only fewer operations make it faster",
    "vector": "the vector unit works well: only fewer operations make it faster",
    "mac": "cube instructions take most of the time, and not all of that is effective",
    "vec": "vector instructions take most of the time",
    "Dstr": "storing results in DDR takes most of the time",
    "DLD": "loading feature maps takes most of the time",
    "WLD": "loading weights takes most of the time",
    "Dtrans": "transforming data takes most of the time",
    "scalar": "the scalar unit takes most of the time: addresses, branches and loops",
    "unexplained": "no counter is above a half of the time",
}

# Keys with a short and a long description.
KEYS: tuple[tuple[str, str, str], ...] = (
    ("space", "pause", "Freeze the figures, or go on. A replay stands still."),
    ("s", "sort", "Sort layers by median, last, change, name or in the network's order."),
    ("/", "filter", "Show layers whose name or type has a text, as you type. Esc shows all."),
    ("enter", "layer", "Open the chosen layer: distribution, counters, time. Esc goes back."),
    ("n", "model", "The next model."),
    ("b", "board", "The next board."),
    ("m", "mark", "Mark this moment with a text. A session that is being saved keeps it."),
    ("w", "save", "Save from now on as a session of the workspace; once more ends it."),
    ("c", "shot", "Write the screen into an SVG file in this folder."),
    ("v", "view", "On a narrow screen, the next pane: calls, metrics, ranges, events."),
    ("?", "help", "These keys."),
    ("q", "quit", "Leave."),
)


class LayerScreen(Screen[None]):
    """Screen of one layer: its distribution over the last inferences, its counters, and its time over time."""

    app: WatchApp

    CSS = """
    LayerScreen { layout: vertical; }
    #about { height: 4; padding: 0 1; background: #24283b; }
    #middle { height: 1fr; }
    LayerScreen Lines { border-title-color: $accent; }
    #histogram { width: 1fr; border: round $primary-darken-1; padding: 0 1; }
    #counters { width: 1fr; border: round $primary-darken-1; padding: 0 1; }
    #history { height: 1fr; border: round $primary-darken-1; padding: 0 1; }
    #back { height: 1; padding: 0 1; background: #24283b; }
    """

    def compose(self) -> ComposeResult:
        """Yield the figures, the distribution beside the counters, the history and the keys."""
        yield Lines(id="about")
        with Vertical():
            with Horizontal(id="middle"):
                yield Lines("Distribution", id="histogram")
                yield Lines("Counters", id="counters")
            yield Lines("Time over time", id="history")
        yield Lines(id="back")

    def on_resize(self) -> None:
        """Redraw after a change of size, once the panes have their new sizes."""
        self.call_after_refresh(self.app.redraw)

    def redraw(self) -> None:
        """Draw the details of the chosen layer."""
        detail = self.app.detail
        if detail is None:
            self.query_one("#about", Lines).show([[word("this layer is not there any more", WARN)]])
            return
        likely = self.app.model.likely
        about, histogram, counters, history = (
            self.query_one(f"#{name}", Lines) for name in ("about", "histogram", "counters", "history")
        )
        is_simulated = self.app.model.header().is_simulated
        about.show(about_lines(detail, self.app.model_name, likely, self.size.width - 2, is_simulated=is_simulated))
        histogram.show(
            paint.histogram(detail.times_us, histogram.size.width, histogram.size.height),
            f"Distribution over the last {counted(len(detail.times_us), 'inference')} (◂ median)",
        )
        counters.show(counter_lines(detail, counters.size.width, likely))
        history.show(paint.chart(detail.times_us, history.size.width, history.size.height))
        self.query_one("#back", Lines).show(
            [joined([_key("esc", "back"), _key("↑↓", "other layer"), _key("q", "quit")])]
        )


def _key(key: str, about: str) -> Segment:
    return word(f"{key} {about}", TITLE)


def about_lines(
    detail: LayerDetail, model: str, likely: Sequence[str], width: int, *, is_simulated: bool
) -> list[Line]:
    """Return the layer's name, its processor and model, its times, and the resource that bounds it."""
    times = detail.times_us
    unit = "CPU" if detail.is_cpu else "NPU"
    mark = word(" [simulated]" if is_simulated else "", WARN)
    about = f"{detail.type or UNKNOWN}, on the {unit}, of {model}"
    if detail.name == NOT_IN_ANY_LAYER:
        about = f"the latency of {model} less its recorded layers"
    what = word(about, FAINT)
    names = [[word(shortened(detail.name or UNKNOWN, width), STRONG)], [what, mark]]
    if not len(times):
        return [*names, [word("no inference had it lately", FAINT)]]
    median, p95 = np.quantile(times, (0.5, 0.95)).tolist()
    before = detail.baseline_us
    second = joined(
        [
            word(f"median {paint.ms(median)} ms", STRONG),
            word(f"p95 {paint.ms(p95)}", INK),
            word(f"least {paint.ms(float(times.min()))}", INK),
            word(f"most {paint.ms(float(times.max()))}", INK),
            word(f"{detail.share:.1%} of the inference", INK),
            word(f"{median / before - 1:+.1%} against the baseline", WARN) if before else None,
        ]
    )
    if detail.bound is None:
        return [*names, second, [word(f"bound by {UNKNOWN}: no counter map tells", FAINT)]]
    meaning = MEANINGS.get(detail.bound, "")
    return [*names, second, [word(f"bound by {detail.bound}{bound_mark(likely)}", WARN), word(f": {meaning}", INK)]]


def counter_lines(detail: LayerDetail, width: int, likely: Sequence[str]) -> list[Line]:
    """Return a line for each known counter, ratios as bars."""
    if not detail.counters:
        return [[word("no counter is known", FAINT)]]
    room, lines = max(4, width - 34), []
    for name, value in detail.counters.items():
        label = word(COUNTERS[name] + ("?" if name in likely else ""), INK, 23)
        if name in RATIOS:
            lines.append(
                [label, word(f"{value:.1%}", STRONG, 8, right=True), Segment(" "), Segment(paint.bar(value, room), BAR)]
            )
        else:
            lines.append([label, word(paint.amount(value, "B"), STRONG, 12, right=True)])
    return lines


class HelpScreen(ModalScreen[None]):
    """Window with all keys and the meanings of the signs."""

    app: WatchApp

    # A modal screen does not receive the app's own keys, so that it has to name these again.
    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,question_mark,enter,space", "app.all", ""),
        ("q,ctrl+c", "app.quit", ""),
    ]
    CSS = """
    HelpScreen { align: center middle; }
    #help { width: 86; max-width: 100%; height: 22; max-height: 100%; border: round $primary; padding: 0 1;
            background: #24283b; }
    """

    def compose(self) -> ComposeResult:
        """Yield the only pane."""
        yield Lines("Keys (Esc: back)", id="help")

    def on_resize(self) -> None:
        """Draw the help once the pane has its size."""
        self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        lines: list[Line] = [[word(key, TITLE, 7), word(text, INK)] for key, _, text in KEYS]
        lines.append(
            [
                word("↑ ↓", TITLE, 7),
                word("Choose a layer, as k and j; PgUp and PgDn go further, Home and End (G) all the way.", INK),
            ]
        )
        lines.append([])
        lines.append([word("▲", paint.BAD, 7), word("slower than the baseline by more than 5 %", INK)])
        lines.append([word("▼", GOOD, 7), word("faster by more than 5 %", INK)])
        lines.append([word("?", WARN, 7), word("rests on a counter that the counter map is not certain of", INK)])
        lines.append([word("lag", INK, 7), word("age of the newest record, by the board's clock", INK)])
        lines.append([word("gap", INK, 7), word("from an inference's end to the next one's begin", INK)])
        self.query_one("#help", Lines).show(lines)
