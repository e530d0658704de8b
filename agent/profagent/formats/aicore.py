"""Records of aicore logs with what follows from them alone, for many files in one pass (format page 3.1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.formats.records import AICORE_DTYPE, view_records
from profagent.formats.segments import Split, Splitter, split_together

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from profagent.formats.countermap import CounterMap

__all__ = ["AicoreFile", "AicoreRecords", "read_together"]


RECORD = AICORE_DTYPE.itemsize


@dataclass(slots=True)
class AicoreFile:
    """What the records of a file that were read mean for the next: where they fall, the ticks of the last segment."""

    splitter: Splitter = field(default_factory=Splitter)
    ticks: int = 0


class AicoreRecords(NamedTuple):
    """Consecutive records of one file; all arrays have one entry a record.

    `ticks_before` is the sum of the ticks of those before it in its segment. `counters` is empty without a map.
    """

    sequence: npt.NDArray[np.uint32]
    net: npt.NDArray[np.uint32]
    ticks: npt.NDArray[np.int64]
    ticks_before: npt.NDArray[np.int64]
    split: Split
    counters: Mapping[str, npt.NDArray[np.float64]]


def read_together(
    files: Sequence[AicoreFile], pieces: Sequence[bytes], counter_map: CounterMap | None
) -> list[AicoreRecords]:
    """Read the whole records, of which there is at least one, of each file's next bytes.

    One pass over all of them: numpy's calls cost more than the records of a small file.
    """
    sizes = [len(piece) // RECORD for piece in pieces]
    whole = [piece[: size * RECORD] for piece, size in zip(pieces, sizes, strict=True)]
    records = view_records(b"".join(whole), AICORE_DTYPE)
    ends = np.cumsum(sizes, dtype=np.intp)
    starts = ends - np.array(sizes, np.intp)
    sequence, net, ticks = records["sequence"], records["net"], records["ticks"].astype(np.int64)
    split = split_together([file.splitter for file in files], sequence, net, starts)
    before = _ticks_before(ticks, split, starts, [file.ticks for file in files])
    for file, last in zip(files, (before[ends - 1] + ticks[ends - 1]).tolist(), strict=True):
        file.ticks = last
    counters = {} if counter_map is None else counter_map.apply(records)
    return [
        AicoreRecords(
            sequence[start:end],
            net[start:end],
            ticks[start:end],
            before[start:end],
            part,
            {name: values[start:end] for name, values in counters.items()},
        )
        for part, start, end in zip(split.cut(starts), starts.tolist(), ends.tolist(), strict=True)
    ]


def _ticks_before(
    ticks: npt.NDArray[np.int64], split: Split, starts: npt.NDArray[np.intp], carried: Sequence[int]
) -> npt.NDArray[np.int64]:
    before = ticks.cumsum() - ticks
    is_first = split.begins.copy()
    is_first[starts] = True
    run = is_first.cumsum() - 1
    shift = -before[is_first]
    # A segment that goes on from earlier bytes carries their ticks on; one that begins here starts from 0.
    shift[run[starts]] += np.where(split.begins[starts], 0, carried)
    before += shift[run]
    return before
