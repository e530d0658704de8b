"""A kit without names: of models in file names, of layers in `.info` files and the vendor's tables."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import defaultdict
from contextlib import suppress
from string import ascii_lowercase
from typing import TYPE_CHECKING

from profagent.calibrate.vendor_table import ENCODINGS, TOTAL, is_value, parse_vendor_table
from profagent.errors import FormatError
from profagent.formats.model_info import (
    BATCH_LAYER,
    BATCH_LAYER_COUNT,
    LAYER_COUNT,
    LAYER_ID,
    LAYER_ITEM,
    LAYER_NAME,
    LAYER_TYPE,
    MAX_LOOP,
    NET_ID,
    NET_INFO,
    NET_TYPE,
    OUTPUT_INDEX,
    PROF_LAYER_COUNT,
    PROF_LAYER_ID,
    SEGMENT_ID,
    TAG_BYTES,
    item_starts,
    iter_items,
)
from profagent.formats.names import LogKind, parse_log_name

if TYPE_CHECKING:
    from profagent.formats.model_info import Item
    from profagent.formats.names import LogName


# What joins the names of fused layers; the first is that of profagent, others may be the vendor's.
_JOINTS = (re.compile(r"(\+)"), re.compile(r"([,;|& ]+)"))
# From so many letters on, they say what was replaced.
LETTERED_FROM = 4


class Aliases:
    """What names of one kind, `letter`, were replaced by. Aliases are small letters, behind the kind's own."""

    def __init__(self, letter: str) -> None:
        self._letter = letter
        self._known: dict[str, str] = {}
        self._of_length: dict[int, int] = defaultdict(int)

    def __len__(self) -> int:
        return len(self._known)

    def of(self, name: str, length: int | None = None) -> str:
        """The alias of one name; `length` is in bytes, that of UTF-8 unless given."""
        if name not in self._known:
            size = len(name.encode("utf-8", "surrogateescape")) if length is None else length
            self._known[name] = self._made(size)
        return self._known[name]

    def of_cell(self, text: str) -> str:
        """The alias of a cell of a table: the name that it is, or those that it joins by whatever."""
        if text in self._known:
            return self._known[text]
        parts = [part for chunk in _JOINTS[0].split(text) for part in self._parts(chunk)]
        return "".join(part if _is_joint(part) else self.of(part) for part in parts)

    def _parts(self, chunk: str) -> list[str]:
        """A known name whole, else what stands between joints."""
        return [chunk] if chunk in self._known else _JOINTS[1].split(chunk)

    def _made(self, size: int) -> str:
        number = self._of_length[size]
        self._of_length[size] += 1
        letter = self._letter if size >= LETTERED_FROM else ""
        digits = []
        for _ in range(size - len(letter)):
            number, digit = divmod(number, len(ascii_lowercase))
            digits.append(ascii_lowercase[digit])
        return letter + "".join(reversed(digits))


def _is_joint(part: str) -> bool:
    return not part or any(joint.fullmatch(part) for joint in _JOINTS)


_CONTAINERS = (LAYER_ITEM, NET_INFO)
# What is read of them; another number may be anything, in a torn file a part of a name.
_NUMBERS = frozenset(
    (
        *(LAYER_ID, BATCH_LAYER, SEGMENT_ID, PROF_LAYER_ID, OUTPUT_INDEX),
        *(NET_ID, NET_TYPE, LAYER_COUNT, PROF_LAYER_COUNT, BATCH_LAYER_COUNT, MAX_LOOP),
    )
)
_TYPE = re.compile(rb"[A-Za-z0-9_]{1,64}\0*")
# Of a container's 32-bit length, that is cut.
_LENGTH_BYTES = 2
_ENCODINGS = ("utf-8", "gb18030", "latin-1")


