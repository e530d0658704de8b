"""A model that is loaded again in one JOB after its logs were delivered and deleted: what came before stays."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.board import content, eventually, mirrored, running, simulated
from tests.integration.host import Ended, Host, profagent, started
from tests.integration.rows import imported_rows, link_ledger, query, rows_of

INFERENCES = 3
GROWING = (b"aicore", b"aicpu", b"acl_api")


class Program:
    """What a program leaves that loads its model twice, written load by load.

    As the runtime writes it: logs are appended to, and made where they do not stand; anything else is rewritten.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        self.whole = simulated(folder / "twice", INFERENCES, loads=2, seed=6)
        self._loads = (content(simulated(folder / "once", INFERENCES, seed=6)), content(self.whole))
        self.directory = root / self.whole.name

    def load(self, number: int, *, but: int = 0) -> None:
        """Write what a load leaves, or goes on with; `but` so many bytes of each aicore log, without a `.done`."""
        (self.directory / "data").mkdir(parents=True, exist_ok=True)
        for path, data in self._loads[number].items():
            name, file = path.rpartition(b"/")[2], self.directory / os.fsdecode(path)
            if not name.startswith(GROWING) or name.endswith(b".done"):
                if not but:
                    file.write_bytes(data)
                continue
            written = len(self._loads[0].get(path, b"")) if number else file.stat().st_size if file.exists() else 0
            with file.open("ab") as log:
                log.write(data[written : len(data) - (but if name.startswith(b"aicore") else 0)])

    @property
    def logs(self) -> list[str]:
        """Logs of inferences."""
        paths = map(os.fsdecode, self._loads[0])
        return [path for path in paths if path.startswith(("data/aicore", "data/aicpu")) and path[-1].isdigit()]

    def were_deleted(self) -> bool:
        """Wait until none of these stands any more."""
        return eventually(lambda: not any((self.directory / path).exists() for path in self.logs))


class Desk:
    """A workspace, and the consumer in whose name it follows."""

    def __init__(self, workspace: Path, consumer: str = "desk") -> None:
        self.workspace = workspace
        self.database = workspace / "profagent.db"
        self._consumer = consumer

    @contextmanager
    def recording(self, address: str, *arguments: str) -> Iterator[Host]:
        """A `record` that runs; it is killed in the end."""
        with started("record", *self._arguments(address), *arguments) as host:
            host.err.until("recording")
            yield host

    def record(self, address: str) -> Ended:
        """A `record` of all that there is."""
        return profagent("record", *self._arguments(address), "--backlog", "--until-finished", "--json")

    def has_all(self) -> bool:
        """Wait until it has heard that the JOB is over and that all of it came."""
        return eventually(lambda: query(self.database, "SELECT state, caught_up FROM job") == [("finished", 1)])

    def _arguments(self, address: str) -> tuple[str | Path, ...]:
        return ("--board", address, "--workspace", self.workspace, "--consumer", self._consumer)


@pytest.fixture
def program(root: Path, tmp_path: Path) -> Program:
    return Program(tmp_path, root)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "workspace")


def _options(root: Path, tmp_path: Path, state: str = "state") -> tuple[str | Path, ...]:
    return ("--root", root, "--state", tmp_path / state, "--retain", "delivered", "--retain-for", "desk")


def _check(program: Program, desk: Desk, tmp_path: Path) -> None:
    """The first load's files stand beside the second's, none of them is lost, and the ledger tells of it."""
    job = program.whole
    told = link_ledger(desk.database, job.name)
    assert {(path, grade) for path, grade, _ in told} == {(path, "note") for path in program.logs}
    mirror = mirrored(desk.workspace, job.name)
    for path in program.logs:
        (first,) = desk.workspace.glob(f"superseded/*/{job.name}/{path}.1")
        assert first.read_bytes() + mirror[os.fsencode(path)] == (job / path).read_bytes()
    (folder,) = desk.workspace.glob(f"mirror/*/{job.name}")
    assert imported_rows(folder, tmp_path / "of the mirror") == rows_of(desk.database, job.name)
    assert query(desk.database, "SELECT load, count(*) FROM inferences GROUP BY 1") == [(0, INFERENCES)]


@pytest.mark.parametrize("watching", [(), pytest.param(("--scan",), marks=pytest.mark.long)], ids=["inotify", "scan"])
def test_a_second_load_is_kept_beside_the_first_that_was_deleted(
    watching: tuple[str, ...], program: Program, desk: Desk, root: Path, tmp_path: Path
) -> None:
    with running(*_options(root, tmp_path), *watching) as board, desk.recording(board.address, "--json") as host:
        program.load(0)
        assert program.were_deleted()
        program.load(1)
        assert program.were_deleted()
        assert desk.has_all()
        ended = host.interrupt()
    assert ended.code == 0, ended.err
    assert ended.document["ledger"]["loss"] == {}
    _check(program, desk, tmp_path)


@pytest.mark.parametrize(
    "who", [pytest.param("daemon", marks=pytest.mark.long), pytest.param("host", marks=pytest.mark.long), "both"]
)
def test_nobody_need_be_there_when_a_deleted_log_is_made_anew(
    who: str, program: Program, desk: Desk, root: Path, tmp_path: Path
) -> None:
    with running(*_options(root, tmp_path)) as board, desk.recording(board.address) as host:
        program.load(0)
        assert program.were_deleted()
        if who != "host":
            board.process.kill()
            board.process.wait()
        if who != "daemon":
            host.process.kill()
            host.process.wait()
        program.load(1)
        if who == "host":
            ended = desk.record(board.address)
        else:
            with running(*_options(root, tmp_path), listen=board.address):
                if who == "daemon":
                    assert program.were_deleted()
                    assert desk.has_all()
                    ended = host.interrupt()
                else:
                    ended = desk.record(board.address)
    assert ended.code == 0, ended.err
    assert query(desk.database, "SELECT count(*) FROM session") == [(1,)]
    _check(program, desk, tmp_path)


def test_a_root_that_is_away_between_the_loads_takes_nothing_with_it(
    program: Program, desk: Desk, root: Path, tmp_path: Path
) -> None:
    with running(*_options(root, tmp_path)) as board, desk.recording(board.address) as host:
        program.load(0)
        assert program.were_deleted()
        root.rename(tmp_path / "away")
        assert eventually(lambda: query(desk.database, "SELECT state FROM job") == [("removed",)])
        (tmp_path / "away").rename(root)
        program.load(1)
        assert program.were_deleted()
        assert desk.has_all()
        ended = host.interrupt()
    assert ended.code == 0, ended.err
    _check(program, desk, tmp_path)
