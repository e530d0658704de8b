"""Readers of a JOB's records and API calls, for figures over all of them."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.formats.countermap import COUNTER_NAMES, bound_in
from profagent.formats.inference_times import (
    UNUSED,
    Calls,
    Spans,
    whole_spans,
)
from profagent.formats.names import LogKind
from profagent.formats.records import ticks_to_us
from profagent.limits import SAMPLED_FILES, SAMPLED_RECORDS
from profagent.stats.figures import CounterSample, InferenceOf, JobRecords
from profagent.store.calls import CallNames, CallTable, call_tables
from profagent.store.columns import TIMES, UNITS, RecordTable, Segments, chunks, sample
from profagent.store.database import KNOWN, fetched
from profagent.store.queries import layers_of
from profagent.store.sessions import require_records

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncGenerator, Sequence

    from numpy.typing import NDArray

    from profagent.store.columns import RecordQuery
    from profagent.store.database import Row, Running
    from profagent.store.queries import Scope

_INFERENCES = f"""
SELECT inference, m.model, m.name, device_id, batch_num, input_pic_num, current_pic_count, start_us, end_us
FROM inference i JOIN model m USING (model) WHERE i.session = :session AND m.job = :job AND {KNOWN}
ORDER BY m.name, m.model, device_id, start_us IS NULL, start_us, load, current_pic_count, inference
"""  # noqa: S608 - a condition of ours


class ApiCalls(NamedTuple):
    """Calls of one function of the runtime: the key is its name and type, `number` counts all of its calls.

    `duration` and `own` are in µs and cover only calls with a known begin; `own` excludes the calls inside a call.
    """

    key: tuple[str, str]
    number: int
    duration: NDArray[np.float64]
    own: NDArray[np.float64]


async def read_job(readers: Sequence[Running], scope: Scope, *, in_us: bool) -> JobRecords:
    """Return the records of a JOB's inferences whose figures are final, and the layers of its models.

    Durations on the NPU are in µs if the length of a tick is known, else in ticks. Several `readers` share the work:
    SQLite lets the threads of a process read in parallel.
    """
    connection = readers[0]
    await require_records(connection, scope.session.session)
    named = {"session": scope.session.session, "job": scope.job.job, "clockless": scope.job.frequency_mhz is None}
    inferences, numbers, npu = _inferences(await fetched(connection, _INFERENCES, named))
    segments = await connection.run(partial(Segments.of, inferences=numbers))
    whole = whole_spans([_where_used(npu, segments), segments.on_cpu(len(inferences))])
    counters = None
    if scope.session.counter_map is not None:
        counters = await connection.run(partial(_counters, segments=segments, inferences=inferences))
    aicore, aicpu = [await _records(readers, kind, segments) for kind in UNITS]
    frequency_mhz = scope.job.frequency_mhz
    return JobRecords(
        inferences,
        numbers,
        aicore,
        aicpu,
        counters,
        whole,
        await connection.run(partial(_calls, scope.job.job, inferences, whole)),
        {model: await layers_of(connection, model) for model in {row.model for row in inferences}},
        ticks_to_us(1, frequency_mhz) if in_us and frequency_mhz else None,
        bound_in(scope.job.family),
    )


async def read_jobs(
    readers: Sequence[Running], scopes: Sequence[Scope], *, in_us: bool
) -> AsyncGenerator[tuple[Scope, JobRecords], None]:
    """Yield each JOB with its records, as `read_job` returns them; the next JOB is read ahead meanwhile.

    A caller that stops before the last JOB must close the iterator.
    """
    ahead: asyncio.Task[JobRecords] | None = None
    try:
        for scope, following in zip(scopes, [*scopes[1:], None], strict=False):
            job = await (read_job(readers, scope, in_us=in_us) if ahead is None else ahead)
            ahead = following and asyncio.create_task(read_job(readers, following, in_us=in_us))
            yield scope, job
    finally:
        if ahead is not None:
            ahead.cancel()
            await asyncio.wait([ahead])


async def calls_by_function(connection: Running, scope: Scope) -> list[ApiCalls]:
    """Return the calls of a JOB by function, in the order of the functions' numbers."""
    names = await connection.run(CallNames.of)
    calls = await connection.run(partial(_calls_of, session=scope.session.session, job=scope.job.job))
    known = calls.at(calls.begin_us != 0)
    durations = (known.end_us - known.begin_us).astype(np.float64)
    own = own_durations(known.pid << 32 | known.tid, known.begin_us, known.end_us)
    return [
        ApiCalls(names[each], int((calls.api == each).sum()), *of_call)
        for each in np.unique(calls.api).tolist()
        for of_call in [(durations[known.api == each], own[known.api == each])]
    ]


