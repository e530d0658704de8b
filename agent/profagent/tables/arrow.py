"""Columns of rows, and their export as an Arrow C stream, which pandas, polars, DuckDB and pyarrow read.

The structures are those of the Arrow C data interface, filled here so that profagent depends on no Arrow library. A
consumer copies nothing: arrays point to the memory of numpy, which lives until the consumer releases it.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Kind = Literal["int64", "uint64", "float64", "text", "category"]
"""Type of a column's values; a category is a text of which there are few different ones."""
# Format strings of the Arrow C data interface.
_FORMATS: Mapping[Kind, bytes] = {"int64": b"l", "uint64": b"L", "float64": b"g", "text": b"u", "category": b"i"}
_TYPES: Mapping[Kind, type[np.generic]] = {"int64": np.int64, "uint64": np.uint64, "float64": np.float64}
# The number that stands for an unknown value in a column of integers, where its bit says so.
_NO_NUMBER = 0


class Field(NamedTuple):
    """Name, type and unit of a column; the unit is empty where the values have none."""

    name: str
    kind: Kind
    unit: str = ""


class ColumnValues(NamedTuple):
    """ColumnValues of a column: numbers, or codes of texts.

    `known` is False where a value is unknown; None where all are known. Of a text or category, `numbers` are places
    in `texts`, none of which comes twice in a category.
    """

    numbers: NDArray[Any]
    known: NDArray[np.bool_] | None = None
    texts: Sequence[str] = ()

    @classmethod
    def of(cls, kind: Kind, values: Sequence[Any]) -> ColumnValues:
        """Return the values of a column of the database, in which None is unknown."""
        if kind in _TYPES:
            return cls._of_numbers(kind, values)
        places: dict[str, int] = {}
        codes = [-1 if each is None else places.setdefault(str(each), len(places)) for each in values]
        return cls.coded(np.array(codes, np.int32), [*places])

    @classmethod
    def _of_numbers(cls, kind: Kind, values: Sequence[Any]) -> ColumnValues:
        if kind == "float64":
            return cls.measured(np.array(values, np.float64))
        if kind == "uint64":
            # SQLite has no unsigned 64-bit integers, so the store holds larger numbers as texts.
            values = [None if each is None else int(each) for each in values]
        if None not in values:
            return cls(np.array(values, _TYPES[kind]))
        known = np.array([each is not None for each in values], np.bool_)
        return cls(np.array([_NO_NUMBER if each is None else each for each in values], _TYPES[kind]), known)

    @classmethod
    def measured(cls, numbers: NDArray[np.float64]) -> ColumnValues:
        """Return numbers of which NaN are unknown."""
        unknown = np.isnan(numbers)
        return cls(numbers, ~unknown if unknown.any() else None)

    @classmethod
    def whole(cls, numbers: NDArray[np.integer]) -> ColumnValues:
        """Return numbers of which those below 0 are unknown."""
        known = numbers >= 0
        return cls(numbers.astype(np.int64, copy=False), None if known.all() else known)

    @classmethod
    def coded(cls, codes: NDArray[np.integer], texts: Sequence[str]) -> ColumnValues:
        """Return texts by their places in `texts`; -1 is unknown."""
        known = codes >= 0
        return cls(codes.astype(np.int32, copy=False), None if known.all() else known, texts)

    @classmethod
    def joined(cls, kind: Kind, parts: Sequence[ColumnValues]) -> ColumnValues:
        """Return the values of several parts, one after the other."""
        if not parts:
            return cls.of(kind, ())
        known = None
        if any(each.known is not None for each in parts):
            known = np.concatenate(
                [np.ones(len(each), np.bool_) if each.known is None else each.known for each in parts]
            )
        if kind in _TYPES:
            return cls(np.concatenate([each.numbers for each in parts]), known)
        places: dict[str, int] = {}
        codes = []
        for each in parts:
            # The last one is for code -1, an unknown text.
            place = np.array([*(places.setdefault(text, len(places)) for text in each.texts), -1], np.int32)
            codes.append(place[each.numbers])
        return cls(np.concatenate(codes), known, [*places])

    def __len__(self) -> int:
        return len(self.numbers)

    def taken(self, places: NDArray[np.integer]) -> ColumnValues:
        """Return the values at these places; those at places below 0 are unknown."""
        known = places >= 0
        if not len(self):
            return ColumnValues(np.full(len(places), -1).astype(self.numbers.dtype), known, self.texts)
        if self.known is not None:
            known = known & self.known[places]
        return ColumnValues(self.numbers[places], None if known.all() else known, self.texts)

    def at(self, part: slice) -> ColumnValues:
        """Return a part of the values."""
        return ColumnValues(self.numbers[part], None if self.known is None else self.known[part], self.texts)

    def cells(self, kind: Kind) -> list[Any]:
        """Return the values as numbers and texts of Python; an unknown value is None."""
        found: list[Any] = self.numbers.tolist()
        if kind not in _TYPES:
            found = [self.texts[each] if each >= 0 else None for each in found]
        if self.known is None:
            return found
        return [each if known else None for each, known in zip(found, self.known.tolist(), strict=True)]


