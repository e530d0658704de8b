"""Flat out, both sides on this machine: from files on the board's disk to rows that are committed, and to lines."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.bench.captures import SHAPES, Capture, Shape, ShapedJobs, capture
from tests.bench.checkouts import Checkout, in_turns, report_compared
from tests.bench.measure import MIB, Child, report, started
from tests.bench.programs import AICORE_ONLY, program
from tests.daemon.daemon_process import running
from tests.fakes.ports import own_port

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

# Inferences that an open JOB has when `watch` begins; one more comes now and then.
BACKLOG, LAYERS, RATE = 3_000, 100, 1.0


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.title)
def test_record(shape: Shape, shaped_jobs: ShapedJobs, memory: Path, root: Path, checkouts: Sequence[Checkout]) -> None:
    job = shaped_jobs.of(shape)
    shutil.rmtree(job / "sqlite", ignore_errors=True)
    with running("--root", job.parent, "--log-level", "warning") as daemon:

        def recorded(checkout: Checkout, folder: Path, *more: str) -> Capture:
            shutil.rmtree(folder / "workspace", ignore_errors=True)
            return capture(daemon.address, folder / "workspace", shape.records, *more, by=checkout)

        def exposed(checkout: Checkout) -> Capture:
            return recorded(checkout, memory, "--metrics-listen", f"127.0.0.1:{own_port()}")

        in_memory = in_turns(checkouts, lambda checkout: recorded(checkout, memory))
        exposing = in_turns(checkouts, exposed)
        on_disk = in_turns(checkouts, lambda checkout: recorded(checkout, root))
        captures = sum(map(len, (*in_memory, *exposing, *on_disk)))
        daemon_s = Child(daemon.process.pid).cpu_s() / captures
    report_compared(
        f"record: {shape.title}",
        checkouts,
        {
            "processor time, workspace in memory, s": _each(in_memory, lambda one: one.process.cpu_s),
            "with --metrics-listen, s": _each(exposing, lambda one: one.process.cpu_s),
            "peak RSS, MiB": _each(in_memory, lambda one: one.process.peak_bytes / MIB),
            "workspace on disk: thousand aicore records/s": _each(on_disk, lambda one: one.rate / 1000),
        },
    )
    report("the daemon of this checkout", {"processor time for each of these": f"{daemon_s:.2f} s"})


@pytest.mark.parametrize(("model", "files"), [(AICORE_ONLY, 2), ("yolov5s", 4)])
def test_watch(model: str | Path, files: int, root: Path, checkouts: Sequence[Checkout]) -> None:
    took = [_watched(root / name, count, model, checkouts) for name, count in (("one", 1), ("many", BACKLOG))]
    us = [
        [(all_s - start_s) / (BACKLOG - 1) * 1e6 for start_s, all_s in zip(*of_one, strict=True)]
        for of_one in zip(*took, strict=True)
    ]
    report_compared(
        f"watch --from-start --json of {BACKLOG:,} inferences of {LAYERS} layers, {files} files an inference",
        checkouts,
        {"processor time, s": took[1], "of one inference, with the start, s": took[0], "µs an inference": us},
    )


def _watched(root: Path, count: int, model: str | Path, checkouts: Sequence[Checkout]) -> list[list[float]]:
    """Measure the processor time of `watch` until it has printed so many inferences, which are there when it begins."""
    root.mkdir()
    with (
        program(root, rate=RATE, layers=LAYERS, model=model, backlog=count),
        running("--root", root, "--log-level", "warning") as daemon,
    ):

        def watched(checkout: Checkout) -> float:
            command = checkout.command("watch", "--board", daemon.address, "--from-start", "--json")
            with started(*command, stdout=subprocess.PIPE, variables=checkout.variables) as watch:
                assert watch.stdout is not None
                left = count
                while left and (line := watch.stdout.readline()):
                    left -= '"inference"' in line.partition(",")[0]
                return Child(watch.pid).cpu_s()

        return in_turns(checkouts, watched)


def _each(runs: Sequence[Sequence[Capture]], figure: Callable[[Capture], float]) -> list[list[float]]:
    return [[figure(one) for one in of_checkout] for of_checkout in runs]
