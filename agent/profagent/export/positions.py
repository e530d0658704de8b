"""Taking a stream of rows that is sorted by position apart, one position after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ByPosition"]


class _Positioned(Protocol):
    @property
    def position(self) -> int: ...


Row = TypeVar("Row", bound=_Positioned)


class ByPosition(Generic[Row]):
    """Gives each position's rows while it reads on; positions are asked for in rising order."""

    def __init__(self, rows: Iterator[Row]) -> None:
        self._rows = rows
        self._next = next(rows, None)

    def has(self, position: int) -> bool:
        """Whether any row is at this position."""
        while self._next is not None and self._next.position < position:
            self._next = next(self._rows, None)
        return self._next is not None and self._next.position == position

    def at(self, position: int) -> Iterator[Row]:
        """The rows at this position that were not read yet."""
        while self.has(position):
            assert self._next is not None, "has() found it"
            row, self._next = self._next, next(self._rows, None)
            yield row
