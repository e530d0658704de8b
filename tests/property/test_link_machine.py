"""Whatever happens to link, host, daemon and files: the mirror is a prefix of the board's file, at last it is the file.

Both ends are the real ones, without gRPC: the daemon's stream over real files, the host's link and its recording. With
LINK_MACHINE_EXAMPLES=5000, --hypothesis-seed and --timeout=0 it looks further than the suite has time for.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from profagent.errors import DiskFullError, UnreachableError
from profagent.link.translate import from_wire
from profagent.record.capture import Capture, FollowedStream
from profagent.record.options import RecordingOptions
from profagent.record.recording import Recording, Step
from profagent.store.store import Store
from profagent.store.workspace import Workspace
from profagentd.follow.log import FileEvent
from profagentd.sources.state import JobState
from tests.fakes.dumps import dump, files_of, imported, without_states
from tests.fakes.small_job import aicore_done
from tests.property.played_board import Linked, Nobody
from tests.property.streamed_board import JOB, StreamedBoard

if TYPE_CHECKING:
    from profagent.link.messages import ServerMessage
    from profagent_wire.v1 import board_pb2 as wire

# Tests of the commit rule sync for real; here nothing is killed but processes that are none.
FOLDER = "/dev/shm"
# Of two series: a deletion in one of them says nothing of the other.
DATA = ("data/aicore.0.m.3.0.1.1.0", "data/aicore.0.m.4.0.1.1.1", "data/acl_api.0.m.0")
SNAPSHOTS = ("info.json.0", "data/m.0.layer.info", "data/simulated.txt")
ROWS = ("layers", "segments", "inferences", "op_records", "aicpu_records", "api_records")
# How a ledger says that another file stands under a name.
ANEW = ("different", "recreated")
SIZES = st.sampled_from([1, 100, 256, 257, 1000])
# Messages that the host hears after a change; what has come of an odd number of them is handed on.
HEARD = st.sampled_from([0, 2, 5, 9, 19])


def _sequences(file: bytes | bytearray) -> list[int]:
    """The first word of each whole record."""
    return [int.from_bytes(file[at : at + 4], "little") for at in range(0, len(file) - 255, 256)]


class Died(Exception):  # noqa: N818 - an event of the test
    """The host's process ends here."""


class Host:
    """The host's process: all of it goes when it dies."""

    def __init__(self, folder: Path) -> None:
        self.workspace = Workspace(folder)
        self.fails: tuple[Step, Exception] | None = None
        self.store = Store(self.workspace.database)
        options = RecordingOptions(lambda: 1)
        self.recording = Recording(self.workspace, self.store, options, reached=self._reached)
        self.capture = Capture(
            "board:1",
            self.recording,
            Nobody(),
            wants=lambda *_: True,
            consumer="test",
            gather_s=0.0,
            stop=asyncio.Event(),
            is_patient=True,
        )

    def _reached(self, step: Step) -> None:
        if self.fails is not None and self.fails[0] is step:
            fails, self.fails = self.fails[1], None
            raise fails


