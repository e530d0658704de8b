"""Spools: what programs write comes whole into segments that have a cap, whoever comes and goes."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from io import FileIO
from pathlib import Path
from typing import NamedTuple

import pytest

from profagentd.config import DaemonConfig
from profagentd.limits import MOST_NAMES_OF_USER, MOST_PASSED_OF_USER, MOST_WAITING
from profagentd.loop import SystemClock
from profagentd.spools import intake as intake_module
from profagentd.spools import keeper as keeper_module
from profagentd.spools import spool as spools
from profagentd.spools.intake import LOST, RECORD_BYTES, Intake
from profagentd.spools.keeper import SpoolKeeper
from profagentd.spools.spool import Spool, finish_collection, unfinished_collections

RECORD = bytes(range(256))
MARK = b"MARK\x01\x00" + bytes(range(250))


def held(parent: Path, prefix: str = "OPS-camera-") -> bytes:
    """The bytes of every segment, in their order."""
    segments = sorted(each for each in parent.glob(f"{prefix}*/*") if each.name.isdigit())
    return b"".join(each.read_bytes() for each in segments)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_segment_ends_when_it_is_full_and_tells_its_length(tmp_path: Path) -> None:
    subject = Spool(str(tmp_path), "ops", "camera", segment_bytes=600)
    for _ in range(5):
        subject.write(RECORD)
    (directory,) = tmp_path.iterdir()
    assert [each.name for each in sorted(directory.iterdir())] == [
        "00000001", "00000001.done", "00000002", "00000002.done", "00000003",
    ]  # fmt: skip
    assert (directory / "00000001.done").read_text() == "bytes:512\n"
    subject.close()
    assert (directory / "00000003.done").read_text() == "bytes:256\n"
    assert (directory / "end").read_text() == ""
    assert held(tmp_path) == RECORD * 5


def test_the_oldest_segments_go_first_and_are_told(tmp_path: Path) -> None:
    lost: list[tuple[str, int]] = []
    subject = Spool(
        str(tmp_path), "ops", "camera", segment_bytes=512, cap_bytes=2048,
        on_dropped=lambda _collection, segment, size: lost.append((segment, size)),
    )  # fmt: skip
    for number in range(20):
        subject.write(bytes([number]) * 256)
    assert lost == [(f"{number:08d}", 512) for number in range(1, 7)]
    assert held(tmp_path) == b"".join(bytes([number]) * 256 for number in range(12, 20))


def test_the_cap_is_one_for_all_names_and_takes_from_who_has_most(tmp_path: Path) -> None:
    lost: list[str] = []
    flood, modest = (
        Spool(
            str(tmp_path), "ops", name, segment_bytes=512, cap_bytes=4096,
            on_dropped=lambda collection, _segment, _size: lost.append(collection.split("-")[1]),
        )
        for name in ("flood", "modest")
    )  # fmt: skip
    for _ in range(3):
        modest.write(RECORD)
    for _ in range(100):
        flood.write(RECORD)
    modest.write(RECORD)
    assert set(lost) == {"flood"}
    assert held(tmp_path, "OPS-modest-") == RECORD * 4
    assert len(held(tmp_path, "OPS-")) <= 4096


def test_collections_are_bounded_however_small_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "MOST_COLLECTIONS", 3)
    for number in range(6):
        subject = Spool(str(tmp_path), "ops", f"n{number}")
        subject.write(RECORD)
        subject.close()
        time.sleep(0.002)
    assert sorted(each.name.split("-")[1] for each in tmp_path.iterdir()) == ["n2", "n3", "n4", "n5"]


def test_two_collections_of_one_millisecond_have_names_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.25)
    for content in (b"one", b"two"):
        subject = Spool(str(tmp_path), "marks", "program")
        subject.write(content)
        subject.close()
    segments = sorted(tmp_path.glob("MARKS-program-*/00000001"))
    assert [each.read_bytes() for each in segments] == [b"one", b"two"]


def test_what_a_killed_daemon_left_is_ended(tmp_path: Path) -> None:
    subject = Spool(str(tmp_path), "marks", "program")
    subject.write(RECORD)
    (left,) = unfinished_collections(str(tmp_path))
    finish_collection(left)
    assert unfinished_collections(str(tmp_path)) == []
    (directory,) = tmp_path.iterdir()
    assert (directory / "00000001.done").read_text() == "bytes:256\n"
    assert (directory / "end").read_text() == "killed\n"


@pytest.mark.parametrize("name", ["", "a/b", "..-", "ä", "x" * 65])
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    assert not spools.is_valid_name(name)


@pytest.fixture
def intake(tmp_path: Path) -> Iterator[Intake]:
    (tmp_path / "spool").mkdir()
    subject = Intake(str(tmp_path / "run"), ["camera"], lambda kind, name: Spool(str(tmp_path / "spool"), kind, name))
    subject.start()
    yield subject
    if not subject._is_stopping:
        subject.stop()


def writer(tmp_path: Path) -> int:
    return os.open(tmp_path / "run" / "ops.camera", os.O_WRONLY)


def test_a_program_needs_nothing_but_open_and_write(intake: Intake, tmp_path: Path) -> None:
    fifo = writer(tmp_path)
    for _ in range(1000):
        os.write(fifo, RECORD)
    os.close(fifo)
    intake.stop()
    assert held(tmp_path / "spool") == RECORD * 1000


def test_marks_have_a_fifo_of_their_own(intake: Intake, tmp_path: Path) -> None:
    with marks_of(tmp_path) as fifo:
        fifo.write(MARK)
    intake.stop()
    assert held(tmp_path / "spool", "MARKS-program-") == MARK


def marks_of(tmp_path: Path) -> FileIO:
    return (tmp_path / "run" / "marks").open("wb", buffering=0)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ([b"hello\n", MARK, MARK], LOST + MARK * 2),
        ([MARK, b"hello\n", b"you\n" * 200, MARK], MARK + LOST + MARK),
        ([MARK, MARK[:100], MARK, MARK], MARK + LOST + MARK * 2),
        ([MARK[:3], MARK, MARK[:5]], LOST + MARK + LOST),
        ([MARK, b"x" * 251 + MARK[:5], MARK[5:], MARK], MARK + LOST + MARK * 2),
        ([MARK[:10], MARK[10:], MARK], MARK * 2),
    ],
)
def test_what_is_no_mark_shifts_no_other_and_is_a_loss(
    written: list[bytes], expected: bytes, intake: Intake, tmp_path: Path
) -> None:
    """Another program holds the FIFO open all the time, so that no end tells where a record begins."""
    with marks_of(tmp_path):
        for each in written:
            with marks_of(tmp_path) as fifo:
                fifo.write(each)
            time.sleep(0.02)
        intake.stop()
    assert held(tmp_path / "spool", "MARKS-program-") == expected
    assert intake.torn_records == expected.count(LOST)


def test_a_program_that_dies_within_a_record_spoils_no_other(intake: Intake, tmp_path: Path) -> None:
    first = writer(tmp_path)
    os.write(first, RECORD + RECORD[:100])
    os.close(first)
    until(lambda: intake.torn_records == 1)
    second = writer(tmp_path)
    os.write(second, RECORD)
    os.close(second)
    intake.stop()
    assert held(tmp_path / "spool") == RECORD + LOST + RECORD


def test_a_program_that_is_killed_and_started_again(intake: Intake, tmp_path: Path) -> None:
    fifo = str(tmp_path / "run" / "ops.camera")
    code = f"import os\nfifo = os.open({fifo!r}, os.O_WRONLY)\nwhile True: os.write(fifo, {RECORD!r})"
    for _ in range(3):
        before = len(held(tmp_path / "spool"))
        program = subprocess.Popen([sys.executable, "-c", code])
        until(partial(_has_more, tmp_path / "spool", before))
        program.send_signal(signal.SIGKILL)
        program.wait()
    intake.stop()
    data = held(tmp_path / "spool")
    assert data == RECORD * (len(data) // RECORD_BYTES)


def _has_more(parent: Path, before: int) -> bool:
    return len(held(parent)) > before


def test_a_program_outlives_the_daemon_and_writes_to_the_next(tmp_path: Path) -> None:
    def new(kind: str, name: str) -> Spool:
        return Spool(str(tmp_path / "spool"), kind, name)

    (tmp_path / "spool").mkdir()
    first = Intake(str(tmp_path / "run"), ["camera"], new)
    first.start()
    fifo = writer(tmp_path)
    os.write(fifo, RECORD)
    first.stop()
    with pytest.raises(BrokenPipeError):
        os.write(fifo, RECORD)
    second = Intake(str(tmp_path / "run"), ["camera"], new)
    second.start()
    os.write(fifo, RECORD)  # the same descriptor: the FIFO is the same file
    os.close(fifo)
    second.stop()
    assert held(tmp_path / "spool") == RECORD * 2


def test_a_fifo_that_was_removed_is_made_anew(intake: Intake, tmp_path: Path) -> None:
    fifo = writer(tmp_path)
    (tmp_path / "run" / "ops.camera").unlink()
    os.write(fifo, RECORD)
    os.close(fifo)
    until((tmp_path / "run" / "ops.camera").exists)
    fifo = writer(tmp_path)
    os.write(fifo, RECORD)
    os.close(fifo)
    intake.stop()
    assert held(tmp_path / "spool") == RECORD * 2


def test_a_fifo_that_cannot_be_opened_again_holds_up_no_other_and_is_tried_later(
    intake: Intake, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake_module, "OPEN_AGAIN_S", 0.01)
    fifo, path = writer(tmp_path), tmp_path / "run" / "ops.camera"
    path.unlink()
    path.mkdir()
    os.close(fifo)
    until(lambda: "until it can be opened again" in caplog.text)
    with marks_of(tmp_path) as marks:
        marks.write(MARK)
    path.rmdir()
    until(path.is_fifo)
    later = writer(tmp_path)
    os.write(later, RECORD)
    os.close(later)
    intake.stop()
    assert held(tmp_path / "spool", "MARKS-program-") == MARK
    assert held(tmp_path / "spool", "OPS-camera-") == RECORD


def test_who_connects_and_sends_nothing_takes_no_descriptors_for_good(intake: Intake, tmp_path: Path) -> None:
    with ExitStack() as stack:
        silent = []
        for _ in range(MOST_WAITING + 1):
            connection = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            connection.settimeout(5)
            connection.connect(str(tmp_path / "run" / "socket"))
            silent.append(connection)
        assert silent[0].recv(1) == b"", "the oldest one had to leave"
        silent[-1].send(b"x" * 65)
        assert silent[-1].recv(256).startswith(b"the name has")
    intake.stop()


def test_metrics_go_on_when_a_disk_that_was_full_has_room_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = [True]

    def append(self: Spool, data: bytes) -> None:
        if refused[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(self, data)

    real = Spool._append
    monkeypatch.setattr(Spool, "_append", append)

    async def run() -> None:
        config = DaemonConfig(spools=("metrics",), spool_dir=str(tmp_path), spool_cap="1MB", metrics_hz=100.0)
        keeper = SpoolKeeper(config, SystemClock(), [os.fsencode(tmp_path)], lambda *_: None)
        assert keeper.prepare()
        task = asyncio.ensure_future(keeper.run())
        await asyncio.to_thread(until, lambda: "metrics are lost" in caplog.text)
        refused[0] = False
        await asyncio.to_thread(until, lambda: b"\ns " in held(tmp_path, "METRICS-board-"))
        await keeper.end()
        task.cancel()

    asyncio.run(asyncio.wait_for(run(), 20))
    assert caplog.text.count("metrics are lost") == 1


def test_an_intake_that_fails_says_so_and_holds_up_no_program(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Spool):
        def write(self, data: bytes) -> None:
            raise RuntimeError("broken")

    subject = Intake(str(tmp_path / "run"), ["camera"], lambda kind, name: Broken(str(tmp_path), kind, name))
    subject.start()
    fifo = writer(tmp_path)
    os.write(fifo, RECORD)
    until(lambda: "taken in no more" in caplog.text)
    subject._thread.join()
    with pytest.raises(BrokenPipeError):
        os.write(fifo, RECORD)
    os.close(fifo)
    subject.stop()


def passed(tmp_path: Path, name: bytes, *descriptors: int) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(str(tmp_path / "run" / "socket"))
        socket.send_fds(connection, [name], list(descriptors))
        return connection.recv(256)


def test_a_program_passes_the_read_end_of_its_own_pipe(intake: Intake, tmp_path: Path) -> None:
    read, write = os.pipe()
    assert passed(tmp_path, b"own", read) == b"ok"
    os.close(read)
    os.write(write, RECORD * 3 + RECORD[:7])
    os.close(write)
    until(lambda: intake.torn_records == 1)
    intake.stop()
    assert held(tmp_path / "spool", "OPS-own-") == RECORD * 3 + LOST


def test_what_is_no_pipe_is_refused_with_the_reason(intake: Intake, tmp_path: Path) -> None:
    read, write = os.pipe()
    with (tmp_path / "file").open("wb") as file:
        assert b"read end of a pipe" in passed(tmp_path, b"own", file.fileno())
    assert b"read end of a pipe" in passed(tmp_path, b"own", read, write)
    assert b"read end of a pipe" in passed(tmp_path, b"own", write)
    assert b"letters, digits" in passed(tmp_path, b"../own", read)
    os.close(read)
    with pytest.raises(BrokenPipeError):  # the daemon keeps none of those that it refused
        os.write(write, b"x")
    os.close(write)


def test_who_keeps_a_pipe_that_was_passed_cannot_have_the_daemon_wait(intake: Intake, tmp_path: Path) -> None:
    read, write = os.pipe()
    assert passed(tmp_path, b"own", read) == b"ok"
    os.set_blocking(read, True)
    (pipe,) = intake._passed
    assert not os.get_blocking(pipe.descriptor)
    os.close(read)
    os.close(write)
    intake.stop()


class Ends(NamedTuple):
    """Descriptors of a pipe."""

    read: int
    write: int


@contextmanager
def pipe_ends() -> Iterator[Ends]:
    """Both ends of a pipe."""
    ends = Ends(*os.pipe())
    yield ends
    for end in ends:
        with suppress(OSError):
            os.close(end)


def test_pipes_and_names_of_a_user_are_bounded_and_a_name_without_a_pipe_gives_way(
    intake: Intake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake_module, "NAMES_PER_S_OF_USER", 1e6)
    with ExitStack() as stack:
        pipes = [stack.enter_context(pipe_ends()) for _ in range(MOST_PASSED_OF_USER + 1)]
        names = [b"n%d" % number for number in range(MOST_NAMES_OF_USER)]
        said = [passed(tmp_path, name, pipe.read) for name, pipe in zip(names, pipes[: len(names)])]
        assert said == [b"ok"] * len(names)
        assert b"8 names" in passed(tmp_path, b"more", pipes[-1].read)
        for pipe in pipes[len(names) : -1]:
            assert passed(tmp_path, b"n0", pipe.read) == b"ok"
        assert b"16 pipes" in passed(tmp_path, b"n0", pipes[-1].read)
        os.write(pipes[3].write, RECORD)
        os.close(pipes[3].write)
        until(lambda: len(intake._passed) == MOST_PASSED_OF_USER - 1)
        assert passed(tmp_path, b"more", pipes[-1].read) == b"ok"
        assert [*(tmp_path / "spool").glob("OPS-n3-*/end")]
        assert held(tmp_path / "spool", "OPS-n3-") == RECORD
    intake.stop()


def test_new_names_come_no_faster_than_a_few_a_minute(intake: Intake, tmp_path: Path) -> None:
    said = []
    for number in range(MOST_NAMES_OF_USER + 1):
        with pipe_ends() as pipe:
            said.append(passed(tmp_path, b"n%d" % number, pipe.read))
    assert said[:-1] == [b"ok"] * MOST_NAMES_OF_USER
    assert b"too often" in said[-1]


def test_what_its_giver_may_not_read_is_refused(intake: Intake, tmp_path: Path) -> None:
    for path, flags in ((tmp_path / "run" / "marks", os.O_PATH), (tmp_path / "run" / "ops.camera", os.O_RDONLY)):
        descriptor = os.open(path, flags | os.O_NONBLOCK)
        assert b"read end of a pipe" in passed(tmp_path, b"own", descriptor)
        os.close(descriptor)
    with pipe_ends() as pipe:
        handle = os.open(f"/proc/self/fd/{pipe.read}", os.O_PATH)
        assert b"read end of a pipe" in passed(tmp_path, b"own", handle)
        os.close(handle)


def test_the_last_mark_comes_of_those_beyond_the_allowance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_module, "INTAKE_BURST_BYTES", 4 * RECORD_BYTES)
    (tmp_path / "spool").mkdir()
    spool = partial(Spool, str(tmp_path / "spool"))
    subject = Intake(str(tmp_path / "run"), [], spool, now_s=lambda: 0.0)
    subject.start()
    marks = [MARK[:32] + number.to_bytes(8, "little") + MARK[40:] for number in range(10)]
    with marks_of(tmp_path) as fifo:
        fifo.write(b"".join(marks[:4]))
        until(lambda: held(tmp_path / "spool", "MARKS-") == b"".join(marks[:4]))
        fifo.write(b"".join(marks[4:7]))
        until(lambda: subject.lost_bytes == 3 * RECORD_BYTES)
        fifo.write(b"".join(marks[7:]))
    subject.stop()
    assert held(tmp_path / "spool", "MARKS-") == b"".join([*marks[:4], marks[9]])


def test_a_mark_s_text_may_look_like_a_mark(intake: Intake, tmp_path: Path) -> None:
    odd = b"MARK\x01\x00" + b"MARK\x01\x01".ljust(250, b".")
    with marks_of(tmp_path) as fifo:
        fifo.write(MARK + odd + MARK + odd)
    intake.stop()
    assert held(tmp_path / "spool", "MARKS-") == MARK + odd + MARK + odd


def test_what_a_program_writes_beyond_its_allowance_is_one_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(intake_module, "INTAKE_BURST_BYTES", 4 * RECORD_BYTES)
    now_s = [0.0]
    spool = str(tmp_path / "spool")
    (tmp_path / "spool").mkdir()
    subject = Intake(
        str(tmp_path / "run"), ["camera"], lambda kind, name: Spool(spool, kind, name), now_s=lambda: now_s[0]
    )
    subject.start()
    fifo = writer(tmp_path)
    os.write(fifo, RECORD * 4)
    until(lambda: held(tmp_path / "spool") == RECORD * 4)
    for _ in range(3):
        os.write(fifo, RECORD * 2)
    until(lambda: subject.lost_bytes == 6 * RECORD_BYTES)
    now_s[0] = 10.0
    os.write(fifo, RECORD)
    os.close(fifo)
    subject.stop()
    assert held(tmp_path / "spool") == RECORD * 4 + LOST + RECORD
    assert caplog.text.count("the excess is lost") == 1


async def test_what_a_full_disk_left_without_an_end_is_served_and_ended_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = Spool(str(tmp_path), "marks", "program")
    left.write(RECORD)
    (directory,) = unfinished_collections(str(tmp_path))
    is_full = [True]

    def end(path: str) -> None:
        if is_full[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        finish_collection(path)

    monkeypatch.setattr(keeper_module, "finish_collection", end)
    monkeypatch.setattr(keeper_module, "END_AGAIN_S", 0.01)
    config = DaemonConfig(spools=("marks",), spool_dir=str(tmp_path), run=str(tmp_path / "run"))
    keeper = SpoolKeeper(config, SystemClock(), [], lambda *_: None)
    assert keeper.prepare()
    task = asyncio.ensure_future(keeper.run())
    await keeper.offered.wait()
    # What this daemon writes has nothing to do with it.
    with marks_of(tmp_path) as fifo:
        fifo.write(MARK)
    await asyncio.to_thread(until, lambda: MARK in held(tmp_path, "MARKS-program-"))
    is_full[0] = False
    await asyncio.to_thread(until, Path(directory, "end").exists)
    assert directory not in unfinished_collections(str(tmp_path))
    await keeper.end()
    task.cancel()


def test_a_full_disk_holds_up_no_program(tmp_path: Path) -> None:
    class Full(Spool):
        def write(self, data: bytes) -> None:
            raise OSError(28, "No space left on device")

    subject = Intake(str(tmp_path / "run"), ["camera"], lambda kind, name: Full(str(tmp_path), kind, name))
    subject.start()
    fifo = writer(tmp_path)
    for _ in range(20_000):
        os.write(fifo, RECORD)
    os.close(fifo)
    subject.stop()
    assert subject.lost_bytes == 20_000 * RECORD_BYTES


def test_a_program_that_comes_before_the_daemon_waits_for_it(tmp_path: Path) -> None:
    def new(kind: str, name: str) -> Spool:
        return Spool(str(tmp_path / "spool"), kind, name)

    (tmp_path / "spool").mkdir()
    earlier = Intake(str(tmp_path / "run"), ["camera"], new)
    earlier.start()
    earlier.stop()
    fifo = str(tmp_path / "run" / "ops.camera")
    with pytest.raises(OSError, match="No such device"):
        os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    program = subprocess.Popen([sys.executable, "-c", f"open({fifo!r}, 'wb', 0).write({RECORD!r})"])
    intake = Intake(str(tmp_path / "run"), ["camera"], new)
    intake.start()
    assert program.wait(20) == 0
    intake.stop()
    assert held(tmp_path / "spool") == RECORD


def test_a_program_that_never_rests_does_not_keep_the_daemon_from_its_end(intake: Intake, tmp_path: Path) -> None:
    fifo = str(tmp_path / "run" / "ops.camera")
    code = f"import os\nfifo = os.open({fifo!r}, os.O_WRONLY)\nwhile True: os.write(fifo, {RECORD!r} * 16)"
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL) as program:
        until(partial(_has_more, tmp_path / "spool", 0))
        intake.stop()
        assert program.wait(20) != 0  # EPIPE, which it does not handle
    assert set(held(tmp_path / "spool")) == set(RECORD)


def test_after_a_full_disk_a_segment_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Spool(str(tmp_path), "ops", "camera")
    subject.write(RECORD)
    write, room = os.write, [100]

    def short(descriptor: int, data: bytes) -> int:
        if not room:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[: room.pop()])

    monkeypatch.setattr(os, "write", short)
    with pytest.raises(OSError, match="No space"):
        subject.write(RECORD)
    monkeypatch.undo()
    subject.write(RECORD)
    subject.close()
    (directory,) = tmp_path.glob("OPS-*")
    assert (directory / "00000001").read_bytes() == RECORD + RECORD[:100]
    assert (directory / "00000001.done").read_text() == "bytes:356\n"
    assert (directory / "00000002").read_bytes() == RECORD
