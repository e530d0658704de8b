"""What `diff` reports: lines for people, an object for programs, test cases for a build server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from profagent.cli.provenance import doubt_line, likely_counters, sampling_line
from profagent.cli.table import markdown, printable
from profagent.diff.text import (
    layer_rows,
    markdown_table,
    model_lines,
    outcome_line,
    text_table,
    verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagent.diff.comparing import Change, ModelDiff
    from profagent.diff.diff import Diff, Run

__all__ = ["diff_document", "junit_cases", "report_lines"]

SIMULATED = "*** simulated: figures are invented ***"


def report_lines(found: Diff, *, as_markdown: bool) -> Iterator[str]:
    """The verdict first, then conditions, what makes the runs hard to compare, and each model's layers."""
    if as_markdown:
        yield f"**{markdown(_verdict(found))}**"
        yield ""
    else:
        yield printable(_verdict(found))
    shown = _bullet if as_markdown else printable
    yield from map(shown, _remarks(found))
    for model in found.models:
        yield ""
        yield from map(shown, model_lines(model))
        if rows := layer_rows(model, _likely(found)):
            yield ""
            yield from markdown_table(rows) if as_markdown else text_table(rows)


def _bullet(line: str) -> str:
    return f"- {markdown(line)}"


def _verdict(found: Diff) -> str:
    failed = "FAILED: " if any(outcome.failing for outcome in found.outcomes) else ""
    return failed + verdict(found.models, can_tell=found.can_tell)


def _remarks(found: Diff) -> Iterator[str]:
    for outcome in found.outcomes:
        yield outcome_line(*outcome)
    for side, run in (("BASE", found.base), ("NEW", found.new)):
        mark = f"  {SIMULATED}" if run.facts.is_simulated else ""
        sampling = "; ".join(f"{job['job']}: {sampling_line(job['sampling'])}" for job in run.provenance)
        yield f"{side} is {run.called}{mark}{': ' if sampling else ''}{sampling}"
    yield from (f"unfair: {line}" for line in found.unfair)
    if likely := _likely(found):
        yield doubt_line(likely)
    yield from (f"model {name} is only in {side}" for side, name in found.only)


def _likely(found: Diff) -> list[str]:
    return likely_counters([*found.base.provenance, *found.new.provenance])


def junit_cases(found: Diff) -> list[tuple[str, str | None]]:
    """A test case for each condition, and one for the data: its name, and why it failed or None."""
    cases = [
        (each.condition.text, outcome_line(*each) if each.failing or each.untold else None) for each in found.outcomes
    ]
    losses = ", ".join(
        f"{side} has losses of {run.facts.losses:,}"
        for side, run in (("BASE", found.base), ("NEW", found.new))
        if run.facts.losses
    )
    return [*cases, ("the data is complete", losses or None)]


def diff_document(found: Diff) -> dict[str, Any]:
    """What `--json` prints; times in µs, None for what is not known."""
    return {
        "verdict": _verdict(found),
        "can_tell": found.can_tell,
        "complete": found.is_complete,
        "conditions": [
            {
                "condition": each.condition.text,
                "holds": bool(each.failing),
                "cannot_tell": each.untold or None,
                "for": [_change(one) for one in each.failing],
            }
            for each in found.outcomes
        ],
        "unfair": found.unfair,
        "likely": _likely(found),
        "base": _run(found.base),
        "new": _run(found.new),
        "total": _change(found.total),
        "models": [_model(model) for model in found.models],
        "only": [{"in": side, "model": name} for side, name in found.only],
        "calls": [_change(change) for change in found.calls],
    }


def _run(run: Run) -> dict[str, Any]:
    return {"called": run.called, "simulated": run.facts.is_simulated, "jobs": run.provenance}


def _model(model: ModelDiff) -> dict[str, Any]:
    return {
        "model": model.name,
        "base_inferences": len(model.base.times),
        "new_inferences": len(model.new.times),
        "smallest_seen_percent": model.smallest_seen,
        "total": _change(model.total),
        "layers": [
            {
                "what": match.kind,
                "base": [model.base.layers[place]._asdict() for place in match.base],
                "new": [model.new.layers[place]._asdict() for place in match.new],
                "change": _change(model.changes[at]) if at in model.changes else None,
            }
            for at, match in enumerate(model.matches)
        ],
        "types": [_change(change) for change in model.types],
    }


def _change(change: Change) -> dict[str, Any]:
    return {
        "scope": change.scope,
        "name": change.name,
        "base": change.base._asdict(),
        "new": change.new._asdict(),
        "difference": change.difference,
        "percent": change.percent,
        "p": change.p,
        "significant": change.is_significant,
        "counters": [moved._asdict() for moved in change.moved],
    }
