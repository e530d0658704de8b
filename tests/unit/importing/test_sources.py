"""Of whatever tree of files, each file is taken, in a source that failed, or listed with why it is not taken."""

from __future__ import annotations

import tempfile
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from profagent.ascend.recognise import FACTS, ResultSource
from profagent.errors import UsageError
from profagent.importing.sources import SkipReason, Walk
from tests.fakes.job_copy import JOB
from tests.unit.ascend.files import KERNEL_DETAILS, OP_SUMMARY, SUMMARIES, kernel

FOLDERS = (
    *("ASCEND_PROFILER_OUTPUT", "mindstudio_profiler_output", "FRAMEWORK", "PROF_1", "a_ascend_pt", "b_ascend_ms"),
    *("device_0", "host", "data", "summary", "sqlite", JOB, "METRICS-1", "plain", "__MACOSX"),
)
# The folders that a source of raw data of msprof stands for; one of a framework stands for any.
RAW = ("device_0", "host", "data", "mindstudio_profiler_output")
OF_DEVICE = (*RAW, "summary", "sqlite")
CONTENTS = {
    "op_summary_1.csv": f"{OP_SUMMARY}\n{kernel()}\n".encode(),
    "op_statistic_1.csv": "\n".join(SUMMARIES["op_statistic"]).encode(),
    "kernel_details.csv": f"{KERNEL_DETAILS}\n7,a,A,AI_CORE,1.5,2.5,0,8\n".encode(),
    "cut.json": '[{"ph": "X"}]'.encode("utf-16"),
    "msprof_1.db": b"SQLite format 3\0" + bytes(100),
    "msprof_1.db-wal": b"x",
    "people.csv": b"name,age\nbob,3\n",
    "notes.md": b"by hand",
    "analyse.done": b"",
    "._kernel_details.csv": b"\0\x05\x16\x07" + bytes(40),
    "x.slice_0": b"x",
    "aicore.0.m.3.0.1.1.0": b"x",
    "profiler_info_0.json": b"{}",
}
TREES = st.sets(
    st.builds(
        lambda folders, name: "/".join([*folders, name]),
        st.lists(st.sampled_from(FOLDERS), max_size=4),
        st.sampled_from(sorted(CONTENTS)),
    ),
    min_size=1,
    max_size=12,
)


def _looked_through(root: Path) -> Walk:
    walk = Walk(root / "scratch", root / "workspace")
    try:
        walk.look_through(root / "in")
    except UsageError:
        assert [*walk.results, *walk.jobs, *walk.failed] == []
    walk.finish()
    return walk


def _raw_folders(source: ResultSource) -> tuple[str, ...]:
    if source.raw != "msprof":
        return FOLDERS
    return OF_DEVICE if source.path.name in ("device_0", "host") else RAW


def _is_used(file: Path, walk: Walk) -> bool:
    """Whether a file is read with another, or is in a source that is told as a whole."""
    taken = {each for source in walk.results for each in source.files}
    if file.name.endswith("-wal") and file.with_name(file.name.removesuffix("-wal")) in taken | {
        *file.parent.iterdir()
    }:
        return True
    if fnmatch(file.name, FACTS) and any(source.path == file.parent and source.files for source in walk.results):
        return True
    raw = {source.path / name for source in walk.results if source.raw for name in _raw_folders(source)}
    whole = raw | {job.path for job in walk.jobs} | {failed.address for failed in walk.failed}
    return bool(whole & {*file.parents})


@settings(max_examples=30, deadline=None)
@given(TREES)
@example({"device_0/device_0/x.slice_0", "device_0/ASCEND_PROFILER_OUTPUT/._kernel_details.csv"})
def test_each_file_is_taken_or_told(tree: set[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for path in tree:
            file = root / "in" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(CONTENTS[file.name])
        walk = _looked_through(root)
        told = Counter([*(file for source in walk.results for file in source.files), *(p.path for p in walk.skipped)])
        assert {file: count for file, count in told.items() if count > 1} == {}
        untold = {root / "in" / path for path in tree} - told.keys()
        assert {file for file in untold if not _is_used(file, walk)} == set()
        assert not any(each.why is SkipReason.WORKSPACE for each in walk.skipped)
