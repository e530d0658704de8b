"""A JOB that is written while a host follows it, each of its commands in its own way: the real parts, without gRPC."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter, deque
from contextlib import closing
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from profagent.errors import UnreachableError
from profagent.formats.inference_times import NOT_IN_ANY_LAYER
from profagent.formats.records import ticks_to_us
from profagent.importing.importing import import_into
from profagent.ledger import STOPPED_EARLY, Entry
from profagent.link.session import State
from profagent.link.translate import from_wire, to_wire
from profagent.record.capture import Capture, FollowedStream
from profagent.record.options import RecordingOptions
from profagent.record.recording import Recording
from profagent.stats.stats import stats
from profagent.store.store import Store
from profagent.store.workspace import Workspace
from profagent.watch.memory import MemoryWorkspace
from profagent.watch.watch import WatchOptions, WatchView
from profagentd.follow.log import FileEvent
from profagentd.sources.state import JobState
from tests.property.streamed_board import StreamedBoard
from tests.property.written_jobs import Write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagent.link.messages import Board, ClientMessage, JobStatus
    from profagent.store.writer import Applied
    from profagent_wire.v1 import board_pb2 as wire
    from tests.property.written_jobs import WrittenJob

# Figures are told with three digits.
TOLERANCE_US = 0.0015
LONG_S = 1000.0
IDENTITY = "streamed"  # what the board says that it is
# Longer than an inference waits before it is told that its figures are not known.
PATIENCE_S = 3.0
Key = tuple[Any, ...]

_INFERENCES = (
    "SELECT inference, m.name, m.model_id, device_id, stream_id, batch_num, input_pic_num, current_pic_count, load,"
    " start_us, end_us, figures, why, session FROM inference i JOIN model m USING (model)"
)
_AICORE = (
    "SELECT g.inference, g.net, r.sequence, r.ticks, l.name, r.layer_index FROM aicore r JOIN segment g USING (segment)"
    " JOIN inference i USING (inference) LEFT JOIN layer l ON l.model = i.model AND l.layer_index = r.layer_index"
    " ORDER BY g.ordinal, r.record"
)
_AICPU = (
    "SELECT g.inference, g.net, r.sequence, r.end_us - r.begin_us, l.name, r.layer_index FROM aicpu r"
    " JOIN segment g USING (segment) JOIN inference i USING (inference)"
    " LEFT JOIN layer l ON l.model = i.model AND l.layer_index = r.layer_index"
    " ORDER BY g.ordinal, r.record"
)
_CPU_TIMES = "SELECT inference, min(start_us), max(end_us) FROM segment WHERE kind = 'aicpu' GROUP BY inference"
_EXECUTES = "SELECT begin_us, end_us FROM api WHERE api = 2 AND begin_us > 0"
_NAMED_MODELS = "SELECT DISTINCT m.name, m.model_id FROM layer JOIN model m USING (model)"
_USED_UNITS = "SELECT name, model_id, aicore, aicpu FROM model"
# Why an inference without a log of a unit is not final. It was, until the first of the others was known to have one.
_LOG_IS_MISSING = {
    f"{unit} records: their log is missing, and other inferences of the model have one": unit
    for unit in ("aicore", "aicpu")
}


class Command(StrEnum):
    """How the host follows the board."""

    WATCH = "watch"
    FROM_START = "watch --from-start"
    SAVE = "watch --save"
    SAVE_FROM_START = "watch --save --from-start"
    RECORD = "record"

    @property
    def keeps(self) -> bool:
        """Whether there is a workspace."""
        return self not in (Command.WATCH, Command.FROM_START)

    @property
    def shows(self) -> bool:
        """Whether there are lines."""
        return self is not Command.RECORD

    @property
    def is_from_start(self) -> bool:
        """Whether what the JOB held is shown."""
        return self in (Command.FROM_START, Command.SAVE_FROM_START)


class Record(NamedTuple):
    """Net, sequence number, ticks or µs, and the layer's name and index."""

    net: int
    sequence: int
    duration: float
    layer: str | None
    layer_index: int | None


