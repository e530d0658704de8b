"""The simulated board on a clock."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from profagentd.errors import DaemonError
from profagentd.loop import Clock, SystemClock
from profagentd.simulate import SimulationOptions, SimulationReport, simulate
from tests.daemon.simulated_job import TurnedClock, aicore, api, contents, done, only_job

API_LOG = "data/acl_api.0.yolov5s.0"


def executes(files: dict[str, bytes]) -> list[tuple[int, ...]]:
    return [call for call in api(files[API_LOG]) if call[0] == 2]


async def test_it_runs_for_the_time_at_the_rate_and_unloads(tmp_path: Path) -> None:
    clock = TurnedClock()
    began_us = clock.wall_us()
    report = await simulate(SimulationOptions(rate=20.0, for_s=2.0, root=tmp_path), clock)
    files = contents(only_job(tmp_path))
    records = sum(len(aicore(data)) for name, data in files.items() if "aicore" in name and ".done" not in name)
    assert report == SimulationReport(only_job(tmp_path), 40, 40, records, 0, 0)
    begins = [call[1] for call in executes(files)]
    assert begins == pytest.approx([began_us + 50_000 * number for number in range(40)], abs=2)
    assert clock.now == pytest.approx(52.0)
    assert int(done(files[f"{API_LOG}.done"])["end_time"]) >= began_us + 2_000_000


async def test_waking_late_neither_drifts_nor_counts_as_late(tmp_path: Path) -> None:
    clock = TurnedClock(overslept_s=0.01)
    began_us = clock.wall_us()
    report = await simulate(SimulationOptions(rate=20.0, for_s=5.0, root=tmp_path), clock)
    begins = [call[1] for call in executes(contents(only_job(tmp_path)))]
    assert begins == pytest.approx([began_us + 50_000 * number for number in range(100)], abs=2)
    assert report.late == 0


async def test_a_rate_that_cannot_be_kept_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = TurnedClock()
    with caplog.at_level(logging.WARNING):
        report = await simulate(SimulationOptions(rate=5_000.0, for_s=0.5, root=tmp_path), clock)
    assert 100 < report.inferences < 300
    assert report.late > 90
    assert "the rate was not kept" in str(report)
    assert [record.message for record in caplog.records] == ["the simulated board cannot keep 5000 inferences a second"]
    calls = executes(contents(only_job(tmp_path)))
    assert all(earlier[2] <= later[1] + 1 for earlier, later in zip(calls, calls[1:]))
    assert clock.now < 50.6


async def test_interval_and_pictures_name_the_files(tmp_path: Path) -> None:
    options = SimulationOptions(model="mobilenetv2", interval=4, pictures=3, for_s=1.0, root=tmp_path)
    report = await simulate(options, TurnedClock())
    assert (report.inferences, report.sampled) == (10, 3)
    data = {name for name in contents(only_job(tmp_path)) if "aicore" in name and ".done" not in name}
    assert data == {f"data/aicore.0.mobilenetv2.3.0.1.3.{count}" for count in (0, 12, 24)}


async def test_the_same_seed_and_clock_give_the_same_bytes_under_another_name(tmp_path: Path) -> None:
    roots = [tmp_path / "a", tmp_path / "b"]
    for root in roots:
        root.mkdir()
        await simulate(SimulationOptions(for_s=1.0, seed=5, root=root), TurnedClock())
    first, second = (only_job(root) for root in roots)
    assert first.name != second.name
    assert contents(first) == contents(second)


async def cancelled(options: SimulationOptions, clock: Clock) -> None:
    """Run until something cancels it, and hold that it stays cancelled."""
    with pytest.raises(asyncio.CancelledError):
        await asyncio.ensure_future(simulate(options, clock))


def count_samples(root: Path) -> int:
    return len(list(root.glob("JOB*/data/aicore*.done")))


def cancel_this_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def test_a_cancelled_run_unloads_its_model(tmp_path: Path) -> None:
    class Watching(SystemClock):
        async def sleep(self, delay_s: float) -> None:
            if count_samples(tmp_path) > 2:
                cancel_this_task()
            await super().sleep(delay_s)

    await cancelled(SimulationOptions(rate=100.0, root=tmp_path), Watching())
    files = contents(only_job(tmp_path))
    calls = api(files[API_LOG])
    assert (calls[0][0], calls[-1][0]) == (0, 1)
    assert done(files[f"{API_LOG}.done"])["file_len"] == str(32 * len(calls))
    data = {name for name in files if "aicore" in name and ".done" not in name}
    assert len(data) == len(executes(files)) > 2
    assert all(done(files[f"{name}.done"])["file_len"] == str(len(files[name])) for name in data)


@pytest.mark.parametrize("sleeps", range(5))
@pytest.mark.parametrize("waits_for", ["the clock", "a write"])
async def test_cancelled_at_any_step_the_job_is_finished(tmp_path: Path, sleeps: int, waits_for: str) -> None:
    class Cancelling(TurnedClock):
        async def sleep(self, delay_s: float) -> None:
            if self.sleeps == sleeps:
                cancel_this_task()
                if waits_for == "a write":
                    return
            await super().sleep(delay_s)

    await cancelled(SimulationOptions(root=tmp_path), Cancelling())
    files = contents(only_job(tmp_path))
    assert api(files[API_LOG])[-1][0] == 1
    assert done(files[f"{API_LOG}.done"])["file_len"] == str(len(files[API_LOG]))


async def test_cancelled_before_the_load_nothing_is_left(tmp_path: Path) -> None:
    task = asyncio.ensure_future(simulate(SimulationOptions(root=tmp_path), TurnedClock()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not contents(tmp_path)


async def test_a_root_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(DaemonError) as caught:
        await simulate(SimulationOptions(for_s=1.0, root=tmp_path / "absent"), TurnedClock())
    assert str(tmp_path / "absent") in str(caught.value)
    assert "--root" in caught.value.hint


class RemovingClock(TurnedClock):
    """Takes the JOB away at the fourth sleep, and cancels the run then when told so."""

    def __init__(self, root: Path, *, cancels: bool) -> None:
        super().__init__()
        self._root = root
        self._cancels = cancels

    async def sleep(self, delay_s: float) -> None:
        if self.sleeps == 3:
            only_job(self._root).rename(self._root.parent / f"{self._root.name}-away")
            if self._cancels:
                cancel_this_task()
        await super().sleep(delay_s)


async def test_a_job_that_disappears_ends_the_run_with_an_error(tmp_path: Path) -> None:
    with pytest.raises(DaemonError, match="cannot write"):
        await simulate(SimulationOptions(root=tmp_path), RemovingClock(tmp_path, cancels=False))


async def test_a_cancelled_run_that_cannot_write_stays_cancelled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await cancelled(SimulationOptions(root=tmp_path), RemovingClock(tmp_path, cancels=True))
    assert "stays unfinished" in caplog.text
