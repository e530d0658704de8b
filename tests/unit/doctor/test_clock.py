"""The check of the board's clock."""

from __future__ import annotations

import pytest

from profagent.doctor.checks import clock
from profagent.doctor.finding import Mark

NOW_US = 1_800_000_000_000_000


@pytest.mark.parametrize(
    ("offset_us", "uncertainty_us", "board_us", "mark"),
    [
        (0, 500, NOW_US, Mark.GOOD),
        (-900_000, 500, NOW_US, Mark.GOOD),
        (1_200_000, 500, NOW_US, Mark.BAD),
        (-1_200_000, 500, NOW_US, Mark.BAD),
        (1_200_000, 400_000, NOW_US, Mark.UNKNOWN),
        (900_000, 400_000, NOW_US, Mark.UNKNOWN),
        (-NOW_US, 10**9, 60_000_000, Mark.BAD),
        # An image's own date; a link as slow as this could tell nothing more.
        (-NOW_US, NOW_US, 1_600_000_000_000_000, Mark.BAD),
        (None, 0, NOW_US, Mark.UNKNOWN),
        (2**61, 500, 2**62, Mark.BAD),
    ],
)
def test_the_boards_clock(offset_us: int | None, uncertainty_us: int, board_us: int, mark: Mark) -> None:
    finding = clock(offset_us, uncertainty_us, board_us)
    assert finding.mark is mark
    assert ("date -u -s" in finding.remedy) == (mark is Mark.BAD)


def test_offset_and_uncertainty_are_told() -> None:
    assert "+0.001500 s ± 0.000250 s" in clock(1500, 250, NOW_US).evidence
    assert "1970-01-01" in clock(-NOW_US, 1, 60_000_000).evidence