class Inference:
    """What a database says of one inference."""

    def __init__(self, row: Sequence[Any]) -> None:
        *model, pictures, self.load = row[1:9]
        self.key = (*model, int(pictures))
        self.start_us, self.end_us, self.figures, self.why, self.session = row[9:]
        self.aicore: list[Record] = []
        self.aicpu: list[Record] = []
        self.cpu_times: tuple[int, int] | None = None

    @property
    def is_final(self) -> bool:
        return self.figures == "final"

    @property
    def span(self) -> tuple[int, int] | None:
        """From its first begin to its last end; None where one is not known."""
        units = [self.cpu_times] if self.cpu_times else []
        units += [(self.start_us, self.end_us)] if self.aicore or self.start_us else []
        begins, ends = zip(*units, strict=True) if units else ((0,), (0,))
        return (min(begins), max(ends)) if all((*begins, *ends)) else None


class Told:
    """All inferences of a database, by what their files are called, then by load."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.by_key: dict[Key, list[Inference]] = {}
        by_number: dict[int, Inference] = {}
        for row in connection.execute(f"{_INFERENCES} ORDER BY load"):
            inference = by_number[row[0]] = Inference(row)
            self.by_key.setdefault(inference.key, []).append(inference)
        for number, *record in connection.execute(_AICORE):
            by_number[number].aicore.append(Record(*record))
        for number, *record in connection.execute(_AICPU):
            by_number[number].aicpu.append(Record(*record))
        for number, *times in connection.execute(_CPU_TIMES):
            by_number[number].cpu_times = (times[0], times[1])
        self.executes = set(connection.execute(_EXECUTES))
        self.named_models = set(connection.execute(_NAMED_MODELS))
        self._unused = {
            (name, model_id): {unit for unit, is_used in (("aicore", aicore), ("aicpu", aicpu)) if not is_used}
            for name, model_id, aicore, aicpu in connection.execute(_USED_UNITS)
        }
        (self.mhz,) = connection.execute("SELECT max(frequency_mhz) FROM job").fetchone()

    @classmethod
    def of(cls, database: Path) -> Told:
        with closing(sqlite3.connect(database)) as connection:
            return cls(connection)

    def __iter__(self) -> Any:
        return (each for loads in self.by_key.values() for each in loads)

    def may_take_back(self, inference: Inference, why: str) -> bool:
        """Return True if it is final for lack of a log that no other inference of the model is known to have."""
        return _LOG_IS_MISSING.get(why) in self._unused[inference.key[:2]]

    def us(self, ticks: float) -> float:
        """How long that is; nothing is known without a clock."""
        return ticks_to_us(1, self.mhz) * ticks if self.mhz else 0.0

    def total_us(self, inference: Inference) -> float:
        """All of an inference's layers, on both units."""
        return self.us(sum(each.duration for each in inference.aicore)) + self.aicpu_us(inference)

    def layer_times(self, inference: Inference) -> dict[tuple[str, int | None, str | None], float]:
        """How long each layer took, by unit, index and name."""
        found: dict[tuple[str, int | None, str | None], float] = {}
        for unit, records in (("aicore", inference.aicore), ("aicpu", inference.aicpu)):
            for each in records:
                us = self.us(each.duration) if unit == "aicore" else each.duration
                key = unit, each.layer_index, each.layer
                found[key] = found.get(key, 0.0) + us
        return found

    @staticmethod
    def aicpu_us(inference: Inference) -> float:
        """Its layers on the CPU."""
        return sum(each.duration for each in inference.aicpu)


