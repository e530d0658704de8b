"""Lines of text for the events of a watch, one line for each. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from profagent.formats.countermap import bound_mark
from profagent.formats.figure_states import FigureState
from profagent.formats.inference_times import LatencyFrom
from profagent.formats.names import LogKind, model_text
from profagent.ingest.source import headlines
from profagent.limits import LONGEST_NAME_IN_LINE, SHOWN_SPANS
from profagent.tables.provenance import recorded_loss_line, sampling_line, share_text
from profagent.tables.table import UNKNOWN, counted, printable, time_text
from profagent.units import US_PER_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from profagent.store.events import Event

# Mark before a latency that runs from the first begin to the last end: the call itself took longer.
AT_LEAST = "≥"
ON_CPU = " (cpu)"
# Mark after a figure that rests on a counter of which the counter map is not certain.
DOUBT = "?"


def line_of(event: Event) -> str:
    """Return one line for an event, without a line end."""
    mark = " [simulated]" if event["simulated"] else ""
    if (line := _LINES.get(event["event"])) is not None:
        return line(event) + mark
    match event["event"]:
        case "ledger":
            where = event["log"] or event["job"] or "board"
            return f"{event['grade']}: {where}: {event['reason']}: {event['detail']} (count {event['count']}){mark}"
        case "job":
            return f"{event['job']} is {event['state']}{mark}"
    records = ", ".join(f"{count} {kind}" for kind, count in event["records"].items())
    ledger = ", ".join(f"{count} {grade}" for grade, count in event["ledger"].items())
    sampling, left_out = sampling_line(event["sampling"]), event["left_out_records"]
    gaps = f"; the runtime left out {counted(left_out, 'record')} of layers (sequence-gap)" if left_out else ""
    return f"{counted(event['inferences'], 'inference')}, {sampling}; records: {records}; ledger: {ledger}{gaps}{mark}"


def _inference(event: Event) -> str:
    slowest = "  ".join(
        f"{_short(layer['layer_name'])}{ON_CPU if layer['unit'] == LogKind.AICPU else ''} {_ms(layer['duration_us'])}"
        f" {_percent(layer['share'])}{_bound(layer, event)}"
        for layer in event["slowest"]
    )
    who = f"{model_text(event['model'], event['model_id'])} inference {event['current_pic_count']}"
    ledger = "".join(f"  {entry['grade']}: {entry['reason']} ({entry['count']})" for entry in event["ledger"])
    if event["figures"] != FigureState.FINAL:
        slowest = f"figures are {event['figures']}: {event['why']}"
    is_less = event["due"] is not None and event["sampled"] < event["due"]
    share = f"  captured {share_text(event['sampled'], event['due'])}" if is_less else ""
    at_least = AT_LEAST if event["latency_from"] == LatencyFrom.RECORDS else ""
    latency, recorded = at_least + _ms(event["latency_us"]), _recorded(event)
    parts = (_clock(event["start_us"]), who, latency, recorded, slowest)
    return "  ".join(part for part in parts if part) + share + ledger


def _recorded(event: Event) -> str:
    if event["of_layers"] is None or event["recorded"] is None:
        return counted(event["records"], "record")
    return f"{event['recorded']:,} of {event['of_layers']:,} layers"


def _board(event: Event) -> str:
    parts = [headline.text(event[name], UNKNOWN) for name, headline in headlines().items()]
    for ops in event["ops"]:
        rate = UNKNOWN if ops["per_s"] is None else f"{ops['per_s']:,.0f}"
        parts.append(f"{printable(ops['source'])} {rate} ops/s")
    parts += [f"{_short(printable(span['name']))} {_ms(span['mean_us'])}" for span in event["spans"][:SHOWN_SPANS]]
    if count := event["mark_count"]:
        parts.append(counted(count, "mark"))
    return "  ".join([_clock(event["time_us"]), "board", *parts])


def _call(event: Event) -> str:
    return f"{_clock(event['begin_us'])}  {event['name']}  {_us(event['duration_us'])}  thread {event['tid']}"


def _record(event: Event) -> str:
    who = f"{model_text(event['model'], event['model_id'])} inference {event['current_pic_count']}"
    layer = f"{event['layer_name'] or UNKNOWN} ({event['layer_type'] or UNKNOWN})"
    busy = "".join(
        f"  {label} {_percent(event['counters'][name])}{DOUBT if name in event.get('likely', ()) else ''}"
        for label, name in (("mac", "mac_busy"), ("vec", "vec_busy"))
        if name in event["counters"]
    )
    bound = f"  bound by{word}" if (word := _bound(event, event)) else ""
    where = f"{event['unit']} {event['segment']}.{event['sequence']}"
    return f"{who}  {where}  {layer}  {_us(event['duration_us'])}{busy}{bound}"


def _bound(layer: Mapping[str, Any], event: Event) -> str:
    """Return a blank and the resource that bounds a layer; an empty text without a counter map.

    The doubt mark does not depend on the resource: the decision rests on all ratios.
    """
    if "bound_by" not in layer:
        return ""
    word = layer["bound_by"]
    return f" {UNKNOWN}" if word is None else f" {word}{bound_mark(event.get('likely', ()))}"


_LINES: Mapping[str, Callable[[Event], str]] = {
    "inference": _inference,
    "record": _record,
    "call": _call,
    "board": _board,
    "kept_loss": recorded_loss_line,
    "slo": lambda event: str(event["text"]),
}


def _short(layer_name: str | None) -> str:
    first, *others = (layer_name or UNKNOWN).split("+")
    name = first if len(first) <= LONGEST_NAME_IN_LINE else first[: LONGEST_NAME_IN_LINE - 1] + "…"
    return f"{name}+{len(others)}" if others else name


def _clock(time_us: int | None) -> str:
    text = time_text(time_us, "%H:%M:%S.%f")
    return "--:--:--.---" if text == UNKNOWN else text[:-3]


def _ms(duration_us: float | None) -> str:
    return UNKNOWN if duration_us is None else f"{duration_us / US_PER_MS:.3f} ms"


def _us(duration_us: float | None) -> str:
    return UNKNOWN if duration_us is None else f"{duration_us:.3f} us"


def _percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share:.1%}"
