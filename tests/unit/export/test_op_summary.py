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


def test_time_is_ticks_times_100_by_mhz_and_its_share() -> None:
    first, second, total = _objects([aicore_row(700), aicore_row(2100, 1)])
    assert (first["Layer Id"], first["Layer Name"], first["Layer Type"]) == (4, "conv1+relu1", "Convolution+ReLU")
    assert (first["Time(us)"], first["Time Ratio"]) == (100.0, 25.0)
    assert (second["Time(us)"], second["Time Ratio"]) == (300.0, 75.0)
    assert (total["Time(us)"], total["Time Ratio"]) == (400.0, 100.0)


def test_counters_become_percentages_and_bytes() -> None:
    row = _objects([aicore_row(700, **COUNTERS)])[0]
    assert [row[c.title] for c in OP_SUMMARY[6:14]] == [50.0, 40.0, 30.0, 25.0, 10.0, 20.0, 60.0, 30.0]
    assert (row["Memory Bound"], row["DDR Read(byte)"], row["DDR Write(byte)"]) == (1.2, 1000, 24)
    assert row["DDR Total(byte)"] == 1024


def test_the_total_has_dashes_ratios_weighted_by_time_and_sums_of_bytes() -> None:
    total = _objects([aicore_row(100, **COUNTERS), aicore_row(300, **{**COUNTERS, "mac_busy": 0.9, "dld": 0.2})])[-1]
    assert [total[c.title] for c in OP_SUMMARY[:4]] == ["-", "-", "total", "-"]
    assert (total["Mac Busy Ratio"], total["DLD Ratio"], total["DDR Total(byte)"]) == (80.0, 30.0, 2048)
    assert total["Memory Bound"] == round(0.3 / 0.8, 2)


def test_without_a_counter_map_all_pmu_columns_are_unknown() -> None:
    for row in _objects([aicore_row(700)]):
        assert {row[c.title] for c in OP_SUMMARY[6:]} == {"N/A"}


def test_a_counter_that_one_record_does_not_know_is_unknown_in_the_total_alone() -> None:
    first, _, total = _objects([aicore_row(1, **COUNTERS), aicore_row(1, **{**COUNTERS, "dstr": None})])
    assert (first["Dstr Ratio"], total["Dstr Ratio"], total["Memory Bound"]) == (10.0, "N/A", "N/A")
    assert total["WLD Ratio"] == 30.0


def test_a_record_without_a_layer_has_no_names() -> None:
    for index in (None, 99):
        row = _objects([aicore_row(700, index)])[0]
        assert [row[c.title] for c in OP_SUMMARY[:4]] == ["N/A"] * 4
        assert row["Time(us)"] == 100.0


def test_without_a_frequency_times_are_unknown_and_shares_are_not() -> None:
    row = _objects([aicore_row(700), aicore_row(2100)], frequency_mhz=None)[0]
    assert (row["Time(us)"], row["Time Ratio"]) == ("N/A", 25.0)


def test_no_records_give_no_rows() -> None:
    assert _objects([]) == []


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
