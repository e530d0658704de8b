"""A real daemon in a process of its own, and JOB directories for it."""

from __future__ import annotations

import os
import random
import signal
import string
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from profagentd import __version__
from tests.fakes.ports import own_port

CHECKOUT = Path(__file__).parents[2]
IMPORT_ROOTS = ("protos", "daemon")
START = f"profagentd {__version__} serving "
AICORE_DONE = b"file_len:%d\nstart_time:5\nend_time:6\ncache_hit:2\ncache_mis:1\n"
API_DONE = b"file_len:%d\nstart_time:5\nend_time:6\npid:7\ntid:7\n"


class Daemon:
    """A running daemon; its log goes to the test's output."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.process = process
        self.address = address

    def stop(self) -> int:
        """Ask it to end; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)


def command(*arguments: str, module: str = "profagentd") -> list[str]:
    """The command line of a daemon, which keeps no spools unless it is told to."""
    return [sys.executable, "-m", module, "--spools=", *arguments]


def environment(*roots: str) -> dict[str, str]:
    """Variables with which a process finds code below these directories of the checkout, else the daemon's."""
    path = os.pathsep.join(str(CHECKOUT / root) for root in roots or IMPORT_ROOTS)
    return {**os.environ, "PYTHONPATH": path}


@contextmanager
def running(
    *arguments: str | Path, listen: str = "", log: IO[str] | None = None, module: str = "profagentd"
) -> Iterator[Daemon]:
    """A daemon that serves, and forgets at its end unless it is told where to keep; it is ended in any case.

    Where it listens unless it is told, another one can after its end.
    """
    with tempfile.TemporaryDirectory(prefix="profagentd-state-") as state:
        listened = listen or f"127.0.0.1:{own_port()}"
        started = command("--listen", listened, "--state", state, *map(str, arguments), module=module)
        with serving(started, environment(*IMPORT_ROOTS, "."), log) as daemon:
            yield daemon


@contextmanager
def serving(
    started: Sequence[str | Path], variables: Mapping[str, str], log: IO[str] | None = None
) -> Iterator[Daemon]:
    """A process that is a daemon, from its first line on; it is killed when it still runs at the end."""
    process = subprocess.Popen(started, env=variables, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(START), line
        yield Daemon(process, line[len(START) :].strip())
    finally:
        process.kill()
        process.communicate()


def job_name(number: int = 0) -> str:
    """A JOB directory's name."""
    letters = random.Random(number)
    return "JOB" + "".join(letters.choice(string.ascii_uppercase) for _ in range(29))


def make_job(root: Path, number: int = 0) -> Path:
    """A JOB directory as the runtime begins it."""
    job = root / job_name(number)
    (job / "data").mkdir(parents=True)
    (job / "info.json.0").write_bytes(b'{"DeviceInfo": [{"aic_frequency": "700"}]}')
    return job


def content(job: Path) -> dict[bytes, bytes]:
    """The bytes of each file of a JOB, by its path inside."""
    files = [path for path in job.rglob("*") if path.is_file()]
    return {os.fsencode(path.relative_to(job)): path.read_bytes() for path in files}
