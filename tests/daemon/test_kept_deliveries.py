"""Deliveries that outlive the daemon: what a new one knows of them, and what it cannot."""

# ruff: noqa: ASYNC240 - the loop may wait for so little

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from profagentd.follow.log import FileEvent
from profagentd.follow.registry import Job, JobStateTracker
from profagentd.retention import acks as delivery
from profagentd.retention import acks as kept_deliveries
from profagentd.retention.acks import DIRECTORY_NAME, RECORD_BYTES, SETTLE_S, AckTracker, KeptAcks
from profagentd.sources.files import Fingerprint, Place
from tests.daemon.daemon_process import job_name

PLACE = Place(b"/r", job_name().encode())
DATA, DONE = b"data/aicore.0.model.3.0.1.1.0", b"data/aicore.0.model.3.0.1.1.0.done"
SEEN, OTHER = Fingerprint(7, 256, 10), Fingerprint(7, 256, 11)
NOW = 100.0
JOB = Job(PLACE, 0, 0, JobStateTracker(0.0, 60.0), is_scanned=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / DIRECTORY_NAME / job_name()


async def delivered(state: Path, *consumers: str, paths: tuple[bytes, ...] = (DATA, DONE)) -> AckTracker:
    """A daemon to which these say that they have the logs; it is killed when it has kept that."""
    deliveries = AckTracker(("a", "b"), KeptAcks(state))
    for consumer in consumers:
        for path in paths:
            deliveries.delivered(consumer, PLACE, path, SEEN, NOW)
    await deliveries.keep(NOW + SETTLE_S)
    return deliveries


async def restarted(state: Path, *retain_for: str) -> AckTracker:
    """Another daemon, when it looks at the JOB."""
    deliveries = AckTracker(retain_for or ("a", "b"), KeptAcks(state))
    await deliveries.recall(PLACE)
    return deliveries


async def test_a_new_daemon_knows_what_every_consumer_has_and_no_other_file(tmp_path: Path) -> None:
    await delivered(tmp_path, "a", "b")
    deliveries = await restarted(tmp_path)
    assert deliveries.has(PLACE, DATA, SEEN)
    assert deliveries.has(PLACE, DONE, SEEN)
    assert not deliveries.has(PLACE, DATA, OTHER)
    assert not deliveries.has(PLACE, DATA + b"1", SEEN)
    assert not deliveries.has(Place(b"/other", PLACE.path), DATA, SEEN)


async def test_what_each_consumer_has_adds_up_over_restarts(tmp_path: Path) -> None:
    await delivered(tmp_path, "a")
    deliveries = await restarted(tmp_path)
    assert not deliveries.has(PLACE, DATA, SEEN)
    deliveries.delivered("b", PLACE, DATA, SEEN, NOW)
    assert deliveries.has(PLACE, DATA, SEEN)
    assert not deliveries.has(PLACE, DONE, SEEN)
    await deliveries.keep(NOW + SETTLE_S)
    assert (await restarted(tmp_path)).has(PLACE, DATA, SEEN)


async def test_consumers_that_have_different_files_do_not_add_up(tmp_path: Path) -> None:
    await delivered(tmp_path, "a", "b")
    deliveries = await restarted(tmp_path)
    deliveries.delivered("b", PLACE, DATA, OTHER, NOW)
    assert not deliveries.has(PLACE, DATA, SEEN)
    assert not deliveries.has(PLACE, DATA, OTHER)


async def test_another_consumer_that_is_named_has_nothing(tmp_path: Path) -> None:
    await delivered(tmp_path, "a", "b")
    assert (await restarted(tmp_path, "a")).has(PLACE, DATA, SEEN)
    assert not (await restarted(tmp_path, "a", "c")).has(PLACE, DATA, SEEN)


async def test_what_has_not_settled_or_was_written_to_meanwhile_is_not_kept(tmp_path: Path, file: Path) -> None:
    deliveries = AckTracker(("a",), KeptAcks(tmp_path))
    deliveries.delivered("a", PLACE, DATA, SEEN, NOW)
    await deliveries.keep(NOW)
    assert deliveries.has_unkept
    deliveries.names_changed(JOB, {DATA: FileEvent.WRITTEN})
    await deliveries.keep(NOW + SETTLE_S)
    assert not deliveries.has_unkept
    assert not file.exists()


async def test_what_is_written_to_after_a_restart_is_to_be_delivered_again(tmp_path: Path) -> None:
    await delivered(tmp_path, "a", "b")
    deliveries = await restarted(tmp_path)
    deliveries.names_changed(JOB, {DATA: FileEvent.WRITTEN})
    assert not deliveries.has(PLACE, DATA, SEEN)
    assert deliveries.has(PLACE, DONE, SEEN)


async def test_where_anything_may_have_changed_what_was_kept_counts_for_files_that_are_the_same(tmp_path: Path) -> None:
    deliveries = await delivered(tmp_path, "a", "b")
    deliveries.anything_changed(JOB)
    assert not deliveries.has(PLACE, DATA, SEEN)
    await deliveries.recall(PLACE)
    assert deliveries.has(PLACE, DATA, SEEN)
    assert not deliveries.has(PLACE, DATA, OTHER)


async def test_a_record_that_was_cut_off_is_passed_over_and_written_over(tmp_path: Path, file: Path) -> None:
    await delivered(tmp_path, "a", "b")
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    deliveries = await restarted(tmp_path)
    assert deliveries.has(PLACE, DATA, SEEN)
    assert not deliveries.has(PLACE, DONE, SEEN)
    await delivered(tmp_path, "b", paths=(DONE,))
    assert file.read_bytes() == whole


async def test_a_job_that_was_deleted_leaves_nothing(tmp_path: Path, file: Path) -> None:
    deliveries = await delivered(tmp_path, "a", "b")
    await deliveries.drop(PLACE)
    assert not file.exists()
    await deliveries.drop(PLACE)


async def test_of_logs_that_are_gone_records_do_not_pile_up(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "SPARE_RECORDS", 10)
    await delivered(tmp_path, "a", "b")
    deliveries = await restarted(tmp_path)
    for number in range(100):
        path = DATA + b"%d" % number
        deliveries.delivered("a", PLACE, path, SEEN, NOW)
        await deliveries.keep(NOW + SETTLE_S)
        deliveries.forget(PLACE, [path])
        assert file.stat().st_size <= 30 * RECORD_BYTES
    assert (await restarted(tmp_path)).has(PLACE, DATA, SEEN)


@pytest.mark.parametrize(("limit", "value"), [("JOBS_LIMIT", 2), ("BYTES_LIMIT", 3 * RECORD_BYTES)])
async def test_the_jobs_that_were_written_to_earliest_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(kept_deliveries, limit, value)
    kept = KeptAcks(tmp_path)
    names = [job_name(number) for number in range(4)]
    for age, name in enumerate(names):
        await kept.append(Place(b"/r", name.encode()), bytes(RECORD_BYTES * 2))
        os.utime(tmp_path / DIRECTORY_NAME / name, (age, age))
    assert {file.name for file in (tmp_path / DIRECTORY_NAME).iterdir()} == {*names[2:]}


async def test_where_nothing_can_be_kept_it_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / DIRECTORY_NAME).write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        deliveries = await delivered(tmp_path, "a", "b")
        deliveries.delivered("a", PLACE, DATA, SEEN, NOW)
        await deliveries.keep(NOW + SETTLE_S)
    assert deliveries.has(PLACE, DATA, SEEN)
    assert [record.getMessage().endswith("are known in memory only") for record in caplog.records] == [True]
