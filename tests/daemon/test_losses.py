"""Losses that are kept: under one number with newer figures, over restarts; and those of a disk without room."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from profagentd.follow.log import LossReason
from profagentd.follow.registry import JobRegistry
from profagentd.limits import LOSSES_LIMIT
from profagentd.loop import Roots
from profagentd.retention.losses import MERGE_S, TELL_S, LossLedger, RecordedLoss, Space, SpaceWatch
from profagentd.sources.files import FolderPlace
from tests.daemon.clocks import WALL_US, FakeClock
from tests.daemon.daemon_process import make_job
from tests.fakes.small_disk import small_disk

FULL, DELETED = LossReason.DISK_FULL, LossReason.DELETED_UNDELIVERED
SIZE_BYTES = 256 * 1024


async def saved(directory: Path | None, count: int = 1) -> LossLedger:
    losses = LossLedger(directory)
    for number in range(count):
        losses.begin(DELETED, f"JOB{number}", 1_000 + number)
    await losses.save()
    return losses


async def loaded(directory: Path) -> LossLedger:
    losses = LossLedger(directory)
    await losses.load()
    return losses


async def test_a_loss_that_goes_on_keeps_its_number_and_is_told_again() -> None:
    losses, heard = LossLedger(None), list[int]()
    first = losses.begin(DELETED, "JOB", 5)
    losses.begin(FULL, "JOB", 6)
    told = losses.revision
    assert losses.since(told) == []
    losses.add_listener(lambda: heard.append(losses.revision))
    losses.extend(first, 9, lost_bytes=30, lost_logs=3)
    (loss,) = losses.since(told)
    assert loss == RecordedLoss(first.id, "deleted-undelivered", "JOB", 5, 9, 30, 3)
    assert "3 logs of 30 bytes" in loss.detail
    assert heard == [losses.revision]
    assert losses.newest(DELETED, "JOB") == loss
    assert losses.newest(DELETED, "OTHER") is None


async def test_the_newest_are_kept_over_a_restart(tmp_path: Path) -> None:
    before = await saved(tmp_path / "new" / "state", LOSSES_LIMIT + 5)
    after = await loaded(tmp_path / "new" / "state")
    assert after.since(0) == before.since(0)
    assert len(after.since(0)) == LOSSES_LIMIT
    assert after.since(0)[0].job == "JOB5"
    assert (await loaded(tmp_path / "missing")).since(0) == []


def space(free: int, superuser_free: int | None = None, *, total: int = 10**9, inodes: bool = True) -> Space:
    return Space(total, free, free if superuser_free is None else superuser_free, 4096, inodes)


@pytest.mark.parametrize(
    ("found", "for_superuser", "full"),
    [
        (space(4096), False, False),
        (space(4095), False, True),
        (space(0), True, True),
        (space(10**8, inodes=False), True, True),
        (space(0, 50_000_000), False, True),
        (space(0, 50_000_000), True, False),
        (space(0, 16_000_000), True, True),
    ],
    ids=["a block", "no block", "nothing", "no inode", "reserved", "reserved for this one", "kept back from all"],
)
def test_a_file_system_is_full_when_not_a_block_can_be_had(found: Space, for_superuser: bool, full: bool) -> None:
    assert found.is_full(for_superuser=for_superuser) is full


def _wrote(descriptor: int) -> bool:
    try:
        os.write(descriptor, bytes(1024))
    except OSError:
        return False
    return True


class Disk:
    """The watch of one root's disk and of one that is missing, with the JOBs in it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.clock = FakeClock()
        self._board = JobRegistry(self.clock, 60.0)
        self._kept = LossLedger(None)
        roots = Roots([os.fsencode(root), b"/missing"])
        self.watch = SpaceWatch(roots, self.clock, self._board, self._kept)

    def find(self, number: int = 0) -> str:
        job = make_job(self._root, number)
        place = FolderPlace(os.fsencode(self._root), os.fsencode(job.name))
        self._board.add_job(place, WALL_US, self.clock.wall, is_scanned=False)
        return job.name

    async def look(self, after_s: float = 0.0) -> list[RecordedLoss]:
        self.clock.advance(after_s)
        told = self._kept.revision
        await self.watch.look(os.fsencode(self._root))
        return self._kept.since(told)

    def fill(self) -> None:
        with (self._root / "fill").open("wb") as file:
            while _wrote(file.fileno()):
                pass

    def empty(self) -> None:
        (self._root / "fill").unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk", SIZE_BYTES) as made:
        yield Disk(made)


async def test_a_full_disk_is_a_loss_of_each_job_that_is_open(disk: Disk) -> None:
    disk.fill()
    assert await disk.look() == []
    disk.empty()
    names = {disk.find(number) for number in range(2)}
    assert await disk.look() == []
    disk.fill()
    losses = await disk.look(1.0)
    assert {loss.job for loss in losses} == names
    wall = disk.clock.wall
    assert {(loss.reason, loss.from_wall_us, loss.to_wall_us) for loss in losses} == {("disk-full", wall, wall)}


async def test_a_shortage_that_goes_on_or_comes_back_soon_is_the_same(disk: Disk) -> None:
    disk.find()
    disk.fill()
    (first,) = await disk.look()
    assert await disk.look(TELL_S / 2) == []
    (again,) = await disk.look(TELL_S)
    assert (again.id, again.from_wall_us, again.to_wall_us) == (first.id, first.from_wall_us, disk.clock.wall)
    disk.empty()
    assert await disk.look(MERGE_S / 2) == []
    disk.fill()
    assert {loss.id for loss in await disk.look(1.0)} == {first.id}
    disk.empty()
    await disk.look(MERGE_S)
    disk.fill()
    (other,) = await disk.look(1.0)
    assert other.id != first.id
