"""What a program wrote comes back; other bytes are counted."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import pytest

from profagent.formats.names import DONE_SUFFIX
from profagent.ingest import ops
from profagent.ingest.changes import Change, ContentLedger
from profagent.ingest.marks import Mark, MarkKind, MarksDecoder, decode
from profagent.ingest.metrics import MetricSample
from profagent.ingest.metrics import decode as decode_metrics
from profagent.ingest.ops import decode as decode_ops
from profagent_app.marks import Kind, MarkWriter
from profagentd.metrics.collectors import Sample
from profagentd.metrics.sampler import Lines, Sweep
from profagentd.spools.intake import LOST
from profagentd.spools.spool import Spool
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
    assert marks[0] == Mark(MarkKind.MARK, "café", {"id": 3}, *who, 10**18, 10**18 + 5, 0, 7, marks[0].writer)
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


class Mirror:
    """A collection that comes from a board, its segments side by side; `dropped` is what its ledger says."""

    def __init__(self, directory: Path, past: dict[str, int] | None = None) -> None:
        directory.mkdir(parents=True)
        self._directory, self._past = directory, past or {}
        self._told: dict[str | None, int] = {}
        self.restart()

    def restart(self) -> None:
        self._decoder = MarksDecoder(self, directory=self._directory, past=self._past)

    def read(self, path: str, size: int | None = None, *, start: int = 0) -> bytes | None:
        return (self._directory / path).read_bytes()[start:][:size]

    def names(self) -> list[str]:
        return [each.name for each in self._directory.iterdir()]

    def write(self, path: str, data: bytes) -> None:
        with (self._directory / path).open("ab") as file:
            offset = file.tell()
            file.write(data)
        begun = () if offset else self._decoder.begin(path, 1, 0)
        self._take(chain(begun, self._decoder.append(path, 1, offset, data)))

    def complete(self, path: str) -> None:
        size = (self._directory / path).stat().st_size
        (self._directory / f"{path}{DONE_SUFFIX}").write_text(f"bytes:{size}\n")
        self._take(self._decoder.snapshot(f"{path}{DONE_SUFFIX}", 1, b"", b""))
        self._take(self._decoder.complete(path, 1, size, b""))

    def _take(self, changes: Iterable[Change]) -> None:
        for change in changes:
            if isinstance(change, ContentLedger):
                self._told[change.path] = sum(each.count for each in change.entries if each.reason == "dropped-marks")

    @property
    def dropped(self) -> dict[str | None, int]:
        return {path: count for path, count in self._told.items() if count}


def numbered(*numbers: int, writer: int = 0, pid: int = 5) -> bytes:
    return b"".join(mark(Kind.MARK, "", START_US, START_US, number=each, writer=writer, pid=pid) for each in numbers)


ONE, TWO, THREE = "00000001", "00000002", "00000003"


@pytest.mark.parametrize("seed", range(5))
def test_segments_that_come_side_by_side_lose_nothing(seed: int, tmp_path: Path) -> None:
    mirror, rng = Mirror(tmp_path / MARKS), random.Random(seed)
    whole = list(range(300))
    for at in range(0, 299, 3):  # threads change places, over the ends of segments as well
        whole[at : at + 2] = reversed(whole[at : at + 2])
    left = {ONE: whole[:100], TWO: whole[100:202], THREE: whole[202:]}
    while left:
        path = rng.choice([*left])
        mirror.write(path, numbered(*left[path][:20]))
        left[path] = left[path][20:]
        if not left[path]:
            mirror.complete(path)
            del left[path]
    assert mirror.dropped == {}


def test_what_is_missing_between_segments_is_told_when_the_earlier_one_is_here(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path / MARKS)
    mirror.write(TWO, numbered(10, 12))
    mirror.complete(TWO)
    mirror.write(ONE, numbered(*range(4)))
    assert mirror.dropped == {TWO: 1}
    mirror.write(ONE, numbered(*range(4, 8)))
    mirror.complete(ONE)
    assert mirror.dropped == {TWO: 3}
    mirror.restart()
    mirror.write(THREE, numbered(15))
    assert mirror.dropped == {TWO: 3, THREE: 2}


def test_what_comes_late_in_the_next_segment_is_missing_in_neither(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path / MARKS)
    mirror.write(ONE, numbered(0, 1, 3, 5))
    mirror.complete(ONE)
    assert mirror.dropped == {ONE: 2}
    mirror.write(TWO, numbered(2))
    mirror.write(TWO, numbered(6))
    assert mirror.dropped == {ONE: 1}


def test_each_who_numbers_marks_in_a_process_counts_its_own(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path / MARKS)
    both = zip(range(100), range(50, 150), strict=True)
    mirror.write(ONE, numbered(*range(50), writer=3) + b"".join(numbered(a) + numbered(b, writer=3) for a, b in both))
    assert mirror.dropped == {}
    mirror.write(ONE, numbered(152, writer=3))
    assert mirror.dropped == {ONE: 2}


def test_what_was_missing_before_the_capture_is_not_its_own(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path / MARKS, past={THREE: 3 * 256})
    mirror.write(THREE, numbered(7, 3000, pid=5) + b"\xff" * 256)
    assert mirror.dropped == {}
    mirror.write(THREE, numbered(3001, 3003) + numbered(4, pid=6))
    assert mirror.dropped == {THREE: 1}
    mirror.restart()
    mirror.write(THREE, numbered(3005))
    assert mirror.dropped == {THREE: 2}


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
    lines = Lines()
    assert decode_metrics(b"".join(lines.of(each) for each in SWEEPS), {}) == (EXPECTED, 0)


def test_each_segment_can_be_read_by_itself(tmp_path: Path) -> None:
    lines = Lines()
    spool = Spool(str(tmp_path), "metrics", "board", segment_bytes=60, preamble=lines.names)
    for each in SWEEPS:
        spool.write(lines.of(each))
    spool.close()
    segments = sorted(each for each in tmp_path.glob("METRICS-*/*") if each.name.isdigit())
    assert len(segments) > 1
    assert [sample for each in segments for sample in decode_metrics(each.read_bytes(), {})[0]] == EXPECTED


@pytest.mark.parametrize("cut", range(0, 120, 7))
def test_a_piece_is_no_error(cut: int) -> None:
    lines = Lines()
    data = b"".join(lines.of(each) for each in SWEEPS)
    assert decode_metrics(data[:cut], {})[1] == 0
    assert decode_metrics(data[cut:], {})[0] is not None
    assert decode_metrics(b"x\nn\ns 1 0=1\ns x\n", {})[1] == 4
