"""Processes that record or import, and may be killed: forks of one that has imported what they need."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from typing import Any

TIMEOUT_S = 100.0

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.faults.recorder", "tests.faults.importer"])


def forked(target: Callable[..., None], *arguments: Any) -> ForkServerProcess:
    """A process that calls `target`, and has begun."""
    process = _CONTEXT.Process(target=target, args=arguments)
    process.start()
    return process


def exit_code(process: ForkServerProcess) -> int:
    """Wait for its end; the code is negative for a signal."""
    process.join(TIMEOUT_S)
    assert process.exitcode is not None, "it does not end"
    return process.exitcode


def kill_after(process: ForkServerProcess, seconds: float) -> None:
    """Kill it unless it has ended before."""
    process.join(seconds)
    process.kill()
    process.join(TIMEOUT_S)
