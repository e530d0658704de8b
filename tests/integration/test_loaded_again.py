"""A model that is loaded again in one JOB after its logs were delivered and deleted: what came before stays."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from tests.integration.board import content, eventually, running, simulated
from tests.integration.host import Ended, Host, profagent, started
from tests.integration.rows import imported_rows, link_ledger, query, rows_of

INFERENCES = 3
GROWING = (b"aicore", b"aicpu", b"acl_api")
MADE_ANEW = ("note", "made-anew")


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

    def mirror(self, job: str) -> dict[bytes, bytes]:
        """What is mirrored."""
        found = list(self.workspace.glob(f"mirror/*/{job}"))
        return content(found[0]) if found else {}

    def _arguments(self, address: str) -> tuple[str | Path, ...]:
        return ("--board", address, "--workspace", self.workspace, "--consumer", self._consumer)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def program(root: Path, tmp_path: Path) -> Program:
    return Program(tmp_path, root)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "workspace")


def _options(root: Path, tmp_path: Path, state: str = "state") -> tuple[str | Path, ...]:
    return ("--root", root, "--state", tmp_path / state, "--retain", "delivered", "--retain-for", "desk")


def _check(program: Program, desk: Desk, tmp_path: Path) -> None:
    """Mirror and rows are as if nothing had been deleted, and the ledger tells where a file was made anew."""
    job = program.whole
    assert desk.mirror(job.name) == content(job)
    assert rows_of(desk.database, job.name) == imported_rows(job, tmp_path / "imported")
    assert sorted(link_ledger(desk.database, job.name)) == sorted((path, *MADE_ANEW) for path in program.logs)
    stretches = query(desk.database, "SELECT stretch, count(*) FROM inferences GROUP BY 1 ORDER BY 1")
    assert stretches == [(0, INFERENCES), (1, INFERENCES)]


@pytest.mark.parametrize("watching", [(), pytest.param(("--scan",), marks=pytest.mark.long)], ids=["inotify", "scan"])
def test_a_second_load_is_kept_beside_the_first_that_was_deleted(
    watching: tuple[str, ...], program: Program, desk: Desk, root: Path, tmp_path: Path
) -> None:
    with running(*_options(root, tmp_path), *watching) as board, desk.recording(board.address, "--json") as host:
        program.load(0)
        assert program.were_deleted()
        program.load(1)
        assert program.were_deleted()
        ended = host.interrupt()
    assert ended.code == 0, ended.err
    assert ended.document["ledger"]["loss"] == {}
    _check(program, desk, tmp_path)
    (mirror,) = desk.workspace.glob("mirror/*/JOB*")
    assert imported_rows(mirror, tmp_path / "of the mirror") == rows_of(desk.database, mirror.name)


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
        ended = host.interrupt()
    assert ended.code == 0, ended.err
    _check(program, desk, tmp_path)


@pytest.mark.parametrize("who", ["another daemon", "another consumer"])
def test_where_the_deletion_is_not_known_the_first_load_is_set_aside(
    who: str, program: Program, desk: Desk, root: Path, tmp_path: Path
) -> None:
    other = Desk(tmp_path / "other", "other") if who == "another consumer" else desk
    with running(*_options(root, tmp_path)) as board, other.recording(board.address):
        program.load(0)
        complete = "SELECT count(*) FROM log WHERE complete > 0 AND kind IN ('aicore', 'aicpu')"
        assert eventually(lambda: query(other.database, complete) == [(len(program.logs),)])
        with desk.recording(board.address, "--backlog") if other is not desk else nullcontext():
            assert program.were_deleted()
    program.load(1)
    with running(*_options(root, tmp_path, "state" if other is not desk else "another state")) as board:
        ended = other.record(board.address)
    assert ended.code == 0, ended.err
    told = link_ledger(other.database, program.whole.name)
    assert sorted(told) == sorted((path, "note", "different") for path in program.logs)
    assert query(other.database, "SELECT max(stretch), count(*) FROM inferences") == [(0, INFERENCES)]
    aside = [file.name for file in other.workspace.glob("superseded/*/*/data/*.1")]
    assert sorted(aside) == sorted(f"{Path(path).name}.1" for path in program.logs)


def test_a_copy_that_was_not_whole_when_its_log_was_deleted_is_a_loss(
    program: Program, desk: Desk, root: Path, tmp_path: Path
) -> None:
    aicore = [path for path in program.logs if "aicore" in path]
    with running(*_options(root, tmp_path)) as board, desk.recording(board.address):
        program.load(0, but=256)
        begun = "SELECT count(*) FROM log WHERE kind = 'aicore' AND offset > 0"
        assert eventually(lambda: query(desk.database, begun) == [(INFERENCES,)])
    program.load(0)
    at_any_price = ("--retain", "min_free", "--min-free", "99%", "--delete-undelivered", "--retain-for", "desk")
    with running("--root", root, "--state", tmp_path / "state", *at_any_price):
        assert program.were_deleted()
    program.load(1)
    with running(*_options(root, tmp_path)) as board:
        ended = desk.record(board.address)
    assert ended.code == 4, ended.err
    assert set(ended.document["ledger"]["loss"]) >= {"deleted-undelivered", "deleted-uncopied"}
    told = link_ledger(desk.database, program.whole.name)
    assert [row for row in told if row[0] in aicore] == [(path, "loss", "deleted-uncopied") for path in sorted(aicore)]


@pytest.mark.parametrize("lose", [Path.unlink, lambda file: os.truncate(file, 300)], ids=["removed", "cut"])
def test_a_copy_that_the_mirror_lost_after_its_log_was_deleted_is_a_loss(
    lose: Callable[[Path], None], program: Program, desk: Desk, root: Path, tmp_path: Path
) -> None:
    aicore, aicpu = (next(path for path in sorted(program.logs) if kind in path) for kind in ("aicore", "aicpu"))
    with running(*_options(root, tmp_path)) as board:
        with desk.recording(board.address) as host:
            program.load(0)
            assert program.were_deleted()
            host.interrupt()
        (file,) = desk.workspace.glob(f"mirror/*/JOB*/{aicore}")
        lose(file)
        program.load(1)
        ended = desk.record(board.address)
    assert ended.code == 4, ended.err
    assert ended.document["ledger"]["loss"] == {"deleted-uncopied": 2}
    told = link_ledger(desk.database, program.whole.name)
    assert {row for row in told if row[1] == "loss"} == {(path, "loss", "deleted-uncopied") for path in (aicore, aicpu)}
    # Neither half of this inference stands for the first load: both are of the second.
    stretches = "SELECT stretch, complete FROM inferences WHERE current_pic_count = 0"
    assert query(desk.database, stretches) == [(0, 1)]
    assert query(desk.database, "SELECT count(*) FROM inferences") == [(2 * INFERENCES - 1,)]
