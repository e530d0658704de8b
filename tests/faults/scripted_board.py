"""A board without a network: it answers what is held of a JOB, and sends the rest in pieces of any size."""

from __future__ import annotations

import hashlib
import random
from typing import TYPE_CHECKING

from profagent.formats.names import parse_log_name
from profagent.link.messages import (
    PROTOCOL,
    Announced,
    AnnouncedLog,
    Arrived,
    Batch,
    Board,
    Chunk,
    Clocks,
    Completed,
    JobStatus,
    LogsAnnounced,
    Open,
    Started,
    Welcome,
)
from profagent.link.session import LinkSession

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from profagent.link.messages import FollowedLog, Holding, LogEvent, Received

JOB = "JOB" + "A" * 29
IDENTITIES = ("5c21", "7d32")
BOARD = Board(
    identity=IDENTITIES[0],
    hostname="scripted",
    model="",
    daemon_version="0",
    protocol=PROTOCOL,
    simulated=False,
    sdk_version="",
    roots=(),
    clocks=Clocks(0, 0),
)
EVENTS_PER_BATCH = 7
LOGS_AT_A_TIME = 4


class ScriptedBoard:
    """One stream about one JOB; what comes has passed the real rules of a session."""

    def __init__(self, files: Mapping[str, bytes], earlier: Mapping[str, bytes], seed: int) -> None:
        """`earlier` are contents that some files had before: a host that holds nothing of them gets these first."""
        self.session = LinkSession("board:1", Open("test", "test"), lambda *_: True)
        self.session.tick(0.0)
        self.session.opened(0.0)
        self._files = files
        self._earlier = earlier
        self._random = random.Random(seed)
        self.session.receive(Welcome(BOARD, 1_000_000), 0.0)
        self.session.receive(JobStatus(1, JOB, "/board/" + JOB, "open", caught_up=False), 0.0)
        self.session.events_received()

    def announced(self) -> tuple[FollowedLog, ...]:
        """Every file of the JOB."""
        logs = tuple(
            AnnouncedLog(handle, 1, path.encode(), not _is_data(path)) for handle, path in enumerate(self._files, 1)
        )
        self.session.receive(Announced(logs), 0.0)
        (announcement,) = self.session.events_received()
        assert isinstance(announcement, LogsAnnounced)
        return announcement.logs

    def batches(self, holdings: list[Holding]) -> Iterator[list[Received]]:
        """What the host does not hold, the logs' pieces mixed."""
        paths = list(self._files)
        self.session.hold(holdings)
        queues = [list(self._events(paths[holding.handle - 1], holding)) for holding in holdings]
        events = list(self._mixed(queues))
        for start in range(0, len(events), EVENTS_PER_BATCH):
            self.session.receive(Batch(tuple(events[start : start + EVENTS_PER_BATCH])), 0.0)
            self.session.flush()
            for arrived in self.session.events_received():
                assert isinstance(arrived, Arrived)
                yield [*arrived.events]

    def _mixed(self, queues: list[list[LogEvent]]) -> Iterator[LogEvent]:
        """The logs in any order, a few of them at a time."""
        self._random.shuffle(queues)
        while queues:
            queue = self._random.choice(queues[:LOGS_AT_A_TIME])
            yield queue.pop(0)
            if not queue:
                queues.remove(queue)

    def _events(self, path: str, holding: Holding) -> Iterator[LogEvent]:
        """As the daemon follows a file: go on with a prefix that is the file's, else begin another generation."""
        handle, data = holding.handle, self._files[path]
        generation, offset = holding.generation, holding.offset
        if generation == 0 and path in self._earlier:
            generation += 1
            yield Started(handle, generation, 0, "new")
            yield from self._sent(handle, generation, 0, self._earlier[path], is_data=_is_data(path))
        is_same = holding.generation > 0 and holding.prefix_digest == _digest(data[:offset])
        if is_same and (_is_data(path) or offset == len(data)):
            yield Started(handle, generation, offset, "same")
        else:
            reason = "new" if generation == 0 else "recreated" if _is_data(path) else "rewritten"
            generation, offset = generation + 1, 0
            yield Started(handle, generation, 0, reason)
        yield from self._sent(handle, generation, offset, data, is_data=_is_data(path))

    def _sent(self, handle: int, generation: int, offset: int, data: bytes, *, is_data: bool) -> Iterator[LogEvent]:
        size = len(data)
        while offset < size:
            piece = data[offset : offset + self._random.randint(1, 700)]
            yield Chunk(handle, generation, offset, piece)
            offset += len(piece)
        if not is_data or self._paths_done(handle):
            yield Completed(handle, generation, size, _digest(data))

    def _paths_done(self, handle: int) -> bool:
        return list(self._files)[handle - 1] + ".done" in self._files


def _is_data(path: str) -> bool:
    name = parse_log_name(path)
    return name is not None and name.is_data


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
