"""Tables of the Python API: rows in columns with units, which every consumer of Arrow reads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from html import escape
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from profagent.errors import UsageError
from profagent.limits import ROWS_IN_REPR, WIDTH_OF_REPR
from profagent.tables.arrow import ArrowStream, ColumnValues, Field, columns_from
from profagent.tables.table import UNKNOWN, Column, counted, table_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from profagent.api.provenance import Provenance
    from profagent.tables.arrow import Batch


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Rows in columns, with the unit of each column and the provenance of all.

    pandas, polars, DuckDB and pyarrow take it through the Arrow PyCapsule interface: `polars.DataFrame(table)`,
    `pyarrow.table(table)`, `duckdb.from_arrow(table)`. The rows of records, inferences, calls and of what the board
    measured stay in the database until they are read, which each reading does anew: a session that still goes on then
    has more of them. An unknown value is NULL, NaN or None, and never a guess. `fields` has name, type and unit of each
    column, in their order.

    >>> import profagent
    >>> layers = profagent.open("lab").session().layers()
    >>> layers.fields[5]
    Field(name='in_inference', kind='float64', unit='us')
    >>> layers["layer"][:2]
    ['conv2', 'fc']
    """

    fields: tuple[Field, ...]
    provenance: Provenance
    _read: Callable[[], Iterator[Batch]]
    _count: Callable[[], int]

    @classmethod
    def of_rows(cls, fields: Sequence[Field], rows: Sequence[Sequence[Any]], provenance: Provenance) -> Table:
        """Return a table of rows in memory; None is an unknown value."""
        batch = columns_from(fields, rows)
        return cls(tuple(fields), provenance, lambda: iter([batch] if rows else []), lambda: len(rows))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(field.name for field in self.fields)

    @cached_property
    def _rows(self) -> int:
        return self._count()

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, name: str) -> list[Any]:
        """Return the values of a column; None is unknown. Raises KeyError for another name."""
        place = self.names.index(name) if name in self.names else -1
        if place < 0:
            raise KeyError(f"there is no column {name!r}: {', '.join(self.names)}")
        kind = self.fields[place].kind
        return [cell for batch in self._read() for cell in batch[place].cells(kind)]

    def batches(self) -> Iterator[Table]:
        """Yield the rows in successive tables of bounded size, each in memory: for more rows than memory holds.

        Raises StoreError if the database cannot be read.
        """
        for batch in self._read():
            yield self._part(batch)

    def _part(self, batch: Batch) -> Table:
        return Table(self.fields, self.provenance, lambda: iter([batch]), lambda: len(batch[0]) if batch else 0)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries by column name; None is an unknown value. Raises StoreError."""
        return [dict(zip(self.names, row, strict=True)) for row in self._iterated()]

    def _iterated(self) -> Iterator[tuple[Any, ...]]:
        for batch in self._read():
            cells = (values.cells(field.kind) for field, values in zip(self.fields, batch, strict=True))
            yield from zip(*cells, strict=True)

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame, whose `attrs` have the units and the provenance.

        Raises UsageError if pandas is not installed, and StoreError.
        """
        try:
            pandas = import_module("pandas")
        except ImportError as error:
            raise UsageError("pandas is not installed", hint="pip install pandas, or use .to_dicts()") from error
        columns: list[list[ColumnValues]] = [[] for _ in self.fields]
        for batch in self._read():
            for parts, values in zip(columns, batch, strict=True):
                parts.append(values)
        found = {
            field.name: _series(pandas, field, ColumnValues.joined(field.kind, parts))
            for field, parts in zip(self.fields, columns, strict=True)
        }
        frame = pandas.DataFrame(found)
        frame.attrs = {"units": {field.name: field.unit for field in self.fields if field.unit}}
        frame.attrs |= self.provenance.metadata()
        return frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as a stream of the Arrow PyCapsule interface."""
        return self._stream.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Return the schema, with each column's unit in its metadata, and the provenance in that of the whole."""
        return self._stream.__arrow_c_schema__()

    @property
    def _stream(self) -> ArrowStream:
        return ArrowStream(self.fields, self._read, self.provenance.metadata())

    def _title(self) -> str:
        about = self.provenance
        what = f"session {about.session}" if about.session is not None else f"{len(about.parts)} sessions"
        marks = [] if about.complete else ["INCOMPLETE"]
        marks += ["simulated"] if about.simulated else []
        shape = f"{counted(len(self), 'row')} of {counted(len(self.fields), 'column')}"
        return ", ".join([f"{what}: {shape}", *marks])

    def _first(self) -> list[tuple[Any, ...]]:
        return [*islice(self._iterated(), ROWS_IN_REPR)]

    def __repr__(self) -> str:
        rows = self._first()
        columns = [Column(_heading(field), 3 if field.kind == "float64" else None) for field in self.fields]
        shown = next(
            count
            for count in range(len(columns), 0, -1)
            if count == 1 or len(next(table_lines(columns[:count], [row[:count] for row in rows]))) <= WIDTH_OF_REPR
        )
        lines = [self._title(), *table_lines(columns[:shown], [row[:shown] for row in rows])]
        if len(self) > len(rows):
            lines.append(f"… {len(self) - len(rows):,} more")
        if shown < len(columns):
            lines.append(f"further columns: {', '.join(self.names[shown:])}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        def row_of(cells: Sequence[Any], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{escape(_text(each))}</{tag}>" for each in cells) + "</tr>"

        rows = self._first()
        more = f"<p>… {len(self) - len(rows):,} more</p>" if len(self) > len(rows) else ""
        head = row_of([_heading(field) for field in self.fields], "th")
        body = "".join(row_of(row, "td") for row in rows)
        return f"<p>{escape(self._title())}</p><table>{head}{body}</table>{more}"


def _heading(field: Field) -> str:
    return f"{field.name}({field.unit})" if field.unit else field.name


def _text(value: Any) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _series(pandas: Any, field: Field, values: ColumnValues) -> Any:
    if field.kind == "category":
        codes = values.numbers if values.known is None else np.where(values.known, values.numbers, -1)
        return pandas.Categorical.from_codes(codes, categories=[*values.texts])
    if field.kind == "text":
        return values.cells(field.kind)
    if field.kind == "float64" or values.known is None:
        return values.numbers
    # Integers that may be unknown: floats would round large ones.
    return pandas.arrays.IntegerArray(values.numbers, ~values.known)
