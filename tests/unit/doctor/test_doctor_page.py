"""The page about doctor has every check, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from profagent.doctor.job import FACTS

ROOT = Path(__file__).parents[3]
CHECK = r"[a-z]+(?:-[a-z]+)*"


def test_the_page_has_every_check() -> None:
    code = "\n".join(path.read_text("utf-8") for path in (ROOT / "agent/profagent/doctor").glob("*.py"))
    named = re.findall(rf'\b(?:good|bad|unknown)\(\s*"({CHECK})"', code)
    assigned = re.findall(rf'\bcheck(?:, \w+)* = "({CHECK})"', code)
    page = (ROOT / "docs/reference/doctor.md").read_text("utf-8")
    told = re.findall(rf"^\| `({CHECK})` \|", page, re.MULTILINE)
    assert {"npu-stack", "umask", "certificate"} <= set(told)
    assert set(named) | set(assigned) | {*FACTS} == set(told)
    assert len(told) == len(set(told))
