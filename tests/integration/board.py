"""The board's side of an integration test: JOB directories, and a real daemon that serves them."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from profagentd.simulate.run import SimulationOptions
from tests.daemon import daemon_process
from tests.daemon.daemon_process import content, job_name
from tests.daemon.simulated_job import write_job

__all__ = ["SAMPLES", "content", "eventually", "job_name", "mirrored", "running", "sample", "simulated", "write_done"]

_JOBS = Path(__file__).parents[1] / "data" / "jobs"
SAMPLES = {job.parent.name if job.parent != _JOBS else "small": job for job in sorted(_JOBS.rglob("JOB" + "?" * 29))}
POLL_S = 0.02
AGE_S = 3600.0

running = partial(daemon_process.running, module="tests.integration.hurried_daemon")
"""A daemon that serves; a JOB is finished soon for it."""

BATCHED = """
name = "batched"
batch_num = 2
online_batch = true
[[segments]]
unit = "aicore"
runs = [
    { time_us = 10.0, layers = ["a:Convolution"] },
    { time_us = 40.0, batch = true, layers = ["c:InnerProduct"] },
    { time_us = 80.0, layers = ["d:Convolution", "e:Relu"] },
]
[[segments]]
unit = "aicpu"
runs = [{ time_us = 30.0, layers = ["one:Resize"] }, { time_us = 70.0, layers = ["two:Custom"] }]
[[segments]]
unit = "aicore"
runs = [{ time_us = 200.0, layers = ["last:Convolution"] }]
"""
"""A network of several segments whose batches are chosen at run time."""


def sample(root: Path, name: str) -> Path:
    """A copy of a JOB that the runtime library wrote."""
    return Path(shutil.copytree(SAMPLES[name], root / SAMPLES[name].name))


def simulated(root: Path, inferences: int = 5, *, loads: int = 1, **options: object) -> Path:
    """A JOB of the simulated board that finished an hour ago, the same each time."""
    root.mkdir(parents=True, exist_ok=True)
    job = write_job(root, SimulationOptions(**options), inferences, loads=loads)  # type: ignore[arg-type]
    made_s = time.time() - AGE_S
    for path in (job, *job.rglob("*")):
        os.utime(path, (made_s, made_s))
    return job


def batched_network(folder: Path) -> str:
    """A TOML file of a network with segments on both units and run-time batches."""
    file = folder / "batched.toml"
    file.write_text(BATCHED, "utf-8")
    return str(file)


def write_done(data: Path, file_len: int | None = None, *, start_us: int = 0) -> None:
    """The `.done` of an aicore log as it stands, or as it announces."""
    size = data.stat().st_size if file_len is None else file_len
    text = f"file_len:{size}\nstart_time:{start_us}\nend_time:{start_us + 900}\ncache_hit:3\ncache_mis:1\n"
    Path(f"{data}.done").write_text(text, "ascii")


def tls_arguments(folder: Path) -> list[str]:
    """Those of a daemon with what `keys issue board` has made."""
    files = {"cert": "board.pem", "key": "board.key", "ca": "ca.pem"}
    return [f"--tls-{name}={folder / file}" for name, file in files.items()]


def mirrored(workspace: Path, job: str = "JOB*") -> dict[bytes, bytes]:
    """The files that a workspace's mirror has of a JOB, or of its only one."""
    found = list(workspace.glob(f"mirror/*/{job}"))
    assert len(found) < 2, f"several mirrors: {found}"
    return content(found[0]) if found else {}


def eventually(holds: Callable[[], bool], timeout_s: float = 60.0) -> bool:
    """Wait until something holds; False when it does not in time."""
    until = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(POLL_S)
    return True


class GrowingJob:
    """A JOB that comes into being piece by piece, as a copy of a finished one; pieces end at odd places."""

    def __init__(self, source: Path, root: Path, seed: int) -> None:
        self.source = source
        self.directory = root / source.name
        self._random = random.Random(seed)
        (self.directory / "data").mkdir(parents=True)

    def grow(self, paths: Iterable[str], *, until: dict[str, int] | None = None) -> Iterable[None]:
        """Bring files up to their size, or to a lower one; a step each piece, in turns that no one can foresee."""
        left = {path: (until or {}).get(path, (self.source / path).stat().st_size) for path in paths}
        while left:
            path = self._random.choice(sorted(left))
            file = self.directory / path
            held = file.stat().st_size if file.exists() else 0
            end = min(left[path], held + self._random.choice((1, 31, 127, 255, 256, 300, 1111, 7000)))
            with (self.source / path).open("rb") as source, file.open("ab") as target:
                source.seek(held)
                target.write(source.read(end - held))
            if end == left[path]:
                del left[path]
            yield

    def write(self, path: str, data: bytes | None = None) -> None:
        """Write a file whole: as the finished JOB has it, or something else."""
        (self.directory / path).write_bytes((self.source / path).read_bytes() if data is None else data)

    def paths(self, pattern: str) -> list[str]:
        """Files of the finished JOB, by a pattern, without `.done` unless it is asked for."""
        found = (str(file.relative_to(self.source)) for file in self.source.glob(pattern) if file.is_file())
        return sorted(path for path in found if path.endswith(".done") == pattern.endswith(".done"))

    @property
    def content(self) -> dict[bytes, bytes]:
        """What there is of it now."""
        return content(self.directory)