class LinkMachine(Linked, RuleBasedStateMachine):
    """A board whose files change, a host that follows it, and whatever can happen to both."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=FOLDER))
        self.runner = asyncio.Runner()
        self.board = StreamedBoard(self.folder / "root")
        self.letter = 0
        # By path: each file that ever stood there. The last one stands there now, unless the path is `gone`.
        self.files: dict[str, list[bytearray]] = {}
        self.gone: set[str] = set()
        self.deleted: set[tuple[str, int]] = set()  # files that went because they were delivered
        self.is_removed = False  # the whole JOB
        self.gone_with_job: set[str] = set()
        self.is_heard_of = False  # a host has heard of the JOB, and no later one forgets it
        # Files of which something was in the mirror, committed.
        self.arrived: dict[tuple[str, int], int] = {}
        self._start()

    # What happens to files

    @precondition(lambda self: not self.is_removed)
    @rule(path=st.sampled_from(DATA), size=SIZES, heard=HEARD)
    def grow(self, path: str, size: int, heard: int) -> None:
        is_new = path in self.gone or path not in self.files
        if is_new:
            self.files.setdefault(path, []).append(bytearray())
            self.gone.discard(path)
        more = self._bytes(size)
        self.files[path][-1] += more
        with (self.board.directory / path).open("ab") as file:
            file.write(more)
        self.board.touch(path, FileEvent.CREATED | FileEvent.WRITTEN if is_new else FileEvent.WRITTEN)
        self._hear_some(heard)

    @precondition(lambda self: not self.is_removed)
    @rule(path=st.sampled_from(DATA), size=SIZES, heard=HEARD)
    def make_anew(self, path: str, size: int, heard: int) -> None:
        if path not in self.files or path in self.gone:
            return
        (self.board.directory / path).unlink()
        self.board.touch(path, FileEvent.DELETED)
        self.gone.add(path)
        self.grow(path, size, heard)

    @precondition(lambda self: not self.is_removed)
    @rule(path=st.sampled_from(DATA), size=st.just(0) | SIZES, heard=HEARD)
    def write_anew(self, path: str, size: int, heard: int) -> None:
        """The same inode, with other bytes: none, fewer, as many, or, while nobody looks, more."""
        if path not in self.files or path in self.gone:
            return
        if size > len(self.files[path][-1]):
            self.cut()
        self._look()
        self.files[path].append(bytearray(self._bytes(size)))
        (self.board.directory / path).write_bytes(self.files[path][-1])
        self.board.touch(path, FileEvent.WRITTEN)
        self._look()
        self._hear_some(heard)

    @precondition(lambda self: not self.is_removed)
    @rule(path=st.sampled_from(DATA), heard=HEARD)
    def remove(self, path: str, heard: int) -> None:
        if path not in self.files or path in self.gone:
            return
        (self.board.directory / path).unlink()
        self.gone.add(path)
        self.board.touch(path, FileEvent.DELETED)
        self._hear_some(heard)

    @precondition(lambda self: not self.is_removed)
    @rule(path=st.sampled_from(DATA[:2]), heard=HEARD)
    def finish(self, path: str, heard: int) -> None:
        if path in self.files and path not in self.gone:
            self.rewrite(f"{path}.done", aicore_done(len(self.files[path][-1])), heard)
            self.board.pass_time(0.5)
            self._hear_some(heard)

    @precondition(lambda self: not self.is_removed)
    @rule(heard=HEARD)
    def delete_delivered(self, heard: int) -> None:
        for path in self.board.delete_delivered():
            self.gone.add(path)
            self.deleted.add((path, len(self.files[path]) - 1))
        self._hear_some(heard)

    @precondition(lambda self: not self.is_removed)
    @rule(path=st.sampled_from(DATA[:2]), size=SIZES, heard=HEARD)
    def load_again(self, path: str, size: int, heard: int) -> None:
        """All of a log comes, and goes; then its program writes on."""
        self.finish(path, 99)
        self.delete_delivered(0)
        self.grow(path, size, heard)

    @precondition(lambda self: not self.is_removed)
    @rule(heard=HEARD)
    def remove_job(self, heard: int) -> None:
        self.is_removed = True
        self.gone_with_job = self.files.keys() - self.gone
        self.gone.update(self.files)
        self.board.remove()
        self._hear_some(heard)

    @precondition(lambda self: not self.is_removed)
    @rule(state=st.sampled_from([JobState.OPEN, JobState.QUIET, JobState.FINISHED]), heard=HEARD)
    def change_state(self, state: JobState, heard: int) -> None:
        self.board.change_state(state)
        self._hear_some(heard)

    @precondition(lambda self: not self.is_removed)
    @rule(path=st.sampled_from(SNAPSHOTS), content=st.binary(max_size=40), heard=HEARD)
    def rewrite(self, path: str, content: bytes, heard: int) -> None:
        is_new = path in self.gone or path not in self.files
        self.files.setdefault(path, []).append(bytearray(content))
        self.gone.discard(path)
        (self.board.directory / path).write_bytes(content)
        self.board.touch(path, FileEvent.CREATED | FileEvent.WRITTEN if is_new else FileEvent.WRITTEN)
        self._hear_some(heard)

    # What happens to both ends and between them

    @rule()
    def cut(self) -> None:
        self.let(self.host.recording.committed())
        if self.talking is not None:
            self.lose_link(UnreachableError("cut", hint="wait"))

    @precondition(lambda self: self.last_batch is not None and self.talking is not None)
    @rule()
    def send_twice(self) -> None:
        assert self.last_batch is not None
        self.said.appendleft(self.last_batch)
        self._hear()

    @rule(step=st.sampled_from(list(Step)))
    def run_out_of_disk(self, step: Step) -> None:
        self.host.fails = (step, DiskFullError("full", hint="make room"))

    @rule(step=st.sampled_from(list(Step)))
    def die_at(self, step: Step) -> None:
        self.host.fails = (step, Died())

    @rule()
    def die(self) -> None:
        self._stop()
        self._start()

    # What holds

    @invariant()
    def the_mirror_holds_beginnings_of_the_boards_files(self) -> None:
        rows = self._query("SELECT CAST(path AS TEXT), generation, offset FROM log")
        # What is set aside of a generation that the database has makes room for one that is not committed.
        committed = {path: offset for path, at, offset in rows if max(self._generations_aside(path), default=0) < at}
        for path in self.files:
            mirrored = self._mirrored(path)
            if mirrored is not None:
                numbers = [number for number, file in enumerate(self.files[path]) if file.startswith(mirrored)]
                assert numbers, f"{path}: {mirrored[:20]!r}… of {len(mirrored)} bytes was never there"
                size = min(committed.get(path, 0), len(mirrored))
                if size > 0 and path in DATA:
                    self.arrived[path, numbers[-1]] = size

    def teardown(self) -> None:
        try:
            self.host.fails = None
            self._quiesce()
            self._check()
            self._check_rows()
        finally:
            self._stop()
            self.runner.close()
            shutil.rmtree(self.folder)

    def _check(self) -> None:
        self.the_mirror_holds_beginnings_of_the_boards_files()
        offsets = dict(self._query("SELECT CAST(path AS TEXT), offset FROM log"))
        told = set(self._query("SELECT CAST(path AS TEXT), reason FROM ledger_entry LEFT JOIN log USING (log)"))
        noted = {path for path, _ in told}
        # What went with its JOB unseen is told of the JOB, by who has heard of it.
        unseen = self.gone_with_job if self.is_heard_of else set()
        for path, files in self.files.items():
            mirrored = self._mirrored(path) or b""
            if path not in self.gone:
                assert mirrored == bytes(files[-1]), path
            elif (path in offsets or path in unseen) and not mirrored.endswith(bytes(files[-1])):
                assert noted & {path, None}, f"{path}: {len(files[-1])} bytes were removed, and nobody says so"
            if path in DATA[:2]:
                # What a host that died had mirrored and not committed stays there when its log never comes again.
                committed = mirrored[: offsets.get(path, 0)] if path in self.gone else mirrored
                assert self._sequences(path) == _sequences(committed), path
        for (path, number), size in self.arrived.items():
            file, mirrored = bytes(self.files[path][number]), self._mirrored(path) or b""
            is_last = number == len(self.files[path]) - 1
            if not is_last and (path not in self.gone or self.arrived.keys() & self._later(path, number)):
                assert told & {(path, reason) for reason in ANEW}, f"{path}: nobody says that it was made anew"
                kept = any(file[:size] in each for each in (*self._set_aside(path), mirrored))
                assert kept, f"{path}: what came of file {number} is gone"
            elif path in self.gone and size < len(file):
                assert noted & {path, None}, f"{path}: {len(file) - size} bytes were removed, and nobody says so"
        for path, number in self.deleted:
            if path in DATA and self.files[path][number]:
                copies = (*self._set_aside(path), self._mirrored(path) or b"")
                assert bytes(self.files[path][number]) in copies, f"{path}: what was delivered of file {number} is gone"

    def _check_rows(self) -> None:
        """The rows are those of an import of the mirror, which the check before compares with the board's files."""
        mirrored = files_of(self.host.workspace.board_mirror("streamed") / JOB)
        if mirrored:
            expected = without_states(imported(self.folder / "imported" / JOB, mirrored))
            found = without_states(dump(self.host.workspace.database))
            assert {table: found[table] for table in ROWS} == {table: expected[table] for table in ROWS}

    # Inside

    def _bytes(self, size: int) -> bytes:
        """Bytes that no other file has."""
        self.letter += 1
        return bytes([self.letter]) * size

    def _mirrored(self, path: str) -> bytes | None:
        file = self.host.workspace.board_mirror("streamed") / JOB / path
        return file.read_bytes() if file.exists() else None

    def _later(self, path: str, number: int) -> set[tuple[str, int]]:
        return {(path, later) for later in range(number + 1, len(self.files[path]))}

    def _sequences(self, path: str) -> list[int]:
        """What the rows say of each record's number, its first word."""
        rows = (
            "SELECT sequence FROM aicore JOIN part ON part = record >> 24 JOIN log USING (log) WHERE path = ?"
            " ORDER BY first_record, record"
        )
        return [number for (number,) in self.runner.run(self.host.store.query(rows, (path,)))]

    def _set_aside(self, path: str) -> list[bytes]:
        root = self.host.workspace.root / "superseded" / "streamed" / JOB
        return [file.read_bytes() for file in root.glob(f"{path}.*")]

    def _generations_aside(self, path: str) -> list[int]:
        root = self.host.workspace.root / "superseded" / "streamed" / JOB
        numbers = (file.name.removeprefix(f"{Path(path).name}.") for file in root.glob(f"{path}.*"))
        return [int(number) for number in numbers if number.isdecimal()]

    def _query(self, sql: str) -> list[tuple[Any, ...]]:
        return self.runner.run(self.host.store.query(sql))

    def _start(self) -> None:
        self.host = Host(self.folder / "workspace")
        self.runner.run(self.host.store.__aenter__())
        self.talking = None
        self.last_batch: wire.ServerMessage | None = None

    def _stop(self) -> None:
        self.hang_up()
        with suppress(Died, DiskFullError):
            self.runner.run(self.host.recording.committed())
        self.runner.run(self.host.store.__aexit__(None, None, None))

    def _hear_some(self, messages: int) -> None:
        """Let the host hear the next messages, at most, and take what has come of them, or not yet."""
        for _ in range(messages):
            self.connect()
            if not self._hear():
                break
        if messages % 2 and self.talking is not None:
            self.let(self.talking.flush())

    def _hear(self) -> bool:
        """Let the host hear the board's next message; whether there was one."""
        if (said := self.next_said()) is None or self.talking is None:
            return False
        self.is_heard_of |= said.WhichOneof("message") == "job_status"
        if said.WhichOneof("message") == "batch":
            self.last_batch = said
        message = from_wire(said)
        assert message is not None
        self.let(self._taken(self.talking, message, more=bool(self.said)))
        return True

    async def _taken(self, talking: FollowedStream, message: ServerMessage, *, more: bool) -> None:
        """Let a message be taken; where there are more at hand, its batch goes to the disk meanwhile."""
        queue = talking._queue
        if more == queue.empty():
            queue.put_nowait(None) if more else queue.get_nowait()
        await talking.take(message)
        if not more:
            await self.host.recording.committed()

    @property
    def capture(self) -> Capture:
        """The host's."""
        return self.host.capture

    def let(self, happen: Any) -> None:
        """Let something happen to the host, with whatever becomes of its link and of itself."""
        try:
            super().let(self._happening(happen))
        except DiskFullError as error:
            self.capture.session.full(error, self.late())
            self.hang_up()
        except Died:
            self.die()

    def hang_up(self) -> None:
        """Nobody talks any more."""
        super().hang_up()
        self.last_batch = None

    async def _happening(self, happen: Any) -> None:
        try:
            await happen
        except UnreachableError:
            await self.host.recording.committed()
            raise

    def _look(self) -> None:
        """The daemon looks now: a file that shrinks and grows between two looks is taken to have grown."""
        if self.board.is_followed:
            for _ in range(2):
                self.said.extend(self.board.turn())

    def _quiesce(self) -> None:
        """Nothing happens any more, and the host hears all there is; then the JOB ends."""
        for state in (JobState.OPEN, JobState.FINISHED):
            if not self.is_removed:
                self.board.change_state(state)
            for _ in range(3):
                self.connect()
                while self._hear() or self.said:
                    pass
                if self.talking is not None:
                    self.let(self.talking.flush())
                self.board.pass_time(1.0)


