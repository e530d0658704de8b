"""Exports of JOBs of the runtime library and of the simulated board, against files in tests/golden/exports and bytes.

`python -m tests.golden.write_exports` makes the files anew; the difference is for a person to read.
"""

from __future__ import annotations

import csv
import json
import math
import re
import struct
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.golden.write_exports import GOLDEN, NAMES, export_job


@pytest.fixture(scope="module", params=NAMES)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Which sample, and the JOB directory with its exports."""
    name = str(request.param)
    return name, export_job(name, tmp_path_factory.mktemp("jobs"))


def _files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*.*")) if file.is_file()}


def test_every_export_is_the_golden_one(exported: tuple[str, Path]) -> None:
    name, job = exported
    found = {**_files_below(job, "summary"), **_files_below(job, "timeline"), **_files_below(job, "aggregate")}
    assert found == _files(GOLDEN / name)


def _files_below(job: Path, folder: str) -> dict[str, bytes]:
    return {f"{folder}/{name}": content for name, content in _files(job / folder).items()}


def test_each_record_of_the_files_has_its_row_and_its_time(exported: tuple[str, Path]) -> None:
    """Rows of op_summary are the records of their aicore file, loads one after the other: ticks × 100 / MHz.

    An inference whose figures are not known has no table.
    """
    _, job = exported
    by_file: dict[tuple[str, ...], list[str]] = {}
    for table in sorted((job / "summary").glob("op_summary_*.csv"), key=_order):
        with table.open(encoding="utf-8", newline="") as text:
            rows = list(csv.DictReader(text))
        assert rows[-1]["Layer Name"] == "total"
        by_file.setdefault(_fields(table), []).extend(row["Time(us)"] for row in rows[:-1])
    logs = [log for log in (job / "data").glob("aicore.*") if _is_whole(log)]
    assert by_file == {_named(log): times for log in logs if (times := _times_us(log))}


def _is_whole(log: Path) -> bool:
    """Whether an inference's logs of all its model's units hold as many bytes as their `.done` tell of the last one."""
    other = log.with_name(log.name.replace("aicore", "aicpu", 1))
    model, model_id, *_ = _file_fields(log)
    is_used = any(log.parent.glob(f"aicpu.*.{model}.*.{model_id}.*.*.*"))
    return _has_all(log) and (not is_used or _has_all(other))


def _has_all(log: Path) -> bool:
    done = Path(f"{log}.done")
    if not (log.exists() and done.exists()):
        return False
    size, length = log.stat().st_size, int(done.read_text("ascii").split()[0].partition(":")[2])
    return length <= size and size % (256 if log.name.startswith("aicore") else 128) == 0


def _order(table: Path) -> tuple[tuple[str, ...], int]:
    """Tables of one file stand together, in the order of the loads."""
    return _fields(table), int(table.stem.partition(".reload")[2] or 0)


def _fields(table: Path) -> tuple[str, ...]:
    """Model, model id, batch, pictures and count, from the name of a table."""
    stem = table.stem.partition(".reload")[0].removeprefix("op_summary_0.")
    without_frequency = stem.rsplit(".", 1)[0]
    rate_parts = 1 if without_frequency.endswith(".NA") else 2
    return tuple(without_frequency.rsplit(".", rate_parts)[0].rsplit(".", 4))


def _file_fields(log: Path) -> tuple[str, ...]:
    model_and_stream, *numbers = log.name.removeprefix("aicore.0.").rsplit(".", 4)
    return (model_and_stream.rsplit(".", 1)[0], *numbers)


def _named(log: Path) -> tuple[str, ...]:
    """The same as a table's name has it, without what some system refuses."""
    model, *numbers = _file_fields(log)
    return (re.sub(r'[<>:"|?*]', "_", model), *numbers)


def _times_us(log: Path) -> list[str]:
    if log.suffix == ".done":
        return []
    data = log.read_bytes()
    ticks = (struct.unpack_from("<I", data, 256 * i + 4)[0] for i in range(len(data) // 256))
    return [f"{value * 100 / 700:.3f}" for value in ticks]


def test_no_two_events_of_a_track_overlap_but_for_a_double_s_rounding(exported: tuple[str, Path]) -> None:
    for file in (exported[1] / "timeline").glob("task_time_*.json"):
        ends_ns: dict[tuple[int, int], Fraction] = {}
        for event in _spans(file):
            start_ns, rounding_ns = 1000 * Fraction(event["ts"]), 1000 * Fraction(math.ulp(event["ts"]))
            track = (event["pid"], event["tid"])
            # A sample whose made-up times lie decades apart has starts that a double cannot hold to the nanosecond.
            assert start_ns + rounding_ns >= ends_ns.get(track, start_ns)
            ends_ns[track] = start_ns + round(1000 * event["dur"])


def _spans(file: Path) -> list[Any]:
    events = json.loads(file.read_text("utf-8"))["traceEvents"]
    return [event for event in events if event["ph"] == "X"]
