"""Rows of a table and records of an inference, of which some are missing on either side."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profagent.calibrate.cli import match_rows
from profagent.calibrate.vendor_table import Rounded, VendorTable


def table(names: list[str | None], times_us: list[float]) -> VendorTable:
    return VendorTable("x", tuple(names), Rounded(np.array(times_us), 0.0005), {})


def pairs(
    found: VendorTable, names: list[str | None], times_us: list[float] | None
) -> tuple[list[int], list[int], str]:
    matched = match_rows(found, names, None if times_us is None else np.array(times_us))
    assert matched is not None
    return matched.rows.tolist(), matched.records.tolist(), matched.by


def test_by_name_and_time_though_either_side_misses_some() -> None:
    found = pairs(table(["a", "c", "d"], [1.0, 3.0, 4.0]), ["a", "b", "c"], [1.0, 2.0, 3.0])
    assert found == ([0, 1], [0, 2], "name and time")


def test_without_names_and_times_the_places_tell() -> None:
    found = pairs(table([None, None], [float("nan")] * 2), [None, None], None)
    assert found == ([0, 1], [0, 1], "sequence")
    assert match_rows(table([None, None], [float("nan")] * 2), [None], None) is None


def test_a_row_that_may_be_one_of_two_records_is_left_out() -> None:
    found = pairs(table(["a", "b", "c"], [1.0, 2.0, 3.0]), ["a", "b", "b", "c"], [1.0, 2.0, 2.0, 3.0])
    assert found == ([0, 2], [0, 3], "name and time")


@given(st.lists(st.integers(1, 4), min_size=1, max_size=30), st.data())
def test_no_pair_is_ever_wrong(kinds: list[int], data: st.DataObject) -> None:
    """Whatever is missing of the table, and however alike layers are."""
    kept = sorted(data.draw(st.sets(st.integers(0, len(kinds) - 1), min_size=1)))
    names: list[str | None] = [f"layer{kind}" for kind in kinds]
    times_us = [float(kind) for kind in kinds]
    matched = match_rows(
        table([names[each] for each in kept], [times_us[each] for each in kept]), names, np.array(times_us)
    )
    if matched is None:
        assert len(kept) < len(kinds)
    else:
        assert all(kept[row] == record for row, record in zip(matched.rows, matched.records, strict=True))
