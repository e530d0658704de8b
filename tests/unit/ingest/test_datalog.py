"""One data log while it grows, in pieces of any size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from profagent.formats.board_files import Done
from profagent.formats.names import parse_log_name
from profagent.ingest import reasons
from profagent.ingest.changes import ApiRecords, SegmentRecords
from profagent.ingest.datalog import DataLog
from tests.encoders import aicore_record, aicpu_record, api_record

AICORE = "data/aicore.0.m.3.0.1.1.0"
# Two inferences of two segments each; the first misses its sequence number 1.
RECORDS = [(0, 0, 10), (2, 0, 20), (0, 2, 30), (0, 0, 40), (1, 0, 50), (0, 2, 60)]
DATA = b"".join(aicore_record(sequence, ticks, net) for sequence, net, ticks in RECORDS)


def new_log(path: str = AICORE, **options: Any) -> DataLog:
    name = parse_log_name(path)
    assert name is not None
    return DataLog(path, name, **options)


def grown(pieces: list[bytes], log: DataLog) -> list[SegmentRecords | ApiRecords]:
    found = (log.append(piece, None, None) for piece in pieces)
    return [records for records in found if records is not None]


def column(changes: list[Any], *names: str) -> list[Any]:
    values = []
    for change in changes:
        found = getattr(change, names[0])
        values += (found[names[1]] if len(names) > 1 else found).tolist()
    return values


def _odd(log: DataLog, reason: str) -> tuple[int, int | None, int | None]:
    entry = log.facts.odd[reason]
    return entry.count, entry.first, entry.last


@pytest.mark.parametrize("size", [*range(1, 301), 511, 600, 10_000])
def test_pieces_of_any_size_give_the_same_records(size: int) -> None:
    log = new_log()
    changes = grown([DATA[at : at + size] for at in range(0, len(DATA), size)], log)
    assert column(changes, "sequence") == [sequence for sequence, _, _ in RECORDS]
    assert column(changes, "net") == [net for _, net, _ in RECORDS]
    assert column(changes, "ordinal") == [0, 0, 1, 2, 2, 3]
    assert column(changes, "load") == [0, 0, 0, 1, 1, 1]
    assert column(changes, "columns", "ticks") == [10, 20, 30, 40, 50, 60]
    assert column(changes, "columns", "ticks_before") == [0, 10, 0, 0, 40, 0]
    assert [first_of(change) for change in changes] == np.cumsum([0, *map(len_of, changes)])[:-1].tolist()
    assert (log.facts.size, log.facts.loads, log.facts.last_load_start) == (1536, 2, 768)
    assert _odd(log, reasons.SEQUENCE_GAP)[:2] == (1, 256)


def first_of(change: SegmentRecords | ApiRecords) -> int:
    return change.first_record if isinstance(change, SegmentRecords) else int(change.number[0])


def len_of(change: SegmentRecords | ApiRecords) -> int:
    return len(change.sequence) if isinstance(change, SegmentRecords) else len(change.number)


def test_a_known_start_of_the_last_inference_overrules_the_rule() -> None:
    log = new_log(last_load_record=4)
    changes = grown([DATA], log)
    assert column(changes, "load") == [0, 0, 0, 1, 2, 2]
    assert log.facts.last_load_start == 4 * 256


@pytest.mark.parametrize(
    ("size", "file_len", "record"),
    [
        (1536, 768, 3),
        (1536, 1536, 0),
        (1536, 2048, None),
        (1536, 700, None),
        (1536, 0, None),
        (0, 0, None),
        (1600, 576, 4),
    ],
)
def test_the_announced_length_tells_where_the_last_inference_begins(
    size: int, file_len: int, record: int | None
) -> None:
    log = new_log()
    log.append((DATA * 2)[:size], None, None)
    assert log.announced_load_record() is None
    log.done = Done(file_len, 1, 2)
    assert log.announced_load_record() == record


def test_records_without_a_table_have_no_layer_and_say_so() -> None:
    log = new_log()
    (change,) = grown([DATA], log)
    assert isinstance(change, SegmentRecords)
    assert change.layer_index.tolist() == [-1] * 6
    assert _odd(log, reasons.NO_LAYER) == (6, 0, 1280)
    assert change.counters == {}


def test_an_aicpu_log_has_the_times_of_its_records() -> None:
    log = new_log("data/aicpu.0.m.3.0.1.1.0")
    data = b"".join(aicpu_record(i, 100 + i, 110 + i, (90, 200), 1) for i in range(2))
    changes = grown([data[:200], data[200:]], log)
    assert [column(changes, "columns", name) for name in ("begin_us", "end_us", "segment_start_us")] == [
        [100, 101],
        [110, 111],
        [90, 90],
    ]


def test_calls_without_the_magic_number_are_left_out_with_their_places() -> None:
    log = new_log("data/acl_api.0.m.0")
    calls = [api_record(2, 5, 9), api_record(2, 5, 9, magic=1), api_record(2, 0, 9), api_record(3, 5, 9, magic=0)]
    changes = grown([calls[0], calls[1], calls[2] + calls[3]], log)
    assert column(changes, "number") == [0, 2]
    assert _odd(log, reasons.BAD_RECORD) == (2, 32, 96)
    assert _odd(log, reasons.BEGIN_UNKNOWN)[:2] == (1, 64)
