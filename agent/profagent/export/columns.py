"""The columns of the vendor's tables, in the manual's order and spelling, and how their values are written."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ACL_STATISTIC", "DASH", "FREQUENCY", "OP_STATISTIC", "OP_SUMMARY", "UNKNOWN", "Cell", "Column", "cell_text"]

# What a value is when it is not known, and what stands for the total layer's own (manual, 'AA Core').
UNKNOWN = "N/A"
DASH = "-"

Cell = float | int | str | None
"""None is 'not known'."""


class Column(NamedTuple):
    """A column; numbers are rounded to `decimals`, None for columns of text and of whole numbers."""

    title: str
    decimals: int | None = None


_RATIO = 2
_TIME = 3

_TIMES = (
    Column("Total Time Ratio(%)", _RATIO),
    Column("Total Time(us)", _TIME),
    Column("Count"),
    Column("Avg(us)", _TIME),
    Column("Max(us)", _TIME),
    Column("Min(us)", _TIME),
)
OP_SUMMARY = (
    Column("Layer Id"),
    Column("Ori Layer Name"),
    Column("Layer Name"),
    Column("Layer Type"),
    Column("Time(us)", _TIME),
    Column("Time Ratio", _RATIO),
    Column("Mac Busy Ratio", _RATIO),
    Column("Mac Ppen Ratio", _RATIO),
    Column("Vec Busy Ratio", _RATIO),
    Column("Vec Ppen Ratio", _RATIO),
    Column("Dstr Ratio", _RATIO),
    Column("Dtrans Ratio", _RATIO),
    Column("DLD Ratio", _RATIO),
    Column("WLD Ratio", _RATIO),
    Column("Memory Bound", _RATIO),
    Column("DDR Read(byte)", 0),
    Column("DDR Write(byte)", 0),
    Column("DDR Total(byte)", 0),
)
OP_STATISTIC = (Column("Task ID"), Column("Stream ID"), Column("OP Name"), Column("Task Type"), *_TIMES)
ACL_STATISTIC = (Column("Process ID"), Column("Thread ID"), Column("Type"), Column("Name"), *_TIMES)
FREQUENCY = (Column("Device Id"), Column("Frequency(MHz)"))


def cell_text(column: Column, value: Cell) -> str:
    """A value as text."""
    if value is None:
        return UNKNOWN
    if isinstance(value, str) or column.decimals is None:
        return str(value)
    return f"{value:.{column.decimals}f}"
