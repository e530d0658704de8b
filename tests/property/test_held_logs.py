"""Whatever becomes of a log between looks, streams and daemons: what is held of it goes on only as that very file."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profagent_wire.v1 import board_pb2 as wire
from profagentd.follow.log import DIGEST_BYTES, FileEvent
from tests.fakes.small_job import aicore_done
from tests.property.streamed_board import StreamedBoard

FOLDER = "/dev/shm"
DATA, TABLE = "data/aicore.0.m.3.0.1.1.0", "data/m.0.layer.info"
PATHS = (DATA, f"{DATA}.done", TABLE)
GOES_ON = (wire.START_REASON_NEW, wire.START_REASON_SAME)
# Files that begin alike, and others.
CONTENTS = st.builds(bytes.__mul__, st.sampled_from([b"a" * 256, b"ab" * 128, b"b"]), st.integers(0, 4))


class Copy:
    """What a client holds of a log; nothing at generation 0."""

    def __init__(self) -> None:
        self.generation = 0
        self.data = bytearray()
        self.is_removed = False

    @property
    def holding(self) -> tuple[int, int, bytes]:
        return self.generation, len(self.data), hashlib.blake2b(self.data, digest_size=DIGEST_BYTES).digest()


class Client:
    """One that keeps what it holds over streams, and says of all that it is durable."""

    def __init__(self, board: StreamedBoard) -> None:
        self.board = board
        self.copies: dict[str, Copy] = {}
        self._paths: dict[int, str] = {}
        self._passes: set[int] = set()  # handles of what comes unasked and is held already
        self._started: set[int] = set()

    def forget_half(self) -> None:
        """The client dies before all was durable."""
        for copy in self.copies.values():
            del copy.data[len(copy.data) // 2 :]

    def come(self) -> None:
        """Open a stream; what an earlier one had said and was not heard is lost."""
        self.board.close()
        self._paths, self._passes, self._started = {}, set(), set()
        for message in self.board.open():
            self._hear(message)

    def follow(self, turns: int) -> bool:
        """Hear what comes of so many turns; whether there was something in each."""
        if not self.board.is_followed:
            self.come()
        for _ in range(turns):
            messages = self.board.turn()
            if not messages:
                return False
            for message in messages:
                self._hear(message)
        return True

    def _hear(self, message: wire.ServerMessage) -> None:
        match message.WhichOneof("message"):
            case "job_status":
                self.board.receive(wire.ClientMessage(select=wire.Select(follow=[message.job_status.handle])))
            case "announced":
                for log in message.announced.logs:
                    self._announced(log)
            case "batch":
                for event in message.batch.events:
                    self._happened(event)
            case "released":
                for handle in message.released.handles:
                    self._paths.pop(handle)

    def _announced(self, log: wire.AnnouncedLog) -> None:
        path = self._paths[log.handle] = log.path.decode()
        copy = self.copies.setdefault(path, Copy())
        if log.unasked and not copy.generation:
            return
        if log.unasked:
            self._passes.add(log.handle)
        generation, offset, digest = copy.holding
        holding = wire.Holding(handle=log.handle, generation=generation, offset=offset, prefix_digest=digest)
        self.board.receive(wire.ClientMessage(holdings=wire.Holdings(logs=[holding])))

    def _happened(self, event: wire.Event) -> None:
        said = getattr(event, event.WhichOneof("event") or "")
        if isinstance(said, wire.Loss) or said.handle in self._passes:
            if isinstance(said, wire.Removed):
                del self._paths[said.handle]
            return
        path = self._paths[said.handle]
        copy = self.copies[path]
        if isinstance(said, wire.Started):
            self._begun(said, path, copy)
        elif isinstance(said, wire.Chunk):
            assert (said.generation, said.offset) == (copy.generation, len(copy.data))
            copy.data += said.data
        elif isinstance(said, wire.Completed):
            assert (said.generation, said.size, said.digest) == copy.holding
            assert copy.data == (self.board.directory / path).read_bytes()
        else:
            copy.is_removed = True
            del self._paths[said.handle]
            return
        told = wire.Acknowledgement(
            handle=said.handle,
            generation=copy.generation,
            offset=len(copy.data),
            complete=isinstance(said, wire.Completed),
        )
        self.board.receive(wire.ClientMessage(acknowledge=wire.Acknowledge(logs=[told])))

    def _begun(self, said: wire.Started, path: str, copy: Copy) -> None:
        is_first = said.handle not in self._started
        self._started.add(said.handle)
        copy.is_removed = False
        if said.reason in GOES_ON:
            assert is_first
            assert said.offset == len(copy.data)
            assert said.generation == (copy.generation or 1)
            assert (self.board.directory / path).read_bytes().startswith(copy.data), "it is not that file's"
            copy.generation = said.generation
        else:
            assert said.offset == 0
            assert said.generation > copy.generation
            copy.generation, copy.data = said.generation, bytearray()


class Files:
    """The board's, and who changes them."""

    def __init__(self, board: StreamedBoard) -> None:
        self._board = board

    def write(self, path: str, content: bytes) -> None:
        """Rewrite it where it stands, or make it."""
        is_new = not (self._board.directory / path).exists()
        (self._board.directory / path).write_bytes(content)
        self._board.touch(path, FileEvent.MADE | FileEvent.WRITTEN if is_new else FileEvent.WRITTEN)

    def append(self, path: str, content: bytes) -> None:
        with (self._board.directory / path).open("ab") as file:
            if file.tell() == 0 and not content:
                return
            file.write(content)
        self._board.touch(path, FileEvent.WRITTEN)

    def truncate(self, path: str, content: bytes) -> None:
        """Cut it to the size of `content`; what is left is what was there."""
        file = self._board.directory / path
        if file.exists():
            file.write_bytes(file.read_bytes()[: len(content)])
            self._board.touch(path, FileEvent.WRITTEN)

    def replace(self, path: str, content: bytes) -> None:
        """Another file under the name."""
        self.remove(path, b"")
        self.write(path, content)

    def remove(self, path: str, content: bytes) -> None:
        file = self._board.directory / path
        if file.exists():
            file.unlink()
            self._board.touch(path, FileEvent.DELETED)

    def finish(self, path: str, content: bytes) -> None:
        data = self._board.directory / DATA
        if data.exists():
            self.write(f"{DATA}.done", aicore_done(data.stat().st_size))
            self._board.pass_time(0.5)