EXAMPLES = int(os.environ.get("LINK_MACHINE_EXAMPLES", "0"))
LinkMachine.TestCase.settings = settings(
    max_examples=EXAMPLES or 25, stateful_step_count=30, deadline=None, derandomize=not EXAMPLES
)
TestLinkMachine = LinkMachine.TestCase


@pytest.mark.parametrize("heard", [0, 2])
def test_a_job_that_is_removed_while_nobody_listens_is_told_by_who_had_heard_of_it(heard: int) -> None:
    machine = LinkMachine()
    machine.grow(DATA[0], 1, heard)
    machine.die()
    machine.remove_job(0)
    assert machine.is_heard_of == (heard > 0)
    machine.teardown()


@pytest.mark.parametrize("fault", [LinkMachine.die_at, LinkMachine.run_out_of_disk])
def test_rows_are_of_what_was_committed_though_a_file_was_made_anew_and_went(fault: Callable[..., None]) -> None:
    machine = LinkMachine()
    machine.grow(DATA[0], 257, 5)
    machine.remove(DATA[0], 2)
    fault(machine, Step.MIRRORED)
    machine.grow(DATA[0], 1000, 5)
    machine.remove(DATA[0], 0)
    machine.teardown()


@pytest.mark.parametrize("heard", [0, 5])
def test_what_was_vouched_for_comes_back_though_its_file_was_made_anew_and_never_comes_again(heard: int) -> None:
    machine = LinkMachine()
    machine.grow(DATA[0], 256, 0)
    machine.finish(DATA[0], 5)
    machine.die_at(Step.MIRRORED)
    machine.make_anew(DATA[0], 1, 5)
    machine.die()
    machine.remove_job(heard)
    machine.teardown()


def test_a_log_that_is_made_anew_while_it_is_found_gone_is_another_log() -> None:
    machine = LinkMachine()
    machine.grow(DATA[0], 256, 5)
    machine.remove(DATA[0], 0)
    machine.said.extend(machine.board.turn())  # it is found gone, which is not told yet
    machine.grow(DATA[0], 100, 5)
    machine.teardown()


def test_a_table_that_was_not_committed_is_read_with_committed_records_alone() -> None:
    machine = LinkMachine()
    machine.grow(DATA[0], 257, 19)
    machine.die()
    machine.grow(DATA[0], 256, 0)
    machine.run_out_of_disk(Step.MIRRORED)
    machine.rewrite(SNAPSHOTS[1], b"0", 2)
    machine.grow(DATA[0], 1000, 9)
    machine.teardown()