Batch = Sequence[ColumnValues]
"""Columns of one length."""


def columns_from(fields: Sequence[Field], rows: Sequence[Sequence[Any]]) -> Batch:
    """Return rows of the database as columns; None is an unknown value."""
    cells = zip(*rows, strict=True) if rows else ((),) * len(fields)
    return [ColumnValues.of(field.kind, column) for field, column in zip(fields, cells, strict=True)]


class _Schema(ctypes.Structure):
    """ArrowSchema."""


class _Array(ctypes.Structure):
    """ArrowArray."""


class _Stream(ctypes.Structure):
    """ArrowArrayStream."""


_Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(_Schema))),
    ("dictionary", ctypes.POINTER(_Schema)),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]
_Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_Array))),
    ("dictionary", ctypes.POINTER(_Array)),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]
_Stream._fields_ = [
    (name, ctypes.c_void_p) for name in ("get_schema", "get_next", "get_last_error", "release", "private_data")
]
_NULLABLE = 2
_NAME = b"arrow_array_stream"
_SCHEMA_NAME = b"arrow_schema"

# What structures point to, by their `private_data`: it lives until a consumer calls `release`, from any thread.
_held: dict[int, Any] = {}
_keys = count(1)


def _hold(what: Any) -> int:
    key = next(_keys)
    _held[key] = what
    return key


def _release(pointer: Any) -> None:
    """Release a structure with the children that are still its own: a consumer may have moved some elsewhere."""
    found = pointer.contents
    children = [found.children[place] for place in range(found.n_children)]
    for each in (*children, *([found.dictionary] if found.dictionary else ())):
        if each.contents.release:
            _release(each)
    _held.pop(found.private_data, None)
    found.release = None


_RELEASE_SCHEMA = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Schema))(_release)
_RELEASE_ARRAY = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Array))(_release)


def _address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value


def _pointers(kind: Any, structures: Sequence[Any]) -> Any:
    return (ctypes.POINTER(kind) * len(structures))(*map(ctypes.pointer, structures))


def _packed(metadata: Mapping[str, str]) -> bytes | None:
    """Return metadata as the interface has it: the number of pairs, then each text behind its length."""
    if not metadata:
        return None
    texts = [text.encode() for pair in metadata.items() for text in pair]
    return struct.pack("=i", len(metadata)) + b"".join(struct.pack("=i", len(text)) + text for text in texts)


def _fill_schema(
    out: Any, form: bytes, name: str = "", metadata: Mapping[str, str] | None = None, children: Sequence[Any] = ()
) -> None:
    packed = _packed(metadata or {})
    out.format, out.name, out.metadata, out.flags = form, name.encode(), packed, _NULLABLE
    out.n_children, out.children = len(children), _pointers(_Schema, children)
    out.release = _address(_RELEASE_SCHEMA)
    out.private_data = _hold((packed, out.format, out.name, children, out.children))


def _field_schema(field: Field) -> Any:
    out = _Schema()
    _fill_schema(out, _FORMATS[field.kind], field.name, {"unit": field.unit} if field.unit else None)
    if field.kind == "category":
        texts = _Schema()
        _fill_schema(texts, _FORMATS["text"])
        out.dictionary = ctypes.pointer(texts)
        _held[out.private_data] = (_held[out.private_data], texts)
    return out


def _fill_array(out: Any, length: int, buffers: Sequence[NDArray[Any] | None], unknown: int = 0) -> None:
    arrays = [None if each is None else np.ascontiguousarray(each) for each in buffers]
    addresses = (ctypes.c_void_p * len(arrays))(*(None if each is None else each.ctypes.data for each in arrays))
    out.length, out.null_count, out.offset = length, unknown, 0
    out.n_buffers, out.buffers = len(arrays), addresses
    out.release = _address(_RELEASE_ARRAY)
    out.private_data = _hold((arrays, addresses))


