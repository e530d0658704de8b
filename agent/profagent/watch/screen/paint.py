"""Drawing with characters: numbers, bars, charts. A line is a list of segments; figures that are not known are N/A."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from profagent.tables.table import UNKNOWN, printable, shortened, text_width
from profagent.units import US_PER_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

Line = list[Segment]

INK = Style(color="#c0caf5")
FAINT = Style(color="#7a83a8")
STRONG = Style(color="#ffffff", bold=True)
TITLE = Style(color="#7aa2f7", bold=True)
BAR = Style(color="#7dcfff")
GOOD = Style(color="#9ece6a")
WARN = Style(color="#e0af68")
BAD = Style(color="#ff7a93", bold=True)
CHOSEN = Style(bgcolor="#33467c", bold=True)

EIGHTHS = " ▏▎▍▌▋▊▉█"
LEVELS = " ▁▂▃▄▅▆▇█"
# A chart does not begin at 0 if its least value is above this share of the highest.
FLAT = 0.5
LEVEL = 0.1
ROUNDING_US = 1e-6
# An inference that takes more than so many medians is highlighted.
SLOW = 1.25


def word(text: str, style: Style = INK, width: int | None = None, *, right: bool = False) -> Segment:
    """Return a styled text, cut in the middle or padded to a width."""
    if width is None:
        return Segment(printable(text), style)
    text = shortened(printable(text), width)
    space = " " * max(0, width - text_width(text))
    return Segment(space + text if right else text + space, style)


def cut(text: str, width: int) -> str:
    """Return the text, without its end if it exceeds the width."""
    text = printable(text)
    return text if text_width(text) <= width else f"{text[: max(0, width - 1)]}…"


def layer_name(name: str | None) -> str:
    """Return a layer's name; of fused layers the first, and the number of the others."""
    first, *others = (name or UNKNOWN).split("+")
    return f"{first}+{len(others)}" if others else first


def ms(duration_us: float | None) -> str:
    """Return a duration in milliseconds, without its unit."""
    return UNKNOWN if duration_us is None else f"{duration_us / US_PER_MS:.3f}"


def duration(duration_us: float | None) -> str:
    """Return a duration with its unit, µs or ms."""
    if duration_us is None:
        return UNKNOWN
    return f"{duration_us:.1f} us" if duration_us < US_PER_MS else f"{duration_us / US_PER_MS:.3f} ms"


def amount(value: float, unit: str) -> str:
    """Return the value of a metric with its unit."""
    if unit in ("B", "B/s"):
        power = 0
        while abs(value) >= 1024 and power < 4:
            value, power = value / 1024, power + 1
        return f"{value:.1f} {('', 'Ki', 'Mi', 'Gi', 'Ti')[power]}{unit}"
    if unit == "us":
        return duration(value)
    return f"{value:,.1f} {unit}".rstrip() if abs(value) < 100_000 else f"{value:,.0f} {unit}".rstrip()


def compact(number: int) -> str:
    """Return a count, large ones in thousands, millions, and so on."""
    if number < 10_000:
        return f"{number:,}"
    value, power = number / 1000, 0
    while value >= 999.95 and power < 3:
        value, power = value / 1000, power + 1
    return f"{value:.1f}{'kMGT'[power]}"