class Lines:
    """The events of one process that shows, held against what the import of the whole JOB says."""

    def __init__(self, whole: Told, starts: set[int]) -> None:
        """`starts` are those that any `.done` of the JOB ever said."""
        self._whole = whole
        self._starts = starts
        self.final: Counter[tuple[Key, int]] = Counter()
        self.to_take_back: set[Key] = set()
        self.events: list[dict[str, Any]] = []

    def take(self, event: dict[str, Any]) -> None:
        if event["event"] != "inference":
            return
        self.events.append(event)
        names = "model", "model_id", "device_id", "stream_id", "batch_num", "input_pic_num", "current_pic_count"
        key = tuple(event[name] for name in names)
        if event["figures"] != "final":
            assert event["why"], f"N/A without a reason: {event}"
            unknown = event["layers_us"], event["aicpu_us"], event["start_us"], event["end_us"]
            assert unknown == (None,) * 4, f"figures that are not final: {event}"
            assert event["slowest"] == [], f"layers that are not final: {event}"
            if event["why"] in _LOG_IS_MISSING:
                self.to_take_back.discard(key)
            return
        assert event["why"] is None, f"final, and a reason: {event}"
        loads = self._whole.by_key.get(key, [])
        alike = [each for each in loads if self._are_alike(event, each)]
        assert alike, f"shown as final, and not so in the import: {event}, which has {[self._shown(o) for o in loads]}"
        if not all(each.is_final for each in alike):
            # It lacks a log that others were not known to have.
            self.to_take_back.add(key)
            return
        load = min(alike, key=lambda each: self.final[key, each.load]).load
        self.final[key, load] += 1
        assert self.final[key, load] == 1, f"shown twice: {event}"

    def _shown(self, inference: Inference) -> str:
        total, aicpu = self._whole.total_us(inference), self._whole.aicpu_us(inference)
        return f"{inference.figures} {total:.3f} {aicpu} {len(inference.aicore)} records from {inference.start_us}"

    def _are_alike(self, event: dict[str, Any], whole: Inference) -> bool:
        times = self._whole.layer_times(whole)
        layers = sorted(times.values(), reverse=True)[:3]
        named = {(name, unit, round(us, 3)) for (unit, _, name), us in times.items()}
        shown = [layer["duration_us"] for layer in event["slowest"]]
        return (
            (whole.is_final or whole.why in _LOG_IS_MISSING)
            and event["records"] == len(whole.aicore) + len(whole.aicpu)
            and abs(event["layers_us"] - self._whole.total_us(whole)) < TOLERANCE_US
            and abs(event["aicpu_us"] - self._whole.aicpu_us(whole)) < TOLERANCE_US
            and len(shown) == len(layers)
            and all(abs(one - other) < TOLERANCE_US for one, other in zip(shown, layers, strict=True))
            and {(each["layer_name"], each["unit"], each["duration_us"]) for each in event["slowest"]} <= named
            and self._is_timed(event, whole)
            and self._has_latency(event, whole)
        )

    def _is_timed(self, event: dict[str, Any], whole: Inference) -> bool:
        """A `.done` that a later load has written over tells the import nothing."""
        if whole.start_us is not None or whole.end_us is not None:
            return (event["start_us"], event["end_us"]) == (whole.start_us, whole.end_us)
        return event["start_us"] is None or event["start_us"] in self._starts

    def _has_latency(self, event: dict[str, Any], whole: Inference) -> bool:
        """Its call's, or from its first begin to its last end."""
        if whole.start_us is None or event["latency_us"] is None:
            return whole.span is None or whole.span[0] > whole.span[1] or whole.start_us is None
        begin, end = whole.span or (0, 0)
        if event["latency_from"] == "records":
            return bool(event["latency_us"] == end - begin)
        return any(e - b == event["latency_us"] for b, e in self._whole.executes if b <= begin and e >= end)


class Nobody:
    """Nobody looks; the JOBs are known."""

    def __init__(self) -> None:
        self.jobs: Sequence[JobStatus] = ()

    def linked(self, board: Board, role: str) -> None: ...

    def unlinked(self, error: Any, wait_s: float) -> None: ...

    def remark(self, text: str) -> None: ...

    def changed(self, applied: Sequence[Applied]) -> None: ...

    def jobs_changed(self, jobs: Sequence[JobStatus]) -> None:
        self.jobs = jobs


class Wire:
    """The host's stream: what it says is heard by the board at once."""

    def __init__(self, board: StreamedBoard) -> None:
        self._board = board

    async def send(self, message: ClientMessage) -> None:
        self._board.receive(to_wire(message))


class Process:
    """One process of the host: all of it goes when it ends."""

    def __init__(self, command: Command, folder: Path, clock: Clock, lines: Lines) -> None:
        self.command = command
        self.lines = lines
        self.nobody = Nobody()
        options = WatchOptions("board:1", from_start=command.is_from_start)
        self.view = WatchView(options, lines.take, lambda _: None, clock)
        self.saw_it_appear = False
        source, is_new = ("watch", True) if command.shows else ("record", False)
        chosen = RecordingOptions(lambda: 1, source=source, always_new=is_new, with_columns=command.shows)
        workspace = Workspace(folder) if command.keeps else MemoryWorkspace()
        self.store = Store(workspace.database if command.keeps else None, durable=False)
        if not command.keeps:
            chosen = replace(chosen, past_filter=self.view.past_filter, notes_past=False)
        self.recording = self.view.recording = Recording(workspace, self.store, chosen)
        self.capture = Capture(
            "board:1",
            self.recording,
            self.view if command.shows else self.nobody,
            wants=self._wants,
            consumer="test",
            gather_s=0.0,
            stop=asyncio.Event(),
            is_patient=True,
        )

    def _wants(self, job: JobStatus, listed: bool) -> bool:
        self.saw_it_appear = not listed
        return self.view.past_filter.wants(job, listed) if self.command.shows else True


