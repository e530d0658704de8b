"""The vendor's op_summary as numbers that are known to within their rounding (manual, 'AA Core')."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from profagent.errors import FormatError
from profagent.formats.countermap import COUNTER_NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

__all__ = ["Rounded", "VendorTable", "parse_vendor_table"]

# Of UTF-8 that is none, GB 18030 is tried: GBK is a part of it.
ENCODINGS = ("utf-8-sig", "gb18030")
NAME, TIME, SHARE = "layer name", "time(us)", "time ratio"
TITLES = {
    "mac busy ratio": "mac_busy",
    "mac ppen ratio": "mac_ppen",
    "vec busy ratio": "vec_busy",
    "vec ppen ratio": "vec_ppen",
    "dstr ratio": "dstr",
    "dtrans ratio": "dtrans",
    "dld ratio": "dld",
    "wld ratio": "wld",
    "ddr read(byte)": "ddr_read_bytes",
    "ddr write(byte)": "ddr_write_bytes",
}
TOTAL = "total"
NOT_KNOWN = ("", "n/a", "-", "nan", "none")
# Shares of an inference add up to 1 or to 100; no ratio of a layer is so far above 1 as a percentage is.
LARGEST_FRACTION = 1.5
PERCENT = 100.0


@dataclass(frozen=True, slots=True)
class Rounded:
    """A column: `values` of shape (rows,), NaN where not known; each may be off by `half`, the same for all."""

    values: npt.NDArray[np.float64]
    half: float


@dataclass(frozen=True, slots=True)
class VendorTable:
    """The rows of layers of one op_summary, without the total.

    `names` are None where the file has none. Ratios in `columns`, by the counters' names, are fractions.
    """

    file: str
    names: tuple[str | None, ...]
    time_us: Rounded
    columns: Mapping[str, Rounded]

    @property
    def rows(self) -> int:
        """How many layers there are."""
        return len(self.names)


def parse_vendor_table(data: bytes, file: str) -> VendorTable:
    """Read an op_summary: UTF-8 or GBK, commas or tabs, ratios as fractions or percentages.

    Raises FormatError when it is none.
    """
    titles, rows = _cells(_decoded(data, file))
    if not TITLES.keys() & {*titles}:
        expected = "a heading with Mac Busy Ratio and the other columns of an op_summary"
        raise FormatError(file, 0, expected, ",".join(titles)[:80] or "nothing", hint="name the vendor's op_summary")
    columns = {title: [row[place] for row in rows] for place, title in enumerate(titles)}
    texts = {TITLES[title]: cells for title, cells in columns.items() if title in TITLES}
    ratios = {name: cells for name, cells in texts.items() if not name.endswith("_bytes")}
    unit = _unit(_rounded(columns.get(SHARE, [])), [_rounded(cells) for cells in ratios.values()])
    found = {name: _rounded(cells, unit if name in ratios else 1.0) for name, cells in texts.items()}
    names = columns.get(NAME) or [""] * len(rows)
    return VendorTable(
        file,
        tuple(None if name.lower() in NOT_KNOWN else name for name in names),
        _rounded(columns.get(TIME) or [""] * len(rows)),
        {name: found[name] for name in COUNTER_NAMES if name in found},
    )


def _decoded(data: bytes, file: str) -> str:
    for encoding in ENCODINGS:
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    raise FormatError(file, 0, "UTF-8 or GBK", "other bytes", hint="name the vendor's op_summary, a CSV file")


def _cells(text: str) -> tuple[list[str], list[list[str]]]:
    """Titles in small letters, and the cells of each layer's row, all as wide as the titles."""
    lines = [line for line in text.splitlines() if line.strip()]
    delimiter = "\t" if lines and "," not in lines[0] else ","
    rows = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=delimiter)]
    if not rows:
        return [], []
    titles = [" ".join(title.lower().split()).replace(" (", "(").removesuffix("(%)") for title in rows[0]]
    layers = [(row + [""] * len(titles))[: len(titles)] for row in rows[1:] if TOTAL not in map(str.lower, row)]
    return titles, layers


def _rounded(cells: Sequence[str], unit: float = 1.0) -> Rounded:
    """The numbers in units of `unit`; a column is as precise as its longest number, as 0.5 may stand for 0.50."""
    values = np.array([_number(cell) for cell in cells], dtype=np.float64)
    decimals = max((len(cell.rstrip("%").partition(".")[2]) for cell in cells if _is_number(cell)), default=0)
    return Rounded(values / unit, 0.5 * 10.0**-decimals / unit)


def _number(cell: str) -> float:
    return float(cell.rstrip("%")) if _is_number(cell) else float("nan")


def _is_number(cell: str) -> bool:
    if cell.lower() in NOT_KNOWN:
        return False
    try:
        return bool(np.isfinite(float(cell.rstrip("%"))))
    except ValueError:
        return False


def _unit(shares: Rounded, ratios: Sequence[Rounded]) -> float:
    """What the file writes for all of a layer's time: 1, or 100."""
    total = float(np.nansum(shares.values))
    if total > 0:
        return PERCENT if total > LARGEST_FRACTION else 1.0
    largest = max((float(np.nanmax(each.values, initial=0.0)) for each in ratios), default=0.0)
    return PERCENT if largest > LARGEST_FRACTION else 1.0
