"""One data log while it grows, in pieces of any size."""

from __future__ import annotations

import pytest

from profagent.formats.board_files import Done
from profagent.formats.names import parse_log_name
from profagent.ingest import reasons
from profagent.ingest.changes import ApiRecords
from profagent.ingest.datalog import DataLog
from tests.encoders import aicore_record, api_record

AICORE = "data/aicore.0.m.3.0.1.1.0"
# Two inferences of two segments each; the first misses its sequence number 1.
RECORDS = [(0, 0, 10), (2, 0, 20), (0, 2, 30), (0, 0, 40), (1, 0, 50), (0, 2, 60)]
DATA = b"".join(aicore_record(sequence, ticks, net) for sequence, net, ticks in RECORDS)


def new_log(path: str = AICORE) -> DataLog:
    name = parse_log_name(path)
    assert name is not None
    return DataLog(path, name)


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


def test_calls_without_the_magic_number_are_left_out_with_their_places() -> None:
    log = new_log("data/acl_api.0.m.0")
    calls = [api_record(2, 5, 9), api_record(2, 5, 9, magic=1), api_record(2, 0, 9), api_record(3, 5, 9, magic=0)]
    found = [log.append(piece, None, None) for piece in (calls[0], calls[1], calls[2] + calls[3])]
    numbers = [each.number.tolist() for each in found if isinstance(each, ApiRecords)]
    assert numbers == [[0], [], [2]]
    odd = {reason: (entry.count, entry.first, entry.last) for reason, entry in log.facts.odd.items()}
    assert odd == {reasons.BAD_RECORD: (2, 32, 96), reasons.BEGIN_UNKNOWN: (1, 64, 64)}
