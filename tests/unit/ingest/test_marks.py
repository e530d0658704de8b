"""What a program wrote comes back; other bytes are counted."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from profagent.ingest import ops
from profagent.ingest.marks import MarkKind, ProgramMark, decode
from profagent.ingest.metrics import MetricSample
from profagent.ingest.metrics import decode as decode_metrics
from profagent.ingest.ops import decode as decode_ops
from profagent.limits import MOST_RUNS
from profagent_app.marks import Kind, MarkWriter
from profagentd.metrics.collectors import Sample
from profagentd.metrics.sampler import Sweep, SweepLines
from profagentd.spools.intake import LOST
from profagentd.spools.spool import Spool
from tests.fakes.marks_host import MarksHost
from tests.fakes.spooled import MARKS, START_US, mark
from tests.program.reader import MarksReader


def test_what_was_written_is_read(tmp_path: Path) -> None:
    reader = MarksReader(tmp_path)
    writer = MarkWriter(str(reader.path))
    for kind in Kind:
        writer.write(kind, b"caf\xc3\xa9", 10**18, 10**18 + 5, 7, b'{"id":3}')
    data = reader.raw()
    reader.close()
    marks, bad = decode(data)
    assert bad == 0
    assert [each.kind for each in marks] == list(MarkKind)
    who = (marks[0].pid, marks[0].tid)
    assert marks[0] == ProgramMark(MarkKind.MARK, "café", {"id": 3}, *who, 10**18, 10**18 + 5, 0, 7, marks[0].writer)
    assert {each.writer for each in marks} == {marks[0].writer}
    assert not marks[0].writer % 2
    assert [each.number for each in marks] == [0, 1, 2, 3]
    assert decode(b"\0" * 256 + data[:256] + b"x" * 100)[1] == 1
    assert decode(data[:0xFF]) == ([], 0)


def test_what_a_daemon_writes_for_a_gap_is_a_bad_record() -> None:
    assert decode(LOST) == ([], 1)
    assert ops.decode(LOST) == ([], 1)


def test_half_a_character_in_an_attribute_becomes_text_that_a_file_can_hold(tmp_path: Path) -> None:
    reader = MarksReader(tmp_path)
    MarkWriter(str(reader.path)).write(Kind.MARK, b"load", 0, 0, attributes=b'{"path":"\\udcd6\\u4e2d"}')
    ((found,), _) = decode(reader.raw())
    reader.close()
    assert found.attributes == {"path": "?\u4e2d"}


# Marks that are missing are counted once, whatever order segments come in and whoever numbers marks

LATER = MARKS.replace("T14", "T15")
ONE, TWO, THREE = "00000001", "00000002", "00000003"


def numbered(*numbers: int, writer: int = 0, pid: int = 5) -> bytes:
    return b"".join(mark(Kind.MARK, "", START_US, START_US, number=each, writer=writer, pid=pid) for each in numbers)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[MarksHost]:
    found = MarksHost(tmp_path)
    yield found
    found.close()


@pytest.mark.parametrize("seed", range(3))
def test_segments_that_come_side_by_side_lose_nothing(seed: int, host: MarksHost) -> None:
    rng = random.Random(seed)
    whole = list(range(300))
    for at in range(0, 299, 3):  # threads change places, over the ends of segments as well
        whole[at : at + 2] = reversed(whole[at : at + 2])
    left = {(MARKS, ONE): whole[:100], (MARKS, TWO): whole[100:202], (LATER, ONE): whole[202:]}
    while left:
        place = rng.choice([*left])
        host.write(*place, numbered(*left[place][:20]))
        left[place] = left[place][20:]
        if not left[place]:
            host.complete(*place)
            del left[place]
    assert host.dropped == {}


def test_what_is_missing_between_segments_is_told_when_the_earlier_one_is_here(host: MarksHost) -> None:
    host.write(MARKS, ONE, numbered(*range(4)))
    host.write(MARKS, TWO, numbered(10, 12))
    host.complete(MARKS, TWO)
    assert host.dropped == {(MARKS, TWO): 1}
    host.write(MARKS, ONE, numbered(*range(4, 8)))
    host.complete(MARKS, ONE)
    assert host.dropped == {(MARKS, TWO): 3}
    host.restart()
    host.write(MARKS, THREE, numbered(15))
    assert host.dropped == {(MARKS, TWO): 3, (MARKS, THREE): 2}


@pytest.mark.parametrize("is_later_first", [True, False])
def test_the_order_of_collections_makes_no_difference(is_later_first: bool, host: MarksHost) -> None:
    host.write(MARKS, ONE, numbered(*range(5)))
    rest = [(MARKS, ONE, numbered(*range(5, 25))), (LATER, ONE, numbered(*range(55, 60)))]
    for collection, path, data in reversed(rest) if is_later_first else rest:
        host.write(collection, path, data)
        host.complete(collection, path)
    assert host.dropped == {(LATER, ONE): 30}


def test_a_loss_goes_when_what_was_missing_comes_with_a_later_session(host: MarksHost) -> None:
    host.write(LATER, ONE, numbered(300, 301))
    host.end()
    assert host.dropped == {(LATER, ONE): 300}
    host.write(MARKS, ONE, numbered(*range(290)))
    host.complete(MARKS, ONE)
    assert host.dropped == {(LATER, ONE): 10}
    assert host.rows.query("SELECT session, losses FROM sessions") == [(1, 10), (2, 0)]


def test_the_end_of_a_capture_tells_what_was_waited_for(host: MarksHost) -> None:
    host.write(MARKS, ONE, numbered(0, 1))
    host.write(MARKS, TWO, numbered(5))
    assert host.dropped == {}
    host.end()
    assert host.dropped == {(MARKS, TWO): 3}


def test_what_comes_late_in_the_next_segment_is_missing_in_neither(host: MarksHost) -> None:
    host.write(MARKS, ONE, numbered(0, 1, 3, 5))
    host.complete(MARKS, ONE)
    assert host.dropped == {(MARKS, ONE): 2}
    host.write(MARKS, TWO, numbered(2))
    host.write(MARKS, TWO, numbered(6))
    assert host.dropped == {(MARKS, ONE): 1}


def test_each_who_numbers_marks_in_a_process_counts_its_own(host: MarksHost) -> None:
    both = zip(range(100), range(50, 150), strict=True)
    data = numbered(*range(50), writer=3) + b"".join(numbered(a) + numbered(b, writer=3) for a, b in both)
    host.write(MARKS, ONE, data)
    assert host.dropped == {}
    host.write(MARKS, ONE, numbered(152, writer=3))
    assert host.dropped == {(MARKS, ONE): 2}


def test_a_process_that_has_the_pid_of_another_counts_anew(host: MarksHost) -> None:
    host.write(MARKS, ONE, numbered(*range(9), 4, 5) + numbered(*range(3)))
    host.complete(MARKS, ONE)
    host.write(MARKS, TWO, numbered(2, 3))
    assert host.dropped == {(MARKS, ONE): 1, (MARKS, TWO): 2}


def test_what_was_missing_before_the_capture_is_not_its_own(host: MarksHost) -> None:
    host.write(MARKS, THREE, numbered(7, 3000, pid=5) + b"\xff" * 256, is_past=True)
    assert host.dropped == {}
    host.write(MARKS, THREE, numbered(3001, 3003) + numbered(4, pid=6))
    assert host.dropped == {(MARKS, THREE): 1 + 4}
    host.restart()
    host.write(MARKS, THREE, numbered(3005))
    assert host.dropped == {(MARKS, THREE): 2 + 4}


def test_numbers_that_nobody_can_have_are_bad_records_and_large_ones_are_counted(host: MarksHost) -> None:
    host.write(MARKS, ONE, numbered(2**63 - 1, pid=1) + numbered(2**48, pid=2))
    assert host.dropped == {}
    host.write(MARKS, ONE, b"".join(numbered(2**48 - 1, pid=pid) for pid in range(3)))
    assert host.dropped == {(MARKS, ONE): 2**48}
    assert host.rows.query("SELECT reason, count FROM ledger ORDER BY 1") == [
        ("bad-record", 2),
        ("dropped-marks", 2**48),
    ]


def test_a_segment_with_many_gaps_keeps_few_runs(host: MarksHost) -> None:
    host.write(MARKS, ONE, numbered(*range(0, 2000, 2)))
    assert host.dropped == {(MARKS, ONE): 999}
    assert host.rows.query("SELECT count(*) FROM mark_run")[0][0] == MOST_RUNS
    host.complete(MARKS, ONE)
    host.write(MARKS, TWO, numbered(1997, *range(1999, 2100)))
    assert host.dropped == {(MARKS, ONE): 998}


# Rows of descriptors equal what the real library's accessors say of the same bytes

PIPES = sorted((Path(__file__).parents[2] / "data" / "pipe").glob("*.bin"))


@pytest.mark.parametrize("pipe", PIPES, ids=lambda pipe: pipe.stem)
def test_each_row_is_what_the_accessors_answer(pipe: Path) -> None:
    said = json.loads(pipe.with_suffix(".json").read_text())
    events, bad = decode_ops(pipe.read_bytes())
    assert bad == 0
    assert len(events) == said["op_num"]
    for event, op in zip(events, said["ops"], strict=True):
        assert (event.model_id, event.start_us, event.end_us, event.duration_us) == (
            op["model_id"],
            op["start"],
            op["end"],
            op["duration"],
        )
        for kind, text in (("type", event.op_type), ("name", event.op_name)):
            if op[f"{kind}_rc"] == 0:
                assert text == op[f"{kind}_written"].rstrip("\0")
            else:  # 32 bytes: the accessor refuses them
                assert len(text) in {31, 32}


def test_the_rest_of_a_descriptor_is_left_and_nonsense_is_counted() -> None:
    data = PIPES[0].read_bytes()
    assert len(decode_ops(data[:600])[0]) == 2
    assert decode_ops(b"\xff" * 512) == ([], 2)
    assert decode_ops(b"") == ([], 0)


# Sweeps come back from the lines that the daemon writes, from any segment and any piece of one

SWEEPS = [
    Sweep(1_000_000, [Sample("npu.hw_utilization", "%", 12.0), Sample("load.1min", "", 0.25)], {}),
    Sweep(2_000_000, [Sample("load.1min", "", 0.5)], {"thermal": "No such\nfile"}),
    Sweep(3_000_000, [Sample("load.1min", "", 1e9), Sample("disk./a b.free", "B", 3.5)], {}),
]
EXPECTED = [
    MetricSample("npu.hw_utilization", "%", 1_000_000, 12.0),
    MetricSample("load.1min", "", 1_000_000, 0.25),
    MetricSample("load.1min", "", 2_000_000, 0.5),
    MetricSample("load.1min", "", 3_000_000, 1e9),
    MetricSample("disk./a b.free", "B", 3_000_000, 3.5),
]


def test_sweeps_come_back() -> None:
    lines = SweepLines()
    assert decode_metrics(b"".join(lines.of(each) for each in SWEEPS), {}) == (EXPECTED, 0)


def test_each_segment_can_be_read_by_itself(tmp_path: Path) -> None:
    lines = SweepLines()
    spool = Spool(str(tmp_path), "metrics", "board", segment_bytes=60, preamble=lines.names)
    for each in SWEEPS:
        spool.write(lines.of(each))
    spool.close()
    segments = sorted(each for each in tmp_path.glob("METRICS-*/*") if each.name.isdigit())
    assert len(segments) > 1
    assert [sample for each in segments for sample in decode_metrics(each.read_bytes(), {})[0]] == EXPECTED


@pytest.mark.parametrize("cut", range(0, 120, 7))
def test_a_piece_is_no_error(cut: int) -> None:
    lines = SweepLines()
    data = b"".join(lines.of(each) for each in SWEEPS)
    assert decode_metrics(data[:cut], {})[1] == 0
    assert decode_metrics(data[cut:], {})[0] is not None
    assert decode_metrics(b"x\nn\ns 1 0=1\ns x\n", {})[1] == 4


@pytest.mark.parametrize("line", ["s 1795230382000000 0=2.5", "n 1 % npu.clock", "e power it gives nothing"])
@pytest.mark.parametrize("cut", [3, 9, -1])
def test_a_line_that_a_full_disk_cut_takes_no_sweep_along_unsaid(line: str, cut: int) -> None:
    names = {"0": ("npu.busy", "%")}
    samples, bad = decode_metrics(f"{line[:cut]}s 1795230383000000 0=3\ns 1795230384000000 0=4\n".encode(), names)
    assert ([each.value for each in samples], bad) == ([4.0], 1)
    assert names == {"0": ("npu.busy", "%")}