class InfoAliases:
    """Replaces the names of layers in `.info` files, and counts the other fields that it `zeroed`."""

    def __init__(self, aliases: Aliases) -> None:
        self._aliases = aliases
        self.zeroed = 0

    def replaced(self, data: bytes, file: str) -> bytes:
        """Give the file with aliases for names; known numbers and types stay, all else is zeros."""
        starts = item_starts(data)
        start, items = max(((start, _items(data, start, len(data), file)) for start in starts), key=_extent)
        changed = bytearray(len(data))
        # Before the items is the rest of a length, or of a text.
        if start <= _LENGTH_BYTES:
            changed[:start] = data[:start]
        for item in items:
            self._copy(changed, data, item)
            if item.id in _CONTAINERS and isinstance(item.value, bytes):
                for nested in _items(data, item.nested_start, item.end, file):
                    self._copy(changed, data, nested)
        return bytes(changed)

    def _copy(self, changed: bytearray, data: bytes, item: Item) -> None:
        if isinstance(item.value, int):
            kept = item.end if item.id in _NUMBERS else item.offset + TAG_BYTES
        else:
            kept = item.nested_start
        changed[item.offset : kept] = data[item.offset : kept]
        if isinstance(item.value, bytes) and item.id == LAYER_NAME:
            changed[item.nested_start : item.end] = self._alias(item.value)
        elif isinstance(item.value, bytes) and item.id == LAYER_TYPE and _TYPE.fullmatch(item.value):
            changed[item.nested_start : item.end] = item.value
        elif kept < item.end and item.id not in _CONTAINERS:
            self.zeroed += 1

    def _alias(self, value: bytes) -> bytes:
        """A name with as many bytes, up to its NUL."""
        name = value.split(b"\0", 1)[0]
        parts = [(_text(part), len(part)) for part in name.split(b"+")]
        aliases = (self._aliases.of(text, size)[:size].ljust(size, "x") for text, size in parts)
        return "+".join(aliases).encode("ascii").ljust(len(value), b"\0")


def _items(data: bytes, start: int, end: int, file: str) -> list[Item]:
    """As many as can be read."""
    items: list[Item] = []
    with suppress(FormatError):
        for item in iter_items(data, start, end, file):
            items.append(item)  # noqa: PERF402 - those before an error count
    return items


def _extent(found: tuple[int, list[Item]]) -> tuple[int, int]:
    """How many containers there are, and how much of the file is items."""
    start, items = found
    return sum(item.id in _CONTAINERS for item in items), (items[-1].end if items else start) - start


def _text(name: bytes) -> str:
    for encoding in _ENCODINGS:
        try:
            return name.decode(encoding)
        except UnicodeDecodeError:
            continue
    raise AssertionError("latin-1 decodes any bytes")


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


_INFO = (LogKind.NET_INFO, LogKind.LAYER_INFO)
_MARKER_TEXT = b"made by profagentd --simulate\n"


class Anonymous:
    """Replaces names, each by the same alias throughout. Give the `.info` files first: they tell names apart."""

    def __init__(self) -> None:
        self._models = Aliases("M")
        self._layers = Aliases("L")
        self._infos = InfoAliases(self._layers)

    @property
    def replaced(self) -> tuple[str, ...]:
        """What was replaced, for the manifest."""
        return (
            f"{len(self._models)} names of models in names of files, by as many letters",
            f"{len(self._layers)} names of layers in .layer.info and vendor tables, by as many letters",
            f"{self._infos.zeroed} other fields of .info files, by as many zeros",
        )

    def path(self, path: str) -> str:
        """A path in the JOB, with the model's alias."""
        name = parse_log_name(path)
        if name is None or not name.model:
            return path
        start = _model_start(path, name)
        return f"{path[:start]}{self._models.of(name.model)}{path[start + len(name.model) :]}"

    def content(self, path: str, data: bytes) -> bytes:
        """A file of the JOB by its own path, with as many bytes; those of the simulated board's marker may be fewer."""
        name = parse_log_name(path)
        if name is None:
            return _MARKER_TEXT
        return self._infos.replaced(data, path) if name.kind in _INFO else data

    def table(self, data: bytes, file: str) -> bytes:
        """The vendor's table with aliases for all texts but titles and types. Raises FormatError for another file."""
        return with_aliases(data, file, self._layers)


def _model_start(path: str, name: LogName) -> int:
    """Where the model's name begins: behind the folder, or behind the prefix and the device (format page 2.1)."""
    if name.kind in _INFO:
        return path.index("/") + 1
    return path.index(".", path.index(".") + 1) + 1
