"""A board that never comes to an end, against the real commands: memory stays bounded."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fakes.endless import ENDLESS
from tests.fakes.malicious_board import malicious
from tests.integration.host import TIMEOUT_S
from tests.integration.host import started as command
from tests.integration.test_malicious_board import Scene

# Most was seen of endless logs: 160 MB, after 3 s as after 8 s.
MEMORY_LIMIT_BYTES = 210_000_000
# A message of a million entries, which are counted when it was read: 372 to 527 MB, which go at once.
FULL_MESSAGE_BYTES = 600_000_000
# How soon a command ends that is asked to: a machine may have much else to do, and what never ends is far longer.
END_S = 30.0
FOR_S = 3.0
# One that fills the mirror and one that fills lists; the others are long.
SHORT = (("record", "log"), ("watch", "losses"))
CASES = [
    pytest.param(verb, what, marks=() if (verb, what) in SHORT else pytest.mark.long)
    for verb in ("record", "watch")
    for what in ENDLESS
]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def peak_bytes(scene: Scene, address: str, verb: str, end_s: float) -> int:
    """The most memory that a command has had, which ends by itself, or soon after it is asked to."""
    where = ("--workspace", scene.workspace) if verb == "record" else ("--from-start",)
    with command(verb, "--board", address, *where) as host:
        with suppress(subprocess.TimeoutExpired):
            host.process.wait(FOR_S)
        status = Path(f"/proc/{host.process.pid}/status").read_text("ascii")
        peak = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert peak, "it goes on for as long as the board does"
        asked_at = time.monotonic()
        host.process.send_signal(signal.SIGINT)
        ended = host.ended()
        ended_s = time.monotonic() - asked_at
    print(f"{verb}: ended {ended_s:.2f} s after it was asked to")
    assert ended_s < end_s
    scene.check(ended)
    scene.check_database()
    return int(peak[1]) * 1024


@pytest.mark.parametrize(("verb", "what"), CASES)
def test_what_never_ends_does_not_fill_the_memory(verb: str, what: str, scene: Scene) -> None:
    with malicious(ENDLESS[what]) as board:
        # Tables that are being decoded are decoded to their end.
        peak = peak_bytes(scene, board.address, verb, END_S if "losses" in what else TIMEOUT_S)
    print(f"{verb}, endless {what}: {peak / 1e6:.0f} MB")
    assert peak < (FULL_MESSAGE_BYTES if what == "empty losses" else MEMORY_LIMIT_BYTES)
