"""Looking at JOBs in rounds, within a share of the time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from profagentd.follow import watcher as module
from profagentd.follow.log import FileEvent
from profagentd.follow.scan import JobScan, Scanned
from profagentd.follow.watcher import MIN_PAUSE_S, RESTING_S, SHARE, ScanRounds
from profagentd.sources.job import Place
from tests.daemon.clocks import FakeClock
from tests.daemon.daemon_process import make_job
from tests.daemon.waiting import run_until


class Told:
    """A board that remembers what it was told."""

    def __init__(self) -> None:
        self.changes: list[dict[bytes, FileEvent]] = []
        self.doubts: list[bytes] = []
        self.removals: list[bytes] = []
        self.looks: list[tuple[bytes, float]] = []

    def changed(self, place: Place, touches: Mapping[bytes, FileEvent]) -> None:
        self.changes.append(dict(touches))

    def unsure(self, place: Place) -> None:
        self.doubts.append(place.path)

    def names_removed(self, place: Place) -> None:
        self.removals.append(place.path)

    def seen(self, place: Place, until: float) -> None:
        self.looks.append((place.path, until))


class Bench:
    """Rounds over JOBs below one root, on a clock that does not wait."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = FakeClock()
        self.told = Told()
        self.rounds = ScanRounds(self.clock, self.told)  # type: ignore[arg-type]

    async def add(self, number: int = 0) -> tuple[Path, Place]:
        job = make_job(self.root, number)
        place = Place(os.fsencode(self.root), os.fsencode(job.name))
        await self.rounds.add(place)
        return job, place

    async def until(self, is_so: Callable[[], bool]) -> None:
        await run_until(self.rounds.run(), is_so)


@pytest.fixture
async def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_what_changes_is_told(bench: Bench) -> None:
    job, place = await bench.add()
    (job / "data" / "a").write_bytes(b"x")
    await bench.until(lambda: bool(bench.told.changes))
    assert bench.told.changes == [{b"data/a": FileEvent.WRITTEN}]
    assert bench.told.removals[0] == place.path
    assert bench.told.looks[0] == (place.path, 100.0)


async def test_a_job_that_is_dropped_is_not_looked_at(bench: Bench) -> None:
    _, first = await bench.add(0)
    _, second = await bench.add(1)
    bench.rounds.drop(first)
    await bench.until(lambda: len(bench.told.looks) > 3)
    assert {path for path, _ in bench.told.looks} == {second.path}


async def test_a_job_that_cannot_be_read_at_first_is_doubted_when_it_can(bench: Bench) -> None:
    place = Place(os.fsencode(bench.root), make_job(bench.root / "later", 3).name.encode())
    await bench.rounds.add(place)
    _, other = await bench.add(1)
    await bench.until(lambda: len(bench.told.looks) > 2)
    assert {path for path, _ in bench.told.looks} == {other.path}
    (bench.root / "later" / os.fsdecode(place.path)).rename(bench.root / os.fsdecode(place.path))
    await bench.until(lambda: bool(bench.told.doubts))
    assert bench.told.doubts == [place.path]


async def test_rounds_take_a_share_of_the_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobScan, "scan", lambda _: Scanned({}, cpu_s=2.0))
    await bench.add()
    await bench.until(lambda: len(bench.clock.slept) > 1)
    assert bench.clock.slept[0] == pytest.approx(2.0 / SHARE - 2.0)


async def test_rounds_are_never_too_close(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobScan, "scan", lambda _: Scanned({}))
    await bench.add()
    await bench.until(lambda: len(bench.clock.slept) > 1)
    assert bench.clock.slept[0] == MIN_PAUSE_S


async def test_jobs_at_rest_read_batch(bench: Bench) -> None:
    places = [(await bench.add(number))[1] for number in range(3)]
    bench.clock.advance(RESTING_S + 1.0)
    _, busy = await bench.add(9)
    await bench.until(lambda: len(bench.told.looks) >= 12)
    looks = [path for path, _ in bench.told.looks[:12]]
    assert looks.count(busy.path) == 6
    assert [looks.count(place.path) for place in places] == [2, 2, 2]


async def test_when_the_wall_clock_was_set_anything_may_have_changed(bench: Bench) -> None:
    _, place = await bench.add()
    was_set = False

    def is_doubted() -> bool:
        nonlocal was_set
        if len(bench.told.looks) > 1 and not was_set:
            assert bench.told.doubts == []
            bench.clock.wall -= 86_400_000_000
            was_set = True
        return bool(bench.told.doubts)

    await bench.until(is_doubted)
    assert bench.told.doubts == [place.path]


async def test_nothing_is_done_without_jobs(bench: Bench) -> None:
    running = asyncio.ensure_future(bench.rounds.run())
    await asyncio.sleep(0.01)
    assert bench.clock.slept == []
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_the_share_is_a_tenth_of_a_core() -> None:
    assert module.SHARE == 0.1
