"""Findings as people see them."""

from __future__ import annotations

from profagent.doctor.finding import Section, bad, good
from profagent.doctor.findings_text import section_lines


def test_what_checks_stand_on_is_one_column() -> None:
    section = Section("a JOB", (good("ddr_read_bytes rate", "HERE"), bad("dld <= 1", "HERE", "mend it")))
    _, *lines = section_lines(section)
    assert [line.find("HERE") for line in lines] == [25, 25, -1]
    assert lines[-1].index("→") == 23
