"""A program's run on a board, through a real OpenSSH server, with GNU's programs or BusyBox's."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from profagent.collect import board_run
from profagent.collect.board_run import BoardRun, RunEnd, patient_ssh
from profagent.collect.explain import LOST
from profagent.collect.look import Place
from profagent.errors import ProfagentError
from tests.board.sshd import Nobody
from tests.integration.board import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.board.sshd import Sshd

pytestmark = pytest.mark.parametrize("sshd", [pytest.param("gnu", marks=pytest.mark.long), "busybox"], indirect=True)

LIMIT_S = 60.0


@pytest.fixture
def lock(friend: Sshd) -> Path:
    return friend.folder / "tmp" / board_run.LOCK


class Board:
    """A project's directory on the board, and what a run has shown."""

    def __init__(self, directory: Path, friend: Sshd) -> None:
        (directory / "bin").mkdir(parents=True)
        self.directory = directory
        self.friend = friend
        self.place = Place(str(directory), "bin/main")
        self.acl = directory / "acl.json"
        self.shown = {False: b"", True: b""}
        self.told: list[str] = []

    def program(self, text: str) -> None:
        main = self.directory / "bin" / "main"
        main.write_text(f"#!/bin/sh\n{text}\n")
        main.chmod(0o755)

    @property
    def run_folder(self) -> Path:
        return Path(self.place.run)

    def show(self, piece: bytes, is_stderr: bool) -> None:
        self.shown[is_stderr] += piece

    @asynccontextmanager
    async def run(self) -> AsyncIterator[BoardRun]:
        async with patient_ssh(self.friend.target, Nobody(), self.told.append) as ssh:
            yield BoardRun(ssh, self.place, self.show)

    async def ran(self, *arguments: str, text: str | None = None, **environment: str) -> RunEnd:
        async with self.run() as run:
            async with run.held():
                await run.start(arguments, environment, str(self.acl), text)
            end = await run.followed()
            await run.leave(end)
        return end

    def check_acl_json(self, before: str | None) -> None:
        """It is what it was: a file, a link to one, or none."""
        assert self.acl.exists() is (before is not None)
        if before is not None:
            assert self.acl.read_text() == "original"
            assert self.acl.is_symlink() is (before == "link")
        if before == "original":
            assert self.acl.stat().st_mode & 0o777 == 0o600

    def is_tidy(self) -> bool:
        names = {path.name for path in self.directory.iterdir()}
        return not self.run_folder.exists() and names <= {"bin", "acl.json", ".profagent"}


@pytest.fixture
def board(tmp_path: Path, friend: Sshd) -> Board:
    return Board(tmp_path / "my app", friend)


async def until(holds: object) -> None:
    assert await asyncio.to_thread(eventually, holds, LIMIT_S)  # type: ignore[arg-type]


async def test_output_arguments_environment_and_exit_code(board: Board, lock: Path) -> None:
    board.program('echo "$1|$2|$NAME|$(pwd)|$(umask)"; echo oh >&2; exit 3')
    end = await board.ran("a b", "it's", NAME="x y")
    assert board.shown[False].decode() == f"a b|it's|x y|{board.directory}/bin|0027\n"
    assert board.shown[True] == b"oh\n"
    assert (end.status, end.why, end.complaint) == (3, "", "oh\n")
    await until(lambda: board.is_tidy() and not lock.exists())


async def test_output_that_nobody_reads_takes_no_more_room_than_it_may(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board_run, "MOST_OUTPUT_BYTES", 200_000)
    monkeypatch.setattr(board_run, "PIECE_READS", 8)
    board.program("seq 1 200000; seq 1 1000 >&2")
    async with board.run() as run:
        async with run.held():
            await run.start((), {}, "", None)
        await until((board.run_folder / "status").exists)
        held = sum(piece.stat().st_size for piece in board.run_folder.glob("stdout.*"))
        assert abs(held - 200_000) <= 8 * 8192
        end = await run.followed()
        assert end.status == 0
        await run.leave(end)
    shown = board.shown[False]
    assert len(shown) == held
    assert shown.endswith(b"\n199999\n200000\n")
    note, *rest = board.shown[True].decode().splitlines()
    whole = sum(len(f"{number}\n") for number in range(1, 200_001))
    assert note == f"[{whole - held} bytes of output came too fast, and are not kept]"
    assert rest == [str(number) for number in range(1, 1001)]


