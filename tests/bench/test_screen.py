"""What the full-screen `watch` takes of a core at full rate, in a terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.bench.measure import PROFAGENT, Child, environment, report, size_text, spread
from tests.bench.programs import program
from tests.daemon.daemon_process import running

RATE, LAYERS = 100.0, 100
COLUMNS, ROWS = 120, 40
SETTLING_S, WINDOW_S, WINDOWS = 4.0, 5.0, 3
TARGET_PERCENT = 15


class Terminal:
    """What was drawn, in bytes, and the keys."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.drawn_bytes = 0
        threading.Thread(target=self._read, name="terminal", daemon=True).start()

    def press(self, key: str) -> None:
        """Press a key."""
        os.write(self._descriptor, key.encode())

    def _read(self) -> None:
        while True:
            try:
                self.drawn_bytes += len(os.read(self._descriptor, 1 << 16))
            except OSError:
                return


@contextmanager
def on_a_terminal(*command: str | Path) -> Iterator[tuple[subprocess.Popen[bytes], Terminal]]:
    """A command in a terminal of 120 by 40."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    variables = {**environment(), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    process = subprocess.Popen([*command], stdin=its, stdout=its, stderr=its, env=variables, start_new_session=True)
    os.close(its)
    try:
        yield process, Terminal(ours)
    finally:
        process.terminate()
        process.wait()
        os.close(ours)


def test_cost_of_the_screen(root: Path) -> None:
    shares: dict[str, list[float]] = {"screen": [], "paused": []}
    drawn: list[float] = []
    with ExitStack() as stack:
        daemon = stack.enter_context(running("--root", root, "--log-level", "warning"))
        command = (*PROFAGENT, "watch", "--board", daemon.address)
        process, terminal = stack.enter_context(on_a_terminal(*command))
        child = Child(process.pid)
        time.sleep(SETTLING_S)
        with program([root], rate=RATE, layers=LAYERS) as profiled:
            time.sleep(SETTLING_S)
            for _ in range(WINDOWS):
                before = terminal.drawn_bytes
                shares["screen"].append(_share(child))
                drawn.append((terminal.drawn_bytes - before) / WINDOW_S / 1024)
            terminal.press(" ")
            time.sleep(1.0)
            before = terminal.drawn_bytes
            shares["paused"].append(_share(child))
            assert terminal.drawn_bytes == before, "a paused screen draws nothing"
            profiled.stop()
        peak = child.peak_bytes()
    report(
        f"screen of {COLUMNS} by {ROWS} at {RATE * LAYERS:,.0f} records/s in {2 * RATE:g} files/s",
        {
            f"whole process (target: {TARGET_PERCENT} %)": spread(shares["screen"], "% of a core"),
            "paused: decoding alone": spread(shares["paused"], "% of a core"),
            "drawn": spread(drawn, "KiB/s"),
            "RSS, peak": size_text(peak),
        },
    )


def _share(child: Child) -> float:
    share = child.share_of_a_core()
    time.sleep(WINDOW_S)
    return 100 * share()
