"""The vendor's op_summary as numbers that are known to within their rounding (manual, 'AA Core')."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

import numpy as np

from profagent.errors import FormatError
from profagent.formats.countermap import COUNTER_NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

__all__ = ["ENCODINGS", "TOTAL", "Rounded", "VendorTable", "is_value", "parse_vendor_table"]

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
# No fraction of a layer's time is so far above 1, and of all ratios of a net some percentage is.
LARGEST_FRACTION = 1.5
ALL_RATIOS = 8
PERCENT = 100.0
LARGEST_EXPONENT = 100
# Digits that a number in a file of floats surely has.
FLOAT_DIGITS = 14


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
    titles, rows = _cells(_decoded(data, file), file)
    if not TITLES.keys() & {*titles}:
        expected = "a heading with Mac Busy Ratio and the other columns of an op_summary"
        raise FormatError(file, 0, expected, ",".join(titles)[:80] or "nothing", hint="name the vendor's op_summary")
    columns = {title: [row[place] for row in rows] for place, title in enumerate(titles)}
    texts = {TITLES[title]: cells for title, cells in columns.items() if title in TITLES}
    ratios = {name: cells for name, cells in texts.items() if not name.endswith("_bytes")}
    unit = _unit(ratios, columns.get(SHARE, []), file)
    found = {name: _rounded(cells, unit if name in ratios else 1.0) for name, cells in texts.items()}
    names = columns.get(NAME) or [""] * len(rows)
    return VendorTable(
        file,
        tuple(None if name.lower() in NOT_KNOWN else name for name in names),
        _rounded(columns.get(TIME) or [""] * len(rows)),
        {name: found[name] for name in COUNTER_NAMES if name in found},
    )


def is_value(cell: str) -> bool:
    """Whether a cell is a number, or stands for one that is not known."""
    return cell.lower() in NOT_KNOWN or _number(cell) is not None


def _decoded(data: bytes, file: str) -> str:
    for encoding in ENCODINGS:
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    raise FormatError(file, 0, "UTF-8 or GBK", "other bytes", hint="name the vendor's op_summary, a CSV file")


def _cells(text: str, file: str) -> tuple[list[str], list[list[str]]]:
    """Titles in small letters, and the cells of each layer's row, all as wide as the titles."""
    delimiter = "\t" if "," not in text.lstrip().partition("\n")[0] else ","
    try:
        read = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        rows = [[cell.strip() for cell in row] for row in read if any(map(str.strip, row))]
    except csv.Error as error:
        raise FormatError(file, 0, "a table of cells", str(error), hint="name the vendor's op_summary") from error
    if not rows:
        return [], []
    titles = [" ".join(title.lower().split()).replace(" (", "(").removesuffix("(%)") for title in rows[0]]
    layers = [(row + [""] * len(titles))[: len(titles)] for row in rows[1:] if TOTAL not in map(str.lower, row)]
    return titles, layers


def _rounded(cells: Sequence[str], unit: float = 1.0) -> Rounded:
    """The numbers in units of `unit`; a column is as precise as its longest number, as 0.5 may stand for 0.50."""
    numbers = [_number(cell) for cell in cells]
    decimals = max((_decimals(number) for number in numbers if number is not None), default=0)
    # A spreadsheet that wrote 1.00159E+12 has cut the number short.
    values = [float(number) if number is not None and _decimals(number) >= 0 else float("nan") for number in numbers]
    return Rounded(np.array(values, dtype=np.float64) / unit, 0.5 * 10.0 ** -max(decimals, 0) / unit)


def _number(cell: str) -> Decimal | None:
    """None for what is no number."""
    try:
        number = Decimal(cell.rstrip("%"))
    except InvalidOperation:
        return None
    if not number.is_finite() or abs(number.adjusted()) >= LARGEST_EXPONENT:
        return None
    # Arithmetic on floats makes 82.67999999999999 of 82.68.
    return number if len(number.as_tuple().digits) <= FLOAT_DIGITS else Decimal(f"{float(number):.{FLOAT_DIGITS}g}")


def _decimals(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int), "a finite number"
    return -exponent


def _unit(ratios: Mapping[str, Sequence[str]], shares: Sequence[str], file: str) -> float:
    """What the file writes for all of a layer's time: 1, or 100. The layers' shares of the net need not be like it.

    Raises FormatError where a few ratios that are small in every layer may be either.
    """
    known = [cells for cells in ratios.values() if any(_number(cell) is not None for cell in cells)]
    largest = max(map(_largest, known), default=0.0)
    if largest > LARGEST_FRACTION or any("%" in cell for cells in known for cell in cells):
        return PERCENT
    if 0 < len(known) < ALL_RATIOS and float(np.nansum(_rounded(shares).values)) > LARGEST_FRACTION:
        found = f"{len(known)} of them with values, none above {largest:g}"
        hint = "give a table with all of them: these may be fractions or percentages"
        raise FormatError(file, 0, f"{ALL_RATIOS} columns of ratios", found, hint=hint)
    return 1.0


def _largest(cells: Sequence[str]) -> float:
    return float(np.nanmax(_rounded(cells).values, initial=0.0))
