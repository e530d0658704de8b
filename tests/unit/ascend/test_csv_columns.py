"""CSV by columns: what is stored is byte for byte that of the reader of rows, and only odd rows are left to that."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from profagent.ascend import csv_columns, csv_rows, summaries
from profagent.ascend.csv_columns import CsvRows
from profagent.ascend.csv_rows import read_sheet
from profagent.ascend.draft import Draft
from profagent.ascend.summaries import import_sheet
from profagent.errors import ResultError
from tests.unit.ascend.files import KERNEL_DETAILS, OP_SUMMARY, SUMMARIES, kernel
from tests.unit.ascend.test_samples import SAMPLES

_ROWS = [kernel(f"conv{place}", stream=str(place % 2), start=f"{1787504007005868 + place}.315\t") for place in range(9)]
_DETAILS = [f"{place // 4},conv{place},Conv2D,AI_CORE,{20 + place}.5,1.25,0,8" for place in range(9)]
# Rows that are read by columns, with values that are not what a kernel's usually are.
VALUES = {
    "a name of other letters": kernel("卷积\U0001f600\x7f\u2028"),
    "a tab in a name": kernel("a\tb"),
    "an empty name": kernel(""),
    "a quoted name": kernel('"a"'),
    "a comma and quotes in a name": kernel('"a,""b"""'),
    "an empty quoted name": kernel('""'),
    "a quote alone": kernel('""""'),
    "nothing known": kernel(start="N/A", duration="N/A", model="N/A", stream="N/A"),
    "no numbers": kernel(start="x", duration="NA", model="", stream=""),
    "thousands": kernel(start='"1,787,504,007,005,868"', duration='"1,234.5"'),
    "digits behind nanoseconds": kernel(start="1787504007005868.3155", duration="0.0005"),
    "ties": kernel(start="1787504007005868.3145", duration="1.0005"),
    "no digits behind the point": kernel(start="1787504007005868", duration="7."),
    "exponents": kernel(start="1.787504007005868e15", duration="1e3"),
    "signs": kernel(start="+1787504007005868", duration="-1"),
    "spaces": kernel(start=" 1787504007005868 ", duration=" 4 "),
    "as Python writes": kernel(start="1_787_504_007_005_868", duration="1_000"),
    "too large": kernel(start="9223372036854775808", duration="1e300"),
    "as large as it may be": kernel(start="9223372036854775.807", duration="9223372036854775.807"),
    "not finite": kernel(start="inf", duration="nan"),
    "before 1970": kernel(start="-5.5", duration="inf"),
    "-0": kernel(start="-0", duration="-0").replace("0.125", "-0"),
    "on the AI CPU": kernel().replace("AI_CORE", "AI_CPU"),
}
# What stands in the place of a row, and is left to the reader of rows with all that follows.
ODD = {
    "an empty line": "",
    "a short row": "0,1",
    "a long row": f"{kernel()},1",
    "a further header": OP_SUMMARY,
    "a header of another family": "\n".join(SUMMARIES["op_statistic"]),
    "a quote in a name": kernel('a"b'),
    "two quotes in a name": kernel('a"b"'),
    "a text behind a quote": kernel('"a"b'),
    "a text before a quote": kernel(' "a"'),
    "an end of a line in a name": kernel('"a\nb"'),
    "a lost quote": kernel('"a'),
    "a formula": kernel("'=1+1"),
    "a control as it is exported": kernel("\\x1b"),
    "a control": kernel("\x1b"),
    "a NUL byte": kernel("a\0b"),
    "no UTF-8": kernel("\udcff"),
    "an end of a line of long ago": kernel("a\rb"),
    "a mark in the middle": f"\ufeff{kernel()}",
}


