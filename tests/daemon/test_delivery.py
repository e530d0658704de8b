"""Who has which log, and what takes that back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from profagentd.follow.log import FileEvent
from profagentd.follow.registry import Job, JobRegistry
from profagentd.retention.acks import SETTLE_S, AckTracker, KeptAcks
from profagentd.sources.files import Fingerprint, Place
from tests.daemon.clocks import WALL_US, FakeClock
from tests.daemon.daemon_process import make_job

DATA = b"data/aicore.0.model.3.0.1.1.0"
DONE = DATA + b".done"
SEEN = Fingerprint(7, 256, 10)
NOW = 100.0
LATER = NOW + SETTLE_S


class Bench:
    """A board of one JOB, and what is known of its delivery to two consumers."""

    def __init__(self, root: Path) -> None:
        self.board = JobRegistry(FakeClock(), 60.0)
        self.deliveries = AckTracker(("a", "b"), KeptAcks(None))
        self.board.add_listener(self.deliveries)
        self.place = Place(os.fsencode(root), os.fsencode(make_job(root).name))
        self.board.found(self.place, WALL_US, WALL_US, is_scanned=False)

    @property
    def job(self) -> Job:
        return self.board.jobs[0]

    def deliver(self, consumer: str, *paths: bytes, seen: Fingerprint = SEEN) -> None:
        for path in paths or (DATA, DONE):
            self.deliveries.delivered(consumer, self.place, path, seen, NOW)

    def due(self, now: float = LATER, limit: int = 10) -> list[tuple[tuple[bytes, Fingerprint], ...]]:
        return self.deliveries.due(self.place, now, limit)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_log_is_due_with_its_done_when_every_consumer_has_both(bench: Bench) -> None:
    bench.deliver("a")
    assert bench.due() == []
    bench.deliver("b", DATA)
    assert bench.due() == []
    bench.deliver("b", DONE)
    assert bench.due(NOW) == []
    assert bench.due() == [((DATA, SEEN), (DONE, SEEN))]
    assert bench.due() == []


def test_what_could_not_be_deleted_is_due_again_while_it_is_still_delivered(bench: Bench) -> None:
    bench.deliver("a")
    bench.deliver("b")
    (files,) = bench.due()
    bench.deliveries.offer_again(bench.place, [DATA, b"data/never.told"], LATER + 1)
    assert bench.due() == []
    assert bench.due(LATER + 1) == [files]
    bench.board.changed(bench.place, {DATA: FileEvent.WRITTEN})
    bench.deliveries.offer_again(bench.place, [DATA], LATER)
    assert bench.due() == []


def test_what_nobody_asked_for_counts_nothing(bench: Bench) -> None:
    bench.deliver("a")
    bench.deliver("c")
    assert bench.due() == []
    assert not bench.deliveries.has(bench.place, DATA, SEEN)


def test_consumers_that_have_different_files_do_not_add_up(bench: Bench) -> None:
    bench.deliver("a")
    bench.deliver("b", seen=Fingerprint(8, 256, 10))
    assert bench.due() == []
    bench.deliver("a", seen=Fingerprint(8, 256, 10))
    assert len(bench.due()) == 1


def test_it_is_asked_for_this_very_file(bench: Bench) -> None:
    bench.deliver("a")
    bench.deliver("b")
    assert bench.deliveries.has(bench.place, DATA, SEEN)
    assert not bench.deliveries.has(bench.place, DATA, Fingerprint(7, 257, 10))
    assert not bench.deliveries.has(bench.place, DATA + b"1", SEEN)


def test_where_no_consumer_is_named_anyone_counts(bench: Bench) -> None:
    deliveries = AckTracker((), KeptAcks(None))
    assert not deliveries.has(bench.place, DATA, SEEN)
    deliveries.delivered("whoever", bench.place, DATA, SEEN, NOW)
    assert deliveries.has(bench.place, DATA, SEEN)
    assert not deliveries.has(bench.place, DONE, SEEN)


def test_nothing_is_kept_of_what_is_gone(bench: Bench) -> None:
    bench.deliver("a")
    bench.deliveries.forget(bench.place, [DATA, DONE])
    assert not bench.deliveries._marks[bench.place]
    assert not bench.deliveries._due[bench.place]


@pytest.mark.parametrize("touch", [FileEvent.WRITTEN, FileEvent.MADE, FileEvent.DELETED, FileEvent.MOVED])
def test_whatever_happens_to_a_log_takes_its_delivery_back(bench: Bench, touch: FileEvent) -> None:
    bench.deliver("a")
    bench.deliver("b")
    bench.board.changed(bench.place, {DATA: touch})
    assert bench.due() == []
    assert not bench.deliveries.has(bench.place, DATA, SEEN)
    assert bench.deliveries.has(bench.place, DONE, SEEN)


def test_when_anything_may_have_changed_all_is_taken_back(bench: Bench) -> None:
    bench.deliver("a")
    bench.deliver("b")
    bench.board.unsure(bench.place)
    assert bench.due() == []
    assert not bench.deliveries.has(bench.place, DONE, SEEN)


def test_a_job_that_is_gone_leaves_nothing(bench: Bench) -> None:
    bench.deliver("a")
    bench.deliver("b")
    bench.board.gone(bench.place)
    assert bench.due() == []
    assert not bench.deliveries.has_news(bench.place)


def test_a_log_without_a_done_is_due_alone(bench: Bench) -> None:
    path = b"data/cont.0.m.0.1.1.0"
    bench.deliver("a", path)
    bench.deliver("b", path)
    assert bench.due() == [((path, SEEN),)]


def test_a_jobs_news_are_taken_once(bench: Bench) -> None:
    assert not bench.deliveries.has_news(bench.place)
    bench.deliver("a")
    assert bench.deliveries.has_news(bench.place)
    bench.deliveries.take_news(bench.place)
    assert not bench.deliveries.has_news(bench.place)
    bench.board.names_removed(bench.place)
    assert bench.deliveries.has_news(bench.place)
