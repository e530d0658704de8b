"""What is remembered of much: the newest of it."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

K = TypeVar("K")
V = TypeVar("V")


class Lru(OrderedDict[K, V]):
    """The `most` keys that were set last; a value that has to go is given to `forget`."""

    def __init__(self, most: int, forget: Callable[[V], object] = lambda _: None) -> None:
        super().__init__()
        self._most, self._forget = most, forget

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > self._most:
            self._forget(self.popitem(last=False)[1])
