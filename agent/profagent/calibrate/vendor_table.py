"""The vendor's op_summary as numbers, each known to within its rounding (manual, 'AA Core')."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

import numpy as np

from profagent.errors import FormatError, UsageError
from profagent.formats.countermap import MAPPED_NAMES, MAPPED_RATIOS
from profagent.formats.names import display_text
from profagent.limits import LARGEST_EXPONENT, LARGEST_FRACTION, LARGEST_VENDOR_TABLE_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

NAME, TIME, SHARE = "layer name", "time(us)", "time ratio"
TITLES = dict(
    zip(
        (
            *("mac busy ratio", "mac ppen ratio", "vec busy ratio", "vec ppen ratio", "dstr ratio", "dtrans ratio"),
            *("dld ratio", "wld ratio", "ddr read(byte)", "ddr write(byte)"),
        ),
        MAPPED_NAMES,
        strict=True,
    )
)
TOTAL = "total"
NOT_KNOWN = ("", "n/a", "-", "nan", "none")
PERCENT = 100.0
# Significant digits of a double that survive arithmetic.
FLOAT_DIGITS = 14
# The manual's name of an op_summary ends in model id, batch, pictures, pictures before, miss rate and frequency.
_PICTURES = re.compile(
    r"\.(\d+)\.(\d+)\.(\d+)\.(\d+)(?:\.(?:[01]\.\d+|NA)\.(?:\d+|NA))?(?:\.\d+)?\.(?:csv|txt|xls|tsv)$"
)


@dataclass(frozen=True, slots=True)
class Rounded:
    """Column of numbers: `values` of shape (rows,), NaN where unknown; each may be off by `half`, the same for all."""

    values: npt.NDArray[np.float64]
    half: float


@dataclass(frozen=True, slots=True)
class VendorTable:
    """Rows of the layers of one op_summary, without the total.

    `names` are None where the file has none. Ratios in `columns`, by the counters' names, are fractions.
    """

    file: str
    names: tuple[str | None, ...]
    time_us: Rounded
    columns: Mapping[str, Rounded]


def inference_of_name(file: str) -> tuple[int, ...] | None:
    """Return model id, batch, pictures and pictures before; None if the name denotes no inference."""
    match = _PICTURES.search(file)
    return tuple(map(int, match.groups())) if match else None


def inference_suffix(file: str) -> str:
    """Return the end of a file's name that denotes the inference; empty if there is none."""
    match = _PICTURES.search(file)
    return match[0] if match else ""


def read_vendor_table(path: Path) -> bytes:
    """Return the bytes of an op_summary.

    Raises UsageError if the file cannot be read or is too large, FormatError if it is none.
    """
    hint = "name the vendor's table of one inference"
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_VENDOR_TABLE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read {display_text(str(path))}: {error.strerror}", hint=hint) from error
    if len(data) > LARGEST_VENDOR_TABLE_BYTES:
        raise UsageError(f"{display_text(str(path))} is too large for an op_summary", hint=hint)
    parse_vendor_table(data, str(path))
    return data


def parse_vendor_table(data: bytes, file: str) -> VendorTable:
    """Return the rows of an op_summary: UTF-8 or GBK, commas or tabs, ratios as fractions or percentages.

    Raises FormatError if it is none.
    """
    heading, *rows = table_cells(data, file) or [[]]
    titles = [" ".join(title.lower().split()).replace(" (", "(").removesuffix("(%)") for title in heading]
    if not TITLES.keys() & {*titles}:
        expected = "a heading with Mac Busy Ratio and the other columns of an op_summary"
        raise FormatError(file, 0, expected, ",".join(titles)[:80] or "nothing", hint="name the vendor's op_summary")
    layers = [row + [""] * len(titles) for row in rows if TOTAL not in map(str.lower, row)]
    columns = {title: [row[place] for row in layers] for place, title in enumerate(titles)}
    texts = {TITLES[title]: cells for title, cells in columns.items() if title in TITLES}
    ratios = [cells for name, cells in texts.items() if not name.endswith("_bytes")]
    unit = _unit(ratios, columns.get(SHARE, []), file)
    nothing = [""] * len(layers)
    return VendorTable(
        file,
        tuple(None if name.lower() in NOT_KNOWN else name for name in columns.get(NAME, nothing)),
        _rounded(columns.get(TIME, nothing)),
        {
            name: _rounded(texts[name], 1.0 if name.endswith("_bytes") else unit)
            for name in MAPPED_NAMES
            if name in texts
        },
    )


def table_cells(data: bytes, file: str) -> list[list[str]]:
    """Return the heading and the rows of a table. Raises FormatError if it is none."""
    try:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            # GB 18030 contains GBK.
            text = data.decode("gb18030")
        delimiter = "\t" if "," not in text.lstrip().partition("\n")[0] else ","
        read = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        return [[cell.strip() for cell in row] for row in read if any(map(str.strip, row))]
    except (UnicodeDecodeError, csv.Error) as error:
        hint = "name the vendor's op_summary, a CSV file"
        raise FormatError(file, 0, "a table in UTF-8 or GBK", str(error), hint=hint) from error


def is_value(cell: str) -> bool:
    """Return True if a cell is a number, or stands for an unknown one."""
    return cell.lower() in NOT_KNOWN or _number(cell) is not None


def _rounded(cells: Sequence[str], unit: float = 1.0) -> Rounded:
    numbers = [_number(cell) for cell in cells]
    # A tool may write 0.5 for 0.50, so a short number alone tells no precision.
    decimals = max((_decimals(number) for number in numbers if number is not None), default=0)
    # A spreadsheet that writes 1.00159E+12 has dropped digits, so the number is unknown.
    values = [float(number) if number is not None and _decimals(number) >= 0 else float("nan") for number in numbers]
    return Rounded(np.array(values, dtype=np.float64) / unit, 0.5 * 10.0 ** -max(decimals, 0) / unit)


def _number(cell: str) -> Decimal | None:
    try:
        number = Decimal(cell.rstrip("%"))
    except InvalidOperation:
        return None
    if not number.is_finite() or abs(number.adjusted()) >= LARGEST_EXPONENT:
        return None
    # Arithmetic on doubles makes 82.67999999999999 of 82.68.
    return number if len(number.as_tuple().digits) <= FLOAT_DIGITS else Decimal(f"{float(number):.{FLOAT_DIGITS}g}")


def _decimals(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int), "a finite number"
    return -exponent


def _unit(ratios: Sequence[Sequence[str]], shares: Sequence[str], file: str) -> float:
    """Return the number that the file writes for all of a layer's time: 1, or 100.

    The layers' shares of the net may be in another unit. Raises FormatError if there are few ratios, small in every
    layer, that may be either.
    """
    known = [cells for cells in ratios if any(_number(cell) is not None for cell in cells)]
    largest = max((float(np.nanmax(_rounded(cells).values, initial=0.0)) for cells in known), default=0.0)
    # A fraction of a layer's time is at most 1, up to errors of measurement.
    if largest > LARGEST_FRACTION or any("%" in cell for cells in known for cell in cells):
        return PERCENT
    if 0 < len(known) < len(MAPPED_RATIOS) and float(np.nansum(_rounded(shares).values)) > LARGEST_FRACTION:
        found = f"{len(known)} of them with values, none above {largest:g}"
        hint = "give a table with all of them: these may be fractions or percentages"
        raise FormatError(file, 0, f"{len(MAPPED_RATIOS)} columns of ratios", found, hint=hint)
    return 1.0
