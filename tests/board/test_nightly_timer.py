"""The timer of `nightly` under a systemd that has booted: it fires, and the service runs a night to its exit code."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.board.booted import CHECKOUT, add_program

if TYPE_CHECKING:
    from tests.board.booted import Booted

AWAY = 3
HOST = """import os, sys
os.environ["PYTHONPATH"] += ":/opt/profagent/agent"
sys.path.insert(0, "/opt/profagent/agent")
from profagent.cli.main import main
main()
"""
SETTINGS = 'attempts = 1\n[[boards]]\nname = "unix:/{manager}"\nrecord = {{ for = "1s" }}\n'
AT_ONCE = "[Timer]\nRandomizedDelaySec=0\nAccuracySec=1ms\n"
FOLDERS = {"system": "etc/systemd/system", "user": "root/.config/systemd/user"}
ENVIRONMENT = ("env", "PATH=/opt/profagent/current/bin:/usr/bin:/bin", "HOME=/root", "XDG_RUNTIME_DIR=/run/user/0")


@pytest.fixture(scope="module")
def host(one_board: Booted) -> Booted:
    """A host with the agent, and a manager of its user's units; it logs nobody in."""
    shutil.copytree(CHECKOUT / "agent", one_board.root / "opt/profagent/agent")
    (one_board.root / "opt/profagent/host.py").write_text(HOST)
    add_program(one_board.root, "profagent", "/opt/profagent/host.py")
    one_board.run("mkdir", "-p", "-m", "700", "/run/user/0")
    given = ("--setenv=HOME=/root", "--setenv=XDG_RUNTIME_DIR=/run/user/0", "--property=Delegate=yes")
    one_board.run("systemd-run", "--quiet", "--unit=manager", *given, "/usr/lib/systemd/systemd", "--user")
    one_board.until((one_board.inside / "run/user/0/systemd/private").exists)
    return one_board


@pytest.mark.parametrize("manager", [pytest.param("system", marks=pytest.mark.long), "user"])
def test_the_timer_fires_and_a_night_is_run(host: Booted, manager: str) -> None:
    (host.root / "root/nightly.toml").write_text(SETTINGS.format(manager=manager))
    drop_in = host.root / FOLDERS[manager] / "profagent-nightly.timer.d"
    drop_in.mkdir(parents=True)
    (drop_in / "at-once.conf").write_text(AT_ONCE)
    init = ("profagent", "nightly", "init", "--config", "/root/nightly.toml", "--timer", manager)
    told = host.run(*ENVIRONMENT, *init, "--at", "*-*-* *:*:*")
    assert f"wrote the units to /{FOLDERS[manager]} and started profagent-nightly.timer" in told
    unit = "USER_UNIT" if manager == "user" else "UNIT"

    def journal(*matches: str) -> list[str]:
        return host.run("journalctl", "--no-pager", "--output=cat", *matches).splitlines()

    host.until(lambda: f"AWAY: unix:/{manager}" in journal())
    exited = f"profagent-nightly.service: Main process exited, code=exited, status={AWAY}/"
    host.until(lambda: any(line.startswith(exited) for line in journal(f"{unit}=profagent-nightly.service")))
    own = ["--user"] if manager == "user" else []
    host.run(*ENVIRONMENT, "systemctl", *own, "disable", "--now", "profagent-nightly.timer")
