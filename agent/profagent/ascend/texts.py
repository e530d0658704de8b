"""Numbers and times in the notations of other tools, as columns, and rows as they are stored."""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import numpy as np

from profagent import ledger
from profagent.limits import LARGEST_INTEGER
from profagent.units import NS_PER_US

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from profagent.ledger import Entry

T = TypeVar("T")
UNKNOWN_NS = -1
# Errors that values of an unknown shape cause in code that expects a known one.
ODD_VALUES = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
# A double holds every integer up to this.
EXACT_BELOW = 1 << 53
_THOUSANDTHS = re.compile(r"(?:(?:[1-8]\d{15}|\d{1,15})\.\d{3},)*(?:[1-8]\d{15}|\d{1,15})\.\d{3}")
_FLOATS: Final = msgspec.json.Decoder(list[float])
_FLOATS_OR_NULL: Final = msgspec.json.Decoder(list[float | None])
_RAW: Final = msgspec.json.Decoder(list[msgspec.Raw])


class NulBytes:
    """Counter of NUL bytes in a text. A file system leaves them where a write was lost, and some tools as padding."""

    def __init__(self) -> None:
        # Number of NUL bytes, and the offset of the first one in the file.
        self.count = 0
        self.first = 0

    def without(self, piece: bytes, offset: int, instead: bytes) -> bytes:
        """Return a piece of a file at an offset with each NUL byte replaced and counted."""
        found = piece.count(0)
        if not found:
            return piece
        if not self.count:
            self.first = offset + piece.index(0)
        self.count += found
        return piece.replace(b"\0", instead)

    def entries(self) -> Iterator[Entry]:
        """Yield the ledger's entry, if there were any."""
        if self.count:
            what = f"{self.count:,} NUL bytes, the first at byte {self.first:,}: what stands behind them is read"
            yield ledger.entry(ledger.JOINED_RESULT, what, self.first, count=self.count)


def encoded(value: object) -> str:
    """Return a value as JSON, in the form of the rows of a block."""
    return msgspec.json.encode(value).decode()


def decoded_events(text: bytes | str, events: msgspec.json.Decoder[list[T]], odd: T) -> list[T]:
    """Return the events of a JSON array, with `odd` for each event of a shape that no known tool writes."""
    try:
        return events.decode(text)
    except msgspec.ValidationError:
        return [_decoded_event(bytes(each), events, odd) for each in _RAW.decode(text)]


def _decoded_event(text: bytes, events: msgspec.json.Decoder[list[T]], odd: T) -> T:
    try:
        return events.decode(b"[%b]" % text)[0]
    except msgspec.ValidationError:
        return odd


def times_ns(texts: Sequence[str], scale_ns: int) -> NDArray[np.int64]:
    """Return times as whole nanoseconds with all their digits; -1 where unknown."""
    joined = ",".join(texts).replace("\t", "").replace(" ", "")
    # Times in µs with three decimals are nearly all there are: without their points they are integers of ns.
    if scale_ns == 1_000 and _THOUSANDTHS.fullmatch(joined):
        return np.fromstring(joined.replace(".", ""), np.int64, sep=",")
    return np.array([_time_ns(text, scale_ns) for text in texts], np.int64)


def numbers(texts: Sequence[str]) -> list[float]:
    """Return numbers as doubles; NaN where unknown."""
    joined = f"[{','.join(texts)}]"
    # Decoding JSON takes a fifth of the time of `float` for each text.
    try:
        if "N/A" in joined:
            known = _FLOATS_OR_NULL.decode(joined.replace("N/A", "null"))
            found = [math.nan if number is None else number for number in known]
        else:
            found = _FLOATS.decode(joined)
    except msgspec.DecodeError:
        found = []
    return found if len(found) == len(texts) else [_number(text) for text in texts]


def _time_ns(text: str, scale_ns: int) -> int:
    try:
        # A time in ns has 19 digits, which a double would round.
        time_ns = int((Decimal(text.strip()) * scale_ns).to_integral_value())
        return time_ns if abs(time_ns) <= LARGEST_INTEGER else UNKNOWN_NS
    except (InvalidOperation, ValueError, OverflowError):
        return UNKNOWN_NS


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def event_times_ns(values: Sequence[Any]) -> NDArray[np.int64]:
    """Return times in µs as whole nanoseconds; every digit of a text counts. -1 where unknown."""
    kinds = {*map(type, values)}
    if kinds == {str}:
        return times_ns(values, NS_PER_US)
    if kinds <= {int, float}:
        found = np.array(values, np.float64) * NS_PER_US
        if (np.abs(found) < (LARGEST_INTEGER if kinds == {float} else EXACT_BELOW)).all():
            return np.rint(found).astype(np.int64)
    return np.array([_ns(value) for value in values], np.int64)


def _ns(value: Any) -> int:
    if isinstance(value, (int, float)) and abs(value) < LARGEST_INTEGER // NS_PER_US:
        return round(value * NS_PER_US)
    return _time_ns(str(value), NS_PER_US)
