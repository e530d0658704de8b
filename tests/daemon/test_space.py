"""Room on file systems, and the losses where there is none: a small file system of the test's own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from profagentd.follow.registry import JobRegistry
from profagentd.retention.losses import KeptLoss, KeptLosses
from profagentd.retention.space import MERGE_S, TELL_S, Space, SpaceWatch
from profagentd.roots import Roots
from profagentd.sources.files import Place
from tests.daemon.clocks import WALL_US, FakeClock
from tests.daemon.daemon_process import make_job
from tests.fakes.small_disk import small_disk

SIZE_BYTES = 256 * 1024


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


class Bench:
    """The watch of one root's disk and of one that is missing, with the JOBs in it."""

    def __init__(self, root: Path) -> None:
        self.root = os.fsencode(root)
        self.disk = root
        self.clock = FakeClock()
        self.board = JobRegistry(self.clock, 60.0)
        self.kept = KeptLosses(None)
        self.watch = SpaceWatch(Roots([self.root, b"/missing"]), self.clock, self.board, self.kept)

    def find(self, number: int = 0) -> str:
        job = make_job(self.disk, number)
        self.board.found(Place(self.root, os.fsencode(job.name)), WALL_US, self.clock.wall, is_scanned=False)
        return job.name

    async def look(self, after_s: float = 0.0) -> list[KeptLoss]:
        self.clock.advance(after_s)
        told = self.kept.revision
        await self.watch.look(self.root)
        return self.kept.since(told)

    def fill(self) -> None:
        with (self.disk / "fill").open("wb") as file:
            while _wrote(file.fileno()):
                pass

    def empty(self) -> None:
        (self.disk / "fill").unlink()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with small_disk(tmp_path / "disk", SIZE_BYTES) as disk:
        yield Bench(disk)


async def test_room_is_known_and_unknown_where_nothing_answers(bench: Bench) -> None:
    assert bench.watch.free_bytes == (0, 0)
    await bench.look()
    await bench.watch.look(b"/missing")
    assert 0 < bench.watch.free_bytes[0] <= SIZE_BYTES
    assert bench.watch.free_bytes[1] == 0


async def test_a_full_disk_is_a_loss_of_each_job_that_is_open(bench: Bench) -> None:
    names = {bench.find(number) for number in range(2)}
    assert await bench.look() == []
    bench.fill()
    losses = await bench.look(1.0)
    assert {loss.job for loss in losses} == names
    assert {(loss.reason, loss.from_wall_us, loss.to_wall_us) for loss in losses} == {
        ("disk-full", bench.clock.wall, bench.clock.wall)
    }


async def test_nobody_loses_anything_while_no_job_is_open(bench: Bench) -> None:
    bench.fill()
    assert await bench.look() == []


async def test_a_shortage_that_goes_on_is_told_again_under_its_number(bench: Bench) -> None:
    bench.find()
    bench.fill()
    (first,) = await bench.look()
    assert await bench.look(TELL_S / 2) == []
    (again,) = await bench.look(TELL_S)
    assert (again.id, again.from_wall_us) == (first.id, first.from_wall_us)
    assert again.to_wall_us == bench.clock.wall
    assert await bench.look(TELL_S / 2) == []
    last = bench.clock.wall
    bench.empty()
    (over,) = await bench.look(TELL_S)
    assert (over.id, over.to_wall_us) == (first.id, last)
    assert await bench.look(TELL_S) == []


async def test_a_shortage_soon_after_another_is_the_same(bench: Bench) -> None:
    bench.find()
    bench.fill()
    (first,) = await bench.look()
    bench.empty()
    await bench.look(MERGE_S / 2)
    bench.fill()
    assert {loss.id for loss in await bench.look(1.0)} == {first.id}
    bench.empty()
    await bench.look(TELL_S)
    await bench.look(MERGE_S + 1.0)
    bench.fill()
    (other,) = await bench.look(1.0)
    assert other.id != first.id
