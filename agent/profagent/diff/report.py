"""The reports of `diff`: lines for people, an object for programs, test cases for a build server."""

from __future__ import annotations

from heapq import nlargest
from typing import TYPE_CHECKING, Any, cast
from xml.etree import ElementTree as ET

from profagent.diff.diff import UNDECIDED_THINNED
from profagent.formats.countermap import bound_mark
from profagent.limits import MOST_LACKING, MOST_MARKDOWN_ROWS, MOST_NAMED_CHANGES
from profagent.tables.provenance import SIMULATED_MARK, doubt_line, likely_counters, sampling_line
from profagent.tables.table import (
    UNKNOWN,
    Cell,
    Column,
    counted,
    fitted_lines,
    markdown,
    markdown_lines,
    printable,
    toned,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from profagent.diff.comparing import Change, Match, ModelDiff, Moved
    from profagent.diff.diff import ComparedRun, Condition, Diff
    from profagent.diff.runs import ModelRun
    from profagent.documents import DiffDocument
    from profagent.tables.table import Tone


COLUMNS = (
    Column("layer"),
    Column("what"),
    Column("BASE(us)", 3),
    Column("NEW(us)", 3),
    Column("change(us)", 3),
    Column("change(%)", 2),
    Column("p", 4),
)
# Columns that a narrow terminal leaves out, in this order.
LESS = ("p", "change(us)", "BASE(us)", "NEW(us)")
# Columns for runs on two devices, where all layers are shown.
BOUNDS = (Column("BASE bound"), Column("NEW bound"))
OTHER_KINDS = ("moved", "retyped", "renamed", "fused", "split", "inserted", "removed")
FAILED = "FAILED"
SIDES = ("BASE", "NEW")
# The index of the column that says slower or faster.
WHAT = 1


def _verdict(found: Diff) -> str:
    failed = f"{FAILED}: " if any(outcome.failing for outcome in found.outcomes) else ""
    if not found.models:
        return f"{failed}nothing is compared"
    if not found.can_tell and found.is_thinned:
        return f"{failed}cannot tell: {UNDECIDED_THINNED}"
    if not found.can_tell:
        return f"{failed}cannot tell: there are too few different inferences to tell a change from noise"
    changes = [change for model in found.models for change in model.changes.values() if change.is_significant]
    slower = sum(change.difference > 0 for change in changes)
    parts = [f"{count} {word}" for count, word in ((slower, "slower"), (len(changes) - slower, "faster")) if count]
    kinds: list[str] = [match.kind for model in found.models for match in model.matches]
    others = [f"{kinds.count(kind)} {kind}" for kind in OTHER_KINDS if kind in kinds]
    if times := sum(change.times is not None for model in found.models for change in model.changes.values()):
        others.append(f"{times} another number of times")
    totals = [_inference_text(model) for model in found.models if model.inference.is_significant]
    layers = f"layers: {', '.join(parts)}" if parts else "no layer is slower or faster by more than the noise"
    said = [layers, *([", ".join(others)] if others else [])]
    # If all layers were replaced, only the totals show a change: they come first.
    return failed + "; ".join([*said, *totals] if parts else [*totals, *said])


def changes_text(found: Diff) -> str:
    """Return one line: the change of each model, its certainty, and the layer that changed most."""
    base = f"session {found.base.name}" if found.base.name.isdecimal() else found.base.name
    changes = "; ".join(map(_model_change, found.models))
    return f"Against {base}: {changes or found.comparability.line()}"


def _model_change(model: ModelDiff) -> str:
    change, said = model.inference, _inference_text(model)
    if change.is_thinned:
        said += f", but {UNDECIDED_THINNED}"
    elif change.p is None:
        said += ", but there are too few different inferences to tell a change from noise"
    elif change.is_significant:
        said += f", {'slower' if change.difference > 0 else 'faster'}, p {change.p:.4f}"
    else:
        said += ", within noise or floor"
    changed = max(_changed_layers(model), default=None)
    return f"{said}{'' if changed is None else f', the layer that changed most: {changed[1]}'}"


def _inference_text(model: ModelDiff) -> str:
    return f"{model.name} {_time_name(model.inference)} {_change_text(model.inference)}"


def _time_name(change: Change) -> str:
    return "latency" if change.scope == "latency" else "sum of layers"


def _changed_layers(model: ModelDiff) -> Iterator[tuple[float, str]]:
    for at, match in enumerate(model.matches):
        change = model.changes.get(at)
        if change is None:
            name, kind, base, new, *_ = _alone(model, match)
            mean = float(base or new or 0.0)
            yield mean, f"{name} {kind} ({mean:.1f} us)"
        elif change.times:
            yield abs(change.difference), f"{_names(model, match)} {_times_text(*change.times)}"
        elif change.is_significant:
            yield abs(change.difference), f"{_names(model, match)} {_change_text(change)}"


def _outcome_line(condition: Condition, failing: Sequence[Change], undecided: str) -> str:
    if undecided:
        return f"cannot tell {condition.text}: {undecided}"
    if not failing:
        return f"passed {condition.text}"
    largest = nlargest(MOST_NAMED_CHANGES, failing, key=lambda change: abs(change.difference))
    found = ", ".join(f"{change.name} {_change_text(change)}" for change in largest)
    rest = f", and {len(failing) - MOST_NAMED_CHANGES:,} smaller changes" if len(failing) > MOST_NAMED_CHANGES else ""
    return f"{FAILED} {condition.text}: {found}{rest}"


def _change_text(change: Change) -> str:
    share = UNKNOWN if change.percent is None else f"{change.percent:+.1f} %"
    base, new = (UNKNOWN if each.median is None else f"{each.median:.1f}" for each in (change.base, change.new))
    return f"{share} ({base} → {new} us)"


def _model_lines(model: ModelDiff) -> Iterator[str]:
    numbers = " and ".join(
        f"{counted(run.inferences, 'inference')} of {counted(len(run.layers), 'layer')}"
        + (f" ({run.left_out:,} left out)" if run.left_out else "")
        for run in (model.base, model.new)
    )
    name = model.name if model.base.name == model.name else f"{model.base.name} → {model.name}"
    origin = f", by {model.latency_from}" if model.latency_from else ""
    yield f"{name}: {numbers}; {_judged_text(model.inference)}{origin}"
    if model.latency is not None:
        yield _judged_text(model.layers)
    if model.inference.is_thinned:
        yield f"no change can be told: {UNDECIDED_THINNED}"
    elif model.inference.p is None:
        yield "no change can be told: a run has fewer than 5 different inferences"
    for side, run in (("BASE", model.base), ("NEW", model.new)):
        inferences, layers = run.lacking()
        if inferences:
            yield f"{side}: {_lacking_text(inferences, run, layers)}"


def _lacking_text(inferences: int, run: ModelRun, layers: Mapping[int, int]) -> str:
    shown = nlargest(MOST_LACKING, layers, key=layers.__getitem__)
    names = ", ".join(f"{run.layers[place].name} ({layers[place]:,})" for place in shown)
    rest = f", and {len(layers) - len(shown):,} more layers" if len(layers) > len(shown) else ""
    verb = "lacks" if inferences == 1 else "lack"
    return f"{inferences:,} of {counted(run.inferences, 'inference')} {verb} a layer that most have: {names}{rest}"


def _judged_text(change: Change) -> str:
    is_noise = not change.is_significant and change.p is not None
    return f"{_time_name(change)} {_change_text(change)}{', within noise or floor' if is_noise else ''}"


def _layer_rows(found: Diff, model: ModelDiff) -> list[tuple[Cell, ...]]:
    """Return rows of COLUMNS: layers that are slower, faster or not matched, in their order.

    Values that rest on uncertain counters are marked. Across devices the rows are all layers, with BOUNDS.
    """
    rows: list[tuple[Cell, ...]] = []
    likely, across_devices = _likely(found), _is_across_devices(found)
    marks = [bound_mark(likely_counters(run.provenance)) for run in (found.base, found.new)]
    for at, match in enumerate(model.matches):
        change = model.changes.get(at)
        texts = _bounds(model, match) if across_devices else ()
        bounds = tuple(bound and f"{bound}{mark}" for bound, mark in zip(texts, marks, strict=False))
        if change is None:
            rows.append((*_alone(model, match), *bounds))
        elif change.is_significant or change.times or match.kind != "same" or across_devices:
            figures = (change.base.median, change.new.median, change.known_difference, change.percent, change.p)
            rows.append((_names(model, match), _what(match, change, likely), *figures, *bounds))
    return rows


def _is_across_devices(found: Diff) -> bool:
    return found.base.is_imported or found.new.is_imported


def _bounds(model: ModelDiff, match: Match) -> tuple[str | None, ...]:
    sides = ((model.base, match.base), (model.new, match.new))
    return tuple(run.bound_of(places[0]) if len(places) == 1 else None for run, places in sides)


def _markdown_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], most: int) -> Iterator[str]:
    shown = sorted(nlargest(most, range(len(rows)), key=lambda at: _changed_us(rows[at])))
    yield from markdown_lines(columns, [rows[at] for at in shown])
    if len(rows) > most:
        yield from ("", f"… and {len(rows) - most:,} smaller changes: `--json` has all")


