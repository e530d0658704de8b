"""Contents of the panes, drawn from the model's views as lines. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from rich.segment import Segment

from profagent.formats.countermap import bound_mark
from profagent.formats.inference_times import LatencyFrom
from profagent.ingest.source import sources
from profagent.tables.table import UNKNOWN, counted, shortened, time_text
from profagent.watch.model import LinkState
from profagent.watch.screen import paint
from profagent.watch.screen.paint import BAD, BAR, CHOSEN, FAINT, GOOD, INK, STRONG, TITLE, WARN, cut, joined, word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagent.watch.layers import InferencesView, LayerLine, LayersView, Sort
    from profagent.watch.model import CallLine, EventLine, FramesLine, Header, SeriesLine
    from profagent.watch.screen.paint import Line, Lines

# A layer whose median differs from the baseline by more than this share is highlighted.
NOTED_CHANGE = 0.05
NAME_COLUMNS = 18
# Columns by which the name grows before the bar or the type gets any.
LONGER_NAME = 8
# Least width of a model's name in the header.
MODEL_COLUMNS = 20
BAR_COLUMNS = TREND_COLUMNS = 8
# Widths of a layer's columns with the space before them, the most important column first.
WIDTHS = {
    "median": 8,
    "share": 7,
    "bound by": 13,
    "change": 10,
    "last": 8,
    "trend": TREND_COLUMNS + 2,
    "bar": BAR_COLUMNS + 1,
    "type": 14,
}
API_PREFIX = "svp_acl_"
KIND_STYLES = {"alarm": BAD, "loss": BAD, "note": WARN, "mark": TITLE, "link": GOOD, "away": BAD, "save": GOOD}


# Columns from which the header has room for notes and the baseline.
_WIDE_HEADER = 90


class ScreenState(NamedTuple):
    """State of the screen itself: paused or not, the visible model and its place among all, and the baseline's name."""

    is_paused: bool
    model: str
    place: int
    models: int
    against: str


