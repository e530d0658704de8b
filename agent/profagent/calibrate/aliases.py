"""Names of models and layers replaced by letters: in names of files, in `.info` files and in the vendor's tables."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from string import ascii_lowercase
from typing import TYPE_CHECKING

from profagent.calibrate.vendor_table import TOTAL, is_value, table_cells
from profagent.errors import FormatError
from profagent.formats import model_info
from profagent.formats.model_info import TAG_BYTES, iter_items
from profagent.formats.names import LogKind, parse_log_name

if TYPE_CHECKING:
    from profagent.formats.model_info import Item

_INFO = (LogKind.NET_INFO, LogKind.LAYER_INFO)
_CONTAINERS = (model_info.LAYER_ITEM, model_info.NET_INFO)
# What is read of them; another number may be anything, in a torn file a part of a name.
_NUMBERS = {
    model_info.LAYER_ID, model_info.BATCH_LAYER, model_info.SEGMENT_ID, model_info.PROF_LAYER_ID,
    model_info.OUTPUT_INDEX, model_info.NET_ID, model_info.NET_TYPE, model_info.LAYER_COUNT,
    model_info.PROF_LAYER_COUNT, model_info.BATCH_LAYER_COUNT, model_info.MAX_LOOP,
}  # fmt: skip
_TYPE = re.compile(rb"[A-Za-z0-9_]{1,64}\0*")
# The rest of a container's 32-bit length, that may stand before the first item.
_LENGTH_BYTES = 2
_TYPE_TITLE = "layer type"
# From so many letters on, they say what was replaced.
LETTERED_FROM = 4


class Aliases:
    """What names of one kind, `letter`, were replaced by: as many letters as a name has bytes."""

    def __init__(self, letter: str) -> None:
        self._letter = letter
        self._known: dict[str, str] = {}
        self._of_length: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._known)

    def of(self, name: str, size: int | None = None) -> str:
        """The alias of one name; `size` is in bytes, that of UTF-8 unless given."""
        if name not in self._known:
            size = len(name.encode("utf-8", "surrogateescape")) if size is None else size
            number, self._of_length[size] = self._of_length[size], self._of_length[size] + 1
            alias = ""
            for _ in range(size - (size >= LETTERED_FROM)):
                number, digit = divmod(number, len(ascii_lowercase))
                alias = ascii_lowercase[digit] + alias
            self._known[name] = (self._letter if size >= LETTERED_FROM else "") + alias
        return self._known[name]

    def of_cell(self, text: str) -> str:
        """The alias of a cell of a table: of the name that it is, or of those that it joins."""
        return self._known.get(text) or "+".join(self.of(part) if part else "" for part in text.split("+"))


class Anonymous:
    """Replaces names, each by the same alias throughout. Give the `.info` files first: they tell names apart."""

    def __init__(self) -> None:
        self._models = Aliases("M")
        self._layers = Aliases("L")

    @property
    def replaced(self) -> tuple[str, ...]:
        """What was replaced, for the manifest."""
        return (
            f"{len(self._models)} names of models in names of files, by as many letters",
            f"{len(self._layers)} names of layers in .layer.info and vendor tables, by letters",
            "other fields of .info files, by as many zeros",
        )

    def path(self, path: str) -> str:
        """A path in the JOB, with the model's alias."""
        name = parse_log_name(path)
        if name is None or not name.model:
            return path
        # Behind the folder, or behind the prefix and the device (format page 2.1).
        start = path.index("/") + 1
        if name.kind not in _INFO:
            start = path.index(".", path.index(".") + 1) + 1
        return f"{path[:start]}{self._models.of(name.model)}{path[start + len(name.model) :]}"

    def content(self, path: str, data: bytes) -> bytes:
        """A file of the JOB by its own path: `.info` files with aliases for names, logs as they are."""
        name = parse_log_name(path)
        if name is None:
            return b""  # the mark of a simulated board, which names the model
        return self._info(data) if name.kind in _INFO else data

    def table(self, data: bytes, file: str) -> bytes:
        """The vendor's table as UTF-8 with commas; all texts but titles and types have aliases. FormatError."""
        heading, *rows = table_cells(data, file)
        kept = {place for place, title in enumerate(heading) if title.lower() == _TYPE_TITLE}
        written = io.StringIO(newline="")
        writer = csv.writer(written, lineterminator="\n")
        writer.writerow(heading)
        for row in rows:
            writer.writerow([cell if place in kept else self._cell(cell) for place, cell in enumerate(row)])
        return written.getvalue().encode()

    def _cell(self, cell: str) -> str:
        return cell if is_value(cell) or cell.lower() == TOTAL else self._layers.of_cell(cell)

    def _info(self, data: bytes) -> bytes:
        """As many bytes: known numbers and types stay, names have aliases, all else is zeros."""
        start, items = max(
            ((start, _items(data, start, len(data))) for start in model_info.item_starts(data)),
            key=lambda found: (sum(item.id in _CONTAINERS for item in found[1]), found[1][-1].end if found[1] else 0),
        )
        changed = bytearray(len(data))
        # Before the items is the rest of a length, or of a text.
        if start <= _LENGTH_BYTES:
            changed[:start] = data[:start]
        for item in items:
            self._copy(changed, data, item)
            for nested in _items(data, item.nested_start, item.end) if item.id in _CONTAINERS else ():
                self._copy(changed, data, nested)
        return bytes(changed)

    def _copy(self, changed: bytearray, data: bytes, item: Item) -> None:
        if isinstance(item.value, int):
            kept = item.end if item.id in _NUMBERS else item.offset + TAG_BYTES
        else:
            kept = item.nested_start
        changed[item.offset : kept] = data[item.offset : kept]
        if isinstance(item.value, bytes) and item.id == model_info.LAYER_NAME:
            changed[item.nested_start : item.end] = self._alias(item.value)
        elif isinstance(item.value, bytes) and item.id == model_info.LAYER_TYPE and _TYPE.fullmatch(item.value):
            changed[item.nested_start : item.end] = item.value

    def _alias(self, value: bytes) -> bytes:
        """A name with as many bytes, up to its NUL."""
        parts = value.split(b"\0", 1)[0].split(b"+")
        aliases = (self._layers.of(_text(part), len(part))[: len(part)].ljust(len(part), "x") for part in parts)
        return "+".join(aliases).encode("ascii").ljust(len(value), b"\0")


def _items(data: bytes, start: int, end: int) -> list[Item]:
    """As many as can be read."""
    items: list[Item] = []
    try:
        for item in iter_items(data, start, end, "info"):
            items.append(item)  # noqa: PERF402 - those before an error count
    except FormatError:
        pass
    return items


def _text(name: bytes) -> str:
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        return name.decode("gb18030", "surrogateescape")
