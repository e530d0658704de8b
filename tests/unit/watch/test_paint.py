"""What is drawn of numbers: none is cut, and no shape is there that the values do not have."""

from __future__ import annotations

import numpy as np
import pytest

from profagent.watch.screen import paint

COUNTS = [(0, "0"), (9_999, "9,999"), (12_345, "12.3k"), (999_999, "1.0M"), (12_533_760, "12.5M"), (10**16, "10000.0T")]


@pytest.mark.parametrize(("number", "text"), COUNTS)
def test_a_large_count_is_short(number: int, text: str) -> None:
    assert paint.compact(number) == text


def lines_of(values: list[float], bins: int) -> list[str]:
    lines = paint.histogram(np.array(values, float), 60, bins)
    return ["".join(part.text for part in line) for line in lines]


SPREADS = {
    "fine ticks": [97.0 + each / 24 for each in range(60)],
    "ticks of 3 us": [100.0 + 3 * (each % 7) for each in range(90)],
    "ticks of 1.5 us": [100.0 + 1.5 * (each % 9) for each in range(90)],
    "one value": [98.5] * 20,
    "two values with rounding": [98.0, 98.0 + 1e-12, 99.0, 99.0] * 5,
    "a wide range": np.linspace(5.0, 90_000.0, 300).tolist(),
}


@pytest.mark.parametrize("name", SPREADS)
@pytest.mark.parametrize("bins", [1, 2, 7, 12, 40])
def test_a_histogram_has_no_gap_that_is_a_tick(name: str, bins: int) -> None:
    values = SPREADS[name]
    lines = lines_of(values, bins)
    labels = [line.partition("▕")[0] for line in lines]
    assert 1 <= len(lines) <= bins
    assert len(set(labels)) == len(lines)
    assert sum("◂" in line for line in lines) == 1
    counts = [int(line.replace("◂", "").split()[-1].strip("█")) for line in lines]
    assert sum(counts) == len(values)
    assert all(counts)


def test_a_gap_between_values_is_shown() -> None:
    assert any(not any(sign.isdigit() for sign in line.partition("▕")[2]) for line in lines_of([100, 101, 102, 140], 4))
