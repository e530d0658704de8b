"""Boards that wait for their bytes to become durable share one call."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from profagent.errors import StoreError
from profagent.store.workspace import SharedSync

FOLDER = Path("/workspace")


class Disk:
    """Calls that end when they are let go; `fails` names those that do not end well."""

    def __init__(self, *fails: int) -> None:
        self.calls = 0
        self._fails = fails
        self._begun = threading.Semaphore(0)
        self._allowed = threading.Semaphore(0)

    def sync(self, folder: Path) -> None:
        assert folder == FOLDER
        self.calls += 1
        number = self.calls
        self._begun.release()
        self._allowed.acquire()
        if number in self._fails:
            raise StoreError("the disk is broken", hint="mend it")

    def let_go(self, calls: int) -> None:
        self._allowed.release(calls)

    async def begun(self) -> None:
        """Wait until one more call has begun."""
        await asyncio.to_thread(self._begun.acquire)


async def test_those_who_wait_share_the_next_call_and_not_the_one_that_runs() -> None:
    disk = Disk()
    shared = SharedSync(FOLDER, sync=disk.sync)
    first = asyncio.create_task(shared.sync())
    await disk.begun()
    others = [asyncio.create_task(shared.sync()) for _ in range(5)]
    disk.let_go(1)
    await first
    await disk.begun()
    assert not any(other.done() for other in others)
    disk.let_go(1)
    await asyncio.gather(*others)
    assert disk.calls == 2


async def test_a_failure_is_that_of_all_who_share_it_and_of_no_other() -> None:
    disk = Disk(2)
    shared = SharedSync(FOLDER, sync=disk.sync)
    first = asyncio.create_task(shared.sync())
    await disk.begun()
    others = [asyncio.create_task(shared.sync()) for _ in range(3)]
    disk.let_go(3)
    await first
    failed = await asyncio.gather(*others, return_exceptions=True)
    assert [type(each) for each in failed] == [StoreError] * 3
    await shared.sync()


async def test_a_cancellation_waits_for_the_call_and_spoils_it_for_nobody() -> None:
    disk = Disk()
    shared = SharedSync(FOLDER, sync=disk.sync)
    leaving, staying = (asyncio.create_task(shared.sync()) for _ in range(2))
    await disk.begun()
    leaving.cancel()
    await asyncio.sleep(0)
    assert not leaving.done()
    disk.let_go(1)
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await staying
    assert disk.calls == 1
