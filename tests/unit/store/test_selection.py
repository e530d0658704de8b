"""Which inferences are chosen, and their records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from profagent.errors import UsageError
from profagent.formats.countermap import COUNTER_NAMES
from profagent.limits import READERS, RECORDS_PER_PAGE
from profagent.store.database import reading, readings
from profagent.store.placed import PagePlan, SpanRow
from profagent.store.queries import Scope, find_session, jobs_of
from profagent.store.selection import ByPosition, Choice, InferenceRow, Selection
from profagent.store.series import JobSeries, RecordSeries, call_series, own_durations, read_series
from tests.unit.store.database import START_US, DatabaseBuilder

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path


EVERYTHING = Choice()


def aicore(selection: Selection) -> ByPosition[Any]:
    return selection.records("aicore")


class Selected:
    """What a selection gives, read at once."""

    def __init__(self, file: Path, choice: Choice, session: int | None) -> None:
        self._about = file, choice, session

    def inferences(self) -> list[InferenceRow]:
        return asyncio.run(self._asked(self._inferences))

    def earliest_us(self) -> float | None:
        return asyncio.run(self._asked(Selection.earliest_us))

    def rows(self, read: Callable[[Selection], ByPosition[Any]]) -> list[Any]:
        async def all_rows(selection: Selection) -> list[Any]:
            found = read(selection)
            return [row for position in range(9) for row in await found.at(position)]

        return asyncio.run(self._asked(all_rows))

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


def test_inferences_of_each_model_are_spread_evenly(builder: DatabaseBuilder, select: Any) -> None:
    session = builder.session()
    job = builder.job(session)
    many, few = builder.model(job, "a"), builder.model(job, "b")
    for pic in range(10):
        builder.inference(session, many, pic, start_us=START_US + pic)
    for pic in (20, 21):
        builder.inference(session, few, pic, start_us=START_US + pic)
    assert _picture_counts(select(Choice(spread=3))) == [0, 3, 6, 20, 21]
    assert _picture_counts(select(Choice(spread=1))) == [0, 20]
    assert len(_picture_counts(select(Choice(spread=99)))) == 12


def test_records_come_by_position_and_in_the_order_of_their_file(builder: DatabaseBuilder, select: Any) -> None:
    session = builder.session()
    model = builder.model(builder.job(session))
    second, first = builder.inference(session, model, 1, start_us=START_US + 9), builder.inference(session, model, 0)
    part = builder.new_part(session, model, "aicore")
    builder.aicore(second, part, [30, 40])
    builder.aicore(first, builder.new_part(session, model, "aicore"), [10, 20], net=2)
    builder.aicore(second, part, [50], net=1, first=2)
    selection = select()
    assert [(row.position, row.duration) for row in selection.rows(aicore)] == [
        (0, 10),
        (0, 20),
        (1, 30),
        (1, 40),
        (1, 50),
    ]
    assert [row.ticks for row in selection.inferences()] == [30, 120]


def test_a_part_of_another_session_that_goes_on_with_the_inference_is_read(
    builder: DatabaseBuilder, select: Any
) -> None:
    first, second = builder.session(), builder.session()
    job = builder.job(first, second)
    model = builder.model(job)
    inference = builder.inference(first, model)
    log = builder.log(job, model, "aicore", "data/aicore.0.yolo.3.0.1.1.0")
    builder.aicore(inference, builder.part(first, log), [10])
    builder.aicore(inference, builder.part(second, log, 1), [20], net=1)
    assert [row.duration for row in select(session=1).rows(aicore)] == [10, 20]
    assert select(session=2).rows(aicore) == []


def test_the_earliest_moment_is_of_any_unit_or_of_the_inference(builder: DatabaseBuilder, select: Any) -> None:
    session = builder.session()
    model = builder.model(builder.job(session))
    inference = builder.inference(session, model, start_us=START_US + 50)
    assert builder.segment(inference, builder.new_part(session, model, "aicpu"), "aicpu", start_us=START_US + 40)
    builder.aicpu(inference, builder.new_part(session, model, "aicpu"), [(45, 60), (20, 30)], [0, 1])
    assert select().earliest_us() == START_US + 20


# Pages of inferences

SPAN = SpanRow(0, 1, 0, 1, "yolo", 0, None, 0, None, None)


@pytest.mark.parametrize(("share", "following"), [(0.7, 60), (1.0, 60), (1.4, 60), (2.0, 30), (0.5, 120), (0.0, 2000)])
def test_a_page_s_size_stays_while_it_is_about_right(share: float, following: int) -> None:
    assert PagePlan([SPAN] * 60, [], []).inferences_next(round(RECORDS_PER_PAGE * share)) == following


# Records as columns, against what the builder wrote

KNOWN = (0.5, 0.4, 0.3, 0.2, 0.1, 0.1, 0.2, 0.3, 1024.0, 2048.0)


@pytest.fixture
async def read(builder: DatabaseBuilder) -> Callable[..., JobSeries]:
    """Close the builder, and read a session's first JOB."""

    async def read_all(session: int | None) -> JobSeries:
        async with readings(builder.close(), READERS) as readers:
            found = await find_session(readers[0], session)
            scope = Scope(found, (await jobs_of(readers[0], found.session))[0])
            return await read_series(readers, scope)

    return lambda session=None: asyncio.run(read_all(session))


