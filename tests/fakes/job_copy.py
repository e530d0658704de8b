"""A capture of one JOB without a link: the real mirror, decoder and store, driven step by step."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Self, TypeVar

from profagent.formats.names import parse_log_name
from profagent.ingest.changes import JobChanges
from profagent.ingest.decode import JobDecoder
from profagent.ingest.mirror import JobMirror, digest_of
from profagent.limits import REMEMBERED_LOGS
from profagent.store.sessions import SessionStart
from profagent.store.store import HeldLog, Store

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable
    from pathlib import Path

    from profagent.formats.countermap import CounterMap
    from profagent.formats.sampling import Keeping
    from profagent.ingest.changes import Change

T = TypeVar("T")
JOB = "JOB" + "A" * 29


class JobCopy(AbstractContextManager["JobCopy"]):
    """Takes what a board would send. `restart` is a new process, or a later session, on the same files."""

    def __init__(
        self,
        folder: Path,
        *,
        job: str = JOB,
        remembered_logs: int = REMEMBERED_LOGS,
        counter_map: CounterMap | None = None,
        marked_map: CounterMap | None = None,
        keeping: Keeping | None = None,
    ) -> None:
        self.folder = folder
        self.job = job
        self.database = folder / "profagent.db"
        self.remembered_logs = remembered_logs
        self.counter_map = counter_map
        self.marked_map = marked_map
        self.keeping = keeping
        self._loop = asyncio.new_event_loop()
        self._open(always_new=False)

    def __exit__(self, *_: object) -> None:
        self._close()
        self._loop.close()

    def restart(self, *, new_session: bool = False) -> Self:
        """Begin again with what is on the disk; bytes that were not committed are cut."""
        self._close()
        self._open(always_new=new_session)
        return self

    def held(self, path: str) -> HeldLog:
        """What the database says of a log."""
        return self.run(self.session.held(self.job, [path])).get(path, HeldLog(0, 0, complete=False))

    def feed(self, path: str, data: bytes) -> None:
        """More bytes of a data log, committed."""
        self.apply([*self._started(path), *self._appended(path, data)])

    def lose(self, path: str, data: bytes) -> None:
        """More bytes of a data log, and the process dies before they are committed."""
        list(self._started(path))
        list(self._appended(path, data))
        self.restart()

    def recreate(self, path: str, data: bytes) -> None:
        """The file was made anew."""
        generation, _ = self._started_logs.get(path) or (self.held(path).generation, 0)
        self.mirror.begin(path, generation + 1, 0, snapshot=False)
        changes = list(self.decoder.begin(path, generation + 1, 0))
        self._started_logs[path] = (generation + 1, 0)
        self.apply([*changes, *self._appended(path, data)])

    def complete(self, path: str) -> None:
        """The board vouches for a data log as it is now."""
        changes = list(self._started(path))
        generation, offset = self._started_logs[path]
        digest = self.mirror.prefix_digest(path, offset)
        self.apply([*changes, *self.decoder.complete(path, generation, offset, digest)])

    def snapshot(self, path: str, data: bytes, *, commit: bool = True) -> None:
        """A small file, whole; without `commit` the process dies before its rows are written."""
        generation = self.held(path).generation + 1
        self.mirror.begin(path, generation, 0, snapshot=True)
        self.mirror.append(path, 0, data, snapshot=True)
        content = self.mirror.finish_snapshot(path)
        assert content == data
        changes = list(self.decoder.snapshot(path, generation, content, digest_of(data)))
        if commit:
            self.apply(changes)
        else:
            self.restart()

    def send(self, path: str, data: bytes) -> None:
        """A whole file, in one piece."""
        name = parse_log_name(path)
        (self.feed if name is not None and name.is_data else self.snapshot)(path, data)

    def end(self) -> None:
        """The JOB has ended."""
        unsettled = self.run(self.session.unsettled_logs(self.job))
        unsettled = sorted({*unsettled, *self.run(self.session.unjudged_logs(self.job))})
        orphans = self.run(self.session.orphan_dones(self.job))
        self.apply(self.decoder.end(unsettled, orphans), state="finished")

    def apply(self, changes: Iterable[Change], state: str | None = None) -> None:
        """Commit changes."""
        batch = JobChanges(self.job, "/board", list(changes), state, caught_up=state is not None)
        self.run(self.session.apply([batch]))

    def query(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Rows of the database."""
        return self.run(self.store.query(sql, parameters))

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait for the store."""
        return self._loop.run_until_complete(coroutine)

    def _open(self, *, always_new: bool) -> None:
        self.store = Store(self.database, durable=False)
        self.run(self.store.__aenter__())
        start = SessionStart("board-1", "euler", "SS928", "record", "here", 1, simulated=False, always_new=always_new)
        self.session = self.run(self.store.begin(start))
        mirror = self.folder / "mirror" / self.job
        self.mirror = JobMirror(mirror, incoming=self.folder / "incoming", superseded=self.folder / "superseded")
        data = "SELECT path, generation, offset FROM log WHERE kind IN ('aicore', 'aicpu', 'acl_api')"
        for path, generation, offset in self.query(data):
            self.mirror.restore(path, generation, offset)
        self.decoder = JobDecoder(
            self.mirror,
            counter_map=self.counter_map,
            marked_map=self.marked_map,
            remembered_logs=self.remembered_logs,
            keeping=self.keeping,
        )
        self._started_logs: dict[str, tuple[int, int]] = {}

    def _close(self) -> None:
        self.mirror.close()
        self.run(self.store.__aexit__())

    def _started(self, path: str) -> Iterable[Change]:
        if path in self._started_logs:
            return
        held = self.held(path)
        generation = held.generation or 1
        self._started_logs[path] = (generation, held.offset)
        self.mirror.begin(path, generation, held.offset, snapshot=False)
        if not held.complete:  # of what is held whole the decoder hears when it goes on
            yield from self.decoder.begin(path, generation, held.offset)

    def _appended(self, path: str, data: bytes) -> Iterable[Change]:
        generation, offset = self._started_logs[path]
        self._started_logs[path] = (generation, offset + len(data))
        self.mirror.append(path, offset, data, snapshot=False)
        yield from self.decoder.append(path, generation, offset, data)