def bar(share: float, width: int) -> str:
    """Return a bar that covers a share of the width, to an eighth of a column."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    text = "█" * (eighths // 8) + (EIGHTHS[eighths % 8] if eighths % 8 else "")
    return text.ljust(width)


def spark(values: Sequence[float], width: int) -> str:
    """Return the last values as small columns between their minimum and maximum."""
    shown = values[-width:]
    if not shown:
        return " " * width
    # Values that differ by less than LEVEL of their mean are drawn level: noise must not look like a trend.
    middle = (min(shown) + max(shown)) / 2
    span = max(max(shown) - min(shown), LEVEL * abs(middle)) or 1.0
    return "".join(LEVELS[1 + round(((value - middle) / span + 0.5) * 7)] for value in shown).rjust(width)


def chart(values: NDArray[np.float64], width: int, height: int) -> list[Line]:
    """Return a chart with a column for each of the last values, the newest on the right; slow ones are highlighted."""
    label = 8
    shown = values[-max(0, width - label - 1) :]
    if not len(shown) or height < 1 or width <= label + 1:
        return [[word("nothing yet", FAINT)]]
    most = float(shown.max())
    least = float(shown.min())
    floor = 0.0 if least < FLAT * most else least - max((most - least) / 4, most * LEVEL / 2)
    levels = np.rint((shown - floor) / ((most - floor) or 1.0) * height * 8).astype(int)
    slow = shown > SLOW * float(np.median(shown))
    lines = []
    for row in range(height - 1, -1, -1):
        text = f"{ms(most)}" if row == height - 1 else f"{ms(floor)}" if row == 0 else ""
        pad = " " * (width - label - 1 - len(shown))
        lines.append(
            [word(text, FAINT, label, right=True), Segment("┤", FAINT), Segment(pad), *_row(levels, slow, row)]
        )
    return lines


def _row(levels: NDArray[np.int64], slow: NDArray[np.bool_], row: int) -> Iterable[Segment]:
    cells = [LEVELS[level] for level in np.clip(levels - row * 8, 0, 8).tolist()]
    begin = 0
    for end in [*(np.flatnonzero(np.diff(slow)) + 1).tolist(), len(cells)]:
        yield Segment("".join(cells[begin:end]), WARN if slow[begin] else BAR)
        begin = end


def histogram(values: NDArray[np.float64], width: int, bins: int) -> list[Line]:
    """Return a line for each bin of times; the median's bin has a mark."""
    if not len(values):
        return [[word("nothing yet", FAINT)]]
    counts, edges = np.histogram(values, bins=bin_edges(values, bins))
    most, room = int(counts.max()), max(1, width - 31)
    # As numpy does, a value at an edge belongs to the bin after it, and at the last edge to the last bin.
    median_place = min(int(np.searchsorted(edges, float(np.median(values)), "right")) - 1, len(counts) - 1)
    lines = []
    for place, count in enumerate(counts.tolist()):
        has_median = place == median_place
        lines.append(
            [
                word(f"{ms(edges[place])} – {ms(edges[place + 1])} ms", INK, 22, right=True),
                Segment(" ▕", FAINT),
                Segment(bar(count / most, room), GOOD if has_median else BAR),
                word(f"{count:,}" if count else "", FAINT, 5, right=True),
                word(" ◂" if has_median else "", GOOD),
            ]
        )
    return lines


def bin_edges(values: NDArray[np.float64], bins: int) -> NDArray[np.float64]:
    """Return the edges of at most `bins` bins of equal width, in whole µs.

    There is at least one value. No bin is narrower than the smallest step between two values, so that a clock's tick
    makes no gaps.
    """
    distinct = np.unique(values)
    steps = np.diff(distinct)
    # Smaller steps are rounding errors.
    steps = steps[steps > ROUNDING_US]
    tick = math.ceil(steps.min()) if len(steps) else 1
    least, end = math.floor(distinct[0]), math.floor(distinct[-1]) + 1
    wanted = math.ceil((end - least) / max(1, min(bins, len(values))))
    width = max(tick, wanted)
    # Rounding may give `arange` an edge more than the bins need: it is cut off.
    return np.arange(least, end + width, width, dtype=np.float64)[: math.ceil((end - least) / width) + 1]


def joined(parts: Iterable[Segment | None]) -> Line:
    """Return the segments with gaps between them, without those that are None."""
    line: Line = []
    for part in parts:
        if part is not None:
            line += [Segment("  "), part] if line else [part]
    return line


class Lines(Widget):
    """Pane of lines that other functions draw; it repaints only lines that have changed."""

    can_focus = False

    def __init__(self, title: str = "", **options: str) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        # Lines on the screen, their rendered strips, and the width that these have.
        self._lines: list[Line] = []
        self._strips: list[Strip] = []
        self._width = 0
        if title:
            self.border_title = title

    def show(self, lines: Sequence[Line], title: str | None = None) -> None:
        """Show these lines from the top, and a title if one is given."""
        size, style = self.size, self.rich_style
        if title is not None and title != self.border_title:
            self.border_title = title
        if self._width != size.width:
            self._lines, self._strips, self._width = [], [], size.width
        wanted = [*lines[: size.height], *([[]] * (len(self._lines) - min(len(lines), size.height)))]
        for y, line in enumerate(wanted):
            if y == len(self._lines):
                self._lines.append([])
                self._strips.append(Strip.blank(size.width, style))
            if line != self._lines[y]:
                self._lines[y] = line
                self._strips[y] = Strip(line).crop(0, size.width).adjust_cell_length(size.width).apply_style(style)
                self.refresh(Region(0, y, size.width, 1))

    def render_line(self, y: int) -> Strip:
        """Return one line as textual's strip."""
        return self._strips[y] if y < len(self._strips) else Strip.blank(self.size.width, self.rich_style)
