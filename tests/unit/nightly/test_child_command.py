"""A command in a process of its own, whatever it says."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from profagent.nightly import run as child_command
from profagent.nightly.run import Ended, run_command

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

LIMIT_S = 60.0
SAYS_MUCH = """
import sys
sys.stderr.write("x" * 3_000 + "\\nprofagent: last\\n  its hint")
print('{"session": 1}')
sys.exit(3)
"""
UNTIL_INTERRUPTED = """
import json, os, signal, sys
has_terminal = os.getsid(0) == os.getsid(os.getppid())
signal.signal(signal.SIGINT, lambda *_: sys.exit(print(json.dumps({"has_terminal": has_terminal}))))
print("up", file=sys.stderr, flush=True)
signal.pause()
"""


async def ran(program: str, stop: asyncio.Event, tell: Callable[[str], None], patch: pytest.MonkeyPatch) -> Ended:
    patch.setattr(child_command, "PROGRAM", (sys.executable, "-c", program))
    return await run_command((), LIMIT_S, stop, tell)


async def test_what_a_command_says_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    ended = await ran(SAYS_MUCH, asyncio.Event(), lines.append, monkeypatch)
    assert ended == Ended(3, {"session": 1}, "last")
    assert lines[0] == "x" * 3_000
    assert lines[-2:] == ["profagent: last", "  its hint"]


async def test_one_that_is_told_to_stop_says_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told once: a terminal's Ctrl-C does not reach it."""
    stop = asyncio.Event()
    ended = await ran(UNTIL_INTERRUPTED, stop, lambda _: stop.set(), monkeypatch)
    assert ended == Ended(0, {"has_terminal": False}, "up", is_stopped=True)