def _changed_us(row: Sequence[Cell]) -> float:
    _, _, base, new, *_ = row
    return abs(float(new or 0.0) - float(base or 0.0))


def _moved_text(moved: Moved, likely: Collection[str] = ()) -> str:
    mark = "?" if moved.counter in likely else ""
    if moved.counter.endswith("_bytes"):
        return f"{moved.counter} {moved.base:,.0f} → {moved.new:,.0f}{mark}"
    return f"{moved.counter} {moved.base * 100:.0f} % → {moved.new * 100:.0f} %{mark}"


def _what(match: Match, change: Change, likely: Collection[str]) -> str:
    words: list[str] = [] if match.kind == "same" else [match.kind]
    if change.times:
        words.append(_times_text(*change.times))
    if change.is_significant:
        words.append("slower" if change.difference > 0 else "faster")
    return ", ".join([*words, *(_moved_text(moved, likely) for moved in change.moved)])


def _times_text(base: float, new: float) -> str:
    return f"{base:g} → {new:g} times an inference"


def _alone(model: ModelDiff, match: Match) -> tuple[Cell, ...]:
    """Return the cells of a layer that only one run has, with its mean; NaN without an inference."""
    run, places = (model.base, match.base) if match.base else (model.new, match.new)
    mean = run.mean(places[0])
    return (run.layers[places[0]].name, match.kind, *((mean, None) if match.base else (None, mean)), None, None, None)


