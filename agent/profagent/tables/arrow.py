"""Columns of rows, and their export as an Arrow C stream, which pandas, polars, DuckDB and pyarrow read.

nanoarrow, which is loaded when a stream is asked for, owns what a consumer is given: it may be released on any thread,
and while an exception is on its way, where no function of Python can run. Nothing is copied: arrays point to the memory
of numpy.
"""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    """Values of a column: numbers, or codes of texts.

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


class _Array(ctypes.Structure):
    """ArrowArray of the Arrow C data interface."""


_Array._fields_ = [
    *((name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")),
    ("buffers", ctypes.c_void_p),
    ("children", ctypes.c_void_p),
    ("dictionary", ctypes.POINTER(_Array)),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]


class _Stream(ctypes.Structure):
    """ArrowArrayStream of the Arrow C data interface."""

    _fields_ = tuple(
        (name, ctypes.c_void_p) for name in ("get_schema", "get_next", "get_last_error", "release", "private_data")
    )


_Release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _move(source: int, target: int) -> None:
    """Move an array between addresses, as the interface has it: the source counts as released."""
    ctypes.memmove(target, source, ctypes.sizeof(_Array))
    _Array.from_address(source).release = None


def _address(structure: Any) -> int:
    found: int = structure._addr()  # noqa: SLF001 - nanoarrow has no public name for it
    return found


def _schema(
    form: bytes, name: str = "", metadata: Mapping[str, str] | None = None, children: Sequence[Any] = ()
) -> Any:
    from nanoarrow._schema import CSchemaBuilder  # type: ignore[import-untyped]  # noqa: PLC0415 - only where it is needed

    builder = CSchemaBuilder.allocate()
    builder.set_format(form.decode())
    builder.set_name(name)
    builder.set_nullable(True)
    if metadata:
        builder.append_metadata({key.encode(): value.encode() for key, value in metadata.items()})
    builder.allocate_children(len(children))
    for place, (child_name, child) in enumerate(children):
        builder.set_child(place, child_name, child)
    return builder


def _field_schema(field: Field) -> Any:
    builder = _schema(_FORMATS[field.kind], field.name, {"unit": field.unit} if field.unit else None)
    if field.kind == "category":
        builder.set_dictionary(_schema(_FORMATS["text"]).finish())
    return builder.finish()


def schema_of(fields: Sequence[Field], metadata: Mapping[str, str]) -> Any:
    """Return a nanoarrow schema of these fields, with their units and with metadata of the whole."""
    children = [(field.name, _field_schema(field)) for field in fields]
    return _schema(b"+s", "", metadata, children).finish()


def _array(schema: Any, length: int, buffers: Sequence[Any], unknown: int = 0, children: Sequence[Any] = ()) -> Any:
    from nanoarrow.c_array import c_array_from_buffers  # type: ignore[import-untyped]  # noqa: PLC0415 - as above

    return c_array_from_buffers(
        schema, length, buffers, null_count=unknown, children=children, validation_level="none", move=True
    )


def _utf8(texts: Sequence[str]) -> tuple[NDArray[np.int32], bytes]:
    """Return the offsets of texts in their joined bytes, and these."""
    encoded = [text.encode("utf-8", "replace") for text in texts]
    offsets = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(each) for each in encoded], out=offsets[1:])
    return offsets, b"".join(encoded)


def _column_array(schema: Any, kind: Kind, values: ColumnValues) -> Any:
    unknown, bits = 0, None
    if values.known is not None:
        unknown, bits = int(len(values) - values.known.sum()), np.packbits(values.known, bitorder="little")
    if kind == "text":
        texts = ["" if place < 0 else values.texts[place] for place in values.numbers.tolist()]
        return _array(schema, len(values), (bits, *_utf8(texts)), unknown)
    column = _array(schema, len(values), (bits, np.ascontiguousarray(values.numbers)), unknown)
    if kind == "category":
        texts_of = _array(_schema(_FORMATS["text"]).finish(), len(values.texts), (None, *_utf8(values.texts)))
        # nanoarrow has made an empty dictionary: it is released, and the texts take its place.
        dictionary = _Array.from_address(_address(column)).dictionary.contents
        _Release(dictionary.release)(ctypes.addressof(dictionary))
        _move(_address(texts_of), ctypes.addressof(dictionary))
    return column


class _Reading:
    """Batches of a stream that a consumer reads, and the text of the error that ended them."""

    def __init__(self, fields: Sequence[Field], schema: Any, batches: Iterator[Batch]) -> None:
        self._fields, self._schema, self._batches = fields, schema, batches
        self.error = ctypes.create_string_buffer(b"")

    def next(self) -> Any:
        """Return the next batch as an array of nanoarrow; None at the end."""
        batch = next(self._batches, None)
        if batch is None:
            return None
        columns = [
            _column_array(self._schema.child(place), field.kind, values)
            for place, (field, values) in enumerate(zip(self._fields, batch, strict=True))
        ]
        return _array(self._schema, len(batch[0]) if batch else 0, (None,), children=columns)

    def close(self) -> None:
        """End the batches where they are."""
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()


# Streams that consumers read, by the `private_data` of nanoarrow, which no two of them share.
_readings: dict[int, _Reading] = {}


class _Anchor(bytearray):
    """Memory that a stream owns: it is freed when the consumer releases the stream, and ends the reading with it."""

    key = 0

    def __del__(self) -> None:
        reading = _readings.pop(self.key, None)
        if reading is not None:
            reading.close()


def _get_next(stream: int, out: int) -> int:
    ctypes.memset(out, 0, ctypes.sizeof(_Array))
    reading = _readings[_Stream.from_address(stream).private_data]
    try:
        array = reading.next()
    except Exception as error:  # noqa: BLE001 - no exception can pass through C: the consumer gets its text
        reading.error = ctypes.create_string_buffer(str(error).encode())
        return errno.EIO
    # An array without `release` is the end of the stream.
    if array is not None:
        _move(_address(array), out)
    return 0


def _get_last_error(stream: int) -> int:
    return ctypes.addressof(_readings[_Stream.from_address(stream).private_data].error)


# C functions, which live as long as the module: a consumer may call them at any time.
_GET_NEXT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(_get_next)
_GET_LAST_ERROR = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(_get_last_error)


def _stream_of(fields: Sequence[Field], metadata: Mapping[str, str], batches: Iterator[Batch]) -> Any:
    """Return a nanoarrow stream of batches, which are read as the consumer asks for them.

    The consumer may read in any thread, one at a time. An error of `batches` reaches it as an error of input; a
    generator is closed when the stream is released.
    """
    from nanoarrow._array_stream import CArrayStream  # type: ignore[import-untyped]  # noqa: PLC0415 - as above

    schema, anchor = schema_of(fields, metadata), _Anchor(1)
    # nanoarrow's stream of ready arrays gives the schema, and frees the anchor when it is released.
    stream = CArrayStream.from_c_arrays(
        [_array(_schema(b"c").finish(), 1, (None, anchor))], schema, move=False, validate=False
    )
    found = _Stream.from_address(_address(stream))
    found.get_next = ctypes.cast(_GET_NEXT, ctypes.c_void_p)
    found.get_last_error = ctypes.cast(_GET_LAST_ERROR, ctypes.c_void_p)
    anchor.key = found.private_data
    _readings[anchor.key] = _Reading(fields, schema, batches)
    return stream


class ArrowStream(NamedTuple):
    """Rows that an Arrow consumer reads once for each call of `__arrow_c_stream__`."""

    fields: Sequence[Field]
    batches: Callable[[], Iterator[Batch]]
    metadata: Mapping[str, str] = {}

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a capsule with an ArrowArrayStream, as the Arrow PyCapsule interface asks for."""
        del requested_schema  # a consumer must cast by itself what it wants of another type
        return _stream_of(self.fields, self.metadata, self.batches()).__arrow_c_stream__()

    def __arrow_c_schema__(self) -> object:
        """Return a capsule with the ArrowSchema."""
        return schema_of(self.fields, self.metadata).__arrow_c_schema__()