def own_durations(
    threads: NDArray[np.int64], begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the duration of each call without the calls of the same thread that lie inside it."""
    own = (ends - begins).astype(np.float64)
    for thread in np.unique(threads):
        places = np.flatnonzero(threads == thread)
        places = places[np.lexsort((-ends[places], begins[places]))]
        # A call lies inside another only if a call that began earlier has not ended yet.
        is_inside = np.append(False, begins[places][1:] < np.maximum.accumulate(ends[places])[:-1])
        holders: list[int] = []
        for place in places[is_inside | np.append(is_inside[1:], False)].tolist():
            while holders and ends[holders[-1]] < ends[place]:
                holders.pop()
            if holders:
                own[holders[-1]] -= ends[place] - begins[place]
            holders.append(place)
    return own


def _inferences(rows: Sequence[Row]) -> tuple[list[InferenceOf], list[int], Spans]:
    found: list[InferenceOf] = []
    load, before, count_before = 0, None, -1
    for _, model, name, device, batch, pictures, stored, *_ in rows:
        count = int(stored)
        load = (load + (count <= count_before)) if before == (model, device) else 0
        before, count_before = (model, device), count
        found.append(InferenceOf(model, name, device, batch, pictures, load, count))
    begin, end = np.array([row[-2:] for row in rows], np.float64).reshape(-1, 2).T
    return found, [row[0] for row in rows], Spans(begin, end)


def _where_used(npu: Spans, segments: Segments) -> Spans:
    is_used = ~np.isnan(npu.begin_us)
    is_used[segments.of_unit(LogKind.AICORE).inference] = True
    return Spans(*(np.where(is_used, each, none) for each, none in zip(npu, UNUSED, strict=True)))


async def _records(readers: Sequence[Running], kind: LogKind, segments: Segments) -> RecordTable:
    names = ("layer_index", *TIMES[kind])
    queries = await readers[0].run(lambda connection: [*chunks(connection, segments, kind, names)])
    shares = [[*share] for share in np.array_split(np.arange(len(queries)), len(readers))]
    parts = zip(readers, shares, strict=True)
    found = await asyncio.gather(*(reader.run(partial(_read, [queries[n] for n in share])) for reader, share in parts))
    return RecordTable.joined([table for tables in found for table in tables], kind, segments.of_unit(kind))


def _read(queries: Sequence[RecordQuery], connection: sqlite3.Connection) -> list[RecordTable]:
    return [query.read(connection).narrowed() for query in queries]


def _counters(
    connection: sqlite3.Connection, *, segments: Segments, inferences: Sequence[InferenceOf]
) -> CounterSample | None:
    """Return records of SAMPLED_FILES files of each model with their counters; None if there are none."""
    ours = segments.of_unit(LogKind.AICORE)
    models = np.array([each.model for each in inferences], np.int64)[ours.inference]
    logs = [_sampled_files(np.unique(ours.log[models == model])) for model in np.unique(models)]
    if not logs:
        return None
    some = ours.at(np.isin(ours.log, np.concatenate(logs)))
    table = sample(connection, some, LogKind.AICORE, ("layer_index", "ticks", *COUNTER_NAMES), SAMPLED_RECORDS)
    return CounterSample(table, np.stack([table.columns[name] for name in COUNTER_NAMES], axis=1))


def _calls(job: int, inferences: Sequence[InferenceOf], whole: Spans, connection: sqlite3.Connection) -> Spans:
    """Return the call of each inference, matched within its model, whichever session fetched the call.

    A call is recorded after the inference that it ran.
    """
    found = Spans(*np.full((2, len(inferences)), np.nan))
    models = np.array([each.model for each in inferences], np.int64)
    calls = _calls_of(connection, job=job)
    for model in np.unique(calls.model):
        called, ours = calls.at(calls.model == model), models == model
        spans = Calls(called.api, called.begin_us, called.end_us).spans(whole.at(ours))
        for column, known in zip(found, spans, strict=True):
            column[ours] = known
    return found


def _calls_of(connection: sqlite3.Connection, *, job: int, session: int | None = None) -> CallTable:
    return CallTable.joined(call_tables(connection, session=session, job=job))


def _sampled_files(logs: NDArray[np.int64]) -> NDArray[np.int64]:
    places = np.arange(len(logs)) * SAMPLED_FILES // len(logs)
    return logs[np.diff(places, prepend=-1) > 0]