def _rows(records: RecordSeries) -> list[tuple[float, ...]]:
    columns = (records.inference, records.layer, records.net, records.duration)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_records_of_both_units_come_with_inference_layer_and_segment(builder: DatabaseBuilder, read: Callable) -> None:
    session = builder.session()
    model = builder.model(builder.job(session))
    late = builder.inference(session, model, 1, start_us=START_US + 9)
    early = builder.inference(session, model, 0)
    part = builder.new_part(session, model, "aicore")
    builder.aicore(late, part, [30, 40])
    builder.aicore(early, builder.new_part(session, model, "aicore"), [10], layers=[None])
    builder.aicore(late, part, [50], net=1, first=2)
    builder.aicpu(late, builder.new_part(session, model, "aicpu"), [(30, 35), (35, 42)], [7, None])
    found = read()
    assert _rows(found.aicore) == [(1, 0, 0, 30), (1, 1, 0, 40), (1, 0, 1, 50), (0, -1, 0, 10)]
    assert _rows(found.aicpu) == [(1, 7, 0, 5), (1, -1, 0, 7)]
    assert found.counters is None


def test_picture_counts_that_begin_anew_are_another_load(builder: DatabaseBuilder, read: Callable) -> None:
    session = builder.session()
    model = builder.model(builder.job(session))
    # The second load goes further than the first: its later files hold nothing of the first.
    for start, (pic, load) in enumerate([(0, 0), (1, 0), (0, 1), (1, 1), (2, 0)]):
        builder.inference(session, model, pic, load=load, start_us=START_US + start)
    builder.inference(session, builder.model(1, "other"), 5)
    assert [(row.model_name, row.load) for row in read().inferences] == [
        ("other", 0),
        *(("yolo", load) for load in (0, 0, 1, 1, 1)),
    ]


def test_records_go_with_their_inference_whichever_session_fetched_their_log(
    builder: DatabaseBuilder, read: Callable
) -> None:
    first, second = builder.session(), builder.session()
    model = builder.model(builder.job(first, second))
    inference = builder.inference(first, model)
    builder.aicpu(inference, builder.new_part(first, model, "aicpu"), [(30, 35)], [7])
    builder.aicore(inference, builder.new_part(second, model, "aicore"), [10])
    assert _rows(read(first).aicore) == [(0, 0, 0, 10)]


