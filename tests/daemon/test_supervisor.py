"""Several pieces of work with one end."""

from __future__ import annotations

import asyncio

import pytest

from profagentd.loop import until_first


class Work:
    """Work that goes on until it is cancelled, and needs a moment to end."""

    def __init__(self) -> None:
        self.ended = False

    async def run(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.ended = True


async def returning() -> None:
    await asyncio.sleep(0)


async def failing() -> None:
    await asyncio.sleep(0)
    raise KeyError("it")


async def test_the_first_that_returns_ends_the_others() -> None:
    other = Work()
    await until_first(returning(), other.run())
    assert other.ended


async def test_the_first_that_fails_ends_the_others_and_is_raised() -> None:
    other = Work()
    with pytest.raises(KeyError):
        await until_first(other.run(), failing())
    assert other.ended


async def test_cancelling_the_caller_ends_all() -> None:
    works = [Work(), Work()]
    task = asyncio.ensure_future(until_first(*(work.run() for work in works)))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(work.ended for work in works)


async def test_a_failure_while_being_ended_is_not_raised_over_the_first() -> None:
    async def ending_badly() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("late")

    await until_first(returning(), ending_badly())
