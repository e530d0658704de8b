"""Completeness of the samples of models, and what the runtime should have recorded and lost.

A sample belongs to the session that first had more of it than its name, and with it what was due since the sample
before, whoever has that one. Sessions that follow each other over a JOB so divide it, and what came while nobody
recorded belongs to the session that copied it later. Figures are computed on demand; those that are known when a
session or a JOB ends are stored in the table `sampling`, and no later session changes them.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent import ledger
from profagent.formats.inference_times import EXECUTE, EXECUTE_ASYNC
from profagent.formats.sampling import (
    FROM_FILE,
    LOADS,
    MISMATCH,
    NAMELESS_LOSS,
    NOT_LISTED,
    SIZES,
    SampleCounts,
    counts_of_loads,
    figures_of,
    gap_of,
    infer_interval,
    sum_of,
)
from profagent.ledger import RING_CALLS, ring_entry
from profagent.limits import LARGEST_INTEGER, MOST_SAMPLING_NOTES, NAMED_PICTURES
from profagent.store.calls import CallTable, call_tables
from profagent.store.database import fetched, fetched_one, pages
from profagent.store.incidents import recorder_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator

    import aiosqlite
    from numpy.typing import NDArray

    from profagent.ledger import Entry
    from profagent.store.database import Running

_OF_SESSION = (
    "SELECT job, model FROM session_job JOIN model m USING (job) WHERE session = ?1 AND (?2 IS NULL OR job = ?2) AND"
    " (EXISTS (SELECT 1 FROM sampling g WHERE g.model = m.model AND g.session = ?1)"
    " OR EXISTS (SELECT 1 FROM sample x WHERE x.model = m.model AND x.session = ?1)) ORDER BY model"
)
_STORED = (
    "SELECT interval, interval_from, sampled, due, late, never_came, why, passed_over FROM sampling"
    " WHERE model = ? AND session = ?"
)
_SAMPLES = "SELECT current_pic_count, ifnull(session, 0), kept, input_pic_num FROM sample WHERE model = ? ORDER BY 1"
_IS_LOADED_AGAIN = "SELECT EXISTS (SELECT 1 FROM inference WHERE model = ? AND load > 0)"
_UNPLACED = (
    "SELECT EXISTS (SELECT 1 FROM sample s WHERE model = ? AND NOT EXISTS"
    " (SELECT 1 FROM inference i WHERE i.model = s.model AND i.current_pic_count = s.current_pic_count))"
)
_TIMES = (
    "SELECT current_pic_count, min(start_us), min(session) FROM inference WHERE model = ? AND current_pic_count <= ?"
    " GROUP BY current_pic_count, load ORDER BY current_pic_count, load"
)
# Distances between samples mean nothing while a name may still come, or where a sample was lost without its name.
_IS_LISTED = "SELECT caught_up, interval FROM job WHERE job = ?"
_HAS_NAMELESS_LOSS = (
    "SELECT EXISTS (SELECT 1 FROM ledger_entry e LEFT JOIN kept_loss k USING (entry)"
    " WHERE e.session = ?2 AND e.log IS NULL AND e.grade = 'loss' AND (e.job = ?1 OR e.job IS NULL"
    " AND (k.job_name IS NULL OR k.job_name = (SELECT name FROM job WHERE job = ?1))))"
)
_CALLS_OF = "SELECT log FROM log WHERE model = ? AND kind = 'acl_api'"
_ENDS = (
    "SELECT current_pic_count, max(end_us) FROM inference WHERE model = ? AND current_pic_count <= ?"
    " AND end_us IS NOT NULL GROUP BY 1"
)
_FLUSH_TIMES = "SELECT end_us FROM inference WHERE model = ? AND end_us IS NOT NULL"


class ModelSampling(NamedTuple):
    """Figures of a model's samples in a session; `notes` are entries for the ledger.

    `pictures` is the number of pictures of each inference, 0 where they differ.
    """

    figures: SampleCounts
    pictures: int
    passed_over: int
    notes: tuple[Entry, ...] = ()


class _StoredSamples(NamedTuple):
    """Samples of a model by load and rising picture count; a session is 0 where nobody has more than the name.

    `loads` is None where loads cannot be told apart, and then the order is by picture count alone.
    """

    loads: NDArray[np.int64] | None
    counts: NDArray[np.int64]
    sessions: NDArray[np.int64]
    passed_over: Counter[int]
    pictures: int

    @property
    def has_several_loads(self) -> bool:
        return self.loads is not None and len(self.loads) > 0 and bool(self.loads[-1])


class _Gaps(NamedTuple):
    """Distances between neighbouring samples of a load, in inferences; `later` is the place of the second one.

    `has_calls` is True if the distances count recorded calls.
    """

    later: NDArray[np.int64]
    inferences: NDArray[np.int64]
    has_calls: bool = False

    def of(self, samples: _StoredSamples, session: int) -> _Gaps:
        """Return the distances whose second sample belongs to the session."""
        chosen = samples.sessions[self.later] == session
        return self._replace(later=self.later[chosen], inferences=self.inferences[chosen])

    @property
    def counted(self) -> dict[int, int]:
        return Counter(self.inferences.tolist())


async def sampling_of(connection: Running, session: int, job: int | None = None) -> dict[str, Any]:
    """Return how completely a session's JOBs, or one of them, were sampled during the capture, and what it kept."""
    (keeping,) = await fetched_one(connection, "SELECT keeping FROM session WHERE session = ?", (session,))
    found: list[ModelSampling] = []
    for of, model in await fetched(connection, _OF_SESSION, (session, job)):
        rows = await fetched(connection, _STORED, (model, session))
        # Stored figures are used as they are: they hold also when the records were deleted since.
        if rows:
            found.append(ModelSampling(SampleCounts._make(rows[0][:7]), 0, rows[0][7]))
        else:
            found.append((await _worked_out(connection, of, model))[session])
    figures = sum_of(each.figures for each in found)
    passed_over = sum(each.passed_over for each in found)
    return {
        **figures.fields(),
        "keeping": keeping,
        "kept": figures.sampled - passed_over,
        "passed_over": passed_over,
        "thinned": passed_over if await recorder_of(connection, session) else 0,
    }


