"""Records as columns, against what the builder wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
import pytest

from profagent.store.database import reading, readings
from profagent.store.queries import Scope, find_session, jobs_of
from profagent.store.series import READERS, JobSeries, RecordSeries, call_series, read_series
from tests.unit.store.database import START_US, DatabaseBuilder

KNOWN = (0.5, 0.4, 0.3, 0.2, 0.1, 0.1, 0.2, 0.3, 1024.0, 2048.0)


@pytest.fixture
async def read(builder: DatabaseBuilder) -> Callable[..., JobSeries]:
    """Close the builder, and read a session's first JOB."""

    async def read_all(session: int | None, **options: bool) -> JobSeries:
        async with readings(builder.close(), READERS) as readers:
            found = await find_session(readers[0], session)
            scope = Scope(found, (await jobs_of(readers[0], found.session))[0])
            return await read_series(readers, scope, **options)

    return lambda session=None, **options: asyncio.run(read_all(session, **options))


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


def test_without_layers_an_aicore_segment_is_one_row(builder: DatabaseBuilder, read: Callable) -> None:
    session = builder.session()
    model = builder.model(builder.job(session))
    part = builder.new_part(session, model, "aicore")
    for pic, start_us in ((0, START_US + 9), (1, START_US)):
        inference = builder.inference(session, model, pic, start_us=start_us)
        builder.aicore(inference, part, [30 + pic, 40], first=4 * pic)
        builder.aicore(inference, part, [50 + pic], net=1, first=4 * pic + 2)
        builder.aicpu(inference, builder.new_part(session, model, "aicpu"), [(30, 35)], [7])
    found = read(has_layers=False)
    assert _rows(found.aicore) == [(1, -1, 0, 70), (1, -1, 1, 50), (0, -1, 0, 71), (0, -1, 1, 51)]
    assert _rows(found.aicpu) == [(1, 7, 0, 5), (0, 7, 0, 5)]


def test_counters_of_a_known_map_come_as_fractions(builder: DatabaseBuilder, read: Callable) -> None:
    session = builder.session(counter_map="some")
    model = builder.model(builder.job(session))
    unknown = (None, *KNOWN[1:])
    inference = builder.inference(session, model)
    builder.aicore(inference, builder.new_part(session, model, "aicore"), [10, 20], counters=[KNOWN, unknown])
    counters = read().counters
    assert _rows(counters.records) == [(0, 0, 0, 10), (0, 1, 0, 20)]
    np.testing.assert_array_equal(counters.values, [KNOWN, (np.nan, *KNOWN[1:])])


async def test_calls_have_their_durations_by_function(builder: DatabaseBuilder) -> None:
    session = builder.session()
    job = builder.job(session)
    log = builder.log(job, builder.model(job), "acl_api", "data/acl_api.0.yolo.0")
    builder.calls(builder.part(session, log), [(2, 0, 50), (1, 60, 61), (2, None, 90), (2, 100, 170), (99, None, 5)])
    async with reading(builder.close()) as connection:
        found = await find_session(connection)
        calls = list(await call_series(connection, Scope(found, (await jobs_of(connection, found.session))[0])))
    assert [(name, kind, durations.tolist(), count) for (name, kind), durations, count in calls] == [
        ("svp_acl_mdl_unload", "model", [1], 1),
        ("svp_acl_mdl_execute", "model", [50, 70], 3),
        ("unknown(99)", "N/A", [], 1),
    ]
