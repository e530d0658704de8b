"""Ports for daemons that come and go, and for nobody: no test that runs at the same time is given them."""

from __future__ import annotations

import itertools
import os
import socket

# Below those that the kernel gives to whoever names none.
_FIRST, _COUNT = 20_000, 10_000
_numbers = itertools.count(os.getpid())


def own_port() -> int:
    """A port at which nobody listens, and that is no other test process's as long as this one runs.

    Raises RuntimeError when none is left.
    """
    for number in itertools.islice(_numbers, _COUNT):
        port = _FIRST + number % _COUNT
        if _is_free(port) and _is_claimed(port):
            return port
    raise RuntimeError(f"no port is left from {_FIRST} on")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _is_claimed(port: int) -> bool:
    """Take an abstract name for it, which only one process of a machine can have, and has until it ends."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0profagent-tests-port-{port}")
    except OSError:
        claim.close()
        return False
    claim.detach()
    return True