async def samplings_of(connection: Running, job: int) -> dict[tuple[int, int], ModelSampling]:
    """Return by model and session how completely a JOB was sampled, computed from every sample."""
    models = await fetched(
        connection,
        "SELECT model FROM model m WHERE job = ? AND EXISTS (SELECT 1 FROM sample s WHERE s.model = m.model)",
        (job,),
    )
    return {
        (model, session): found
        for (model,) in models
        for session, found in (await _worked_out(connection, job, model)).items()
    }


async def _worked_out(connection: Running, job: int, model: int) -> dict[int, ModelSampling]:
    samples = await _samples(connection, model)
    is_listed, acl_interval = await fetched_one(connection, _IS_LISTED, (job,))
    gaps = await _gaps(connection, model, samples, acl_interval)
    # Read at the first session that needs it: most models need no note.
    name = ""
    found: dict[int, ModelSampling] = {}
    # Session 0 stands for samples known by name only: they belong to nobody yet.
    for session in set(samples.sessions.tolist()) - {0}:
        (has_loss,) = await fetched_one(connection, _HAS_NAMELESS_LOSS, (job, session))
        why = NAMELESS_LOSS if has_loss else None if is_listed else NOT_LISTED
        own = None if gaps is None else gaps.of(samples, session)
        figures = figures_of(
            int((samples.sessions == session).sum()),
            None if own is None else own.counted,
            acl_interval,
            shown_by=None if gaps is None else gaps.counted,
            why=why or (_why_no_gaps(samples) if gaps is None else None),
            has_calls=gaps is not None and gaps.has_calls,
        )
        if not name:
            query = "SELECT name || '.' || model_id FROM model WHERE model = ?"
            (name,) = await fetched_one(connection, query, (model,))
        notes = () if own is None else tuple(_notes(samples, own, figures, name))
        found[session] = ModelSampling(figures, samples.pictures, samples.passed_over[session], notes)
    return found


def _why_no_gaps(samples: _StoredSamples) -> str:
    return LOADS if samples.loads is None else SIZES


