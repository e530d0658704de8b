"""A command that runs until a signal ends it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from profagent.cli.running import run_to_the_end, run_until_stopped
from tests.board.terminal import at_terminal


def _send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_asks_the_command_to_end(number: int) -> None:
    async def work(stop: asyncio.Event) -> str:
        _send(number)
        await stop.wait()
        return "ended"

    assert run_until_stopped(work) == "ended"


@pytest.fixture
def handlers() -> Iterator[None]:
    """Signal handlers are those of a command on a terminal, also under nohup; and as before at the end."""
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_after_its_end_does_not_take_the_result(number: int) -> None:
    async def work(stop: asyncio.Event) -> str:
        _send(signal.SIGINT)
        await stop.wait()
        return "ended"

    assert run_until_stopped(work) == "ended"
    _send(number)


def _ended_twice(number: signal.Signals) -> str:
    async def work(stop: asyncio.Event) -> str:
        _send(number)
        await stop.wait()
        _send(number)
        await asyncio.sleep(0.05)
        return "ended"

    return run_until_stopped(work)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize(("number", "same_wish_s"), [(signal.SIGTERM, 0.0), (signal.SIGINT, 3600.0)])
def test_a_second_signal_ends_it(number: signal.Signals, same_wish_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profagent.cli.running.SAME_WISH_S", same_wish_s)
    with pytest.raises(click.Abort):
        _ended_twice(number)


@pytest.mark.usefixtures("handlers")
def test_what_is_said_after_the_end_of_its_terminal_goes_nowhere(tmp_path: Path) -> None:
    told = tmp_path / "told"
    script = f"""import pathlib
from profagent.cli.running import run_until_stopped, tell
async def work(stop):
    tell("begun")
    await stop.wait()
    tell("ended")
    pathlib.Path({str(told)!r}).touch()
run_until_stopped(work)
"""
    with at_terminal(sys.executable, "-c", script) as terminal:
        terminal.until("begun")
        terminal.close()
        assert terminal.process.wait(60) == 0
    assert told.exists()


@pytest.mark.usefixtures("handlers")
def test_what_takes_no_wish_to_stop_is_cancelled_and_tidies_up() -> None:
    tidied: list[str] = []

    async def work() -> None:
        _send(signal.SIGTERM)
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            tidied.append("up")

    with pytest.raises(click.Abort):
        run_to_the_end(work)
    assert tidied == ["up"]