def test_an_inference_lasts_from_its_first_begin_to_its_last_end_and_has_its_own_call(
    builder: DatabaseBuilder, read: Callable
) -> None:
    first, second = builder.session(), builder.session()
    job = builder.job(first, second)
    model = builder.model(job)
    both, npu, cpu = (
        builder.inference(first, model, pic, start_us=start_us, end_us=end_us)
        for pic, (start_us, end_us) in enumerate([(START_US + 10, START_US + 30), (None, None), (None, None)])
    )
    for inference in (both, npu):
        builder.aicore(inference, builder.new_part(first, model, "aicore"), [10])
    builder.aicpu(both, builder.new_part(first, model, "aicpu"), [(30, 35), (35, 40)], [7, 8])
    builder.aicpu(cpu, builder.new_part(first, model, "aicpu"), [(60, 65)], [7])
    # The calls came with a later session; another model's do not count.
    log = builder.log(job, model, "acl_api", "data/acl_api.0.yolo.0")
    builder.calls(builder.part(second, log), [(2, 5, 45), (2, None, 66)])
    other = builder.model(job, "other")
    builder.calls(builder.new_part(first, other, "acl_api"), [(2, 59, 66)])
    found = read(first)
    # Of the NPU's part of one nothing is known, so nothing is of the whole.
    assert found.whole.us == pytest.approx([30, np.nan, 5], nan_ok=True)
    assert found.calls.us == pytest.approx([40, np.nan, np.nan], nan_ok=True)


def test_counters_of_a_known_map_come_as_fractions(builder: DatabaseBuilder, read: Callable) -> None:
    session = builder.session(counter_map="some")
    model = builder.model(builder.job(session))
    unknown = (None, *KNOWN[1:])
    inference = builder.inference(session, model)
    builder.aicore(inference, builder.new_part(session, model, "aicore"), [10, 20], counters=[KNOWN, unknown])
    counters = read().counters
    assert _rows(counters.records) == [(0, 0, 0, 10), (0, 1, 0, 20)]
    known = np.delete(counters.values, COUNTER_NAMES.index("scalar"), axis=1)
    np.testing.assert_array_equal(known, [KNOWN, (np.nan, *KNOWN[1:])])


async def test_calls_have_their_durations_by_function(builder: DatabaseBuilder) -> None:
    session = builder.session()
    job = builder.job(session)
    log = builder.log(job, builder.model(job), "acl_api", "data/acl_api.0.yolo.0")
    builder.calls(builder.part(session, log), [(2, 0, 50), (1, 60, 61), (2, None, 90), (2, 100, 170), (99, None, 5)])
    async with reading(builder.close()) as connection:
        found = await find_session(connection)
        calls = list(await call_series(connection, Scope(found, (await jobs_of(connection, found.session))[0])))
    assert [(each.key, each.duration.tolist(), each.own.tolist(), each.number) for each in calls] == [
        (("svp_acl_mdl_unload", "model"), [1], [1], 1),
        (("svp_acl_mdl_execute", "model"), [50, 70], [50, 70], 3),
        (("unknown(99)", "N/A"), [], [], 1),
    ]


@pytest.mark.parametrize(
    ("calls", "own"),
    [
        # One call has two, of which one has another; a second thread's at the same time is nobody's.
        ([(1, 0, 100), (1, 10, 40), (1, 20, 30), (1, 50, 60), (2, 15, 25)], [60, 20, 10, 10, 10]),
        # One after the other, and one that begins before the other ends: neither lies in the other.
        ([(1, 0, 10), (1, 10, 20), (1, 15, 30)], [10, 10, 15]),
        # Of one begin and of one end, and in any order of the file.
        ([(1, 5, 9), (1, 0, 9), (1, 0, 5)], [4, 0, 5]),
        ([], []),
    ],
)
def test_a_call_s_own_time_is_without_the_calls_in_it(calls: list[tuple[int, int, int]], own: list[int]) -> None:
    columns = np.array(calls, np.int64).reshape(-1, 3).T
    assert own_durations(*columns).tolist() == own
