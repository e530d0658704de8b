"""Records and calls, gathered by name."""

from __future__ import annotations

from typing import Any

from profagent.cli.sheets import as_object
from profagent.cli.table import ACL_STATISTIC, OP_STATISTIC
from profagent.export.statistic import AA_CORE, AA_CPU, OpStatistic, acl_statistic_rows
from profagent.store.queries import CallRow, LayerRow
from profagent.store.selection import AicpuRow, LayerTimes
from tests.unit.export.rows import aicore_row

LAYERS = {0: LayerRow(4, "conv", "Convolution"), 1: LayerRow(5, "nms", "NMS"), 2: LayerRow(6, "conv", "Convolution")}
TIMES = ("Total Time(us)", "Count", "Avg(us)", "Max(us)", "Min(us)")


def _rows(statistic: OpStatistic) -> list[dict[str, Any]]:
    return [as_object(OP_STATISTIC, row) for row in statistic.rows()]


def _times(row: dict[str, Any]) -> list[Any]:
    return [row[title] for title in TIMES]


def _call(name: str, begin_us: int | None, end_us: int, tid: int = 1) -> CallRow:
    return CallRow(name, "model", begin_us, end_us, 9, tid)


def _acl(calls: list[CallRow]) -> list[dict[str, Any]]:
    return [as_object(ACL_STATISTIC, row) for row in acl_statistic_rows(calls)]


def test_layers_of_one_name_are_one_row_and_records_pass_through() -> None:
    statistic = OpStatistic(3, 100, LAYERS)
    records = [aicore_row(10, 0), aicore_row(30, 2)]
    assert list(statistic.passing(records)) == records
    (row,) = _rows(statistic)
    assert (row["Task ID"], row["Stream ID"], row["OP Name"], row["Task Type"]) == (0, 3, "conv", "AA_CORE")
    assert _times(row) == [40.0, 2, 20.0, 30.0, 10.0]
    assert row["Total Time Ratio(%)"] == 100.0


def test_both_units_share_the_total_and_stay_apart() -> None:
    statistic = OpStatistic(3, 700, LAYERS)
    list(statistic.passing([aicore_row(70, 1)]))
    statistic.add_aicpu([AicpuRow(0, 1, 20), AicpuRow(0, 1, 10)])
    core, cpu = _rows(statistic)
    assert (core["Task Type"], core["Total Time Ratio(%)"], core["Total Time(us)"]) == ("AA_CORE", 25.0, 10.0)
    assert (cpu["Task Type"], cpu["Total Time Ratio(%)"], cpu["Task ID"]) == ("AA_CPU", 75.0, 1)
    assert _times(cpu) == [30.0, 2, 15.0, 20.0, 10.0]


def test_records_without_a_layer_are_gathered_as_unknown() -> None:
    statistic = OpStatistic(None, 100, LAYERS)
    list(statistic.passing([aicore_row(10, None), aicore_row(20, 77)]))
    (row,) = _rows(statistic)
    assert (row["OP Name"], row["Stream ID"], row["Count"]) == ("N/A", "N/A", 2)


def test_without_a_frequency_only_the_cpu_s_times_are_known_and_no_share_is() -> None:
    statistic = OpStatistic(3, None, LAYERS)
    list(statistic.passing([aicore_row(10, 0)]))
    statistic.add_aicpu([AicpuRow(0, 1, 20)])
    core, cpu = _rows(statistic)
    assert _times(core) == ["N/A", 1, "N/A", "N/A", "N/A"]
    assert (cpu["Total Time(us)"], cpu["Total Time Ratio(%)"]) == (20.0, "N/A")


def test_what_was_gathered_by_layer_is_gathered_by_name() -> None:
    statistic = OpStatistic(3, 100, LAYERS)
    statistic.add_layers(AA_CORE, [LayerTimes(0, 0, 2, 30, 20, 10), LayerTimes(0, 2, 1, 60, 60, 60)])
    statistic.add_layers(AA_CPU, [LayerTimes(0, 1, 1, 10, 10, 10)])
    conv, nms = _rows(statistic)
    assert _times(conv) == [90.0, 3, 30.0, 60.0, 10.0]
    assert nms["Total Time Ratio(%)"] == 10.0


def test_no_records_give_no_rows() -> None:
    assert OpStatistic(3, 700, LAYERS).rows() == []


def test_calls_are_gathered_by_process_thread_and_name() -> None:
    execute, unload, elsewhere = _acl(
        [
            _call("execute", 100, 130),
            _call("unload", 200, 220),
            _call("execute", 300, 310),
            _call("execute", 100, 140, tid=2),
        ]
    )
    assert (execute["Process ID"], execute["Thread ID"], execute["Type"], execute["Name"]) == (9, 1, "model", "execute")
    assert _times(execute) == [40.0, 2, 20.0, 30.0, 10.0]
    assert [row["Total Time Ratio(%)"] for row in (execute, unload, elsewhere)] == [40.0, 20.0, 40.0]
    assert elsewhere["Thread ID"] == 2


def test_a_call_with_an_unknown_begin_is_counted_and_in_no_time() -> None:
    (row,) = _acl([_call("execute", None, 130), _call("execute", 300, 310)])
    assert _times(row) == [10.0, 2, 10.0, 10.0, 10.0]


def test_a_function_without_any_known_time_leaves_the_others_shares_known() -> None:
    load, execute = _acl([_call("load", None, 130), _call("execute", 300, 310)])
    assert _times(load) == ["N/A", 1, "N/A", "N/A", "N/A"]
    assert (load["Total Time Ratio(%)"], execute["Total Time Ratio(%)"]) == ("N/A", 100.0)


def test_calls_that_took_no_time_have_no_share() -> None:
    assert _acl([_call("execute", 5, 5)])[0]["Total Time Ratio(%)"] == "N/A"


def test_no_calls_give_no_rows() -> None:
    assert acl_statistic_rows([]) == []
