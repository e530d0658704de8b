"""Results of checks, and their form for people and for programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from profagent.codes import Severity
from profagent.doctor.checks import CHECKS
from profagent.formats.names import display_text
from profagent.tables.table import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

# Width of the column with the names of checks, in characters; only names of counters are longer.
WIDTH = 12


class FindingMark(StrEnum):
    """Verdict of a check; the values stand in the JSON output."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"


_SIGNS = {FindingMark.GOOD: "✓", FindingMark.BAD: "✗", FindingMark.UNKNOWN: "?"}


@dataclass(frozen=True, slots=True)
class Finding:
    """Verdict of one check, its evidence, and the command that corrects the fault."""

    check: str
    mark: FindingMark
    evidence: str
    remedy: str = ""

    def __post_init__(self) -> None:
        """Raise KeyError for a check that the table does not have; a mark is at most as bad as the check's severity."""
        severity = CHECKS[self.check].severity
        is_possible = self.mark is FindingMark.GOOD or severity is Severity.BAD or self.mark.value == severity.value
        assert is_possible, (self.check, self.mark)


@dataclass(frozen=True, slots=True)
class Section:
    """Findings about one subject: a host, a board, a JOB or a file."""

    about: str
    findings: tuple[Finding, ...]

    @property
    def is_good(self) -> bool:
        """True if no finding is bad; unknown ones do not count."""
        return all(finding.mark is not FindingMark.BAD for finding in self.findings)


def good(check: str, evidence: str) -> Finding:
    """Return a finding that the check passed."""
    return Finding(check, FindingMark.GOOD, evidence)


def bad(check: str, evidence: str, remedy: str = "") -> Finding:
    """Return a finding that the check failed, with the remedy for this case, or else that of the check."""
    return Finding(check, FindingMark.BAD, evidence, remedy or CHECKS[check].remedy)


def unknown(check: str, evidence: str, remedy: str = "") -> Finding:
    """Return a finding that the check could not decide; one that is never bad has its remedy from the table."""
    is_worst = CHECKS[check].severity is Severity.UNKNOWN
    return Finding(check, FindingMark.UNKNOWN, evidence, remedy or (CHECKS[check].remedy if is_worst else ""))


def section_fields(section: Section) -> dict[str, object]:
    """Return a section as JSON objects; text of a board or a file is made safe for display."""
    return {
        "about": display_text(section.about),
        "findings": [
            {name: display_text(value) for name, value in asdict(finding).items()} for finding in section.findings
        ],
    }


def section_lines(section: Section) -> Iterator[str]:
    """Yield a section's subject, and one or two lines for each finding."""
    yield printable(section.about)
    width = max((len(finding.check) for finding in section.findings), default=0)
    for finding in section.findings:
        yield from finding_lines(finding, max(width, WIDTH))


def finding_lines(finding: Finding, width: int = WIDTH) -> Iterator[str]:
    """Yield the finding, and its remedy on a second line if there is one."""
    yield printable(f"  {_SIGNS[finding.mark]} {finding.check:{width}}  {finding.evidence}")
    if finding.remedy:
        yield printable(f"    {'':{width}}→ {finding.remedy}")