async def _samples(connection: aiosqlite.Connection, model: int) -> _StoredSamples:
    rows = await fetched(connection, _SAMPLES, (model,))
    counts, sessions, is_copied, sizes = np.array(rows, np.int64).reshape(-1, 4).T
    passed_over = Counter(sessions[is_copied == 0].tolist())
    pictures = int(sizes[0]) if len(sizes) and (sizes == sizes[0]).all() else 0
    if not (await fetched_one(connection, _IS_LOADED_AGAIN, (model,)))[0]:
        return _StoredSamples(np.zeros(len(counts), np.int64), counts, sessions, passed_over, pictures)
    # A sample without rows, as one that was skipped on purpose, cannot be assigned to a load.
    if not (await fetched_one(connection, _UNPLACED, (model,)))[0]:
        times: dict[int, list[int | None]] = {}
        owners: dict[int, list[int]] = {}
        for count, start_us, session in await fetched(connection, _TIMES, (model, LARGEST_INTEGER)):
            times.setdefault(count, []).append(start_us)
            owners.setdefault(count, []).append(session)
        loads = counts_of_loads(times)
        if loads is not None:
            # Inferences in one file have rising loads, so the owners are taken in their order.
            placed = [(load, count, owners[count].pop(0)) for load, each in enumerate(loads) for count in each]
            numbers, counts, sessions = np.array(placed, np.int64).reshape(-1, 3).T
            return _StoredSamples(numbers, counts, sessions, passed_over, pictures)
    return _StoredSamples(None, counts, sessions, passed_over, pictures)


