"""What counters cannot be, counted with a state of constant size."""

from __future__ import annotations

import numpy as np
import pytest

from profagent.formats.countermap import CounterRows, Place, Tally, checked, merged, told

MHZ = 700


def rows(path: str = "a", pictures: int = 0, **counters: list[float]) -> CounterRows:
    """Records of 7000 ticks, which are 1 ms."""
    (count,) = {len(values) for values in counters.values()}
    arrays = {name: np.array(values, np.float64) for name, values in counters.items()}
    return CounterRows(Place(pictures, path, 10), np.full(count, 7_000), arrays)


def test_a_ratio_is_at_most_the_whole_but_for_rounding() -> None:
    found = checked([rows(mac_busy=[0.0, 1.0, 1.009, np.nan, 1.2, 7.5])], MHZ)
    assert found == {"mac_busy <= 1": Tally(5, 2, Place(0, "a", 14), 7.5)}


def test_a_value_beyond_any_number_is_one_of_those_looked_at() -> None:
    assert checked([rows(mac_busy=[0.5, np.inf, np.nan])], MHZ)["mac_busy <= 1"][:2] == (2, 1)


def test_the_effective_share_is_a_part_of_the_busy_one() -> None:
    found = checked([rows(mac_busy=[0.5, 0.5], mac_ppen=[0.505, 0.6])], MHZ)
    assert found["mac_ppen <= mac_busy"] == Tally(2, 1, Place(0, "a", 11), 0.6)
    assert found["mac_ppen <= 1"] == Tally(2)


def test_the_memory_moves_no_more_than_it_can() -> None:
    pieces = [rows(ddr_read_bytes=[34e6, 35e6])]
    assert checked(pieces, MHZ) == {"ddr_read_bytes rate": Tally(2, 1, Place(0, "a", 11), 35e9)}
    assert checked(pieces, MHZ, 50e9) == {"ddr_read_bytes rate": Tally(2)}
    assert checked(pieces, None) == {}, "no frequency, no time"


def test_the_first_is_the_first_in_time_of_all_logs() -> None:
    late, early = rows("a", 9, dld=[2.0]), rows("b", 3, dld=[0.5, 3.0])
    assert checked([late, rows("z", 1, dld=[0.1]), early], MHZ)["dld <= 1"] == Tally(4, 2, Place(3, "b", 11), 3.0)


@pytest.mark.parametrize("cut", [1, 3])
def test_parts_in_any_order_are_counted_as_the_whole(cut: int) -> None:
    pieces = [rows(str(n), n, dld=[0.3 * n, 1.5 - 0.2 * n]) for n in range(5)]
    whole = checked(pieces, MHZ)["dld <= 1"]
    parts = [checked(pieces[cut:], MHZ)["dld <= 1"], checked(pieces[:cut], MHZ)["dld <= 1"]]
    assert merged(*parts) == whole


def test_it_is_told_with_its_numbers() -> None:
    tally = Tally(900, 12, Place(3, "data/aicore.x", 5), 1.7349)
    assert told("mac_ppen <= mac_busy", tally) == (
        "mac_ppen is above mac_busy in 12 of 900 records, at worst 1.735; first record 5 of data/aicore.x"
    )
    assert "120.0 GB/s, and 20 can be" in told("ddr_read_bytes rate", tally._replace(worst=120e9), 20e9)
    assert told("ticks <= .done", tally).endswith("12 of 900 inferences, at worst 1.735 times; first data/aicore.x")
