"""The vendor's table whose names are aliases."""

from __future__ import annotations

import codecs
import csv
import io
from typing import TYPE_CHECKING

from profagent.calibrate.vendor_table import ENCODINGS, TOTAL, is_value, parse_vendor_table

if TYPE_CHECKING:
    from profagent.evidence.aliases import Aliases

__all__ = ["with_aliases"]

_TYPE_TITLE = "layer type"


def with_aliases(data: bytes, file: str, aliases: Aliases) -> bytes:
    """Replace all texts but titles, types and the total's; in the encoding of the file. FormatError when it is none."""
    parse_vendor_table(data, file)
    encoding, text = _decoded(data)
    delimiter = "\t" if "," not in text.lstrip().partition("\n")[0] else ","
    heading, *rows = (
        row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if any(map(str.strip, row))
    )
    kept = {place for place, title in enumerate(heading) if title.strip().lower() == _TYPE_TITLE}
    written = io.StringIO(newline="")
    writer = csv.writer(written, delimiter=delimiter, lineterminator="\r\n" if "\r\n" in text else "\n")
    writer.writerow(heading)
    for row in rows:
        writer.writerow([cell if place in kept else _cell(cell, aliases) for place, cell in enumerate(row)])
    return written.getvalue().encode(encoding)


def _cell(cell: str, aliases: Aliases) -> str:
    text = cell.strip()
    if is_value(text) or text.lower() == TOTAL:
        return cell
    return cell.replace(text, aliases.of_cell(text))


def _decoded(data: bytes) -> tuple[str, str]:
    """The encoding, in which the text can be written again, and the text."""
    if data.startswith(codecs.BOM_UTF8):
        return "utf-8-sig", data.decode("utf-8-sig")
    try:
        return "utf-8", data.decode("utf-8")
    except UnicodeDecodeError:
        return ENCODINGS[-1], data.decode(ENCODINGS[-1])
