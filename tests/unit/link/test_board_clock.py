"""What a board's clock shows, whatever it is."""

from __future__ import annotations

import pytest

from profagent.link.messages import board_time


@pytest.mark.parametrize(
    ("wall_us", "shown"),
    [
        (1_800_000_000_000_000, "2027-01-15 08:00:00"),
        (-(2**62), "1970-01-01 00:00:00"),
        (253_402_300_799_999_999, "9999-12-31 23:59:59"),
        (2**62, "9999-12-31 23:59:59"),
    ],
)
def test_every_number_is_a_date(wall_us: int, shown: str) -> None:
    assert board_time(wall_us).strftime("%Y-%m-%d %H:%M:%S") == shown