def _files() -> dict[str, str]:
    """Contents by name; what is odd stands between rows that are not."""
    files = {f"value: {name}": "\n".join([OP_SUMMARY, *_ROWS, row, *_ROWS, ""]) for name, row in VALUES.items()}
    files |= {f"odd: {name}": "\n".join([OP_SUMMARY, *_ROWS, row, *_ROWS, ""]) for name, row in ODD.items()}
    files |= {f"family: {name}": "\n".join([header, *[row] * 5, ""]) for name, (header, row) in SUMMARIES.items()}
    plain = "\n".join([OP_SUMMARY, *_ROWS, ""])
    return files | {
        "no end": plain[:-1],
        "a last row that is cut": plain[:-30],
        "ends of lines as DOS has them": plain.replace("\n", "\r\n"),
        "both ends of lines": plain.replace("\n", "\r\n", 4),
        "a mark": f"\ufeff{plain}",
        "empty lines before the header": f"\n \n{plain}",
        "a quoted header": plain.replace("Op Name", '"Op Name"', 1),
        "a header alone": f"{OP_SUMMARY}\n",
        "empty columns": "\n".join([f"{KERNEL_DETAILS},more", *(f"{row}," for row in _DETAILS), ""]),
        "steps": "\n".join([KERNEL_DETAILS, *_DETAILS, _DETAILS[0].replace("0,", ",", 1), ""]),
        "one column": "people\nann\nbob\n\nconv\n",
    }


def _stored(contents: dict[str, bytes], folder: Path) -> tuple[list[str], list[str]]:
    """All rows that come of files, and what is said of them."""
    folder.mkdir()
    draft, said = Draft(folder / "draft.db", None, "0"), []
    for name, content in contents.items():
        file = folder / "x.csv"
        file.write_bytes(content)
        log = draft.begin_file(name, 0, has_kernels=True)
        try:
            import_sheet(draft, log, file, read_sheet(file), has_kernels=True)
        except ResultError as error:
            said.append(f"{name}: {error}".replace(str(folder), ""))
    draft.finish("board", "job", "address", (1, 2), {})
    with closing(sqlite3.connect(folder / "draft.db")) as connection:
        return list(connection.iterdump()), said


@pytest.mark.parametrize(("rows_per_block", "piece_bytes"), [(2, 600), (4, 1 << 20)])
def test_both_readers_store_the_same(
    rows_per_block: int, piece_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {name: text.encode("utf-8", "surrogateescape") for name, text in _files().items()}
    samples = SAMPLES.rglob("*.csv") if piece_bytes > 600 else ()
    contents |= {f"sample: {file.parent.name}/{file.name}": file.read_bytes() for file in samples}
    for module in (csv_rows, csv_columns):
        monkeypatch.setattr(module, "CSV_ROWS_PER_BLOCK", rows_per_block)
    monkeypatch.setattr(csv_columns, "CSV_COLUMNS_BYTES", piece_bytes)
    monkeypatch.setattr(summaries, "WORTH_COLUMNS_BYTES", 0)
    by_columns = _stored(contents, tmp_path / "columns")
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "profagent.ascend.csv_columns", None)
        by_rows = _stored(contents, tmp_path / "rows")
    assert by_columns[1] == by_rows[1]
    assert len(by_rows[1]) > 5
    assert by_columns[0] == by_rows[0]


def _read(file: Path, text: str) -> tuple[int, int, int]:
    """How many rows are read by columns, up to which byte and line."""
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    plain = CsvRows(file, OP_SUMMARY.split(","), ())
    return sum(block.count for block in plain), plain.offset, plain.lines


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("name", VALUES)
def test_odd_values_are_read_by_columns(name: str, end: str, tmp_path: Path) -> None:
    text = end.join([OP_SUMMARY, *_ROWS, VALUES[name], *_ROWS, ""])
    assert _read(tmp_path / "x.csv", text) == (19, len(text.encode()), 20)


@pytest.mark.parametrize("name", ODD)
def test_odd_rows_are_left_with_all_that_follows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_columns, "CSV_ROWS_PER_BLOCK", 3)
    monkeypatch.setattr(csv_columns, "CSV_COLUMNS_BYTES", 50)
    before = "\n".join([OP_SUMMARY, *_ROWS[:6], ""])
    rows, offset, lines = _read(tmp_path / "x.csv", "\n".join([before + _ROWS[6], ODD[name], *_ROWS, ""]))
    assert (rows, offset, lines) == (6, len(before), 7)
