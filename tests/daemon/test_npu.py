"""Who has the NPU open, by a made-up /proc and by the real one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from profagentd.sources.state import DEVICE, is_npu_open
from tests.daemon.privileges import public_directory, without_privileges

HZ = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def proc() -> Iterator[Path]:
    with public_directory() as directory:
        (directory / "self").mkdir()
        yield directory


def process(proc: Path, number: int, started_s: float, *targets: str) -> Path:
    """A process that started so long after the boot, with these files open."""
    directory = proc / str(number)
    (directory / "fd").mkdir(parents=True)
    fields = ["S", *["0"] * 18, str(int(started_s * HZ)), "0", "0"]
    (directory / "stat").write_text(f"{number} (a) program) {' '.join(fields)}\n")
    for descriptor, target in enumerate(targets):
        (directory / "fd" / str(descriptor)).symlink_to(target)
    return directory


def after_boot(seconds: float) -> int:
    return int(seconds * 1_000_000)


def test_a_process_from_before_the_job_counts(proc: Path) -> None:
    process(proc, 7, 100.0, "/dev/null", DEVICE)
    assert is_npu_open(after_boot(100.5), proc) is True


def test_a_process_from_after_the_job_does_not_count(proc: Path) -> None:
    process(proc, 7, 100.0, DEVICE)
    assert is_npu_open(after_boot(99.5), proc) is False


def test_a_process_that_may_not_be_seen_leaves_it_open(proc: Path) -> None:
    hidden = process(proc, 7, 1.0, "/dev/null")
    (hidden / "fd").chmod(0)
    with without_privileges():
        assert is_npu_open(after_boot(100.0), proc) is None
    (hidden / "fd").chmod(0o755)


def test_the_real_proc_shows_what_this_process_has_open(tmp_path: Path) -> None:
    path = tmp_path / "device"
    now_us = 2**62
    with path.open("wb"):
        assert is_npu_open(now_us, device=str(path)) is True
    assert is_npu_open(now_us, device=str(path)) is not True
