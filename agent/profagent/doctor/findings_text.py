"""What checks have found, for people and for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from profagent.cli.table import printable
from profagent.formats.names import display_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagent.doctor.finding import Finding, Section

# The longest name of a check, but for those of counters.
WIDTH = 12


def section_fields(section: Section) -> dict[str, object]:
    """As JSON has it; whatever a board or a file said is text."""
    return {
        "about": display_text(section.about),
        "findings": [
            {name: display_text(value) for name, value in asdict(finding).items()} for finding in section.findings
        ],
        "corrected": section.corrected,
    }


def section_lines(section: Section) -> Iterator[str]:
    """What it is about, a line or two a finding, and the corrected text."""
    yield printable(section.about)
    width = max((len(finding.check) for finding in section.findings), default=0)
    for finding in section.findings:
        yield from finding_lines(finding, max(width, WIDTH))
    if section.corrected:
        yield "    corrected text:"
        yield from (f"    {printable(line)}" for line in section.corrected.splitlines())


def finding_lines(finding: Finding, width: int = WIDTH) -> Iterator[str]:
    """The finding, and below it what mends it."""
    yield printable(f"  {finding.mark.sign} {finding.check:{width}}  {finding.evidence}")
    if finding.remedy:
        yield printable(f"    {'':{width}}→ {finding.remedy}")
