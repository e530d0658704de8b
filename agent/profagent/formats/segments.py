"""Where the records of one file fall into segments and inferences (format page 2.2 and 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["FILTER_STEP_MAX", "Split", "Splitter"]

# The runtime drops a record whose sequence number is farther than this from the one written before it.
FILTER_STEP_MAX = 10


@dataclass(frozen=True, slots=True)
class Split:
    """How the records of one `feed` fall apart; arrays of one value for each record unless said otherwise.

    `segment` and `stretch` count from 0 over the whole file. `gap_at` holds the indices (in the feed) of the records
    before which sequence numbers are missing in their segment, `gap_missing` how many; `is_gap_odd` is True where the
    runtime's own filter cannot have left the gap, so that the bytes are not what it wrote.
    """

    segment: npt.NDArray[np.int64]
    stretch: npt.NDArray[np.int64]
    gap_at: npt.NDArray[np.intp]
    gap_missing: npt.NDArray[np.int64]
    is_gap_odd: npt.NDArray[np.bool_]


class Splitter:
    """Splits the records of one file as they come, in parts of any size.

    A segment begins where the net changes or the sequence goes back. A stretch, which is one inference of a model
    that was loaded more than once, begins where the net goes back, or its sequence does in the same net. Neither need
    be so: a stretch of one record for each segment leaves no such trace, and a loop looks the same. Where the `.done`
    tells the length of the last stretch, `last_stretch_record` is where it begins, and none begins after it.
    """

    def __init__(self, last_stretch_record: int | None = None) -> None:
        self._last_stretch_record = last_stretch_record
        self._records = 0
        self._segments = 0
        self._stretches = 0
        self._net = -1
        self._sequence = 0

    def feed(self, sequence: npt.NDArray[Any], net: npt.NDArray[Any]) -> Split:
        """Split the next records, given their words 0x00 and 0xFC (aicpu: 0x7C), both of shape (records,)."""
        sequences = np.concatenate(([self._sequence], sequence.astype(np.int64)))
        nets = np.concatenate(([self._net], net.astype(np.int64)))
        step, net_step = sequences[1:] - sequences[:-1], nets[1:] - nets[:-1]
        is_segment = (net_step != 0) | (step < 0)
        is_stretch = (net_step < 0) | ((net_step == 0) & (step < 0))
        if self._last_stretch_record is not None:
            number = np.arange(self._records, self._records + len(sequence))
            is_last = number == self._last_stretch_record
            is_segment |= is_last
            is_stretch = (is_stretch & (number < self._last_stretch_record)) | is_last
        if not self._records and len(sequence):
            is_segment[0] = is_stretch[0] = True
        segment = self._segments - 1 + np.cumsum(is_segment)
        stretch = self._stretches - 1 + np.cumsum(is_stretch)
        self._advance(sequences[-1], nets[-1], len(sequence), is_segment, is_stretch)
        return Split(segment, stretch, *_gaps(sequences[1:], step, is_segment))

    def _advance(
        self,
        sequence: np.int64,
        net: np.int64,
        records: int,
        is_segment: npt.NDArray[np.bool_],
        is_stretch: npt.NDArray[np.bool_],
    ) -> None:
        self._sequence, self._net = int(sequence), int(net)
        self._records += records
        self._segments += int(is_segment.sum())
        self._stretches += int(is_stretch.sum())


def _gaps(
    sequence: npt.NDArray[np.int64], step: npt.NDArray[np.int64], is_segment: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    # The filter's previous number is 0 at the start of each segment, and number 0 itself may be missing.
    missing = np.where(is_segment, sequence, np.maximum(step - 1, 0))
    jump = np.where(is_segment, sequence, step)
    at = missing.nonzero()[0]
    return at, missing[at], jump[at] > FILTER_STEP_MAX