@pytest.mark.parametrize("before", [None, "original", "link"])
async def test_acl_json_is_changed_for_the_run_alone(board: Board, before: str | None) -> None:
    if before == "link":
        (board.directory / "bin" / "real").write_text("original")
        board.acl.symlink_to("bin/real")
    elif before is not None:
        board.acl.write_text(before)
        board.acl.chmod(0o600)
    board.program("cat ../acl.json")
    await board.ran(text="changed")
    assert board.shown[False] == b"changed"
    await until(board.is_tidy)
    board.check_acl_json(before)


async def test_a_second_run_is_told_who_has_the_board(board: Board, tmp_path: Path, lock: Path) -> None:
    other = Board(tmp_path / "other", board.friend)
    async with board.run() as run, run.held(), other.run() as second:
        with pytest.raises(ProfagentError, match=f"is busy: another collect runs there .*pid {os.getpid()}"):
            async with second.held():
                pass
    other.program("echo mine")
    await until(lambda: not lock.exists())
    await other.ran()
    assert other.shown[False] == b"mine\n"


async def test_the_program_goes_on_when_the_link_drops(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_run, "PIECE_READS", 4)
    board.acl.write_text("original")
    board.program("for i in $(seq 1 12); do echo $i; echo e$i >&2; sleep 0.2 || sleep 1; done; exit 5")
    async with board.run() as run:
        async with run.held():
            await run.start((), {}, str(board.acl), "changed")
        following = asyncio.create_task(run.followed())
        for count in (1, 3):
            await until(lambda count=count: len(board.shown[False].split()) >= count)
            for session in board.friend.sessions():
                os.kill(session, signal.SIGKILL)
        end = await following
        await run.leave(end)
    assert end.status == 5
    assert board.shown[False].split() == [str(number).encode() for number in range(1, 13)]
    assert board.shown[True].split() == [f"e{number}".encode() for number in range(1, 13)]
    assert any("is lost" in line for line in board.told)
    assert board.acl.read_text() == "original"
    await until(board.is_tidy)


@pytest.mark.parametrize(("trap", "status"), [("exit 4", 4), ("", 137)])
async def test_a_stop_asks_first_and_then_makes_it(
    board: Board, trap: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board_run, "GRACE_S", 5 if trap else 1)
    board.acl.write_text("original")
    board.program(f"trap '{trap}' TERM; echo up; while :; do sleep 1; done")
    async with board.run() as run:
        async with run.held():
            await run.start((), {}, str(board.acl), "changed")
        following = asyncio.create_task(run.followed())
        await until(lambda: board.shown[False] == b"up\n")
        await run.stop()
        end = await following
        await run.leave(end)
    assert end.status == status
    assert board.acl.read_text() == "original"


async def test_what_a_killed_keeper_left_is_put_right_by_the_next(board: Board, lock: Path) -> None:
    board.acl.write_text("original")
    board.program("echo up; sleep 1000")
    async with board.run() as run:
        async with run.held():
            await run.start((), {}, str(board.acl), "changed")
        following = asyncio.create_task(run.followed())
        await until(lambda: board.shown[False] == b"up\n")
        os.kill(int(lock.joinpath("owner").read_text().split()[0]), signal.SIGKILL)
        assert (await following).why == LOST
    os.killpg(int((board.run_folder / "pid").read_text().split()[0]), signal.SIGKILL)
    assert board.acl.read_text() == "changed"
    assert lock in lock.parent.iterdir()
    board.program("echo again; cat ../acl.json")
    board.shown[False] = b""
    assert (await board.ran()).status == 0
    assert board.shown[False] == b"again\noriginal"
    await until(board.is_tidy)


async def test_a_keeper_that_is_ended_puts_everything_right(board: Board, lock: Path) -> None:
    """As whoever is told that the board is taken may do."""
    board.acl.write_text("original")
    board.program("echo $$; exec sleep 1000")
    async with board.run() as run:
        async with run.held():
            await run.start((), {}, str(board.acl), "changed")
        following = asyncio.create_task(run.followed())
        await until(lambda: board.shown[False].endswith(b"\n"))
        os.kill(int(lock.joinpath("owner").read_text().split()[0]), signal.SIGTERM)
        await until(lambda: not lock.exists() and board.acl.read_text() == "original")
        assert (await following).why == LOST
    await until(lambda: not Path(f"/proc/{int(board.shown[False])}").exists())


async def test_a_program_that_nobody_follows_is_ended(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_run, "ABANDONED_S", 1)
    monkeypatch.setattr(board_run, "GRACE_S", 1)
    board.acl.write_text("original")
    board.program("echo $$ >up; sleep 1000")
    async with board.run() as run:
        async with run.held():
            await run.start((), {}, str(board.acl), "changed")
        await until((board.directory / "bin" / "up").exists)
    await until(lambda: board.acl.read_text() == "original")
    await until(lambda: not board.run_folder.exists())
