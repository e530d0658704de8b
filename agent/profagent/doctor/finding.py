"""What a check has found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Finding", "Mark", "Section", "bad", "good", "unknown"]


class Mark(StrEnum):
    """The verdict, as programs are told it; `sign` is for people."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"

    @property
    def sign(self) -> str:
        """✓, ✗ or ?."""
        return {"good": "✓", "bad": "✗", "unknown": "?"}[self]


@dataclass(frozen=True, slots=True)
class Finding:
    """One check's verdict, what it stands on, and the command that mends it."""

    check: str
    mark: Mark
    evidence: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """What was found about a board, a JOB or a file; `corrected` is what a file should say, if it does not."""

    about: str
    findings: tuple[Finding, ...]
    corrected: str = ""

    @property
    def is_good(self) -> bool:
        """Whether nothing is known to be wrong."""
        return all(finding.mark is not Mark.BAD for finding in self.findings)


def good(check: str, evidence: str) -> Finding:
    """It is as it should be."""
    return Finding(check, Mark.GOOD, evidence)


def bad(check: str, evidence: str, remedy: str) -> Finding:
    """It is not as it should be."""
    return Finding(check, Mark.BAD, evidence, remedy)


def unknown(check: str, evidence: str, remedy: str = "") -> Finding:
    """It cannot be known."""
    return Finding(check, Mark.UNKNOWN, evidence, remedy)
