"""Which inferences are chosen, and their records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from profagent.errors import UsageError
from profagent.store.database import reading
from profagent.store.queries import Scope, find_session, jobs_of
from profagent.store.selection import Choice, InferenceRow, Selection
from tests.unit.store.database import START_US, DatabaseBuilder

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path


EVERYTHING = Choice()


class Selected:
    """What a selection gives, read at once."""

    def __init__(self, file: Path, choice: Choice, session: int | None) -> None:
        self._about = file, choice, session

    def inferences(self) -> list[InferenceRow]:
        return asyncio.run(self._asked(self._inferences))

    def earliest_us(self) -> float | None:
        return asyncio.run(self._asked(Selection.earliest_us))

    async def _inferences(self, selection: Selection) -> list[InferenceRow]:
        return [row async for row in selection.inferences()]

    async def _asked(self, ask: Callable[[Selection], Awaitable[Any]]) -> Any:
        file, choice, session = self._about
        async with reading(file) as connection:
            found = await find_session(connection, session)
            scope = Scope(found, (await jobs_of(connection, found.session))[0])
            return await ask(await Selection.of(connection, scope, choice))


@pytest.fixture
def select(builder: DatabaseBuilder) -> Any:
    """Close the builder, and choose."""
    closed: list[Path] = []

    def opened(choice: Choice = EVERYTHING, session: int | None = None) -> Selected:
        if not closed:
            closed.append(builder.close())
        return Selected(closed[0], choice, session)

    return opened


def _picture_counts(selection: Selected) -> list[int]:
    return [row.current_pic_count for row in selection.inferences()]


def test_inferences_are_numbered_by_start_and_unknown_starts_come_last(builder: DatabaseBuilder, select: Any) -> None:
    session = builder.session()
    model = builder.model(builder.job(session))
    for pic, start in ((9, None), (2, 30), (1, 50), (5, None), (0, 70)):
        builder.inference(session, model, pic, start_us=None if start is None else START_US + start)
    rows = select().inferences()
    assert [(row.iter_id, row.current_pic_count) for row in rows] == [(0, 2), (1, 1), (2, 0), (3, 5), (4, 9)]


def test_an_inference_is_chosen_by_its_picture_count_in_every_load(builder: DatabaseBuilder, select: Any) -> None:
    session = builder.session()
    model = builder.model(builder.job(session))
    for load, pic in ((0, 0), (0, 7), (1, 7)):
        builder.inference(session, model, pic, load=load, start_us=START_US + 10 * load + pic)
    assert [row.load for row in select(Choice(inference=7)).inferences()] == [0, 1]
    assert [row.load for row in select(Choice(inference=7, last=1)).inferences()] == [1]
    assert _picture_counts(select(Choice(inference=8))) == []


def test_a_picture_count_beyond_63_bits_is_found_and_is_a_number(builder: DatabaseBuilder, select: Any) -> None:
    session = builder.session()
    model = builder.model(builder.job(session))
    builder.inference(session, model, str(2**64 - 16))
    builder.inference(session, model, 3)
    assert _picture_counts(select(Choice(inference=2**64 - 16))) == [2**64 - 16]


@pytest.mark.parametrize("count", [-1, 2**64])
def test_a_picture_count_that_cannot_be_is_refused(builder: DatabaseBuilder, select: Any, count: Any) -> None:
    builder.job(builder.session())
    with pytest.raises(UsageError):
        select(Choice(inference=count)).inferences()


def test_the_earliest_moment_is_of_any_unit_or_of_the_inference(builder: DatabaseBuilder, select: Any) -> None:
    session = builder.session()
    model = builder.model(builder.job(session))
    inference = builder.inference(session, model, start_us=START_US + 50)
    assert builder.segment(inference, builder.new_part(session, model, "aicpu"), "aicpu", start_us=START_US + 40)
    builder.aicpu(inference, builder.new_part(session, model, "aicpu"), [(45, 60), (20, 30)], [0, 1])
    assert select().earliest_us() == START_US + 20
