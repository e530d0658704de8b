"""The columns of the manual's tables, and how their cells are written."""

from __future__ import annotations

from typing import Any

import pytest

from profagent.cli.table import ACL_STATISTIC, OP_STATISTIC, OP_SUMMARY, Column, cell_text


def test_op_summary_has_the_columns_of_the_manual() -> None:
    assert ",".join(column.title for column in OP_SUMMARY) == (
        "Layer Id,Ori Layer Name,Layer Name,Layer Type,Time(us),Time Ratio,Mac Busy Ratio,Mac Ppen Ratio,"
        "Vec Busy Ratio,Vec Ppen Ratio,Dstr Ratio,Dtrans Ratio,DLD Ratio,WLD Ratio,Memory Bound,DDR Read(byte),"
        "DDR Write(byte),DDR Total(byte)"
    )


def test_the_statistics_have_the_columns_of_the_manual() -> None:
    times = "Total Time Ratio(%),Total Time(us),Count,Avg(us),Max(us),Min(us)"
    assert ",".join(c.title for c in OP_STATISTIC) == f"Task ID,Stream ID,OP Name,Task Type,{times}"
    assert ",".join(c.title for c in ACL_STATISTIC) == f"Process ID,Thread ID,Type,Name,{times}"


@pytest.mark.parametrize(
    ("decimals", "value", "text"),
    [
        (3, 1.0, "1.000"),
        (2, 66.666, "66.67"),
        (3, None, "N/A"),
        (2, "-", "-"),
        (None, 12, "12"),
        (0, 1024.0, "1024"),
    ],
)
def test_numbers_have_their_column_s_decimals(decimals: Any, value: Any, text: Any) -> None:
    assert cell_text(Column("x", decimals), value) == text
