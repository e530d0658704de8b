"""The reports of `ab`: lines for people, and an object for programs."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from profagent.ab.paired import CONFIDENCE, FEWEST_ROUNDS
from profagent.ab.rounds import SIDES
from profagent.tables.provenance import SIMULATED_MARK
from profagent.tables.table import UNKNOWN, Cell, Column, counted, fitted_lines, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from profagent.ab.paired import PairedChange, PairedModel
    from profagent.ab.rounds import AbOptions, AbResult
    from profagent.collect.collecting import CollectOptions
    from profagent.diff.comparing import Match

COLUMNS = (
    Column("layer"),
    Column("A is"),
    Column("A(us)", 3),
    Column("B(us)", 3),
    Column("A to B(%)", 2),
    Column("from(%)", 2),
    Column("to(%)", 2),
    Column("p", 4),
)
# Columns that a narrow terminal leaves out, in this order.
LESS = ("p", "A(us)", "B(us)", "from(%)", "to(%)")


def _verdict(found: AbResult) -> str:
    if not found.models:
        return "nothing is compared"
    if not found.can_tell:
        return f"cannot tell: there are too few rounds, {len(found.rounds)}; at least {FEWEST_ROUNDS} are needed"
    return "; ".join(map(_model_verdict, found.models))


def _model_verdict(model: PairedModel) -> str:
    change = model.inference
    name = f"{model.name} {_time_name(change)}"
    if change.p is None:
        return f"{name}: cannot tell, too few rounds have it"
    if change.is_significant:
        return f"{_word(change)}: {name} {_estimate(change)}, p {change.p:.4f}"
    return f"no difference: {name} {_estimate(change)}, within noise or floor"


def _word(change: PairedChange) -> str:
    return "A is slower" if (change.percent or 0.0) > 0 else "A is faster"


def _time_name(change: PairedChange) -> str:
    return "latency" if change.scope == "latency" else "sum of layers"


def _estimate(change: PairedChange) -> str:
    if change.percent is None or change.a is None or change.b is None:
        return UNKNOWN
    interval = "" if change.low is None or change.high is None else f" [{change.low:+.2f} … {change.high:+.2f}]"
    return f"{change.percent:+.2f} %{interval} (B {change.b:.1f} → A {change.a:.1f} us)"


def report_lines(found: AbResult, options: AbOptions, width: int = 0) -> Iterator[str]:
    """Yield what may be compared, the verdict, the sides, drift and temperature, and each model's changed layers.

    `width` is as in `fitted_lines`.
    """
    for line in (found.comparability.line(), _verdict(found), *_remarks(found, options)):
        yield printable(line)
    for model in found.models:
        yield ""
        yield from map(printable, _model_lines(model))
        if rows := list(_layer_rows(model)):
            yield ""
            yield from fitted_lines(COLUMNS, rows, width, less=LESS)


def _remarks(found: AbResult, options: AbOptions) -> Iterator[str]:
    for side, name in zip(SIDES, ("A (NEW)", "B (BASE)"), strict=True):
        is_simulated = any(getattr(pair, side).run.is_simulated for pair in found.rounds)
        mark = SIMULATED_MARK if is_simulated else ""
        yield f"{name} is {_command(getattr(options, side))}{mark}"
    rounds = counted(len(found.rounds), "round")
    of_wanted = f" of {options.rounds}" if len(found.rounds) < options.rounds else ""
    why = f" ({found.stopped})" if found.stopped else ""
    yield f"{rounds}{of_wanted}{why}; their sessions: profagent sessions --where label=ab={options.name}"
    begin, end = (UNKNOWN if each is None else f"{each:.1f} C" for each in found.temperature)
    yield f"temperature {UNKNOWN if begin == end == UNKNOWN else f'{begin} → {end}'}"
    yield from map(str, found.comparability.differences)


def _command(options: CollectOptions) -> str:
    return shlex.join([options.main, *options.arguments])


def _model_lines(model: PairedModel) -> Iterator[str]:
    origin = f", by {model.latency_from}" if model.latency_from else ""
    yield f"{model.name}: {_time_name(model.inference)} {_estimate(model.inference)}{origin}"
    if model.latency is not None:
        yield f"sum of layers {_estimate(model.layers)}"
    drift = UNKNOWN if model.drift is None else f"{model.drift:+.2f} % from the first round to the last"
    yield f"drift of both sides: {drift}"


def _layer_rows(model: PairedModel) -> Iterator[tuple[Cell, ...]]:
    """Yield rows of COLUMNS: layers that are slower, faster or not matched, in their order."""
    for at, match in enumerate(model.matches):
        change = model.changes.get(at)
        if change is None:
            yield (_names(model, match), match.kind, *[None] * 6)
        elif change.is_significant or change.times or match.kind != "same":
            figures = (change.a, change.b, change.percent, change.low, change.high, change.p)
            yield (_names(model, match), _what(match, change), *figures)


def _names(model: PairedModel, match: Match) -> str:
    sides = ((model.b_layers, match.base), (model.a_layers, match.new))
    base, new = (" | ".join(layers[place].name for place in places) for layers, places in sides)
    return new if base in (new, "") else f"{base} → {new}" if new else base


def _what(match: Match, change: PairedChange) -> str:
    words: list[str] = [] if match.kind == "same" else [match.kind]
    if change.times:
        words.append(f"{change.times[0]:g} → {change.times[1]:g} times an inference")
    if change.is_significant:
        words.append(_word(change).removeprefix("A is "))
    return ", ".join(words)


def ab_document(found: AbResult, options: AbOptions) -> dict[str, Any]:
    """Return the object that `--json` prints; times are in µs, None if not known."""
    return {
        "comparability": found.comparability.document(),
        "verdict": _verdict(found),
        "can_tell": found.can_tell,
        "slower": found.is_slower,
        "complete": not found.incomplete,
        "incomplete": found.incomplete,
        "label": options.name,
        "rounds": len(found.rounds),
        "wanted": options.rounds,
        "stopped": found.stopped or None,
        "confidence": CONFIDENCE,
        "temperature": found.temperature._asdict(),
        **{side: _side(found, side, getattr(options, side)) for side in SIDES},
        "models": [_model(model) for model in found.models],
    }


def _side(found: AbResult, side: str, options: CollectOptions) -> dict[str, Any]:
    runs = [getattr(pair, side) for pair in found.rounds]
    return {
        "program": options.main,
        "arguments": [*options.arguments],
        "sessions": [run.session for run in runs],
        "simulated": any(run.run.is_simulated for run in runs),
    }


def _model(model: PairedModel) -> dict[str, Any]:
    return {
        "model": model.name,
        "latency": None if model.latency is None else _change(model.latency),
        "latency_from": model.latency_from,
        "sum_of_layers": _change(model.layers),
        "layers": [
            {
                "what": match.kind,
                "a": [model.a_layers[place]._asdict() for place in match.new],
                "b": [model.b_layers[place]._asdict() for place in match.base],
                "change": _change(model.changes[at]) if at in model.changes else None,
            }
            for at, match in enumerate(model.matches)
        ],
        "drift_percent": model.drift,
    }


def _change(change: PairedChange) -> Mapping[str, Any]:
    fields = change._asdict()
    fields["significant"] = fields.pop("is_significant")
    fields["times"] = change.times and {"base": change.times[0], "new": change.times[1]}
    return fields
