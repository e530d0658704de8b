"""A JOB's sampling, and what was passed over on purpose, as lines."""

from __future__ import annotations

from typing import Any

import pytest

from profagent.cli.provenance import keeping_line, sampling_line, sampling_lines

SAMPLING: dict[str, Any] = {
    "sampled": 1096,
    "due": 1100,
    "late": 0,
    "never_came": 4,
    "interval": 10,
    "interval_from": "acl.json",
    "keeping": None,
    "kept": 1096,
    "passed_over": 0,
}


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({}, "captured 1,096 of 1,100 due (interval 10, from acl.json)"),
        ({"interval_from": "inferred", "late": 2}, "captured 1,096 of 1,100 due (interval 10, inferred); 2 late"),
        ({"interval": None, "interval_from": None, "due": None}, "captured 1,096 of N/A due (interval N/A)"),
        ({"interval": 0, "sampled": 1, "due": 1}, "captured 1 of 1 due (interval 0, from acl.json)"),
    ],
)
def test_the_share_of_samples_with_the_interval_and_where_it_is_from(changed: dict[str, Any], line: str) -> None:
    assert sampling_line({**SAMPLING, **changed}) == line


def test_what_was_passed_over_on_purpose_is_said_apart() -> None:
    assert keeping_line(SAMPLING) is None
    chosen = {**SAMPLING, "keeping": "every 10", "kept": 110, "passed_over": 986}
    assert keeping_line(chosen) == "kept 110 of 1,096 inferences (every 10)"
    assert keeping_line({**chosen, "keeping": None}) == "kept 110 of 1,096 inferences (by an earlier session)"
    assert sampling_lines(chosen) == [sampling_line(SAMPLING), "kept 110 of 1,096 inferences (every 10)"]
