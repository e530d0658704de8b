"""Several pieces of work with one end, and changes that a wall clock dates."""

from __future__ import annotations

import asyncio

import pytest

from profagentd.loop import Moment, until_first


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


@pytest.mark.parametrize(("changed_wall_us", "seen"), [(7_500_000, 48.5), (99_000_000, 50.0)])
def test_a_change_is_dated_by_its_age_and_in_the_future_is_now(changed_wall_us: int, seen: float) -> None:
    assert Moment(monotonic=50.0, wall_us=9_000_000).seen(changed_wall_us) == seen
