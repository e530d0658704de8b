"""What a script is told of a collect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from profagent.collect.collecting import Collected

JOBS = (Path("JOBA"),)


def summary(records: int, *, complete: bool = True, note: str = "sequence-gap") -> dict[str, Any]:
    return {
        "records": {"aicore": records, "aicpu": 0, "acl_api": 0},
        "complete": complete,
        "ledger": {"loss": {}, "note": {note: 1}},
    }


@pytest.mark.parametrize(
    ("status", "jobs", "told", "code"),
    [
        (0, JOBS, summary(3), 0),
        (0, JOBS, summary(0), 1),
        (0, (), summary(0), 1),
        (0, JOBS, summary(3, complete=False), 4),
        (0, JOBS, summary(0, complete=False), 4),
        (0, JOBS, summary(0, note="unsupported-soc"), 2),
        (0, (), None, 0),
        (139, JOBS, summary(0), 139),
    ],
)
def test_the_exit_code(status: int, jobs: tuple[Path, ...], told: dict[str, Any] | None, code: int) -> None:
    assert Collected(status, jobs, (), told).exit_code == code
