"""The unit under a systemd that has booted: what it is told, what it minds, what it keeps the daemon from."""

from __future__ import annotations

import json
import os
import re
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.board.booted import CHECKOUT, CONFIG, PATIENCE_S, SERVICE, UNITS, Booted, add_program
from tests.daemon.daemon_process import AICORE_DONE, make_job
from tests.daemon.wire_client import following

if TYPE_CHECKING:
    from pathlib import Path

# Of 10, by systemd's own scale.
HIGHEST = 2.0
RETAIN = 'retain = "delivered"\nretain_for = ["test"]\n'
LOG = "aicore.0.m.3.0.1.1.1"
DATA = b"r" * 256
RETENTION = (UNITS / "retention.conf.in").read_text().replace("@ROOTS@", "-/root/jobs -/root/more")
PROBE = """[Service]
Type=oneshot
ExecStartPre=
ExecStart=
ExecStart=/opt/profagent/current/bin/probe {file}
WatchdogSec=0
Restart=no
"""


def job_of_root(parent: Path, number: int = 0) -> Path:
    """A JOB as a program of root leaves it under a careful umask."""
    job = make_job(parent, number)
    data = job / "data" / LOG
    data.write_bytes(DATA)
    data.with_name(f"{data.name}.done").write_bytes(AICORE_DONE % len(DATA))
    for path in (job, *job.rglob("*")):
        os.chown(path, 0, 0)
        path.chmod(0o750 if path.is_dir() else 0o640)
    return job


async def test_a_job_that_root_wrote_in_its_home_arrives_at_a_client(board: Booted) -> None:
    job = job_of_root(board.root / "root/jobs")
    board.start()
    assert board.show("ActiveState") == "active"
    assert board.run("stat", "--format=%U", f"/proc/{board.show('MainPID')}") == "profagentd"
    async with following(board.address) as client:
        await client.start()
        await client.until(lambda: client.has(LOG) and client.copy(LOG).is_complete)
        assert client.mirror(job.name)[b"data/" + LOG.encode()] == DATA
        board.until(lambda: board.show("StatusText") == "clients: 1, JOBs: 1 (1 open), recorded losses: 0")


async def test_programs_of_any_user_find_the_daemon_and_its_next_start(board: Booted) -> None:
    board.configure(CONFIG.replace("spools = []", 'spools = ["marks"]'))
    board.start()
    fifo = board.inside / "run/profagent/marks"
    board.until(fifo.exists)
    made = fifo.stat().st_ino
    async with following(board.address) as client:
        await client.start()
        as_nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        mark = b"MARK\x01\x00".ljust(256, b"\0")
        (board.root / "etc/mark").write_bytes(mark)
        board.run(*as_nobody, "sh", "-c", "cat /etc/mark > /run/profagent/marks")
        await client.until(lambda: mark in [copy.data for copy in client.copies.values()])
        board.run("systemctl", "restart", "--no-block", SERVICE)
        await client.until_ended()
    board.until(lambda: board.show("ActiveState") == "active")
    assert fifo.stat().st_ino == made
    assert board.run("stat", "--format=%a %U", "/run/profagent", "/run/profagent/marks").split() == [
        *("755", "profagentd"),
        *("622", "profagentd"),
    ]


async def test_a_reload_takes_a_new_file_of_roots_and_keeps_the_clients(board: Booted) -> None:
    job = job_of_root(board.root / "root/more")
    board.start()
    main = board.show("MainPID")
    async with following(board.address) as client:
        await client.start()
        await client.until(lambda: client.is_listed)
        (board.root / "etc/profagent/roots.d/app.conf").write_text("# where app writes\n/root/more\n")
        board.run("systemctl", "reload", SERVICE)
        await client.until(lambda: job.name in client.jobs)
    assert board.show("MainPID") == main


