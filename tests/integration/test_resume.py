"""What a `record` holds is gone on from, whatever became of the board and of the mirror meanwhile."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.daemon.daemon_process import environment, serving
from tests.fakes.ports import own_port
from tests.integration.board import GrowingJob, content, eventually, mirrored, running, simulated
from tests.integration.host import profagent, started
from tests.integration.rows import imported_rows, link_ledger, query, rows_of, so_far

COMMITTED = "SELECT count(*) FROM log WHERE offset > 0 AND kind = 'aicore'"
# Which log it is about, and what is told.
TOLD = (
    "SELECT ifnull(CAST(path AS TEXT), detail), reason FROM ledger_entry LEFT JOIN log USING (log)"
    " WHERE origin = 'link'"
)


class Resumed:
    """A JOB of which a part was recorded: some logs whole, and as many begun."""

    def __init__(self, folder: Path, pairs: int) -> None:
        self.root, self.workspace = folder / "root", folder / "workspace"
        self.root.mkdir()
        self._folder = folder
        self.job = GrowingJob(simulated(folder / "source", 2 * pairs, seed=4), self.root, 9)
        logs = self.job.paths("data/aicore*")
        self.whole, self.begun = logs[:pairs], logs[pairs : 2 * pairs]
        self.database = self.workspace / "profagent.db"

    def write_part(self) -> None:
        dones = [f"{path}.done" for path in self.whole]
        for path in (*self.job.paths("*"), *self.job.paths("data/*.info"), *self.whole, *dones):
            self.job.write(path)
        for _ in self.job.grow(self.begun, until=dict.fromkeys(self.begun, 1000)):
            pass

    def write_rest(self) -> None:
        data = [*self.job.paths("data/aicore*"), *self.job.paths("data/aicpu*"), *self.job.paths("data/acl_api*")]
        for _ in self.job.grow(data):
            pass
        for path in self.job.paths("data/*.done"):
            self.job.write(path)

    def is_committed(self) -> bool:
        """Wait until the part is in the mirror and the database."""
        return eventually(
            lambda: self.mirror() == self.job.content and so_far(self.database, COMMITTED) == [(2 * len(self.whole),)]
        )

    def mirror(self) -> dict[bytes, bytes]:
        return mirrored(self.workspace, self.job.directory.name)

    def check(self) -> None:
        """Mirror and rows are those of the board's files."""
        assert self.mirror() == self.job.content == content(self.job.source)
        imported = imported_rows(self.job.directory, self._folder / "imported")
        assert rows_of(self.database, self.job.directory.name) == imported

    @property
    def told(self) -> list[tuple[str | None, str, str]]:
        return link_ledger(self.database, self.job.directory.name)


@contextmanager
def booted(boot_id: str, listen: str, *arguments: str | Path) -> Iterator[str]:
    """The daemon of a board that was started anew; its address."""
    command = [sys.executable, "-m", "tests.integration.booted_daemon", boot_id, "--listen", listen]
    with serving([*command, *arguments], environment("protos", "daemon", "")) as daemon:
        yield daemon.address


@pytest.mark.parametrize("is_host_there", [True, False], ids=["followed", "recorded anew"])
def test_a_board_that_was_started_anew_is_gone_on_with(is_host_there: bool, tmp_path: Path) -> None:
    resumed = Resumed(tmp_path, 1)
    options = ("--root", resumed.root, "--state", tmp_path / "state")
    arguments = ("--workspace", resumed.workspace, "--until-finished", "--json")
    with ExitStack() as hosts:
        with booted("one", f"127.0.0.1:{own_port()}", *options) as address:
            host = hosts.enter_context(started("record", "--board", address, *arguments))
            resumed.write_part()
            assert resumed.is_committed()
            if not is_host_there:
                host.process.kill()
                host.process.wait()
        resumed.write_rest()
        with booted("two", address, *options):
            ended = host.ended() if is_host_there else profagent("record", "--board", address, *arguments)
    assert ended.code == 0, ended.err
    assert (ended.document["session"], ended.document["ledger"]["loss"]) == (1, {})
    resumed.check()
    assert resumed.told == []


def _within(file: Path) -> None:
    with file.open("r+b") as edited:
        edited.seek(300)
        edited.write(b"edited")


def _truncated(file: Path) -> None:
    os.truncate(file, 600)


def _grown(file: Path) -> None:
    with file.open("ab") as edited:
        edited.write(b"edited")


# What is told of a log that was whole, and of one that was begun. What is past the committed end is no record of
# anything: it is cut, as after a kill.
EDITS: dict[Callable[[Path], None], tuple[str | None, str | None]] = {
    _within: ("mirror-changed", "different"),
    _truncated: ("mirror-changed", "mirror-changed"),
    _grown: (None, None),
    Path.unlink: ("mirror-changed", "mirror-changed"),
}


@pytest.mark.parametrize(
    "has_grown", [pytest.param(False, marks=pytest.mark.long), True], ids=["as it was", "board has grown"]
)
def test_a_mirror_that_somebody_edited_is_fetched_again_and_never_mixed(has_grown: bool, tmp_path: Path) -> None:
    resumed = Resumed(tmp_path, len(EDITS))
    with running("--root", resumed.root) as board:
        arguments = ("--board", board.address, "--workspace", resumed.workspace)
        with started("record", *arguments) as host:
            resumed.write_part()
            assert resumed.is_committed()
            host.process.kill()
            host.process.wait()
        (mirror,) = resumed.workspace.glob("mirror/*/JOB*")
        wanted: set[tuple[str, str]] = set()
        edited = []
        for whole, begun, (edit, reasons) in zip(resumed.whole, resumed.begun, EDITS.items(), strict=True):
            for path, reason in zip((whole, begun), reasons, strict=True):
                edit(mirror / path)
                wanted |= {(path, reason)} if reason else set()
                edited += [(mirror / path).read_bytes()] if edit is _within else []
        if has_grown:
            resumed.write_rest()
        with started("record", *arguments, "--until-finished", "--json") as host:
            host.err.until("recording")
            resumed.write_rest()
            ended = host.ended()
    assert ended.code == 0, ended.err
    assert ended.document["session"] == 1
    resumed.check()
    logs = (*resumed.whole, *resumed.begun)
    told = query(resumed.database, TOLD)
    assert {(path, reason) for path in logs for text, reason in told if path in text} == wanted
    assert len(told) == len(wanted)
    aside = [file.read_bytes() for file in resumed.workspace.glob("superseded/**/*.1")]
    assert sorted(aside) == sorted(edited)
