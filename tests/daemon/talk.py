"""A stream that follows one JOB, without I/O: what looks find in it is said by the test."""

from __future__ import annotations

from profagentd.announcing import PAGE_ENTRIES
from profagentd.board import Job
from profagentd.budget import Budgets
from profagentd.clock import Moment
from profagentd.following import Step
from profagentd.log import Log, new_digest
from profagentd.logs import kind_of, tables_of
from profagentd.opening import Place
from profagentd.state import Activity
from profagentd.stream import Stream
from profagentd.walk import Page, Sighting
from profagentd.window import WINDOW_LOGS
from tests.daemon.daemon_process import job_name

NOW = Moment(100.0, 1_000_000_000)
DATA = b"data/aicore.0.model.3.0.1.1.0"
INFO = b"data/model.0.layer.info"


def new_job(number: int = 0) -> Job:
    return Job(Place(b"/r", job_name(number).encode()), 1, 1, Activity(100.0, 60.0), is_scanned=False)


def page(*paths: bytes, is_last: bool = True) -> Page:
    return Page(
        [Sighting(path, kind_of(path), 10, 0) for path in paths],
        is_last=is_last,
    )


# Logs that one stream may have announced while there is no other.
FULL = min(WINDOW_LOGS, Budgets().logs.share().room)


class Talk:
    """A stream that follows one JOB whose first walk is done; the tables of its data are not there."""

    def __init__(self, *paths: bytes) -> None:
        self.stream = Stream(Budgets())
        self.job = new_job()
        self.stream.job_changed_state(self.job)
        self.stream.take_statuses()
        self.stream.select([1], [])
        self.logs: list[Log] = []
        for start in range(0, len(paths) or 1, PAGE_ENTRIES):
            found = page(*paths[start : start + PAGE_ENTRIES], is_last=start + PAGE_ENTRIES >= len(paths))
            found.missing = [*tables_of(DATA), *tables_of(b"data/aicore.0.m.3.0.1.1.0")]
            self.logs += self.look(found)

    def look(self, found: Page) -> list[Log]:
        names = self.stream.announcer.next_names(NOW.monotonic)
        assert names is not None
        logs, self.losses = self.stream.announcer.looked(names, found, NOW)
        return logs

    def follow(self, log: Log) -> None:
        """The client's Holding is in, three bytes were sent, nothing is due."""
        self.stream.hold(log.handle, skip=False, generation=0, offset=0, prefix_digest=b"")
        (turn,) = self.stream.take_turns(1, NOW.monotonic)
        assert turn.log is log
        assert log.comparison is not None
        log.go_on(log.comparison, new_digest())
        log.took(b"abc")
        self.stream.window.stepped(log, Step())

    def ready(self) -> list[Log]:
        """Logs that have a turn now."""
        logs = [turn.log for turn in self.stream.take_turns(100, NOW.monotonic)]
        for log in logs:
            self.stream.window.stepped(log, Step())
        return logs


def is_caught_up(stream: Stream) -> bool:
    return bool(stream.take_caught_up())
