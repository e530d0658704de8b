"""A command that runs until a signal ends it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from profagent.cli.main import run
from profagent.cli.running import installing, program, run_to_the_end, run_until_stopped
from profagent.nightly.cli import NAMES, units
from profagent.nightly.night import example, read_settings
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


def test_a_package_is_added_by_what_installed_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/my home/bin/python")
    monkeypatch.setattr(sys, "prefix", "/my home")
    assert installing("pyarrow") == "'/my home/bin/python' -m pip install pyarrow"
    monkeypatch.setattr(sys, "prefix", "/root/.local/share/pipx/venvs/profagent")
    assert installing("pyarrow") == "pipx inject profagent pyarrow"


def test_the_program_is_called_again_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program_file = tmp_path / "a b" / "profagent"
    program_file.parent.mkdir()
    program_file.write_text("#!/bin/sh\n")
    program_file.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(program_file), "demo"])
    monkeypatch.setenv("PATH", "/usr/bin")
    assert program() == f"'{program_file}'"
    monkeypatch.setenv("PATH", f"/usr/bin:{program_file.parent}")
    assert program() == "profagent"
    monkeypatch.setattr(sys, "argv", ["-c"])
    assert program() == "profagent"


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


# `profagent nightly init`: the settings, and the units of the timer

STAND_IN = '#!/bin/sh\necho "$*" >> "$CALLS"\nexit "${REFUSES:-0}"\n'


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What stands where systemd's own would be: it notes how it was called."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "systemctl").write_text(STAND_IN, "utf-8")
    (tmp_path / "bin" / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "calls"


def test_the_settings_are_written_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "nightly.toml"
    assert run(["nightly", "init", "--config", str(file), "--timer", "none"]) == 0
    assert file.read_text("utf-8") == example(None)
    file.write_text(example(None).replace("lab1", "mine"), "utf-8")
    assert run(["nightly", "init", "--config", str(file)]) == 0
    assert "mine" in file.read_text("utf-8")
    assert "left as it is" in capsys.readouterr().out


def test_a_timer_of_the_user(tmp_path: Path, systemctl: Path) -> None:
    file = tmp_path / "nightly.toml"
    assert run(["nightly", "init", "--config", str(file), "--timer", "user", "--at", "*-*-* 03:30"]) == 0
    folder = tmp_path / "config" / "systemd" / "user"
    assert "OnCalendar=*-*-* 03:30" in (folder / NAMES[1]).read_text("utf-8")
    assert f'nightly run --config "{file}"' in (folder / NAMES[0]).read_text("utf-8")
    assert systemctl.read_text("utf-8").splitlines() == ["--user daemon-reload", f"--user enable --now {NAMES[1]}"]
    assert read_settings(file.read_text("utf-8"), "").schedule == "*-*-* 03:30"
    file.write_text(file.read_text("utf-8").replace("03:30", "04:40"), "utf-8")
    assert run(["nightly", "init", "--config", str(file), "--timer", "user"]) == 0
    assert "OnCalendar=*-*-* 04:40" in (folder / NAMES[1]).read_text("utf-8")


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """Read by systemd's own parser; the program that they name is there."""
    settings = tmp_path / 'a folder with 100% $odd "names"' / "nightly.toml"
    for name, text in units(settings, "*-*-* 02:00").items():
        (tmp_path / name).write_text(text, "utf-8")
    program = tmp_path / "profagent"
    program.write_text("#!/bin/sh\n", "utf-8")
    program.chmod(0o755)
    service = tmp_path / NAMES[0]
    lines = service.read_text("utf-8").splitlines()
    named = next(line for line in lines if line.startswith("ExecStart="))
    service.write_text(service.read_text("utf-8").replace(named.split(" nightly")[0], f"ExecStart={program}"), "utf-8")
    checked = subprocess.run(
        ["systemd-analyze", "verify", *(str(tmp_path / name) for name in NAMES)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert str(tmp_path) not in checked.stderr, checked.stderr
    assert not [line for line in checked.stderr.splitlines() if "profagent" in line]
    calendar = subprocess.run(["systemd-analyze", "calendar", "*-*-* 02:00"], capture_output=True, check=False)
    assert calendar.returncode == 0


def test_a_timer_that_is_refused_says_what_to_do(
    tmp_path: Path, systemctl: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REFUSES", "1")
    assert run(["nightly", "init", "--config", str(tmp_path / "n.toml"), "--timer", "user"]) == 1
    assert "enable-linger" in capsys.readouterr().err
    assert systemctl.read_text("utf-8") == "--user daemon-reload\n"


@pytest.mark.parametrize(
    "key",
    [
        'time_limit = "soon"',
        'fail_if = ["total"]',
        '[retention]\nolder_than = "long"',
        '[retention]\nmax_size = "big"',
        '[retention]\nwhere = ["place=lab"]',
    ],
)
def test_settings_that_cannot_be_are_refused_before_anything_is_run(
    tmp_path: Path, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nightly.toml"
    board = '[[boards]]\nname = "lab1"\nrecord = { for = "1s" }\n'
    file.write_text(f"{key}\n{board}" if not key.startswith("[") else f"{board}{key}\n", "utf-8")
    assert run(["nightly", "run", "--config", str(file)]) == 2
    assert not (tmp_path / "ws").exists()
    assert run(["nightly", "run", "--config", str(tmp_path / "none.toml")]) == 2
    assert "nightly init" in capsys.readouterr().err


def test_a_night_of_a_group_without_settings_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = tmp_path / "nightly.toml"
    file.write_text('[[boards]]\nname = "lab1"\nrecord = { for = "1s" }\n', "utf-8")
    run(["boards", "add", "lab2", "192.0.2.2"])
    run(["boards", "set", "lab2", "--group", "rack3"])
    assert run(["nightly", "run", "--config", str(file), "--group", "rack3"]) == 2
    assert "the settings name no board of rack3" in capsys.readouterr().err
