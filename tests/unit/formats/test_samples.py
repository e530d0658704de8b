"""What the runtime library itself wrote, file by file."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from profagent.formats.board_files import parse_done
from profagent.formats.join import LayerJoin
from profagent.formats.model_info import parse_layer_info, parse_net_info
from profagent.formats.names import LogKind, LogName, parse_log_name
from profagent.formats.records import (
    AICORE_DTYPE,
    AICPU_DTYPE,
    Splitter,
    view_records,
)

JOBS = Path(__file__).resolve().parents[2] / "data" / "jobs"
LOGS = {path: path.relative_to(job) for job in JOBS.rglob("JOB*") for path in job.rglob("*") if path.is_file()}
EARLY = next(JOBS.glob("JOBTYRY*"))
API, JSON, EDGE = (next((JOBS / f"runtime-{kind}").glob("JOB*")) for kind in ("api", "json", "edge"))


def name_of(path: Path) -> LogName:
    """The log's name, which every file of the samples has."""
    name = parse_log_name(LOGS[path].as_posix())
    assert name is not None
    return name


def logs_of(kind: LogKind, *, done: bool = False) -> list[Path]:
    """All sample files of a kind, in a steady order."""
    return [path for path in sorted(LOGS) if name_of(path).kind is kind and name_of(path).is_done == done]


def net_and_sequence(path: Path) -> list[tuple[int, int]]:
    """Net and sequence of each aicore record."""
    records = view_records(path.read_bytes(), AICORE_DTYPE)
    return list(zip(records["net"].tolist(), records["sequence"].tolist(), strict=True))


def test_each_done_is_what_its_lines_say() -> None:
    for kind in (LogKind.AICORE, LogKind.AICPU, LogKind.ACL_API):
        for path in logs_of(kind, done=True):
            data = path.read_bytes()
            lines = dict(line.split(":") for line in data.decode().splitlines())
            done = parse_done(data, kind, path.name)
            assert done.file_len == int(lines["file_len"]) % 2**32
            assert (done.start_us, done.end_us) == (int(lines["start_time"]), int(lines["end_time"]))
            assert ",".join(map(str, done.online_batch_num)) == lines.get("online_batch_num", "")
            for field, key in (("cache_hit", "cache_hit"), ("cache_miss", "cache_mis"), ("pid", "pid"), ("tid", "tid")):
                assert getattr(done, field) == (int(lines[key]) % 2**32 if key in lines else None)


def test_each_layer_table_that_is_one_is_read_and_agrees_with_its_nets() -> None:
    tables = [path for path in logs_of(LogKind.LAYER_INFO) if not path.is_relative_to(EARLY)]
    for path in tables:
        table = parse_layer_info(path.read_bytes(), path.name)
        nets_path = path.with_name(path.name.replace(".layer.info", ".net.info"))
        nets = parse_net_info(nets_path.read_bytes(), nets_path.name)
        expected = [f"net{net.net_id}_layer{i}" for net in nets for i in range(net.prof_layer_count or 0)]
        assert [run.name for run in table.runs] == expected
        assert LayerJoin(table, nets).disagreements() == []
    assert len(tables) == 15


@pytest.mark.parametrize("job", [API, JSON], ids=["api", "json"])
def test_records_of_several_nets_have_the_layers_of_their_segments(job: Path) -> None:
    model = "yolo_v1_2_s_x"
    table = parse_layer_info((job / "data" / f"{model}.0.layer.info").read_bytes(), "layer")
    join = LayerJoin(table, parse_net_info((job / "data" / f"{model}.0.net.info").read_bytes(), "net"))
    for picture in range(4):
        rows = net_and_sequence(job / "data" / f"aicore.0.{model}.3.0.1.1.{picture}")
        assert rows == [(0, k) for k in range(4 + picture)] + [(2, k) for k in range(3)]
        for net, sequence in rows:
            (index,) = join.layer_index(net, np.array([sequence]), 1, 1)
            assert table.runs[index].name == f"net{net}_layer{sequence}"
        aicpu = view_records((job / "data" / f"aicpu.0.{model}.3.0.1.1.{picture}").read_bytes(), AICPU_DTYPE)
        names = [table.runs[index].name for index in join.aicpu_layer_index(1, aicpu["sequence"])]
        assert names == ["net1_layer0", "net1_layer1"]


EDGE_LINE = re.compile(r"EDGE .*?(?P<file>aic(?:ore|pu)\S+) size=(?P<size>-?\d+) done: (?P<done>.*?) ?$")
# A later line about the same file describes what stands in it now.
EDGE_CASES = {
    match["file"]: (int(match["size"]), match["done"])
    for match in map(EDGE_LINE.match, (JOBS / "runtime-edge" / "cases.txt").read_text("utf-8").splitlines())
    if match
}


@pytest.mark.parametrize("file", sorted(EDGE_CASES))
def test_each_odd_case_is_what_its_line_says(file: str) -> None:
    size, done = EDGE_CASES[file]
    path = EDGE / "data" / file
    assert (path.stat().st_size if path.exists() else min(size, 0)) == size
    done_path = path.with_name(file + ".done")
    assert done_path.exists() == (done != "(none)")
    if done_path.exists():
        kind = LogKind.AICORE if file.startswith("aicore") else LogKind.AICPU
        text = done_path.read_bytes()
        assert done.split() == text.decode().split()
        assert parse_done(text, kind, file).file_len == int(done.split()[0].removeprefix("file_len:"))
    if path.exists():
        dtype, record_bytes = (AICORE_DTYPE, 256) if file.startswith("aicore") else (AICPU_DTYPE, 128)
        assert len(view_records(path.read_bytes(), dtype)) == size // record_bytes


def test_the_runtimes_sequence_filter_leaves_the_gaps_that_the_splitter_finds() -> None:
    path = EDGE / "data" / "aicore.0.demo_a.3.0.1.1.4"
    first = [0, 5, 14, 24, 24, 25, 26, 27, 28, 38, 48]
    assert net_and_sequence(path) == [(0, sequence) for sequence in first] + [(1, 10), (1, 12)]
    records = view_records(path.read_bytes(), AICORE_DTYPE)
    split = Splitter().feed(records["sequence"], records["net"])
    assert split.segment.tolist() == [0] * 11 + [1, 1]
    assert set(split.load.tolist()) == {0}
    missing = [after - before - 1 for before, after in pairwise(first) if after - before > 1]
    assert split.gap_missing.tolist() == [*missing, 10, 1]
    assert not split.is_gap_odd.any()
