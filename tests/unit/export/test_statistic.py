"""Calls, gathered by process, thread and name."""

from __future__ import annotations

from typing import Any

from profagent.cli.table import ACL_STATISTIC, as_object
from profagent.export.tables import acl_statistic_rows
from profagent.store.queries import CallRow

TIMES = ("Total Time(us)", "Count", "Avg(us)", "Max(us)", "Min(us)")


def _times(row: dict[str, Any]) -> list[Any]:
    return [row[title] for title in TIMES]


def _call(name: str, begin_us: int | None, end_us: int, tid: int = 1) -> CallRow:
    return CallRow(name, "model", begin_us, end_us, 9, tid)


def _acl(calls: list[CallRow]) -> list[dict[str, Any]]:
    return [as_object(ACL_STATISTIC, row) for row in acl_statistic_rows(calls)]


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