def _utf8(texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return the offsets of texts in their joined bytes, and these."""
    encoded = [text.encode("utf-8", "replace") for text in texts]
    offsets = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(each) for each in encoded], out=offsets[1:])
    return offsets, np.frombuffer(b"".join(encoded) or b"\0", np.uint8)


def _column_array(kind: Kind, values: ColumnValues) -> Any:
    out, unknown, bits = _Array(), 0, None
    if values.known is not None:
        unknown, bits = int(len(values) - values.known.sum()), np.packbits(values.known, bitorder="little")
    if kind == "text":
        texts = ["" if place < 0 else values.texts[place] for place in values.numbers.tolist()]
        _fill_array(out, len(values), (bits, *_utf8(texts)), unknown)
    else:
        _fill_array(out, len(values), (bits, values.numbers), unknown)
    if kind == "category":
        texts_of = _Array()
        _fill_array(texts_of, len(values.texts), (None, *_utf8(values.texts)))
        out.dictionary = ctypes.pointer(texts_of)
        _held[out.private_data] = (_held[out.private_data], texts_of)
    return out


class _Reading:
    """Stream that a consumer reads: its fields, the batches that are to come, and the last error's text."""

    def __init__(self, fields: Sequence[Field], metadata: Mapping[str, str], batches: Iterator[Batch]) -> None:
        self.fields, self.metadata, self.batches = fields, metadata, batches
        self.error = ctypes.create_string_buffer(b"")


def _get_schema(stream: Any, out: Any) -> int:
    reading: _Reading = _held[stream.contents.private_data]
    ctypes.memset(out, 0, ctypes.sizeof(_Schema))
    _fill_schema(out.contents, b"+s", "", reading.metadata, [_field_schema(each) for each in reading.fields])
    return 0


def _get_next(stream: Any, out: Any) -> int:
    reading: _Reading = _held[stream.contents.private_data]
    # An array without `release` is the end of the stream.
    ctypes.memset(out, 0, ctypes.sizeof(_Array))
    try:
        batch = next(reading.batches, None)
        if batch is None:
            return 0
        columns = [_column_array(field.kind, each) for field, each in zip(reading.fields, batch, strict=True)]
    except Exception as error:  # noqa: BLE001 - the consumer gets its text, for no exception passes through C
        reading.error = ctypes.create_string_buffer(str(error).encode())
        return errno.EIO
    array = out.contents
    _fill_array(array, len(batch[0]) if batch else 0, (None,))
    array.n_children, array.children = len(columns), _pointers(_Array, columns)
    _held[array.private_data] = (_held[array.private_data], columns, array.children)
    return 0


def _get_last_error(stream: Any) -> int:
    reading: _Reading = _held[stream.contents.private_data]
    return ctypes.addressof(reading.error)


def _release_stream(stream: Any) -> None:
    reading: _Reading | None = _held.pop(stream.contents.private_data, None)
    close = getattr(reading and reading.batches, "close", None)
    if close is not None:
        close()
    stream.contents.release = None


# C functions, which live as long as the module: a consumer may call them at any time.
_GET_SCHEMA = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Stream), ctypes.POINTER(_Schema))(_get_schema)
_GET_NEXT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Stream), ctypes.POINTER(_Array))(_get_next)
_GET_LAST_ERROR = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_Stream))(_get_last_error)
_RELEASE_STREAM = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Stream))(_release_stream)

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_pointer_in = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_in.restype, _pointer_in.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)


def _destructor(kind: Any, name: bytes, release: Callable[[Any], None]) -> Any:
    def destroy(capsule: int) -> None:
        address = _pointer_in(capsule, name)
        structure = ctypes.cast(address, ctypes.POINTER(kind))
        # A consumer that took the structure has left it released.
        if structure.contents.release:
            release(structure)
        _held.pop(-address, None)

    return ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(destroy)


_destroy_stream = _destructor(_Stream, _NAME, _release_stream)
_destroy_schema = _destructor(_Schema, _SCHEMA_NAME, _release)


def _capsule(structure: Any, name: bytes, destroy: Any) -> object:
    address = ctypes.addressof(structure)
    # Addresses are held below 0, where no key of `_hold` is.
    _held[-address] = structure
    return _new_capsule(address, name, _address(destroy))


def schema_capsule(fields: Sequence[Field], metadata: Mapping[str, str]) -> object:
    """Return a capsule with an ArrowSchema of these fields."""
    out = _Schema()
    _fill_schema(out, b"+s", "", metadata, [_field_schema(each) for each in fields])
    return _capsule(out, _SCHEMA_NAME, _destroy_schema)


def stream_capsule(fields: Sequence[Field], metadata: Mapping[str, str], batches: Iterator[Batch]) -> object:
    """Return a capsule with an ArrowArrayStream of batches, which are read as the consumer asks for them.

    The consumer may read in any thread, one at a time. An error of `batches` reaches it as an error of input; a
    generator is closed when the stream is released.
    """
    out = _Stream()
    out.get_schema, out.get_next = _address(_GET_SCHEMA), _address(_GET_NEXT)
    out.get_last_error, out.release = _address(_GET_LAST_ERROR), _address(_RELEASE_STREAM)
    out.private_data = _hold(_Reading(fields, metadata, batches))
    return _capsule(out, _NAME, _destroy_stream)


class ArrowStream(NamedTuple):
    """Rows that an Arrow consumer reads once for each call of `__arrow_c_stream__`."""

    fields: Sequence[Field]
    batches: Callable[[], Iterator[Batch]]
    metadata: Mapping[str, str] = {}

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a capsule with an ArrowArrayStream, as the Arrow PyCapsule interface asks for."""
        del requested_schema  # a consumer must cast by itself what it wants of another type
        return stream_capsule(self.fields, self.metadata, self.batches())

    def __arrow_c_schema__(self) -> object:
        """Return a capsule with the ArrowSchema."""
        return schema_capsule(self.fields, self.metadata)
