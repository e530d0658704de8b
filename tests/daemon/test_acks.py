"""Who has which log, what takes that back, and what of it a daemon that starts anew knows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from profagentd.follow.log import FileEvent
from profagentd.follow.registry import Job, JobStateTracker
from profagentd.retention import policy as acks
from profagentd.retention.policy import DIRECTORY_NAME, RECORD_BYTES, AckTracker
from profagentd.sources.files import Fingerprint, Place
from tests.daemon.daemon_process import job_name

PLACE = Place(b"/r", job_name().encode())
DATA, DONE = b"data/aicore.0.model.3.0.1.1.0", b"data/aicore.0.model.3.0.1.1.0.done"
SEEN, OTHER = Fingerprint(7, 256, 10), Fingerprint(7, 256, 11)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / DIRECTORY_NAME / job_name()


def records(file: Path) -> bytes:
    return file.read_bytes() if file.exists() else b""


async def delivered(state: Path | None, *consumers: str, paths: tuple[bytes, ...] = (DATA, DONE)) -> AckTracker:
    """A daemon to which these say that they have the logs; it is killed when it has kept that."""
    tracker = AckTracker(("a", "b"), state)
    for consumer in consumers:
        for path in paths:
            tracker.delivered(consumer, PLACE, path, SEEN)
    await tracker.keep()
    return tracker


async def restarted(state: Path, *retain_for: str) -> AckTracker:
    """Another daemon, when it looks at the JOB."""
    tracker = AckTracker(retain_for or ("a", "b"), state)
    await tracker.recall(PLACE)
    return tracker


async def test_a_log_is_delivered_when_every_named_consumer_has_this_very_file() -> None:
    tracker = await delivered(None, "a", "c")
    assert not tracker.has(PLACE, DATA, SEEN)
    tracker.delivered("b", PLACE, DATA, SEEN)
    assert tracker.has(PLACE, DATA, SEEN)
    assert not tracker.has(PLACE, DATA, OTHER)
    assert not tracker.has(PLACE, DONE, SEEN)
    assert not tracker.has(Place(b"/other", PLACE.path), DATA, SEEN)
    tracker.delivered("b", PLACE, DATA, OTHER)  # they do not add up
    assert not tracker.has(PLACE, DATA, SEEN)


@pytest.mark.parametrize("touch", [FileEvent.WRITTEN, FileEvent.MADE, FileEvent.DELETED, FileEvent.MOVED])
async def test_whatever_happens_to_a_log_takes_its_delivery_back(tmp_path: Path, touch: FileEvent) -> None:
    await delivered(tmp_path, "a", "b")
    tracker = await restarted(tmp_path)
    tracker.names_changed(Job(PLACE, 0, 0, JobStateTracker(0.0, 60.0), is_scanned=False), {DATA: touch})
    assert not tracker.has(PLACE, DATA, SEEN)
    assert tracker.has(PLACE, DONE, SEEN)


async def test_what_each_consumer_has_adds_up_over_restarts(tmp_path: Path) -> None:
    await delivered(tmp_path, "a")
    tracker = await restarted(tmp_path)
    assert not tracker.has(PLACE, DATA, SEEN)
    tracker.delivered("b", PLACE, DATA, SEEN)
    assert tracker.has(PLACE, DATA, SEEN)
    await tracker.keep()
    assert (await restarted(tmp_path)).has(PLACE, DATA, SEEN)
    assert (await restarted(tmp_path, "a")).has(PLACE, DONE, SEEN)
    assert not (await restarted(tmp_path, "a", "c")).has(PLACE, DATA, SEEN)


async def test_a_record_that_was_cut_off_is_passed_over_and_written_over(tmp_path: Path, file: Path) -> None:
    await delivered(tmp_path, "a", "b")
    whole = records(file)
    os.truncate(file, len(whole) - 1)
    tracker = await restarted(tmp_path)
    assert tracker.has(PLACE, DATA, SEEN)
    assert not tracker.has(PLACE, DONE, SEEN)
    await delivered(tmp_path, "b", paths=(DONE,))
    assert records(file) == whole


async def test_what_is_told_again_and_what_is_gone_does_not_pile_up(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acks, "SPARE_RECORDS", 10)
    job = Job(PLACE, 0, 0, JobStateTracker(0.0, 60.0), is_scanned=False)
    await delivered(tmp_path, "a", "b")
    tracker = await delivered(tmp_path, "a", "b")
    assert len(records(file)) == 4 * RECORD_BYTES
    for number in range(100):
        path = DATA + b"%d" % number
        tracker.delivered("a", PLACE, path, SEEN)
        await tracker.keep()
        tracker.names_changed(job, {path: FileEvent.DELETED})
        assert len(records(file)) <= 30 * RECORD_BYTES
    assert (await restarted(tmp_path)).has(PLACE, DATA, SEEN)
    await tracker.drop(PLACE)
    assert not records(file)
