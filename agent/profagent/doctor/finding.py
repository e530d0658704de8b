"""What checks have found, and how that is shown to people and to programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from profagent.formats.names import display_text
from profagent.tables.table import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

# The longest name of a check, but for those of counters.
WIDTH = 12


class FindingMark(StrEnum):
    """The verdict, as programs are told it."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"


_SIGNS = {FindingMark.GOOD: "✓", FindingMark.BAD: "✗", FindingMark.UNKNOWN: "?"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One check's verdict, what it stands on, and the command that mends it."""

    check: str
    mark: FindingMark
    evidence: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """What was found about a board, a JOB or a file."""

    about: str
    findings: tuple[Finding, ...]

    @property
    def is_good(self) -> bool:
        """Whether nothing is known to be wrong."""
        return all(finding.mark is not FindingMark.BAD for finding in self.findings)


def good(check: str, evidence: str) -> Finding:
    """It is as it should be."""
    return Finding(check, FindingMark.GOOD, evidence)


def bad(check: str, evidence: str, remedy: str) -> Finding:
    """It is not as it should be."""
    return Finding(check, FindingMark.BAD, evidence, remedy)


def unknown(check: str, evidence: str, remedy: str = "") -> Finding:
    """It cannot be known."""
    return Finding(check, FindingMark.UNKNOWN, evidence, remedy)


def section_fields(section: Section) -> dict[str, object]:
    """As JSON has it; whatever a board or a file said is text."""
    return {
        "about": display_text(section.about),
        "findings": [
            {name: display_text(value) for name, value in asdict(finding).items()} for finding in section.findings
        ],
    }


def section_lines(section: Section) -> Iterator[str]:
    """What it is about, and a line or two a finding."""
    yield printable(section.about)
    width = max((len(finding.check) for finding in section.findings), default=0)
    for finding in section.findings:
        yield from finding_lines(finding, max(width, WIDTH))


def finding_lines(finding: Finding, width: int = WIDTH) -> Iterator[str]:
    """The finding, and below it what mends it."""
    yield printable(f"  {_SIGNS[finding.mark]} {finding.check:{width}}  {finding.evidence}")
    if finding.remedy:
        yield printable(f"    {'':{width}}→ {finding.remedy}")
