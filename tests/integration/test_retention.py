"""The board's small disk: several times its size goes through it with a host, and without one every loss is told."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.daemon.daemon_process import command
from tests.fakes.small_disk import small_disk
from tests.integration.board import eventually, running
from tests.integration.host import ENVIRONMENT, TIMEOUT_S, profagent, started
from tests.integration.rows import link_ledger, query

CONSUMER = "desk"
REPORT = re.compile(r"(\d+) inferences, (\d+) of them recorded, (\d+) aicore records")
LAYERS = ("--model", "mobilenetv2", "--layers", "300", "--seed", "5")
DELIVERED = ("--retain", "delivered", "--retain-for", CONSUMER)
DISK_BYTES = 4_500_000
TIMES = 4
RATE = 15
RUN_S = 18
MIN_FREE = 0.4


class Program:
    """A simulated board that writes JOBs for so long; another daemon serves them."""

    def __init__(self, root: Path, log: Path, *arguments: str | Path) -> None:
        self._log = log
        own = ("--root", str(root), "--listen", f"unix:{log}.socket", "--state", f"{log}.state")
        options = (*command(*own, "--simulate"), *LAYERS)
        with log.open("wb") as file:
            self.process = subprocess.Popen([*options, *map(str, arguments)], env=ENVIRONMENT, stderr=file)

    def report(self) -> tuple[int, int, int]:
        """Inferences, those recorded, and aicore records, when it is over; what had no room fails."""
        assert eventually(lambda: REPORT.search(self.log) is not None, TIMEOUT_S), self.log
        match = REPORT.search(self.log)
        assert match is not None
        inferences, recorded, records = map(int, match.groups())
        return inferences, recorded, records

    @property
    def log(self) -> str:
        """What it has said."""
        return self._log.read_text("utf-8")


@contextmanager
def program(root: Path, log: Path, *arguments: str | Path) -> Iterator[Program]:
    """A program that is ended in any case."""
    simulated = Program(root, log, *arguments)
    try:
        yield simulated
    finally:
        simulated.process.kill()
        simulated.process.wait()


@pytest.fixture
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "board", getattr(request, "param", DISK_BYTES)) as made:
        yield made


@pytest.mark.long
def test_several_times_the_disk_goes_through_it_and_nothing_is_lost(disk: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    record = ("record", "--workspace", workspace, "--until-finished", "--json")
    with (
        running("--root", disk, "--state", tmp_path / "state", *DELIVERED) as board,
        started(*record, "--consumer", CONSUMER, "--board", board.address) as host,
    ):
        host.err.until("waiting for a program")
        begun = time.monotonic()
        with program(disk, tmp_path / "program.log", "--rate", str(RATE), "--for", str(RUN_S)) as simulated:
            inferences, recorded, records = simulated.report()
            written_s = time.monotonic() - begun
            ended = host.ended()
            drained_s = time.monotonic() - begun
            assert eventually(lambda: not list(disk.glob("JOB*/data/aicore*")))
    assert "disk was full" not in simulated.log
    (job,) = workspace.glob("mirror/*/JOB*")
    size = sum(file.stat().st_size for file in job.rglob("*") if file.is_file())
    print(f"written {size / written_s:,.0f} bytes/s, drained {size / drained_s:,.0f} bytes/s: {size:,} bytes in all")
    assert size > TIMES * DISK_BYTES
    assert ended.code == 0, ended.err
    summary = json.loads(ended.out)
    assert (summary["complete"], summary["kept_losses"]) == (True, [])
    assert summary["records"]["aicore"] == records
    assert inferences == recorded == len(list(job.glob("data/aicore*.done")))
    database = workspace / "profagent.db"
    assert [row for row in link_ledger(database, job.name) if row[1] == "loss"] == []
    counts = [row[0] for row in query(database, "SELECT current_pic_count FROM inferences ORDER BY 1")]
    assert counts == [*range(inferences)]
    for data in job.glob("data/aicore*[0-9]"):
        assert f"file_len:{data.stat().st_size}\n" in Path(f"{data}.done").read_text("ascii")


@pytest.mark.parametrize("disk", [DISK_BYTES // 2], indirect=True, ids=["small"])
def test_what_is_lost_while_the_host_is_away_is_told_when_it_comes_back(disk: Path, tmp_path: Path) -> None:
    state, workspace = tmp_path / "state", tmp_path / "workspace"
    retain = ("--retain", "min_free", "--min-free", f"{MIN_FREE:.0%}", "--delete-undelivered", "--retain-for", "x")
    kept = (*retain, "--state", state)
    with program(disk, tmp_path / "program.log", *kept, "--rate", str(RATE), "--for", "5") as simulated:
        assert eventually(lambda: "deleted-undelivered" in _losses(state))
        with (disk / "somebody's").open("ab") as file:
            # Full until the daemon has seen it, and the program has had no room for several inferences.
            assert eventually(lambda: _fill(file.fileno()) or ("disk-full" in _losses(state) and _empty_logs(disk) > 3))
        (disk / "somebody's").unlink()
        _, recorded, _ = simulated.report()
    assert "the disk was full" in simulated.log
    # What the full disk kept from being written may leave the JOB without its end: then it is quiet at last.
    with running("--root", disk, *kept, "--quiet-after", "1") as board:
        # What this daemon has yet to delete would be lost anew.
        assert eventually(lambda: _free_share(disk) > MIN_FREE)
        with started("watch", "--board", board.address) as watcher:
            for reason in ("deleted-undelivered", "disk-full"):
                assert watcher.out.until(reason) or watcher.err.until(reason)
        arguments = ("record", "--board", board.address, "--workspace", workspace, "--backlog", "--until-finished")
        first, again = profagent(*arguments), profagent(*arguments)
    # The second time nothing new was lost.
    assert (first.code, again.code) == (4, 0), (first, again)
    for reason in ("deleted-undelivered", "disk-full"):
        assert reason in first.out
        assert reason not in again.out
    (job,) = workspace.glob("mirror/*/JOB*")
    (told, nothing) = profagent("sessions", "--workspace", workspace, "--json").document
    losses = {loss["reason"]: loss for loss in told["kept_losses"]}
    assert nothing["kept_losses"] == []
    assert {loss["job"] for loss in losses.values()} == {job.name}
    assert set(losses) == {"deleted-undelivered", "disk-full"}
    deleted = losses["deleted-undelivered"]
    assert deleted["lost_logs"] // 2 + len(list(job.glob("data/aicore*[0-9]"))) == recorded
    assert 0 < deleted["from_us"] <= deleted["to_us"]
    assert "deleted-undelivered" in profagent("sessions", "--workspace", workspace).out
    for kind in ("summary", "timeline"):
        exported = profagent("export", kind, "1", "--workspace", workspace)
        assert exported.code == 4, exported.err
    metadata = [*workspace.glob("exports/**/metadata.json"), *workspace.glob("exports/**/*timeline*.json")]
    assert len(metadata) >= 2
    for path in metadata:
        assert "deleted-undelivered" in path.read_text("utf-8")


def _losses(state: Path) -> str:
    file = state / "losses.jsonl"
    return file.read_text("utf-8") if file.exists() else ""


def _empty_logs(disk: Path) -> int:
    """Logs that were made and could not be written."""
    empty = 0
    for file in disk.glob("JOB*/data/aicore*"):
        with suppress(FileNotFoundError):
            empty += file.stat().st_size == 0
    return empty


def _free_share(disk: Path) -> float:
    found = os.statvfs(disk)
    return found.f_bavail / found.f_blocks


def _fill(descriptor: int) -> bool:
    """Take what room there is."""
    try:
        while True:
            os.write(descriptor, bytes(4096))
    except OSError:
        return False
