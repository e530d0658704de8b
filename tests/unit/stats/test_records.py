"""The records of a JOB as figures are made of them, against what the builder wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest

from profagent.formats.countermap import COUNTER_NAMES, MAPPED_NAMES
from profagent.limits import READERS
from profagent.stats.records import calls_by_function, own_durations, read_job
from profagent.store.database import reading, readings
from profagent.store.queries import Scope, find_session, jobs_of
from tests.unit.store.database import START_US, DatabaseBuilder

if TYPE_CHECKING:
    from profagent.stats.figures import JobRecords
    from profagent.store.columns import RecordTable

KNOWN = (0.5, 0.4, 0.3, 0.2, 0.1, 0.1, 0.2, 0.3, 1024.0, 2048.0)


@pytest.fixture
async def read(builder: DatabaseBuilder) -> Callable[..., JobRecords]:
    """Close the builder, and read a session's first JOB."""

    async def read_all(session: int | None) -> JobRecords:
        async with readings(builder.close(), READERS) as readers:
            found = await find_session(readers[0], session)
            scope = Scope(found, (await jobs_of(readers[0], found.session))[0])
            return await read_job(readers, scope, in_us=True)

    return lambda session=None: asyncio.run(read_all(session))


def _rows(records: RecordTable) -> list[tuple[float, ...]]:
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
    assert _rows(found.aicore) == [(0, -1, 0, 10), (1, 0, 0, 30), (1, 1, 0, 40), (1, 0, 1, 50)]
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
    known = counters.values[:, [COUNTER_NAMES.index(name) for name in MAPPED_NAMES]]
    np.testing.assert_array_equal(known, [KNOWN, (np.nan, *KNOWN[1:])])


async def test_calls_have_their_durations_by_function(builder: DatabaseBuilder) -> None:
    session = builder.session()
    job = builder.job(session)
    log = builder.log(job, builder.model(job), "acl_api", "data/acl_api.0.yolo.0")
    builder.calls(builder.part(session, log), [(2, 0, 50), (1, 60, 61), (2, None, 90), (2, 100, 170), (99, None, 5)])
    async with reading(builder.close()) as connection:
        found = await find_session(connection)
        calls = list(await calls_by_function(connection, Scope(found, (await jobs_of(connection, found.session))[0])))
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