def header_lines(header: Header, screen_state: ScreenState, width: int) -> list[Line]:
    """Return the two lines of the header: the board and its link; the model and its completeness."""
    styles = {LinkState.LINKED: GOOD, LinkState.AWAY: BAD, LinkState.ENDED: FAINT}
    link = f"{'○' if header.link is LinkState.AWAY else '●'} {header.link.value}"
    detail = f": {header.link_text}" if header.link_text else ""
    first = joined(
        [
            word(shortened(header.who, width // 2), STRONG),
            word(link + detail, styles.get(header.link, WARN)),
            word("[simulated]", WARN) if header.is_simulated else None,
            word(f"saving as session {header.session}", GOOD) if header.session is not None else None,
            word("PAUSED", BAD) if screen_state.is_paused else None,
        ]
    )
    return [first, _model_line(header, screen_state, width)]


def _model_line(header: Header, screen_state: ScreenState, width: int) -> Line:
    age = UNKNOWN if header.age_s is None else f"{header.age_s:.1f} s"
    cpu = UNKNOWN if header.daemon_cpu is None else f"{header.daemon_cpu:.1f} %"
    due = UNKNOWN if header.due is None else paint.compact(header.due)
    figures = joined(
        [
            word(f"lag {age}", INK),
            word(f"profagentd {cpu}", INK),
            word(f"losses {paint.compact(header.losses)}", BAD if header.losses else GOOD),
            word(f"captured {paint.compact(header.sampled)} of {due} due", INK),
            word(f"notes {paint.compact(header.notes)}", FAINT) if width > _WIDE_HEADER else None,
            word(f"against {screen_state.against}", FAINT) if screen_state.against and width > _WIDE_HEADER else None,
        ]
    )
    which = f" ({screen_state.place} of {screen_state.models})" if screen_state.models > 1 else ""
    # The model's name gets what the figures and two columns between them leave.
    room = max(MODEL_COLUMNS, width - 2 - sum(part.cell_length for part in figures)) - len(which)
    return (
        joined([word(shortened(screen_state.model or "no model yet", room) + which, TITLE), *figures[:1]]) + figures[1:]
    )


def show_alarms(pane: Lines, alarms: Sequence[str], width: int) -> None:
    """Show a line with the newest of the alarms that are on, and how many more there are; none without an alarm."""
    pane.display = bool(alarms)
    if alarms:
        more = f"({len(alarms) - 1} more) " if len(alarms) > 1 else ""
        pane.show([[word(cut(more + alarms[-1], width), BAD)]])


def tab_line(names: Sequence[tuple[str, LinkState]], chosen: int) -> Line:
    """Return the line of tabs: each board with its number and a sign for its link."""
    line: Line = []
    for number, (name, state) in enumerate(names):
        sign = "○" if state is LinkState.AWAY else "●"
        line += [word(f" {number + 1} {sign} {name} ", CHOSEN if number == chosen else FAINT), Segment(" ")]
    return line


def tab_at(names: Sequence[tuple[str, LinkState]], column: int) -> int | None:
    """Return the number of the board whose tab is at a column of the line; None where there is none."""
    end = 0
    for number, part in enumerate(tab_line(names, -1)):
        end += part.cell_length
        if 0 <= column < end:
            return None if number % 2 else number // 2
    return None


class Columns(NamedTuple):
    """Columns of the layers that have room, and the width of the name."""

    shown: frozenset[str]
    name: int


def columns_for(width: int, *, has_baseline: bool, has_counters: bool) -> Columns:
    """Return the columns that fit into a width, the most important first; the name takes the rest."""
    left_out = {"bound by": not has_counters, "change": not has_baseline}
    widths = {name: needed for name, needed in WIDTHS.items() if not left_out.get(name)}
    left, shown = width - NAME_COLUMNS - 2, []
    for name, needed in widths.items():
        if needed <= left - (LONGER_NAME if name in ("bar", "type") else 0):
            shown.append(name)
            left -= needed
    return Columns(frozenset(shown), NAME_COLUMNS + max(0, left))


def layer_lines(view: LayersView, columns: Columns, chosen: int, likely: Sequence[str]) -> list[Line]:
    """Return a heading and a line for each layer; `chosen` is the place of the layer that the keys act on."""
    shown = columns.shown
    heading = [word("  layer", FAINT, columns.name + 2)]
    heading += [word(" type", FAINT, WIDTHS["type"])] if "type" in shown else []
    for name, title in (("last", "last ms"), ("median", "median"), ("share", "share")):
        heading += [word(title, FAINT, WIDTHS[name], right=True)] if name in shown else []
    for name, title in (("bar", ""), ("trend", "  trend"), ("bound by", "  bound by")):
        heading += [word(title, FAINT, WIDTHS[name])] if name in shown else []
    heading += [word("change", FAINT, WIDTHS["change"], right=True)] if "change" in shown else []
    if not view.lines:
        return [heading, [word("  no layer has that text" if view.layers else "  no inference yet", FAINT)]]
    most = max(line.share for line in view.lines)
    return [heading, *(_layer(line, columns, line.place == chosen, most, likely) for line in view.lines)]


def _layer(line: LayerLine, columns: Columns, is_chosen: bool, most: float, likely: Sequence[str]) -> Line:
    shown = columns.shown
    name = paint.layer_name(line.name) + (" (cpu)" if line.is_cpu else "")
    parts = [word("▸ " if is_chosen else "  ", STRONG), word(name, STRONG if is_chosen else INK, columns.name)]
    if "type" in shown:
        parts.append(word(f" {UNKNOWN if line.type is None else line.type}", FAINT, 14))
    if "last" in shown:
        parts.append(word(paint.ms(line.last_us), INK, WIDTHS["last"], right=True))
    if "median" in shown:
        parts.append(word(paint.ms(line.median_us), INK, WIDTHS["median"], right=True))
    if "share" in shown:
        parts.append(word(f"{line.share:.1%}", INK, 7, right=True))
    if "bar" in shown:
        parts += [Segment(" "), Segment(paint.bar(line.share / (most or 1.0), BAR_COLUMNS), BAR)]
    if "trend" in shown:
        parts += [Segment("  "), Segment(paint.spark(line.trend, TREND_COLUMNS), FAINT)]
    if "bound by" in shown:
        word_of = UNKNOWN if line.bound is None else f"{line.bound}{bound_mark(likely)}"
        parts.append(word(f"  {word_of}", FAINT if line.bound is None else WARN, 13))
    if "change" in shown:
        parts.append(_change(line.change))
    return [Segment(part.text, (part.style or INK) + CHOSEN) for part in parts] if is_chosen else parts


def _change(change: float | None) -> Segment:
    if change is None:
        return word(UNKNOWN, FAINT, 10, right=True)
    sign, style = ("▲", BAD) if change > NOTED_CHANGE else ("▼", GOOD) if change < -NOTED_CHANGE else (" ", FAINT)
    return word(f"{sign} {change:+.1%}", style, 10, right=True)


def inference_lines(view: InferencesView, width: int, height: int) -> list[Line]:
    """Return the latency figures, and a chart of the last inferences if the height has room for one."""
    times = view.latencies_us
    if not view.total:
        return [[word("no inference yet", FAINT)]]
    last, median, p95, p99 = (
        (paint.ms(float(times[-1])), *(paint.ms(each) for each in np.quantile(times, (0.5, 0.95, 0.99)).tolist()))
        if len(times)
        else (UNKNOWN,) * 4
    )
    rate = UNKNOWN if view.per_s is None else f"{view.per_s:,.1f}/s"
    figures = [word(f"median {median}", STRONG), word(f"p95 {p95}", INK), word(f"p99 {p99} ms", INK)]
    others = [word(f"last {last}", FAINT), word(f"gap {paint.ms(view.gap_us)} ms", INK), word(rate, INK)]
    lines = [joined(figures), joined(others)]
    return [*lines, *paint.chart(times, width, height - len(lines))] if height > len(lines) else lines


LATENCIES = {LatencyFrom.CALL: "Latency: the call", LatencyFrom.RECORDS: "Latency: first begin to last end"}


def inference_title(view: InferencesView) -> str:
    """Return the origin of the latency and the number of inferences."""
    called = "Latency" if view.origin is None else LATENCIES[view.origin]
    return f"{called}; {view.total:,} in all"


def layers_title(view: LayersView, inferences: InferencesView, sort: Sort, text: str) -> str:
    """Return the time of the recorded layers, how many were recorded, and which of them are shown."""
    matching = f"{view.matching} of {view.layers} with “{text}”, " if text else ""
    if inferences.layers_us is None:
        return f"Layers: {matching}by {sort.value}"
    of = "" if inferences.of_layers is None else f" of {inferences.of_layers:,}"
    together = f"{paint.ms(inferences.layers_us)} ms, {inferences.recorded:,}{of} recorded"
    overlap = ", overlapping" if view.overlap else ""
    return f"Layers: {matching}{together}{overlap}; by {sort.value} over {counted(view.inferences, 'inference')}"


def call_lines(calls: Sequence[CallLine], width: int) -> list[Line]:
    """Return a heading and a line for each function and thread."""
    has_most = width >= 52
    name = max(12, width - (34 if has_most else 26))
    titles = ("calls", "median ms", "max ms") if has_most else ("calls", "median ms")
    heading = [word(f"{API_PREFIX}…", FAINT, name), word("thread", FAINT, 8, right=True)]
    heading += [word(title, FAINT, 10 if place == 1 else 8, right=True) for place, title in enumerate(titles)]
    lines = [heading]
    for call in calls:
        figures = (f"{call.number:,}", paint.ms(call.median_us), paint.ms(call.max_us))
        line = [word(call.name.removeprefix(API_PREFIX), INK, name), word(str(call.thread), FAINT, 8, right=True)]
        for place, text in enumerate(figures[: len(titles)]):
            line.append(word(text, STRONG if place == 1 else INK, 10 if place == 1 else 8, right=True))
        lines.append(line)
    return lines if calls else [heading, [word("no call yet", FAINT)]]


def frame_lines(frames: FramesLine, width: int, height: int) -> list[Line]:
    """Return the figures of the newest frames, and a chart of their latencies if the height has room for one."""
    if not frames.number:
        return [[word("no frame yet: mark stages with span(…, frame=7)", FAINT)]]
    last, median, p99 = (UNKNOWN,) * 3
    if frames.times_us:
        last = paint.ms(frames.times_us[-1])
        median, p99 = (paint.ms(each) for each in np.quantile(np.array(frames.times_us), (0.5, 0.99)).tolist())
    rate = UNKNOWN if frames.per_s is None else f"{frames.per_s:,.1f}/s"
    lost = f", {frames.lost:,} lost with marks" if frames.lost else ""
    dropped = word(f"dropped {frames.missing:,}{lost}", BAD if frames.missing else GOOD)
    lines = [
        joined([word(f"last {last}", INK), word(f"median {median}", STRONG), word(f"p99 {p99} ms", INK)]),
        joined([word(rate, INK), dropped, word(f"age {paint.ms(frames.age_us)} ms", INK)]),
    ]
    if frames.largest is not None:
        name, share = frames.largest
        lines.append([word(cut(f"largest part: {name}, {share:.0%}", width), INK)])
    room = height - len(lines)
    return [*lines, *paint.chart(np.array(frames.times_us), width, room)] if room > 0 and frames.times_us else lines


def series_lines(series: Sequence[SeriesLine], width: int, height: int) -> list[Line]:
    """Return a line for each metric or range: its newest value and its course."""
    if not series:
        return [[word("none yet", FAINT)]]
    first = [part for source in sources() for part in source.prominent]
    series = sorted(series, key=lambda line: (_rank(line.name, first), line.name))
    name, room = min(28, width // 2), width - min(28, width // 2) - 14
    lines = [
        [
            word(line.name, INK, name),
            word(paint.amount(line.values[-1], line.unit), STRONG, 13, right=True),
            Segment(" "),
            Segment(paint.spark(line.values, room), BAR),
        ]
        for line in series[:height]
    ]
    if len(series) > height > 0:
        lines[-1] = [word(f"… and {len(series) - height + 1} more", FAINT)]
    return lines


def _rank(name: str, first: Sequence[str]) -> int:
    return next((rank for rank, part in enumerate(first) if part in name), len(first))


def event_lines(events: Sequence[EventLine], width: int) -> list[Line]:
    """Return a line for each event, the newest last."""
    return [
        [
            word(time_text(event.time_us or None, "%H:%M:%S"), FAINT, 9),
            word(event.kind, KIND_STYLES.get(event.kind, FAINT), 7),
            word(cut(f"{event.number:,} × {event.text}" if event.number > 1 else event.text, width - 16), INK),
        ]
        for event in events
    ]
