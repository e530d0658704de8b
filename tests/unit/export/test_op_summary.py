"""One row for each record, and their total."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from profagent.cli.table import OP_SUMMARY, Cell, as_object
from profagent.export.tables import memory_bound, op_summary_rows
from profagent.store.queries import LayerRow
from tests.unit.export.rows import aicore_row

if TYPE_CHECKING:
    from profagent.store.selection import AicoreRow

LAYERS = {0: LayerRow(4, "conv1+relu1", "Convolution+ReLU"), 1: LayerRow(9, "pool1", "Pooling")}
COUNTERS: dict[str, Any] = {
    "mac_busy": 0.5,
    "mac_ppen": 0.4,
    "vec_busy": 0.3,
    "vec_ppen": 0.25,
    "dstr": 0.1,
    "dtrans": 0.2,
    "dld": 0.6,
    "wld": 0.3,
    "ddr_read_bytes": 1000.0,
    "ddr_write_bytes": 24.0,
}


def _objects(records: list[AicoreRow], frequency_mhz: int | None = 700) -> list[dict[str, Cell]]:
    total = sum(record.ticks for record in records)
    return [as_object(OP_SUMMARY, row) for row in op_summary_rows(records, total, frequency_mhz, LAYERS)]


def test_the_total_has_dashes_ratios_weighted_by_time_and_sums_of_bytes() -> None:
    total = _objects([aicore_row(100, **COUNTERS), aicore_row(300, **{**COUNTERS, "mac_busy": 0.9, "dld": 0.2})])[-1]
    assert [total[c.title] for c in OP_SUMMARY[:4]] == ["-", "-", "total", "-"]
    assert (total["Mac Busy Ratio"], total["DLD Ratio"], total["DDR Total(byte)"]) == (80.0, 30.0, 2048)
    assert total["Memory Bound"] == round(0.3 / 0.8, 2)


def test_a_counter_that_one_record_does_not_know_is_unknown_in_the_total_alone() -> None:
    first, _, total = _objects([aicore_row(1, **COUNTERS), aicore_row(1, **{**COUNTERS, "dstr": None})])
    assert (first["Dstr Ratio"], total["Dstr Ratio"], total["Memory Bound"]) == (10.0, "N/A", "N/A")
    assert total["WLD Ratio"] == 30.0


def test_without_a_frequency_times_are_unknown_and_shares_are_not() -> None:
    row = _objects([aicore_row(700), aicore_row(2100)], frequency_mhz=None)[0]
    assert (row["Time(us)"], row["Time Ratio"]) == ("N/A", 25.0)


@pytest.mark.parametrize(
    ("changed", "bound"),
    [
        ({}, 1.2),
        ({"wld": 0.8}, 1.6),
        ({"dstr": 0.9}, 1.8),
        ({"vec_ppen": 0.75}, 0.8),
        ({"mac_busy": 0.0, "vec_ppen": 0.0}, None),
        ({"mac_busy": None}, None),
        ({"vec_ppen": None}, None),
        ({"dld": None}, None),
        ({"dtrans": None, "mac_ppen": None, "vec_busy": None}, 1.2),
    ],
)
def test_memory_bound_is_the_manual_s_formula(changed: Any, bound: Any) -> None:
    ratios = list({**COUNTERS, **changed}.values())[:8]
    assert memory_bound(ratios) == (None if bound is None else pytest.approx(bound))