class Clock:
    """That of whoever watches."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


class Linked:
    """Talks with a board for a host, one message after the other."""

    board: StreamedBoard
    runner: asyncio.Runner
    talking: FollowedStream | None
    waited_s = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.said: deque[wire.ServerMessage] = deque()

    @property
    def capture(self) -> Capture:
        """The host's."""
        raise NotImplementedError

    def let(self, happen: Any) -> None:
        """Let something happen to the host, with whatever becomes of its link."""
        try:
            self.runner.run(happen)
        except UnreachableError as error:
            self.lose_link(error)

    def connect(self) -> None:
        """Unless there is a link."""
        if self.talking is None:
            link = self.capture.session
            assert link.state is State.WAITING
            link.tick(self.late())
            if link.awaits_room:
                link.room(has_room=True, now=self.late())
            self.said = deque(self.board.open())
            channel: Any = None
            stream: Any = Wire(self.board)
            self.talking = FollowedStream(self.capture, channel, stream)
            self.let(self.talking.open())

    def next_said(self) -> wire.ServerMessage | None:
        """What the board says next."""
        if self.talking is not None and not self.said:
            self.said.extend(self.board.turn())
        return self.said.popleft() if self.said else None

    def lose_link(self, error: UnreachableError) -> None:
        """The link goes."""
        session = self.capture.session
        session.lost(error, self.late())
        for event in session.events_received():
            self.capture.tell(event)
        self.hang_up()

    def hang_up(self) -> None:
        """Nobody talks any more."""
        self.talking = None
        self.said.clear()
        self.board.close()

    def late(self) -> float:
        """A time at which whatever is waited for has come."""

        async def now() -> float:
            return asyncio.get_running_loop().time()

        self.waited_s += LONG_S
        return self.runner.run(now()) + self.waited_s