def _names(model: ModelDiff, match: Match) -> str:
    sides = ((model.base, match.base), (model.new, match.new))
    base, new = (" | ".join(run.layers[place].name for place in places) for run, places in sides)
    return new if base == new else f"{base} → {new}"


def report_lines(found: Diff, *, as_markdown: bool, width: int = 0) -> Iterator[str]:
    """Yield what may be compared, the verdict, conditions, differences of the runs, and each model's layers.

    `width` is as in `fitted_lines`.
    """
    shown = (lambda line: f"- {markdown(line)}") if as_markdown else (lambda line: _line(line, width))
    for line in (found.comparability.line(), _verdict(found)):
        yield f"**{markdown(line)}**  " if as_markdown else _line(line, width)
    if as_markdown:
        yield ""
    yield from map(shown, _remarks(found))
    for model in found.models:
        yield ""
        yield from map(shown, _model_lines(model))
        columns = (*COLUMNS, *BOUNDS) if _is_across_devices(found) else COLUMNS
        if rows := _layer_rows(found, model):
            yield ""
            if as_markdown:
                yield from _markdown_table(columns, rows, max(1, MOST_MARKDOWN_ROWS // len(found.models)))
            else:
                yield from fitted_lines(columns, rows, width, less=LESS, tones=[_tone(row) for row in rows])


def _line(line: str, width: int) -> str:
    is_failure = line.startswith((FAILED, f"{SIDES[1]} EXCEEDED"))
    return toned(printable(line), "loss") if width and is_failure else printable(line)


def _tone(row: Sequence[Cell]) -> Tone | None:
    words = str(row[WHAT]).split(", ")
    return "slower" if "slower" in words else "faster" if "faster" in words else None


def _remarks(found: Diff) -> Iterator[str]:
    for outcome in found.outcomes:
        yield _outcome_line(*outcome)
    for sides in found.slo:
        yield from (f"{side} {line}" for side, each in zip(SIDES, sides, strict=True) for line in each.lines())
    for side, run in (("BASE", found.base), ("NEW", found.new)):
        mark = SIMULATED_MARK if run.is_simulated else ""
        imported = [job for job in run.provenance if "imported_from" in job]
        sampling = "; ".join(
            job["job"] if job in imported else f"{job['job']}: {sampling_line(job['sampling'])}"
            for job in run.provenance
        )
        yield f"{side} is {run.name}{mark}{': ' if sampling else ''}{sampling}"
    yield from map(str, found.comparability.differences)
    yield from found.remarks
    if likely := _likely(found):
        yield doubt_line(likely)
    if _is_across_devices(found) and any(match.kind == "renamed" for model in found.models for match in model.matches):
        yield "renamed layers are paired by their order, where their types or parts of their names are alike"
    yield from (f"model {name} is only in {side}" for side, name in found.only)


def _likely(found: Diff) -> list[str]:
    return likely_counters([*found.base.provenance, *found.new.provenance])


def junit_cases(found: Diff) -> list[tuple[str, str | None]]:
    """Return a test case for each condition and one for complete data: its name, and its failure or None."""
    cases = [
        (each.condition.text, _outcome_line(*each) if each.failing or each.undecided else None)
        for each in found.outcomes
    ]
    sides = (("BASE", found.base), ("NEW", found.new))
    for _, new in found.slo:
        cases.append((new.objective.text, None if new.verdict == "holds" else "; ".join(new.lines())))
    verdict = found.comparability
    cases.append(("the runs are comparable", verdict.line() if verdict.is_blocked else None))
    lacks = "; ".join(f"{side} is incomplete: {'; '.join(run.incomplete)}" for side, run in sides if run.incomplete)
    return [*cases, ("the data is complete", lacks or None)]


def junit_xml(name: str, cases: Sequence[tuple[str, str | None]], text: str) -> bytes:
    """Return the XML of a suite of test cases: names with failures (None: passed); `text` becomes its output."""
    failures = sum(failure is not None for _, failure in cases)
    suite = ET.Element("testsuite", name=name, tests=str(len(cases)), failures=str(failures), errors="0", skipped="0")
    for case_name, failure in cases:
        case = ET.SubElement(suite, "testcase", classname=name, name=_xml_text(case_name))
        if failure is not None:
            ET.SubElement(case, "failure", message=_xml_text(failure))
    ET.SubElement(suite, "system-out").text = _xml_text(text)
    suites = ET.Element("testsuites")
    suites.append(suite)
    written: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    return written


def _xml_text(text: str) -> str:
    # XML 1.0 has no form for most control characters.
    return "".join(each if each.isprintable() or each == "\n" else "\N{REPLACEMENT CHARACTER}" for each in text)


def diff_document(found: Diff) -> DiffDocument:
    """Return the object that `--json` prints; times are in µs, None if not known."""
    document = {
        "comparability": found.comparability.document(),
        "verdict": _verdict(found),
        "can_tell": found.can_tell,
        "complete": found.is_complete,
        "conditions": [
            {
                "condition": each.condition.text,
                "holds": bool(each.failing),
                "cannot_tell": each.undecided or None,
                "changes": [_change(one) for one in each.failing],
            }
            for each in found.outcomes
        ],
        "remarks": found.remarks,
        "likely": _likely(found),
        "base": _run(found.base),
        "new": _run(found.new),
        "models": [_model(model, has_bounds=_is_across_devices(found)) for model in found.models],
        "only": [{"side": side, "model": name} for side, name in found.only],
        "calls": [_change(change) for change in found.calls],
    }
    if found.slo:
        document["slo"] = [{"base": base.document(), "new": new.document()} for base, new in found.slo]
    return cast("DiffDocument", document)


def _run(run: ComparedRun) -> dict[str, Any]:
    return {"called": run.name, "simulated": run.is_simulated, "jobs": run.provenance}


def _model(model: ModelDiff, *, has_bounds: bool) -> dict[str, Any]:
    return {
        "model": model.name,
        "base_inferences": model.base.inferences,
        "new_inferences": model.new.inferences,
        "latency": None if model.latency is None else _change(model.latency),
        "latency_from": model.latency_from,
        "sum_of_layers": _change(model.layers),
        "layers": [
            {
                "what": match.kind,
                "base": [model.base.layers[place]._asdict() for place in match.base],
                "new": [model.new.layers[place]._asdict() for place in match.new],
                "change": _change(model.changes[at]) if at in model.changes else None,
                **({"bounds": _bounds(model, match)} if has_bounds else {}),
            }
            for at, match in enumerate(model.matches)
        ],
        "types": [_change(change) for change in model.types],
        "base_lacking": _lacking(model.base),
        "new_lacking": _lacking(model.new),
    }


def _lacking(run: ModelRun) -> dict[str, Any]:
    inferences, layers = run.lacking()
    named = [{**run.layers[place]._asdict(), "inferences": count} for place, count in layers.items()]
    return {"inferences": inferences, "layers": named}


def _change(change: Change) -> dict[str, Any]:
    return {
        "scope": change.scope,
        "name": change.name,
        "base": change.base._asdict(),
        "new": change.new._asdict(),
        "difference": change.known_difference,
        "percent": change.percent,
        "p": change.p,
        "significant": change.is_significant,
        "times": change.times and {"base": change.times[0], "new": change.times[1]},
        "counters": [moved._asdict() for moved in change.moved],
    }
