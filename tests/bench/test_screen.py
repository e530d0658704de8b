"""What the full-screen `watch` takes of a core at full rate, in a terminal of its own."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.bench.measure import PROFAGENT, Child, report, size_text, spread
from tests.bench.programs import program
from tests.board.terminal import Terminal, at_terminal
from tests.daemon.daemon_process import running

if TYPE_CHECKING:
    from pathlib import Path

RATE, LAYERS = 100.0, 100
COLUMNS, ROWS = 120, 40
SETTLING_S, WINDOW_S, WINDOWS = 4.0, 5.0, 3
TARGET_PERCENT = 15
SCREEN = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}


def test_cost_of_the_screen(root: Path) -> None:
    shares: dict[str, list[float]] = {"screen": [], "paused": []}
    drawn: list[float] = []
    with ExitStack() as stack:
        daemon = stack.enter_context(running("--root", root, "--log-level", "warning"))
        command = (*PROFAGENT, "watch", "--board", daemon.address)
        terminal = stack.enter_context(at_terminal(*command, **SCREEN))
        child = Child(terminal.process.pid)
        terminal.look(SETTLING_S)
        with program(root, rate=RATE, layers=LAYERS) as profiled:
            terminal.look(SETTLING_S)
            for _ in range(WINDOWS):
                share, characters = _seen(child, terminal)
                shares["screen"].append(share)
                drawn.append(characters / WINDOW_S / 1000)
            terminal.type(" ", end="")
            terminal.look(1.0)
            share, characters = _seen(child, terminal)
            shares["paused"].append(share)
            assert not characters, "a paused screen draws nothing"
            profiled.stop()
        peak = child.peak_bytes()
    report(
        f"screen of {COLUMNS} by {ROWS} at {RATE * LAYERS:,.0f} records/s in {2 * RATE:g} files/s",
        {
            f"whole process (target: {TARGET_PERCENT} %)": spread(shares["screen"], "% of a core"),
            "paused: decoding alone": spread(shares["paused"], "% of a core"),
            "drawn": spread(drawn, "thousand characters/s"),
            "RSS, peak": size_text(peak),
        },
    )


def _seen(child: Child, terminal: Terminal) -> tuple[float, int]:
    """The process's percents of a core over a window, and the characters that it drew."""
    share = child.share_of_a_core()
    characters = terminal.look(WINDOW_S)
    return 100 * share(), characters