class Player(Linked):
    """The board, its program, and the host. Each act is one thing that may happen."""

    def __init__(
        self, folder: Path, job: WrittenJob, whole: Told, command: Command, *, is_scanned: bool, is_known: bool
    ) -> None:
        """`whole` is what an import of the JOB in the end says. Unless it `is_known`, the JOB appears later."""
        super().__init__()
        self.folder = folder
        self.whole = whole
        self.command = command
        self.is_scanned = is_scanned
        self._has_lesser_loads = job.has_lesser_loads
        # Logs of a load that is not the first, and may be longer than the one before, until their `.done` is theirs:
        # to who comes meanwhile it would seem to be.
        self._half_loaded: set[str] = set()
        self.board = StreamedBoard(folder / "root", is_scanned=is_scanned, is_known=is_known)
        self.runner = asyncio.Runner()
        self.clock = Clock()
        self._left: deque[Write] = deque(job.writes)
        self._part = b""  # of the next write, which is not there yet
        self._untold: dict[str, FileEvent] = {}
        self._made: set[str] = set()
        self._seen_final: set[tuple[Key, int]] = set()
        self._starts = {int(each) for write in job.writes if write.path.endswith(".done") for each in _starts(write)}
        self.processes = 0
        self._start()

    # What may happen

    def write(self, count: int) -> None:
        """The program goes on."""
        self.write_late(count)
        self.tell()

    def write_late(self, count: int) -> None:
        """The program goes on, and the daemon hears of it later."""
        for _ in range(count):
            if self._left:
                self._put(self._left.popleft())
            while self._half_loaded and self._left:
                self._put(self._left.popleft())

    def write_part(self, percent: int) -> None:
        """The program is caught in the middle of a write."""
        if self._left and self._left[0].is_append and len(self._left[0].data) > 1:
            if self._is_loaded_again(self._left[0].path) and not self._has_lesser_loads:
                self.write(1)
                return
            path, data, _ = self._left.popleft()
            size = max(1, min(len(data) - 1, len(data) * percent // 10))
            self._left.appendleft(Write(path, data[size:], is_append=True))
            self._put(Write(path, data[:size], is_append=True))
            self.tell()

    def tell(self, _: int = 0) -> None:
        """The daemon hears of what was written."""
        self.board.appear()
        if self._untold:
            self.board.change_state(JobState.OPEN)
        touches, self._untold = self._untold, {}
        self.board.tell(dict.fromkeys(touches, FileEvent.WRITTEN) if self.is_scanned else touches)

    def lose(self, _: int = 0) -> None:
        """Notices of the kernel are lost: the daemon looks at everything."""
        self._untold = {}
        self.board.appear()
        self.board.change_state(JobState.OPEN)
        self.board.lose_notices()

    def hear(self, messages: int) -> None:
        """The host takes the next messages; after an even number of them it hands on what has gathered."""
        for _ in range(messages):
            self.connect()
            if not self._hear():
                break
        if messages % 2 == 0 and self.talking is not None:
            self.let(self.talking.flush())
        self._look()

    def cut(self, _: int = 0) -> None:
        """The link, or the daemon, goes and comes back."""
        if self.talking is not None:
            self.lose_link(UnreachableError("cut", hint="wait"))

    def kill(self, _: int = 0) -> None:
        """The host's process dies, and another one begins."""
        self._close()
        self._start()

    def end(self, _: int = 0) -> None:
        """The command is stopped as by Ctrl-C, and begun again."""
        self.stop()
        self._start()

    def wait(self, _: int = 0) -> None:
        """Some seconds pass for everybody."""
        self.clock.s += PATIENCE_S
        self.board.pass_time(PATIENCE_S)
        if self.command.shows:
            self.let(self.process.view.show_waiting())

    def pause(self, _: int = 0) -> None:
        """So much time passes that the board takes a file for settled."""
        self.board.pass_time(0.5)

    def skew(self, logs: int) -> None:
        """From now on the daemon reads other logs first, in small pieces."""
        self.board.skew, self.board.piece_bytes = logs, 300

    def fall_quiet(self, _: int = 0) -> None:
        """The board takes the JOB for quiet until something changes."""
        self.tell()
        self.board.change_state(JobState.QUIET)

    def finish_unheard(self, _: int = 0) -> None:
        """The board takes the JOB for finished, and only then hears of what was written last."""
        self.board.change_state(JobState.FINISHED)
        self.hear(100_000)
        self.tell()

    # At last

    def go_on(self, writes: int, messages: int, *, is_slow: bool) -> None:
        """The program goes on to its end, at a pace at which the host may follow."""
        while self._left:
            self.write(writes)
            if is_slow:
                self.pause()
            self.hear(messages)

    def finish(self) -> None:
        """The host hears all there is, the JOB ends."""
        self.tell()
        for state in (JobState.OPEN, JobState.FINISHED):
            self.board.change_state(state)
            for _ in range(3):
                self.hear(100_000)
                self.wait()
        if self.command.shows:
            self.process.view.show_held()

    def finish_by_import(self) -> None:
        """The host stops, and what is left comes by `import --workspace`."""
        self.stop()
        workspace = Workspace(self.folder / "workspace")
        self.runner.run(import_into(self.board.directory, workspace, asyncio.Event(), board=IDENTITY))

    @property
    def must_have_told_all(self) -> bool:
        """Whether the process showed, or was to show, everything: nothing is from before, or was kept before."""
        is_whole = self.command.is_from_start and (self.processes == 1 or not self.command.keeps)
        return self.command.shows and (is_whole or (self.process.saw_it_appear and not self.command.is_from_start))

    @property
    def database(self) -> Path:
        """The workspace's."""
        return Workspace(self.folder / "workspace").database

    def stop(self) -> None:
        """The command is stopped, and what it kept is looked at."""
        if not self._is_open:
            return
        if self.talking is not None:
            self.let(self.talking.take(None))
        if self.command.keeps and self.process.recording.is_begun:
            for job in self.process.nobody.jobs:
                if not job.caught_up:
                    self.process.recording.note(job.name, Entry("note", STOPPED_EARLY, "as `record` does", first=1))
            self.runner.run(self.process.recording.end())
        self._close()
        self.process.view.show_held()
        if self.command.keeps:
            self._check_stats()

    def close(self) -> None:
        """Nothing happens any more."""
        self._close()
        self.runner.close()

    # What holds

    def _look(self) -> None:
        """Of rows that are final, all is as in the import."""
        if self._is_open and (file := self.process.store.file) is not None:
            kept = Told.of(file)
            self.check_rows(kept)
            self._check_still_final(kept)

    def check_rows(self, kept: Told) -> None:
        """What a database says of inferences is known, or it is said why not."""
        for inference in kept:
            assert inference.is_final != bool(inference.why), (inference.key, inference.figures, inference.why)
            if inference.is_final:
                loads = self.whole.by_key.get(inference.key, [])
                assert inference.load < len(loads), f"{inference.key} {inference.load} is not in the import"
                whole = loads[inference.load]
                is_named = inference.key[:2] in kept.named_models
                is_right = whole.is_final or kept.may_take_back(inference, whole.why)
                assert is_right, f"final, and not so in the import: {inference.key}, {whole.why}"
                for found, there in ((inference.aicore, whole.aicore), (inference.aicpu, whole.aicpu)):
                    assert _named(found, is_named=is_named) == _named(there, is_named=is_named), inference.key

    def _check_still_final(self, kept: Told) -> None:
        """What a reader saw as final is not taken back, but where the page about figures says so."""
        final = {(each.key, each.load) for each in kept if each.is_final}
        for key, load in self._seen_final - final:
            loads = self.whole.by_key[key]
            now = next((each for each in kept.by_key.get(key, []) if each.load == load), None)
            goes_on = now is not None and now.figures == "pending" and len(loads) > 1
            assert goes_on or loads[load].why in _LOG_IS_MISSING, f"a final figure was taken back: {key} {load}"
        self._seen_final = final

    def _check_stats(self) -> None:
        """The figures of the newest session are those of its inferences that are final."""
        if not self.database.exists():
            return
        kept = Told.of(self.database)
        self.check_rows(kept)
        with closing(sqlite3.connect(self.database)) as connection:
            (session,) = connection.execute("SELECT max(session) FROM session").fetchone()
            jobs = connection.execute("SELECT count(*) FROM session_job WHERE session = ?", (session,)).fetchone()
        if session is None or not jobs[0]:
            return
        found = self.runner.run(stats(self.database, session=session, by="layer", skip=0))
        if found.unit == "us":
            final = [each for each in kept if each.is_final and each.session == session]
            loads = [self.whole.by_key[each.key][each.load] for each in final]
            total = sum(self.whole.total_us(each) for each in loads)
            layers = [row.figures.total or 0 for row in found.rows if row.key[1] != NOT_IN_ANY_LAYER]
            assert abs(sum(layers) - total) < TOLERANCE_US * (1 + len(final))

    # Inside

    def _put(self, write: Write) -> None:
        path, data, is_append = write
        file = self.board.directory / path
        is_more = is_append and self._is_loaded_again(path)
        if is_more or (path.endswith(".done") and file.exists()):
            self._let_read()
        if is_more and not self._has_lesser_loads:
            self._half_loaded.add(path)
        self._half_loaded.discard(path.removesuffix(".done") if path.endswith(".done") else "")
        with file.open("ab" if is_append else "wb") as opened:
            opened.write(data)
        self.board.date(path)
        touch = FileEvent.WRITTEN if path in self._made else FileEvent.CREATED | FileEvent.WRITTEN
        self._made.add(path)
        self._untold[path] = self._untold.get(path, FileEvent.HINT) | touch

    def _is_loaded_again(self, path: str) -> bool:
        return (self.board.directory / f"{path}.done").exists()

    def _let_read(self) -> None:
        """The daemon reads all that there is, before a load adds to files of the one before, or writes a `.done` anew.

        Else nobody knows of which bytes a `.done` speaks: the wire does not say by which one a log is complete.
        """
        if self.board.is_followed:
            self.tell()
            while said := self.board.turn():
                self.said.extend(said)

    def _start(self) -> None:
        self.lines = Lines(self.whole, self._starts)
        self.process = Process(self.command, self.folder / "workspace", self.clock, self.lines)
        self.processes += 1
        self.talking = None
        self._is_open = True
        self.runner.run(self.process.store.__aenter__())
        self._is_begun = False

    def _close(self) -> None:
        self.hang_up()
        if self._is_open:
            self.runner.run(self.process.store.__aexit__(None, None, None))
        self._is_open = False

    @property
    def capture(self) -> Capture:
        """The process's."""
        return self.process.capture

    def _hear(self) -> bool:
        if (said := self.next_said()) is None or self.talking is None:
            return False
        message = from_wire(said)
        assert message is not None
        self.clock.s += 0.001
        self.let(self.talking.take(message))
        return True


def _named(records: Sequence[Record], *, is_named: bool) -> list[Any]:
    return [each if is_named else each[:3] for each in records]


def _starts(write: Write) -> list[bytes]:
    lines = (line.partition(b":") for line in write.data.splitlines())
    return [value for key, _, value in lines if key == b"start_time"]
