"""Numbers and times as other tools write them, in columns; rows as they are kept."""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import numpy as np

from profagent import ledger
from profagent.ascend.kernels import NS_PER_US
from profagent.limits import LARGEST_INTEGER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from profagent.ledger import Entry

T = TypeVar("T")
UNKNOWN_NS = -1
# What values that no known file has come to.
ODD_VALUES = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
# A float holds every integer up to it.
EXACT_BELOW = 1 << 53
_THOUSANDTHS = re.compile(r"(?:(?:[1-8]\d{15}|\d{1,15})\.\d{3},)*(?:[1-8]\d{15}|\d{1,15})\.\d{3}")
_FLOATS: Final = msgspec.json.Decoder(list[float])
_FLOATS_OR_NULL: Final = msgspec.json.Decoder(list[float | None])
_RAW: Final = msgspec.json.Decoder(list[msgspec.Raw])


class Nuls:
    """NUL bytes of a text, which a file system leaves where a write was lost, or a tool as padding."""

    def __init__(self) -> None:
        self.count = 0
        self.first = 0

    def without(self, piece: bytes, offset: int, instead: bytes) -> bytes:
        """The piece of a file at an offset, with each NUL byte exchanged and counted."""
        found = piece.count(0)
        if not found:
            return piece
        if not self.count:
            self.first = offset + piece.index(0)
        self.count += found
        return piece.replace(b"\0", instead)

    def entries(self) -> Iterator[Entry]:
        """The ledger's entry, if there are any."""
        if self.count:
            what = f"{self.count:,} NUL bytes, the first at byte {self.first:,}: what stands behind them is read"
            yield ledger.entry(ledger.JOINED_RESULT, what, self.first, count=self.count)


def encoded(value: object) -> str:
    """Return JSON, as of the rows of a block."""
    return msgspec.json.encode(value).decode()


def decoded_events(text: bytes | str, events: msgspec.json.Decoder[list[T]], odd: T) -> list[T]:
    """The events of an array, `odd` in the place of each that has a shape that no known tool writes."""
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
    """Times as whole nanoseconds, exact where they have so many digits; -1 where one is not known."""
    joined = ",".join(texts).replace("\t", "").replace(" ", "")
    if scale_ns == 1_000 and _THOUSANDTHS.fullmatch(joined):
        return np.fromstring(joined.replace(".", ""), np.int64, sep=",")
    return np.array([_time_ns(text, scale_ns) for text in texts], np.int64)


def numbers(texts: Sequence[str]) -> list[float]:
    """Numbers; NaN where one is not known."""
    joined = f"[{','.join(texts)}]"
    # A fifth of the time of `float`.
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
        # Decimal, because a float rounds 19 digits.
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
    """Whole nanoseconds of times in µs: of texts every digit counts. -1 where one is not known."""
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