async def _gaps(connection: Running, model: int, samples: _StoredSamples, acl_interval: int | None) -> _Gaps | None:
    """Return the distances between samples; None where they cannot be expressed in inferences.

    If the program may start and stop the recording by itself, they count the recorded calls in between.
    """
    if samples.loads is None:
        return None
    later = np.flatnonzero(np.diff(samples.loads) == 0) + 1
    distances = samples.counts[later] - samples.counts[later - 1]
    if not len(later):
        return _Gaps(later, distances)
    # Picture counts can be converted to inferences only if all inferences have the same number of pictures.
    if not samples.pictures or (distances % samples.pictures).any():
        return None
    gaps = _Gaps(later, distances // samples.pictures)
    # Without a file, an inferred interval of 1 may mean that the program itself starts and stops the recording.
    is_by_program = acl_interval is None and infer_interval(gaps.counted) == 1
    if not is_by_program or samples.has_several_loads or gaps.inferences.max() == 1:
        return gaps
    recorded = await _recorded_between(connection, model, samples, gaps)
    return gaps if recorded is None else _Gaps(later, recorded, has_calls=True)


async def _recorded_between(
    connection: Running, model: int, samples: _StoredSamples, gaps: _Gaps
) -> NDArray[np.int64] | None:
    """Return for each distance how many inferences ran while the program recorded; None if unknown.

    The runtime records a call only while recording is on, and writes the calls since the last sample with each sample.
    """
    logs = await fetched(connection, _CALLS_OF, (model,))
    if len(logs) != 1:
        return None
    calls = await connection.run(partial(_calls_of, *logs[0]))
    ends: dict[int, int] = dict(await fetched(connection, _ENDS, (model, LARGEST_INTEGER)))
    times = np.array([ends.get(count, np.nan) for count in samples.counts.tolist()], np.float64)
    long = np.flatnonzero(gaps.inferences > 1)
    until, since = times[gaps.later[long]], times[gaps.later[long] - 1]
    if np.isnan(until).any() or np.isnan(since).any():
        return None
    every = _ends(calls)
    # A full ring has lost calls, so counting them would miss inferences.
    if (np.searchsorted(every, until, "right") - np.searchsorted(every, since, "right") >= RING_CALLS).any():
        return None
    executes = _ends(calls.at(np.isin(calls.api, (EXECUTE, EXECUTE_ASYNC))))
    between = np.searchsorted(executes, until, "right") - np.searchsorted(executes, since, "right")
    recorded = gaps.inferences.copy()
    recorded[long] = np.clip(between, 1, gaps.inferences[long])
    return recorded


async def full_rings(connection: Running, job: int) -> dict[int, Entry]:
    """Return by acl_api log the entry for a ring that was full: so many calls between two known flushes."""
    found: dict[int, Entry] = {}
    logs = await fetched(connection, "SELECT log, model FROM log WHERE job = ? AND kind = 'acl_api'", (job,))
    for log, model in logs:
        passed = await fetched(connection, "SELECT 1 FROM sample WHERE model = ? AND NOT kept LIMIT 1", (model,))
        # The times of flushes for skipped samples are unknown, and a distance over them would count too many calls.
        if not passed:
            ends = _ends(await connection.run(partial(_calls_of, log)))
            flushes = await _sorted(connection, _FLUSH_TIMES, model)
            if (calls := most_calls_between(ends, flushes)) >= RING_CALLS:
                found[log] = ring_entry(calls)
    return found


def _calls_of(log: int, connection: sqlite3.Connection) -> CallTable:
    return CallTable.joined(call_tables(connection, log=log))


def _ends(calls: CallTable) -> NDArray[np.float64]:
    return np.sort(calls.end_us.astype(np.float64))


def most_calls_between(call_ends: NDArray[np.float64], flushes: NDArray[np.float64]) -> int:
    """Return the largest number of calls between two neighbouring flushes; both are sorted times in µs.

    The runtime flushes at each sampled inference and at the unload; a call belongs to the first flush after it.
    """
    if not len(call_ends):
        return 0
    return int(np.bincount(np.searchsorted(flushes, call_ends)).max())


async def _sorted(connection: aiosqlite.Connection, sql: str, number: int) -> NDArray[np.float64]:
    times = [page async for page in pages(connection, sql, (number,))]
    return np.sort(np.concatenate([np.empty(0), *(np.array(page, np.float64)[:, 0] for page in times)]))


def _notes(samples: _StoredSamples, gaps: _Gaps, figures: SampleCounts, model: str) -> Iterator[Entry]:
    if figures.due is not None and figures.interval is not None and (figures.late or figures.never_came):
        yield from _of_gaps(samples, gaps, figures, model)
    elif figures.origin == FROM_FILE and figures.why is not None and figures.why.startswith(MISMATCH):
        detail = f"{model}: its picture counts do not fit the interval {figures.interval} of its acl.json"
        yield ledger.entry(ledger.INTERVAL_MISMATCH, detail)


def _of_gaps(samples: _StoredSamples, gaps: _Gaps, figures: SampleCounts, model: str) -> Iterator[Entry]:
    assert figures.interval is not None, "without an interval nothing is late"
    late = missing = missing_named = 0
    for name, count, before, inferences in _odd_gaps(samples, gaps, figures.interval, model):
        gap = gap_of(inferences, figures.interval)
        if gap is not None and gap.late_by:
            late += 1
            if late <= MOST_SAMPLING_NOTES:
                detail = f"{name}: the sample at picture {count} came {gap.late_by} inferences late"
                yield ledger.entry(ledger.SAMPLE_LATE, detail)
        if gap is not None and gap.never_came:
            missing += 1
            if missing <= MOST_SAMPLING_NOTES:
                missing_named += gap.never_came
                is_whole = inferences * samples.pictures == count - before
                step = figures.interval * samples.pictures
                which = _missed(before, gap.never_came, step) if is_whole else _missed_between(before, count)
                yield ledger.entry(ledger.SAMPLE_NEVER_CAME, f"{name}: {which}", count=gap.never_came)
    if (rest := late - MOST_SAMPLING_NOTES) > 0:
        yield ledger.entry(ledger.SAMPLE_LATE, f"{model}: {rest} more samples came late", count=rest)
    if missing > MOST_SAMPLING_NOTES:
        rest = (figures.never_came or 0) - missing_named
        detail = f"{model}: {rest} more samples that were due never came"
        yield ledger.entry(ledger.SAMPLE_NEVER_CAME, detail, count=rest)


def _odd_gaps(samples: _StoredSamples, gaps: _Gaps, interval: int, model: str) -> Iterable[tuple[str, int, int, int]]:
    assert samples.loads is not None, "distances are known"
    odd = gaps.inferences != interval
    for place, inferences in zip(gaps.later[odd].tolist(), gaps.inferences[odd].tolist(), strict=True):
        name = f"{model}, load {samples.loads[place] + 1}" if samples.has_several_loads else model
        yield name, int(samples.counts[place]), int(samples.counts[place - 1]), inferences


def _missed_between(before: int, count: int) -> str:
    return f"due between pictures {before} and {count}, never came"


def _missed(before: int, missing: int, step: int) -> str:
    named = ", ".join(str(before + step * number) for number in range(1, min(missing, NAMED_PICTURES) + 1))
    rest = f" and {missing - NAMED_PICTURES} more, up to {before + step * missing}" if missing > NAMED_PICTURES else ""
    return f"due at picture {named}{rest}, never came"
