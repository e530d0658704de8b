"""profagentd.init on boards without systemd: with BusyBox alone, and with Debian's dash."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.board.booted import UNITS
from tests.daemon.daemon_process import command, environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE_S = 90.0
SCRIPT = UNITS / "profagentd.init"
# What it may use beside the shell's own words; a board with BusyBox has no more.
PROGRAMS = ("cp", "cut", "date", "du", "grep", "kill", "mkdir", "nice", "rm", "sleep", "tr")


class Initd:
    """The script as it stands in a board's /etc/init.d, with directories of its own."""

    def __init__(self, directory: Path, shell: list[str], programs: Path) -> None:
        self.directory = directory
        self._programs = programs
        self.script = directory / "init.d/profagentd"
        self.log = directory / "log"
        self.config = directory / "profagentd.toml"
        self.roots_d = directory / "roots.d"
        for name in ("init.d", "current/bin", "roots.d", "run", "root"):
            (directory / name).mkdir(parents=True)
        settings = f"PREFIX={directory}\nRUN={directory}/run\nLOG={self.log}\n"
        settings += f'OPTIONS="--config {self.config} --roots-d {self.roots_d}"\n'
        text = SCRIPT.read_text().replace("#!/bin/sh", f"#!{' '.join(shell)}", 1)
        text = text.replace("/etc/default/profagentd", str(directory / "default")).replace(
            "/var/lib", f"{directory}/lib"
        )
        self.script.write_text(text)
        self.script.chmod(0o755)
        (directory / "default").write_text(settings)
        self.configure()
        self.launch(command())

    def configure(self, more: str = "") -> None:
        """The daemon's settings."""
        own = f"listen = 'unix:{self.directory}/s'\nstate = '{self.directory}/state'\n"
        self.config.write_text(f"{own}roots = ['{self.directory}/root']\n{more}")

    def launch(self, program: list[str]) -> None:
        """What is started as the daemon."""
        path = self.directory / "current/bin/profagentd"
        path.write_text(f'#!/bin/sh\nPATH=/usr/bin:/bin\nexec {" ".join(program)} "$@"\n')
        path.chmod(0o755)

    def run(self, action: str) -> tuple[int, str]:
        """Exit code and words of the script."""
        given = {**environment(), "PATH": str(self._programs)}
        ran = subprocess.run(
            [str(self.script), action],
            check=False,
            env=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
        )
        return ran.returncode, ran.stdout

    @property
    def watcher(self) -> int:
        """The process that starts the daemon again."""
        return int((self.directory / "run/profagentd.pid").read_text().partition(" ")[0])

    @property
    def daemon(self) -> int:
        """The daemon's process; 0 while there is none."""
        try:
            return int((self.directory / "run/profagentd.daemon.pid").read_text().partition(" ")[0] or 0)
        except FileNotFoundError:
            return 0

    def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def says(self, words: str) -> bool:
        """Whether the log has these words."""
        return self.log.exists() and words in self.log.read_text()