async def test_a_stop_sends_what_there_is_and_says_goodbye(board: Booted) -> None:
    job_of_root(board.root / "root/jobs")
    board.start()
    async with following(board.address) as client:
        await client.start()
        await client.until(lambda: client.has(LOG))
        board.run("systemctl", "stop", "--no-block", SERVICE)
        await client.until_ended()
    assert client.goodbye is not None
    assert client.copy(LOG).is_complete
    board.until(lambda: board.show("ActiveState") == "inactive")
    assert (board.show("Result"), board.show("ExecMainStatus")) == ("success", "0")


def test_one_that_cannot_start_is_left_alone_in_the_end(board: Booted) -> None:
    board.configure(unit="[Service]\nExecStartPre=\nRestartSec=0\nExecStart=\nExecStart=/bin/false\n")
    board.run("systemctl", "start", SERVICE, check=False)
    board.until(lambda: board.show("ActiveState") == "failed")
    assert 0 < int(board.show("NRestarts")) <= 8


MAY = frozenset(
    (
        "read a JOB of root",
        "read below /tmp",
        "see what is no process",
        "keep its state",
        "serve hosts",
        "serve this machine",
    )
)


@pytest.mark.parametrize("drop_in", ["", RETENTION], ids=["base", "retention"])
def test_the_sandbox_allows_what_the_work_needs_and_nothing_else(board: Booted, drop_in: str) -> None:
    file = job_of_root(board.root / "root/jobs") / "data" / LOG
    shutil.copy(CHECKOUT / "tests/board/sandbox_probe.py", board.root / "opt/profagent")
    add_program(board.root, "probe", "/opt/profagent/sandbox_probe.py")
    board.run("sh", "-c", "echo x > /tmp/job; touch /dev/svp_npu; mkdir -p /root/.ssh; echo x > /root/.ssh/key")
    program = board.run("sh", "-c", "sleep 1000 < /dev/svp_npu > /dev/null 2>&1 & echo $!")
    try:
        board.configure(unit=drop_in + PROBE.format(file=f"/{file.relative_to(board.root)}"))
        board.start()
    finally:
        board.run("kill", program)
    results = json.loads((board.root / "var/lib/profagentd/probe.json").read_text())
    assert results.pop("who has the NPU open") is True
    done = {name for name, result in results.items() if result == "done"}
    assert done == MAY | ({"write where JOBs are"} if drop_in else set()), results


@pytest.mark.parametrize("drop_in", ["", RETENTION], ids=["base", "retention"])
async def test_only_with_the_drop_in_what_is_delivered_is_deleted(board: Booted, drop_in: str) -> None:
    job = job_of_root(board.root / "root/jobs")
    data = job / "data" / LOG
    board.configure(CONFIG + RETAIN, drop_in)
    board.start()
    async with following(board.address) as client:
        await client.start()
        await client.until(lambda: client.has(data.name) and client.copy(data.name).is_complete)
        if drop_in:
            await client.until(lambda: not data.exists(), PATIENCE_S)
        else:
            board.until(lambda: "Read-only file system: nothing can be deleted there" in board.journal())
            assert data.exists()


@pytest.mark.parametrize("drop_in", ["", RETENTION], ids=["base", "retention"])
def test_its_exposure_is_what_the_docs_say(board: Booted, drop_in: str) -> None:
    page = (CHECKOUT / "docs/reference/service.md").read_text()
    stated = re.search(r"\*\*(?P<base>[\d.]+)\*\* of 10, and as \*\*(?P<retention>[\d.]+)\*\*\s+with", page)
    assert stated is not None
    board.configure(unit=drop_in)
    arguments = ("systemd-analyze", "security", "--offline=true", "--no-pager")
    measured = board.run(*arguments, f"/etc/systemd/system/{SERVICE}").splitlines()[-1]
    found = re.search(r"Overall exposure level for \S+: (?P<level>[\d.]+) ", measured)
    assert found is not None, measured
    assert found["level"] == stated["retention" if drop_in else "base"]
    assert float(stated["base"]) <= HIGHEST
