"""A board of one JOB whose files change as a test says, behind the daemon's real stream, without gRPC and waiting."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from profagent_wire.v1 import board_pb2 as wire
from profagentd.follow import messages
from profagentd.follow.log import FileEvent
from profagentd.follow.reading import read_batch
from profagentd.follow.registry import FollowedJob, JobStateTracker
from profagentd.follow.session import FollowSession
from profagentd.follow.table import Quota
from profagentd.limits import CHUNK_BYTES, PIECE_BYTES
from profagentd.loop import US_PER_S, ClockReading
from profagentd.retention.policy import AckTracker, Policy, Retain, plan_deletions
from profagentd.retention.reaper import DeletionScan, delete_logs
from profagentd.sources.files import FolderPlace
from profagentd.sources.state import JobState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from profagentd.follow.log import Log
    from profagentd.follow.reading import ReadStep, ReadTask
    from profagentd.follow.session import NameLookup
    from profagentd.sources.walk import WalkPage

JOB = "JOB" + "A" * 29
CONSUMER = "test"
LOGS_AT_A_TIME = 3
DUE_LOGS = 100
# The board's clocks go on by themselves as little as this, at each change and each turn.
TICK_S = 0.001
BEGUN_S = 1_800_000_000.0


class StreamedBoard:
    """The JOB's directory, and at most one stream about it. How fast this machine is changes nothing."""

    def __init__(self, root: Path, *, is_scanned: bool = False, is_known: bool = True) -> None:
        """Unless it `is_known`, the JOB is told of when it appears."""
        self.directory = root / JOB
        self._is_known = is_known
        (self.directory / "data").mkdir(parents=True)
        self._passed_s = 0.0
        self._job = self._new_job(root, is_scanned=is_scanned)
        self._stream: FollowSession | None = None
        self._quota = Quota()
        self.skew = 0  # how many logs whose turn it is wait for others
        self.piece_bytes = CHUNK_BYTES  # of logs that have their turns together, at most
        # What is under way, and what it will tell: a look, and a reading of logs, with those that were made before it.
        self._looking: tuple[NameLookup, WalkPage] | None = None
        self._reading: tuple[list[Log], list[ReadTask], list[ReadStep]] | None = None
        self._deliveries = AckTracker((CONSUMER,), None)

    @property
    def is_followed(self) -> bool:
        """Whether there is a stream."""
        return self._stream is not None

    def open(self) -> list[wire.ServerMessage]:
        """A client has come, to this daemon or to a new one: it keeps nothing; its first messages."""
        self._quota = Quota()
        self._stream, self._looking, self._reading = FollowSession(self._quota), None, None
        if self._is_known and self._job.state is not JobState.REMOVED:
            self._stream.job_changed_state(self._job)
        version = messages.protocol()
        description = wire.Description(identity="streamed", protocol=version)
        welcome = wire.ServerMessage(welcome=wire.Welcome(description=description, heartbeat_us=4_000_000))
        return [welcome, *self._statuses(self._stream), wire.ServerMessage(jobs_listed=wire.JobsListed())]

    def close(self) -> None:
        """The client is gone, or the daemon is."""
        self._stream = None

    def receive(self, message: wire.ClientMessage) -> None:
        """What the client says. Raises Refusal."""
        assert self._stream is not None, "only who follows can speak"
        if message.WhichOneof("message") != "open":
            messages.apply(message, self._stream)
            self._deliver(self._stream)

    def pass_time(self, seconds: float) -> None:
        """Let time pass on the board."""
        self._passed_s += seconds

    def touch(self, path: str, touch: FileEvent) -> None:
        """What the kernel tells of a name, and notes of its file."""
        self.date(path)
        self.tell({path: touch})

    def date(self, path: str) -> None:
        """What the kernel notes of a file that was written, though nobody is told yet."""
        self.pass_time(TICK_S)
        if (file := self.directory / path).exists():
            os.utime(file, ns=(self._now.wall_us * 1000,) * 2)

    def appear(self) -> None:
        """The JOB is found."""
        if not self._is_known:
            self._is_known = True
            self.change_state(self._job.state)

    def tell(self, touches: Mapping[str, FileEvent]) -> None:
        """What is told of names at one time, however late."""
        changed = {path.encode(): touch for path, touch in touches.items()}
        self._deliveries.names_changed(self._job, changed)
        if self._stream is not None:
            self._stream.names_changed(self._job, changed)

    def lose_notices(self) -> None:
        """Anything may have changed."""
        if self._stream is not None:
            self._stream.names_changed(self._job, None)

    def delete_delivered(self) -> list[str]:
        """What retention deletes when some time has passed: the paths of what went."""
        if not self.directory.exists():
            return []
        place, long_after_ns = self._job.place, 2 * self._now.wall_us * 1000
        facts = DeletionScan(
            place, self._job.source, self._deliveries.has, long_after_ns, with_undelivered=False
        ).facts(is_over=False)
        deletions = plan_deletions(Policy(Retain.DELIVERED, (CONSUMER,)), [facts], 0)[:LOGS_AT_A_TIME]
        gone = sorted(delete_logs(place, [each.files for each in deletions]))
        for path in gone:
            self.touch(path.decode(), FileEvent.DELETED)
        return [path.decode() for path in gone]

    def remove(self) -> None:
        """The JOB's directory goes, with all that is in it."""
        names = [str(file.relative_to(self.directory)) for file in self.directory.rglob("*") if file.is_file()]
        shutil.rmtree(self.directory)
        for name in names:
            self.touch(name, FileEvent.DELETED)
        self.change_state(JobState.REMOVED)

    def change_state(self, state: JobState) -> None:
        """The JOB has another state."""
        self._job.state = state
        if self._stream is not None and self._is_known:
            self._stream.job_changed_state(self._job)

    def turn(self) -> list[wire.ServerMessage]:
        """What the daemon does in one turn, as its conversation does it."""
        stream = self._stream
        assert stream is not None, "nobody follows"
        self.pass_time(TICK_S)
        said = [*self._sent(stream), *self._found(stream), *self._statuses(stream)]
        said += self._begin(stream)
        said += self._released(stream)
        if said or self._looking or self._reading:
            return said or [messages.heartbeat(stream.table.lag_bytes)]
        return [messages.job_status(each, caught_up=True) for each in stream.take_caught_up()]

    def _released(self, stream: FollowSession) -> list[wire.ServerMessage]:
        return list(messages.released(stream.table.take_released()))

    def _statuses(self, stream: FollowSession) -> list[wire.ServerMessage]:
        due = stream.take_statuses()
        said = list(messages.batches(stream.take_losses(), PIECE_BYTES))
        if any(following.is_removed for following in due):
            said += self._released(stream)
        return said + [messages.job_status(each) for each in due]

    def _begin(self, stream: FollowSession) -> list[wire.ServerMessage]:
        """Begin to read and to look: whatever happens until the next turn happens while that is under way."""
        made, names = stream.take_created(self._now.monotonic), stream.next_lookup(self._now.monotonic)
        said = self._left(stream, made)
        # About the order of the bytes of different logs nothing is promised.
        due = stream.take_read_tasks(DUE_LOGS, self._now.monotonic)
        first = self.skew % len(due) if due else 0
        turns = [*due[first:], *due[:first]][:LOGS_AT_A_TIME]
        stream.table.put_back(turn.log for turn in due if turn not in turns)
        if turns or made:
            self._reading = made, turns, read_batch(turns, self._now, self.piece_bytes)
        self._looking = (names, names.run()) if names else None
        return said

    def _left(self, stream: FollowSession, logs: Sequence[Log]) -> list[wire.ServerMessage]:
        return self._released(stream) if any(map(stream.table.has_unreported_release, logs)) else []

    def _found(self, stream: FollowSession) -> list[wire.ServerMessage]:
        if self._looking is None:
            return []
        found, losses = stream.apply_lookup(*self._looking, self._now)
        self._looking = None
        return [*self._left(stream, found), *messages.announced(found), *messages.batches(losses, PIECE_BYTES)]

    def _sent(self, stream: FollowSession) -> list[wire.ServerMessage]:
        made, turns, steps = self._reading or ([], [], [])
        self._reading = None
        stream.table.put_back(turn.log for turn in turns[len(steps) :])
        events = [
            event for turn, step in zip(turns, steps, strict=False) for event in stream.finish_turn(turn.log, step)
        ]
        self._deliver(stream)
        return list(messages.batches(events, PIECE_BYTES, made=made))

    def _deliver(self, stream: FollowSession) -> None:
        for place, path, seen in stream.take_delivered():
            self._deliveries.note_delivered(CONSUMER, place, path, seen)

    @property
    def _now(self) -> ClockReading:
        return ClockReading(self._passed_s, int((BEGUN_S + self._passed_s) * US_PER_S))

    def _new_job(self, root: Path, *, is_scanned: bool) -> FollowedJob:
        now = self._now
        place = FolderPlace(bytes(root), JOB.encode())
        return FollowedJob(place, now.wall_us, now.wall_us, JobStateTracker(now.monotonic, 60.0), is_scanned=is_scanned)