CHANGES = st.tuples(
    st.sampled_from([Files.write, Files.append, Files.truncate, Files.replace, Files.remove, Files.finish]),
    st.sampled_from([DATA, DATA, TABLE]),
    CONTENTS,
)
# Turns of the daemon after a change, and whether the client, or the daemon, is another one then.
STEPS = st.tuples(CHANGES, st.sampled_from([0, 1, 2, 9, 99]), st.sampled_from(["goes on", "is cut", "is away", "dies"]))


@pytest.fixture
def board() -> Iterator[StreamedBoard]:
    folder = Path(tempfile.mkdtemp(dir=FOLDER))
    yield StreamedBoard(folder)
    shutil.rmtree(folder)


def settle(client: Client) -> None:
    """Hear all that there is, and what time brings."""
    for _ in range(3):
        while client.follow(9):
            pass
        client.board.pass_time(1.0)


@settings(max_examples=150)
@given(st.lists(STEPS, min_size=1, max_size=12))
def test_what_is_held_becomes_the_boards_file_or_is_begun_anew(
    steps: list[tuple[tuple[Callable[[Files, str, bytes], None], str, bytes], int, str]],
) -> None:
    folder = Path(tempfile.mkdtemp(dir=FOLDER))
    try:
        board = StreamedBoard(folder)
        client, files = Client(board), Files(board)
        for (change, path, content), turns, link in steps:
            if link != "goes on":
                board.close()
            if link == "dies":
                client.forget_half()
            change(files, path, content)
            if link != "is away":
                client.follow(turns)
        settle(client)
        client.come()
        settle(client)
        for path in PATHS:
            file = board.directory / path
            assert not file.exists() or client.copies[path].data == file.read_bytes(), path
    finally:
        shutil.rmtree(folder)


# What stands on the board now, where 1,024 bytes were held or the first 512 of them; and whether that goes on.
BEFORE = b"abcd" * 256
NOW = {
    "as it was": BEFORE,
    "grown": BEFORE + b"e",
    "cut to nothing": b"",
    "cut": BEFORE[:256],
    "cut to a half": BEFORE[:512],
    "rewritten": b"x" * 1024,
    "rewritten at its end": BEFORE[:-1] + b"x",
    "rewritten and shorter": b"x" * 256,
    "rewritten and longer": b"x" * 2048,
}


@pytest.mark.parametrize("is_done", [False, True], ids=["open", "complete"])
@pytest.mark.parametrize("is_whole", [False, True], ids=["half", "whole"])
@pytest.mark.parametrize("how", ["written", "another", "another while it is followed"])
@pytest.mark.parametrize("now", NOW)
def test_a_log_that_is_not_what_is_held_begins_anew(
    board: StreamedBoard, now: str, how: str, *, is_whole: bool, is_done: bool
) -> None:
    client, files = Client(board), Files(board)
    files.write(DATA, BEFORE)
    if is_done:
        files.finish(DATA, b"")
    settle(client)
    copy = client.copies[DATA]
    assert copy.data == BEFORE
    board.close()
    if not is_whole:
        client.forget_half()
    held, generation = bytes(copy.data), copy.generation
    if how == "written":
        files.write(DATA, NOW[now])
    else:
        files.remove(DATA, b"")
        if "followed" in how:
            client.come()
            settle(client)
        files.write(DATA, NOW[now])
    if is_done:
        files.finish(DATA, b"")
    settle(client)
    assert copy.data == NOW[now]
    assert copy.generation == generation + (not NOW[now].startswith(held))
