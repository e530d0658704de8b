"""What the fits of a column allow to be said: certain, likely, or not found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from profagent.calibrate.fitting import TYPES, Evidence, Fit, fits_of, values_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

__all__ = ["Finding", "Verdict", "find_counters"]

# Without a number that gives every row, one that gives so many is looked at: a row may be of another record.
LEAST_SHARE = 0.97
# A number that is off by so much in every row must have no chance in a thousand million to agree with all of them.
TOLD_APART = 1e-3
CERTAINTY = float(np.log(1e9))
# A ratio is no more than 1, but for the rounding of times.
LARGEST_RATIO = 1.05
# Scales that need no explanation.
PLAIN_SCALES = (1.0, 0.01)


class Verdict(StrEnum):
    """How far a counter is to be trusted."""

    CERTAIN = "certain"
    LIKELY = "likely"
    NOT_FOUND = "not found"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was learnt of a counter from `rows` of a table; `advice` is what would settle it, empty when nothing must.

    `fit` is None where there is none, or several that are as good: `rivals` has those.
    """

    counter: str
    verdict: Verdict
    rows: int
    fit: Fit | None = None
    rivals: tuple[Fit, ...] = ()
    advice: str = ""


def find_counters(columns: Mapping[str, Evidence], records: npt.NDArray[np.uint8]) -> list[Finding]:
    """Find each column's number; `records` (rows, 256) are all that there are, of whatever inference."""
    return _without_doubles([_find(name, evidence, records) for name, evidence in columns.items()])


def _find(counter: str, evidence: Evidence, records: npt.NDArray[np.uint8]) -> Finding:
    finding = Finding(counter, Verdict.NOT_FOUND, evidence.rows)
    if not evidence.rows:
        return replace(finding, advice="a table that has values in this column")
    if not (evidence.values > evidence.half).any():
        return replace(finding, advice="a model that uses this unit: the column is 0 in every row")
    fits = fits_of(evidence, 1.0)
    if not fits:
        return _nearly(finding, fits_of(evidence, LEAST_SHARE))
    possible = fits if counter.endswith("_bytes") else [fit for fit in fits if _is_ratio(fit, records)]
    return _judged(finding, _plainest(possible or fits, records), evidence)


def _nearly(finding: Finding, fits: Sequence[Fit]) -> Finding:
    """No number gives every row; one that gives nearly all may be it, where it is alone."""
    if not fits:
        return replace(finding, advice="no single number gives this column: send the evidence")
    if len(fits) > 1:
        return replace(finding, rivals=tuple(fits), advice="no number gives every row, and several give nearly all")
    advice = f"{finding.rows - fits[0].agreeing} rows do not agree: are they of this JOB?"
    return replace(finding, verdict=Verdict.LIKELY, fit=fits[0], advice=advice)


def _judged(finding: Finding, fits: Sequence[Fit], evidence: Evidence) -> Finding:
    """Say what numbers that give every row amount to."""
    if len({(fit.offset, fit.scale, fit.denominator) for fit in fits}) > 1:
        return replace(finding, rivals=tuple(fits), advice="a table with more rows or decimals: rivals fit equally")
    # What is too wide gives values that cannot be as soon as the bytes above are used; too narrow, wrong ones.
    *narrower, widest = sorted(fits, key=lambda fit: TYPES.index(fit.type))
    likely = replace(finding, verdict=Verdict.LIKELY, fit=widest, rivals=tuple(narrower))
    if narrower:
        return replace(likely, advice=f"a layer whose count does not fit {narrower[0].type}: its width is not shown")
    if _evidence_of(evidence) < CERTAINTY:
        return replace(likely, advice="more rows or decimals: a number that nearly is this one would agree as well")
    return replace(likely, verdict=Verdict.CERTAIN)


def _is_ratio(fit: Fit, records: npt.NDArray[np.uint8]) -> bool:
    """Whether it can be a ratio in every record that there is."""
    return bool((values_of(fit, records) <= LARGEST_RATIO).all())


def _plainest(fits: Sequence[Fit], records: npt.NDArray[np.uint8]) -> list[Fit]:
    """Leave out what gives the same as a plainer one in every record: its bytes are this one's and some that are 0."""
    kept: list[tuple[Fit, npt.NDArray[np.float64]]] = []
    for fit in sorted(fits, key=_oddity):
        values = values_of(fit, records)
        if not any(_oddity(other) < _oddity(fit) and np.allclose(values, known) for other, known in kept):
            kept.append((fit, values))
    return [fit for fit, _ in kept]


def _oddity(fit: Fit) -> tuple[bool, bool]:
    """How much a form wants explaining: a strange scale, then one that makes less of a number than its bytes do."""
    return (fit.scale not in PLAIN_SCALES, fit.scale < 1)


def _evidence_of(evidence: Evidence) -> float:
    """How improbable it is, as a logarithm, that a number which is off by TOLD_APART agrees with every row."""
    with np.errstate(divide="ignore"):
        improbable = np.log(TOLD_APART * evidence.values / evidence.half)
    return float(np.maximum(improbable, 0.0).sum())


def _without_doubles(findings: Sequence[Finding]) -> list[Finding]:
    """Bytes that are found to be two counters are neither."""
    taken = [(finding.counter, {*finding.fit.bytes}) for finding in findings if finding.fit]
    return [_not_double(finding, finding.fit, taken) if finding.fit else finding for finding in findings]


def _not_double(finding: Finding, fit: Fit, taken: Sequence[tuple[str, set[int]]]) -> Finding:
    others = [counter for counter, place in taken if counter != finding.counter and place & {*fit.bytes}]
    if not others:
        return finding
    advice = f"a model in which it differs from {', '.join(others)}: the same bytes fit"
    return replace(finding, verdict=Verdict.NOT_FOUND, fit=None, rivals=(fit, *finding.rivals), advice=advice)