def lives(process: int) -> bool:
    """Whether a process that nobody has waited for may still do something."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes() != b""
    except FileNotFoundError:
        return False


@pytest.fixture(params=["busybox", pytest.param("dash", marks=pytest.mark.long)])
def initd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Initd]:
    """The script under each shell; what it has started is ended."""
    shell = shutil.which(request.param)
    assert shell is not None, f"install {request.param}"
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in PROGRAMS:
        (programs / name).symlink_to(shell if request.param == "busybox" else str(shutil.which(name)))
    initd = Initd(tmp_path / "board", [shell, *(["sh"] if request.param == "busybox" else [])], programs)
    yield initd
    initd.run("stop")


def test_it_starts_serves_and_stops_in_good_order(initd: Initd) -> None:
    assert initd.run("status")[0] == 3
    assert initd.run("start")[0] == 0
    initd.until(lambda: initd.says("serving unix:"))
    assert initd.run("status") == (0, f"profagentd is running, process {initd.daemon}\n")
    assert initd.run("start") == (0, "profagentd is running\n")
    daemon = initd.daemon
    assert initd.run("stop") == (0, "profagentd is stopped\n")
    assert not Path(f"/proc/{daemon}").exists()
    assert initd.says("stopping")
    assert initd.run("stop") == (0, "profagentd is not running\n")
    assert list((initd.directory / "run").iterdir()) == []


def test_one_that_is_killed_starts_again_after_a_rising_delay(initd: Initd) -> None:
    initd.run("start")
    was = 0
    for delay in (1, 4):
        initd.until(lambda: initd.daemon not in (0, was) and Path(f"/proc/{initd.daemon}").exists())  # noqa: B023
        was = initd.daemon
        os.kill(was, signal.SIGKILL)
        initd.until(lambda: initd.says(f"it ended with status 137; it starts again in {delay} s"))  # noqa: B023
        assert initd.run("status") == (0, f"profagentd has failed and will be started again, see {initd.log}\n")


def test_one_that_always_fails_is_left_alone_in_the_end(initd: Initd) -> None:
    initd.launch(["sh", "-c", '"[ $# -gt 4 ]"', "profagentd"])  # fails, but for --check-config
    sleep = initd.directory.parent / "bin/sleep"
    sleep.unlink()
    patience = f"[ $1 != 30 ] || exec {shutil.which('sleep')} 30"  # that of the look at the log's length
    sleep.write_text(f"#!/bin/sh\n{patience}\necho $1 >> {initd.directory}/slept\n")
    sleep.chmod(0o755)
    initd.run("start")
    initd.until(lambda: initd.says("it failed 8 times, with status 1 at last"))
    assert (initd.directory / "slept").read_text().split() == ["1", "4", "9", "16", "25", "36", "49"]
    initd.until(lambda: initd.run("status")[0] == 3)


def test_a_reload_reads_the_settings_again(initd: Initd) -> None:
    assert initd.run("reload")[0] == 7
    initd.run("start")
    initd.until(lambda: initd.says("serving unix:"))
    (initd.roots_d / "app.conf").write_text(f"{initd.directory}/more\n")
    daemon = initd.daemon
    assert initd.run("reload")[0] == 0
    initd.until(lambda: initd.says(f"added the root {initd.directory}/more"))
    assert initd.daemon == daemon


def test_a_daemon_that_lost_its_watcher_gives_way_to_one_that_has_one(initd: Initd) -> None:
    initd.run("start")
    initd.until(lambda: initd.says("serving unix:"))
    daemon = initd.daemon
    os.kill(initd.watcher, signal.SIGKILL)
    initd.until(lambda: "nobody watches over it" in initd.run("status")[1])
    assert initd.run("start")[0] == 0
    assert not lives(daemon)
    initd.until(lambda: initd.run("status") == (0, f"profagentd is running, process {initd.daemon}\n"))


@pytest.mark.parametrize("born", ["", " 1"], ids=["of another name", "begun at another time"])
def test_a_process_that_only_has_the_number_of_ours_is_left_alone(initd: Initd, born: str) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)", *(["profagentd"] if born else [])])
    try:
        for name in ("profagentd.pid", "profagentd.daemon.pid"):
            (initd.directory / "run" / name).write_text(f"{other.pid}{born}\n")
        assert initd.run("stop") == (0, "profagentd is not running\n")
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_log_that_grows_while_the_daemon_runs_is_begun_anew(initd: Initd) -> None:
    with (initd.directory / "default").open("a") as settings:
        settings.write("LOG_KIB=64\nLOG_LOOK_S=1\n")
    initd.run("start")
    initd.until(lambda: initd.says("serving unix:"))
    with initd.log.open("ab") as log:
        log.write(b"x" * (1 << 20))
    initd.until(lambda: initd.log.stat().st_size < 64 << 10)
    assert initd.log.with_name("log.1").stat().st_size > 1 << 20
    initd.run("reload")
    initd.until(lambda: initd.says("reloaded the settings"))
    # It is appended to: there is no hole where the old text was.
    assert initd.log.stat().st_size < 64 << 10
