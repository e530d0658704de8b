"""Page of `fleet report`: the answers of a lake in the form of `report`, without scripts."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from profagent.fleet.comparing import FleetChange, headline
from profagent.fleet.levels import percents
from profagent.limits import SHOWN_FLEET_BOARDS, SHOWN_FLEET_LAYERS
from profagent.report.html_page import plain_page
from profagent.stats.levels import level_changes
from profagent.stats.trend import FLOOR
from profagent.tables.provenance import SIMULATED
from profagent.tables.table import UNKNOWN, counted, printable, sparkline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from profagent.fleet.comparing import FleetDiff
    from profagent.lake.engines import Answer

WIDTH, HEIGHT = 1000, 120
FRACTION = 3


def fleet_page(nights: Answer, changes: FleetDiff, boards: Answer, losses: Answer, *, is_simulated: bool) -> str:
    """Return the HTML page of `nights` of layers and latencies, and of the answers to `boards` and `losses`."""
    found = [dict(zip(nights.names, row, strict=True)) for row in nights.rows]
    days = sorted({row["date"] for row in found})
    facts = (
        f"{counted(len(losses.rows), 'board')}, {counted(len(days), 'night')}: {days[0]} to {days[-1]}" if days else ""
    )
    mark = f'<p class="badge simulated">{SIMULATED}</p>' if is_simulated else ""
    courses = _courses(found)
    sections = {
        "Verdict": f'{mark}<p class="sentence">{_text(headline(changes))}</p>',
        "Slower and faster": _table(FleetChange._fields, changes.changes or ()),
        "Latency, night by night": "".join(
            _chart(key, days, nights) for key, nights in courses.items() if key[1] is None
        ),
        "Layers by time": _table(*_layers(courses, days)),
        "Boards beside the rest": _table(boards.names, boards.rows[:SHOWN_FLEET_BOARDS]),
        "What captures lack": _table(losses.names, losses.rows[:SHOWN_FLEET_BOARDS]),
    }
    body = "".join(
        f'<section>\n<h2>{title}</h2>\n<div class="card scroll">{part}</div>\n</section>\n'
        for title, part in sections.items()
    )
    return plain_page("profagent fleet", "profagent fleet", "Fleet", facts, body)


_Courses = dict[tuple[str, str | None, str], dict[str, dict[str, Any]]]


def _courses(rows: Sequence[Mapping[str, Any]]) -> _Courses:
    found: _Courses = {}
    for row in rows:
        found.setdefault((row["model"], row["layer"], row["measure"]), {})[row["date"]] = dict(row)
    return found


def _layers(courses: _Courses, days: Sequence[str]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    rows = []
    for (model, layer, measure), nights in courses.items():
        if layer is not None:
            newest = nights[max(nights)]
            course = sparkline([nights[day]["p95"] if day in nights else None for day in days])
            total = sum(row["total"] or 0.0 for row in nights.values())
            rows.append((model, layer, measure, total, newest["median"], newest["p95"], course))
    names = ("model", "layer", "measure", "total", "median (newest)", "p95 (newest)", "p95, night by night")
    return names, sorted(rows, key=lambda row: -row[3])[:SHOWN_FLEET_LAYERS]


def _chart(key: tuple[str, str | None, str], days: Sequence[str], nights: Mapping[str, Mapping[str, Any]]) -> str:
    tones = {"median": "accent", "p95": "medium"}
    # The scale does not begin at 0: a change of some percent must be visible.
    known = [row[name] for row in nights.values() for name in tones if row[name] is not None] or [0.0]
    least, span = min(known), max(known) - min(known) or 1.0
    step, lines = WIDTH / max(1, len(days) - 1), ""
    for name, tone in tones.items():
        values = [(place, nights[day][name]) for place, day in enumerate(days) if day in nights]
        points = [(place * step, HEIGHT * (1 - (time - least) / span)) for place, time in values if time is not None]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        lines += f'<polyline points="{path}" style="fill: none; stroke: var(--{tone}); stroke-width: 2"/>'
    medians = [(place, nights[day]["median"]) for place, day in enumerate(days) if day in nights]
    medians = [each for each in medians if each[1] is not None]
    changes = level_changes([median for _, median in medians], floor=FLOOR)
    places = [0, *(medians[change.index][0] for change in changes), len(days)]
    levels = [changes[0].before, *(change.after for change in changes)] if changes else []
    for start, end, level in zip(places, places[1:], levels, strict=False):
        x1, x2, y = start * step, (end - 1) * step, HEIGHT * (1 - (level - least) / span)
        lines += f'<line x1="{x1:.1f}" y1="{y:.1f}" x2="{x2:.1f}" y2="{y:.1f}" style="stroke: var(--high)"/>'
    sizes = ("{:+.1f} ± {:.1f} %".format(*(percents(each) or (float("nan"),) * 2)) for each in changes)
    since = "".join(f"; since {days[place]} {size}" for place, size in zip(places[1:], sizes, strict=False))
    about = _text(f"{key[0]}: median and p95, from {least:,.1f} to {max(known):,.1f} {key[2]}{since}")
    return f'<h3>{about}</h3><svg viewBox="0 -2 {WIDTH} {HEIGHT + 4}" role="img" aria-label="{about}">{lines}</svg>'


def _table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    if not rows:
        return '<p class="none">nothing</p>'
    heads = "".join(f"<th>{_text(name)}</th>" for name in names)
    lines = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{lines}\n</tbody>\n</table>"


def _cell(value: Any) -> str:
    if isinstance(value, float | int):
        return f'<td class="number">{value:,.{FRACTION if isinstance(value, float) else 0}f}</td>'
    text = UNKNOWN if value is None else ", ".join(value) if isinstance(value, list) else str(value)
    return f"<td>{_text(text)}</td>"


def _text(text: str) -> str:
    return escape(printable(text))
