"""Daemons of benchmarks: with finished JOBs, with an identity of their own, or as they would be with compression.

`python boards.py IDENTITY COMPRESSION ARGUMENTS…` is `profagentd` of a board with that identity; COMPRESSION is `none`,
`deflate` or `gzip`.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path

import grpc
import grpc.aio

from profagentd.simulate.run import SimulationOptions
from tests.daemon.daemon_process import Daemon, environment, serving
from tests.daemon.simulated_job import write_job

ENDED_S_AGO = 60.0
COMPRESSIONS = {
    "none": grpc.Compression.NoCompression,
    "deflate": grpc.Compression.Deflate,
    "gzip": grpc.Compression.Gzip,
}


def finished_job(root: Path, inferences: int, *, layers: int, model: str | Path, seed: int = 0) -> Path:
    """A JOB that is over, of so many inferences of `layers` aicore records; its name follows from the seed."""
    root.mkdir(parents=True, exist_ok=True)
    options = SimulationOptions(model=str(model), layers=layers, rate=100.0, seed=seed, root=root)
    job = write_job(root, options, inferences, gaps=False)
    # It ended some time ago: no daemon waits to see whether it goes on.
    at = time.time() - ENDED_S_AGO
    for path in (*job.rglob("*"), job):
        os.utime(path, (at, at))
    return job


def board(root: Path, *, identity: str = "bench", compression: str = "none") -> AbstractContextManager[Daemon]:
    """A daemon that serves what is below `root`."""
    command = [sys.executable, "-m", "tests.bench.boards", identity, compression]
    started: list[str | Path] = [*command, "--listen", "127.0.0.1:0", "--root", root, "--log-level", "warning"]
    started += ["--state", root.with_name(f"{root.name}-state").absolute()]
    return serving(started, environment("protos", "daemon", "agent", "."))


def _serve(identity: str, compression: str, arguments: list[str]) -> int:
    """Be that board's daemon."""
    from profagentd import examine

    known = examine.identify(identity)
    examine.identify = lambda *_: known
    if compression != "none":
        grpc.aio.server = functools.partial(grpc.aio.server, compression=COMPRESSIONS[compression])
    from profagentd.main import main

    return main(arguments)


if __name__ == "__main__":
    sys.exit(_serve(sys.argv[1], sys.argv[2], sys.argv[3:]))
