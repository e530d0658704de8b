"""A comparison of two runs in words, lines and rows: what `diff` prints, as text and as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.cli.table import UNKNOWN, Cell, Column, cell_text, markdown, table_lines

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from profagent.diff.alignment import LayerName, Match
    from profagent.diff.comparing import Change, ModelDiff
    from profagent.diff.conditions import Condition
    from profagent.diff.counters_moved import Moved

__all__ = ["layer_rows", "markdown_table", "model_lines", "outcome_line", "text_table", "verdict"]

COLUMNS = (
    Column("layer"),
    Column("what"),
    Column("BASE(us)", 3),
    Column("NEW(us)", 3),
    Column("change(us)", 3),
    Column("change(%)", 2),
    Column("p", 4),
)


def verdict(models: Sequence[ModelDiff], *, can_tell: bool) -> str:
    """The answer in a line."""
    if not can_tell:
        return "cannot tell: there are too few different inferences to tell a change from noise"
    found = [change for model in models for change in model.changes.values() if change.is_significant]
    slower = sum(change.difference > 0 for change in found)
    parts = [f"{count} {word}" for count, word in ((slower, "slower"), (len(found) - slower, "faster")) if count]
    kinds: list[str] = [match.kind for model in models for match in model.matches]
    others = [
        f"{kinds.count(kind)} {kind}"
        for kind in ("moved", "renamed", "fused", "split", "inserted", "removed")
        if kind in kinds
    ]
    totals = [f"{model.name} {change_text(model.total)}" for model in models if model.total.is_significant]
    layers = f"layers: {', '.join(parts)}" if parts else "no layer is slower or faster by more than the noise"
    return "; ".join([layers, *([", ".join(others)] if others else []), *totals])


def outcome_line(condition: Condition, failing: Sequence[Change], untold: str) -> str:
    """`FAILED layer.median>+5%: conv1 +6.1 % (20.0 → 21.2 us)`, or that it does not hold, or why nobody can tell."""
    if untold:
        return f"cannot tell {condition.text}: {untold}"
    if not failing:
        return f"passed {condition.text}"
    found = ", ".join(f"{change.name} {change_text(change)}" for change in failing)
    return f"FAILED {condition.text}: {found}"


def change_text(change: Change) -> str:
    """`+6.1 % (20.0 → 21.2 us)`, of the medians."""
    share = UNKNOWN if change.percent is None else f"{change.percent:+.1f} %"
    return f"{share} ({change.base.median:.1f} → {change.new.median:.1f} us)"


def model_lines(model: ModelDiff) -> Iterator[str]:
    """What a model's comparison stands on."""
    numbers = " and ".join(
        f"{_counted(len(run.times), 'inference')} of {_counted(len(run.layers), 'layer')}"
        + (f" ({run.left_out:,} left out)" if run.left_out else "")
        for run in (model.base, model.new)
    )
    name = model.name if model.base.name == model.name else f"{model.base.name} → {model.name}"
    yield f"{name}: {numbers}; {change_text(model.total)}{_note(model.total)}"
    if model.smallest_seen is None:
        yield "no change can be told: a run has fewer than 5 different inferences"
    else:
        yield f"smallest change of a usual layer that could have been seen: {model.smallest_seen:.1f} %"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def layer_rows(model: ModelDiff, likely: Collection[str] = ()) -> list[tuple[Cell, ...]]:
    """Rows of COLUMNS: layers that are slower, faster or others, in their order; `likely` counters are marked."""
    rows: list[tuple[Cell, ...]] = []
    for at, match in enumerate(model.matches):
        change = model.changes.get(at)
        if change is None:
            rows.append(_alone(model, match))
        elif change.is_significant or match.kind != "same":
            figures = (change.base.median, change.new.median, change.difference, change.percent, change.p)
            rows.append((_names(model, match), _what(match, change, likely), *figures))
    return rows


def markdown_table(rows: Sequence[Sequence[Cell]]) -> Iterator[str]:
    """The rows as a table of Markdown."""
    yield f"| {' | '.join(column.title for column in COLUMNS)} |"
    yield f"|{'|'.join('---' if column.decimals is None else '---:' for column in COLUMNS)}|"
    for row in rows:
        cells = (markdown(cell_text(*each)) for each in zip(COLUMNS, row, strict=True))
        yield f"| {' | '.join(cells)} |"


def text_table(rows: Sequence[Sequence[Cell]]) -> Iterator[str]:
    """The rows as aligned text."""
    return table_lines(COLUMNS, rows)


def moved_text(moved: Moved, likely: Collection[str] = ()) -> str:
    """`dld 41 % → 48 %`, or bytes; a `?` after one that is not certain."""
    mark = "?" if moved.counter in likely else ""
    if moved.counter.endswith("_bytes"):
        return f"{moved.counter} {moved.base:,.0f} → {moved.new:,.0f}{mark}"
    return f"{moved.counter} {moved.base * 100:.0f} % → {moved.new * 100:.0f} %{mark}"


def _what(match: Match, change: Change, likely: Collection[str]) -> str:
    words: list[str] = [] if match.kind == "same" else [match.kind]
    if change.is_significant:
        words.append("slower" if change.difference > 0 else "faster")
    return ", ".join([*words, *(moved_text(moved, likely) for moved in change.moved)])


def _alone(model: ModelDiff, match: Match) -> tuple[Cell, ...]:
    """A layer that only one run has, with its mean, NaN of no inference."""
    run, places = (model.base, match.base) if match.base else (model.new, match.new)
    times = run.times[:, places[0]]
    known = times[times == times]  # noqa: PLR0124 - a NaN is not equal to itself
    mean = float(known.mean())
    return (run.layers[places[0]].name, match.kind, *((mean, None) if match.base else (None, mean)), None, None, None)


def _names(model: ModelDiff, match: Match) -> str:
    base, new = (_joined(run.layers, places) for run, places in ((model.base, match.base), (model.new, match.new)))
    return new if base == new else f"{base} → {new}"


def _joined(layers: Sequence[LayerName], places: Sequence[int]) -> str:
    return " | ".join(layers[place].name for place in places)


def _note(change: Change) -> str:
    return "" if change.is_significant or change.p is None else ", within noise or floor"
