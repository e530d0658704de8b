"""How well models were sampled, and where the runtime lost what it should have recorded: worked out when it is asked.

What is worked out when a JOB ends is kept in the table `sampling` and in the ledger; a later sample voids it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent.formats.sampling import FROM_FILE, Figures, counts_of_loads, figures_of, gap_of, sum_of, tally_of
from profagent.ingest import reasons
from profagent.ingest.reasons import RING_CALLS, ring_entry
from profagent.store.database import LARGEST_INTEGER, RECORDS_PER_PART, fetched, fetched_one, pages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import aiosqlite
    from numpy.typing import NDArray

    from profagent.ingest.changes import Entry

# Of each reason and model; one more entry counts the rest, and the view `sample_gaps` has each of them.
MOST_NOTES = 1_000
NAMED_PICTURES = 4
_STORED = (
    "SELECT interval, interval_from, sampled, due, late, never_came, input_pic_num, passed_over FROM sampling"
    " WHERE model = ?"
)
_SAMPLES = "SELECT count(*), count(*) - total(kept), min(input_pic_num), max(input_pic_num) FROM sample WHERE model = ?"
_COUNTS = "SELECT current_pic_count FROM sample WHERE model = ? ORDER BY 1"
_IS_LOADED_AGAIN = "SELECT EXISTS (SELECT 1 FROM inference WHERE model = ? AND load > 0)"
_UNPLACED = (
    "SELECT EXISTS (SELECT 1 FROM sample s WHERE model = ? AND NOT EXISTS"
    " (SELECT 1 FROM inference i WHERE i.model = s.model AND i.current_pic_count = s.current_pic_count))"
)
_TIMES = (
    "SELECT current_pic_count, min(start_us) FROM inference WHERE model = ? AND current_pic_count <= ?"
    " GROUP BY current_pic_count, load ORDER BY current_pic_count, load"
)
# Where a sample may have been lost without its name, or may still be told, distances mean nothing.
_IS_UNSURE = (
    "SELECT EXISTS (SELECT 1 FROM job WHERE job = ?1 AND NOT caught_up)"
    " OR EXISTS (SELECT 1 FROM ledger_entry WHERE job = ?1 AND log IS NULL AND grade = 'loss')"
    " OR EXISTS (SELECT 1 FROM ledger_entry e LEFT JOIN kept_loss k USING (entry)"
    " WHERE e.job IS NULL AND e.log IS NULL AND e.grade = 'loss'"
    " AND e.session IN (SELECT session FROM session_job WHERE job = ?1)"
    " AND (k.job_name IS NULL OR k.job_name = (SELECT name FROM job WHERE job = ?1)))"
)
# Other sessions fetched a part of it, or nobody has: of samples before its own the names are known.
_IS_PART = (
    "SELECT EXISTS (SELECT 1 FROM inference WHERE model = ?1 AND session <> ?2) OR EXISTS"
    " (SELECT 1 FROM sample WHERE model = ?1 AND kept AND current_pic_count <"
    " (SELECT min(current_pic_count) FROM inference WHERE model = ?1))"
)
# What is not copied yet is known by its name, too.
_IS_OPEN = (
    "SELECT NOT caught_up AND EXISTS (SELECT 1 FROM inference WHERE model = ?1 AND session = ?2)"
    " FROM model JOIN job USING (job) WHERE model = ?1"
)
_OF_SESSION = (
    "SELECT current_pic_count, kept, coalesce(is_own, NOT (kept AND ?3)) FROM sample LEFT JOIN"
    " (SELECT current_pic_count, max(session = ?2) AS is_own FROM inference WHERE model = ?1 GROUP BY 1)"
    " USING (current_pic_count) WHERE model = ?1 AND current_pic_count BETWEEN"
    " (SELECT min(current_pic_count) FROM inference WHERE model = ?1 AND session = ?2) AND"
    " (SELECT max(current_pic_count) FROM inference WHERE model = ?1 AND session = ?2) ORDER BY current_pic_count"
)
_END_TIMES = (
    f"SELECT end_us FROM part CROSS JOIN api ON record BETWEEN part * {RECORDS_PER_PART}"  # noqa: S608 - a constant
    f" AND part * {RECORDS_PER_PART} + {RECORDS_PER_PART - 1} WHERE log = ?"
)
_FLUSH_TIMES = "SELECT end_us FROM inference WHERE model = ? AND end_us IS NOT NULL"


class ModelSampling(NamedTuple):
    """How well a model was sampled. `pictures` go into each inference, 0 where they differ; None without a sample."""

    figures: Figures
    pictures: int | None
    passed_over: int


async def sampling_of(connection: aiosqlite.Connection, session: int, job: int | None = None) -> dict[str, Any]:
    """How well the JOBs that a session fetched, or one of them, were sampled, and what was kept of it.

    Of a model that other sessions fetched as well it is what lies between the session's first and last inference.
    """
    rows = await fetched(
        connection,
        "SELECT job, model FROM fetched_jobs JOIN model USING (job) WHERE session = ?1 AND (?2 IS NULL OR job = ?2)"
        " AND EXISTS (SELECT 1 FROM sample WHERE sample.model = model.model) ORDER BY model",
        (session, job),
    )
    (keeping,) = await fetched_one(connection, "SELECT keeping FROM session WHERE session = ?", (session,))
    shares = [await _share_of(connection, session, model, await _known(connection, of, model)) for of, model in rows]
    figures = sum_of(share for share, _ in shares)
    passed_over = sum(passed for _, passed in shares)
    return {
        **figures.fields(),
        "keeping": keeping,
        "kept": figures.sampled - passed_over,
        "passed_over": passed_over,
    }


async def samplings_of(connection: aiosqlite.Connection, job: int) -> dict[int, ModelSampling]:
    """How well each of a JOB's models was sampled, worked out now. It reads every sample."""
    models = await fetched(
        connection,
        "SELECT model FROM model m WHERE job = ? AND EXISTS (SELECT 1 FROM sample s WHERE s.model = m.model)",
        (job,),
    )
    return {model: await _worked_out(connection, job, model) for (model,) in models}


async def sample_notes(connection: aiosqlite.Connection, known: Mapping[int, ModelSampling]) -> list[Entry]:
    """What the ledger says of the samples of these models."""
    entries: list[Entry] = []
    for model, (figures, pictures, _) in known.items():
        query = "SELECT name || '.' || model_id FROM model WHERE model = ?"
        (name,) = await fetched_one(connection, query, (model,))
        loads = await _loads(connection, model)
        if loads is None:
            continue
        if figures.interval is not None and (figures.late or figures.never_came):
            entries += _of_model(loads, name, figures, pictures or 1)
        elif figures.origin == FROM_FILE and tally_of(loads, pictures or 0).figures(figures.interval).due is None:
            detail = f"{name}: its picture counts do not fit the interval {figures.interval} of its acl.json"
            entries.append(reasons.entry(reasons.INTERVAL_MISMATCH, detail))
    return entries


async def _known(connection: aiosqlite.Connection, job: int, model: int) -> ModelSampling:
    """As it was worked out when its JOB ended, or now."""
    rows = await fetched(connection, _STORED, (model,))
    if not rows:
        return await _worked_out(connection, job, model)
    return ModelSampling(Figures._make(rows[0][:6]), *rows[0][6:])


async def _worked_out(connection: aiosqlite.Connection, job: int, model: int) -> ModelSampling:
    sampled, passed_over, *pictures = await fetched_one(connection, _SAMPLES, (model,))
    size = pictures[0] if pictures[0] == pictures[1] else 0
    (interval,) = await fetched_one(connection, "SELECT interval FROM job WHERE job = ?", (job,))
    (is_unsure,) = await fetched_one(connection, _IS_UNSURE, (job,))
    loads = await _loads(connection, model)
    if is_unsure or loads is None:
        figures = figures_of(sampled if loads is None else sum(map(len, loads)), None, interval)
    else:
        figures = tally_of(loads, size or 0).figures(interval)
    return ModelSampling(figures, size, int(passed_over))


async def full_rings(connection: aiosqlite.Connection, job: int) -> dict[int, Entry]:
    """By acl_api log: there are as many calls between known flushes as the runtime's ring holds."""
    found: dict[int, Entry] = {}
    for log, model in await fetched(
        connection, "SELECT log, model FROM log WHERE job = ? AND kind = 'acl_api'", (job,)
    ):
        passed = await fetched(connection, "SELECT 1 FROM sample WHERE model = ? AND NOT kept LIMIT 1", (model,))
        # Nobody knows when the runtime flushed for samples that were passed over.
        if not passed:
            ends = await _sorted(connection, _END_TIMES, log)
            flushes = await _sorted(connection, _FLUSH_TIMES, model)
            if (calls := most_calls_between(ends, flushes)) >= RING_CALLS:
                found[log] = ring_entry(calls)
    return found


def most_calls_between(call_ends: NDArray[np.float64], flushes: NDArray[np.float64]) -> int:
    """The most calls between two neighbouring flushes; both are sorted times in microseconds.

    The runtime flushes at each sampled inference and at the unload; a call belongs to the first flush after it.
    """
    if not len(call_ends):
        return 0
    return int(np.bincount(np.searchsorted(flushes, call_ends)).max())


async def _sorted(connection: aiosqlite.Connection, sql: str, number: int) -> NDArray[np.float64]:
    times = [page async for page in pages(connection, sql, (number,))]
    return np.sort(np.concatenate([np.empty(0), *(np.array(page, np.float64)[:, 0] for page in times)]))


async def _is_loaded_again(connection: aiosqlite.Connection, model: int) -> bool:
    """Whether rows show that a model's picture counts began anew."""
    return bool((await fetched_one(connection, _IS_LOADED_AGAIN, (model,)))[0])


async def _loads(connection: aiosqlite.Connection, model: int) -> list[list[int]] | None:
    """The picture counts of each load's samples; None where they cannot be told."""
    if not await _is_loaded_again(connection, model):
        return [[count for (count,) in await fetched(connection, _COUNTS, (model,))]]
    # A sample without rows, as one that was passed over on purpose, belongs to nobody knows which.
    if (await fetched_one(connection, _UNPLACED, (model,)))[0]:
        return None
    times: dict[int, list[int | None]] = {}
    for count, start_us in await fetched(connection, _TIMES, (model, LARGEST_INTEGER)):
        times.setdefault(count, []).append(start_us)
    return counts_of_loads(times)


async def _share_of(
    connection: aiosqlite.Connection, session: int, model: int, known: ModelSampling
) -> tuple[Figures, int]:
    """What of a model's samples is a session's, and how many of these were passed over."""
    figures = known.figures
    (is_open,) = await fetched_one(connection, _IS_OPEN, (model, session))
    (is_part,) = await fetched_one(connection, _IS_PART, (model, session))
    if not (is_open or is_part):
        return figures, known.passed_over
    rows = await fetched(connection, _OF_SESSION, (model, session, is_open))
    passed_over = sum(not kept for _, kept, _ in rows)
    of_others = sum(not is_own for _, _, is_own in rows)
    sampled = len(rows) - of_others
    if figures.due is None or await _is_loaded_again(connection, model):
        return figures_of(sampled, None, figures.interval)._replace(origin=figures.origin), passed_over
    share = tally_of([[count for count, _, _ in rows]], known.pictures or 0).figures(figures.interval)
    due = None if share.due is None else share.due - of_others
    return share._replace(sampled=sampled, due=due, origin=figures.origin), passed_over


def _of_model(loads: Sequence[Sequence[int]], model: str, figures: Figures, pictures: int) -> Iterator[Entry]:
    assert figures.interval is not None, "without an interval nothing is late"
    late = missing = missing_named = 0
    for name, count, distance in _distances(loads, model):
        gap = gap_of(distance // pictures, figures.interval)
        if gap is not None and gap.late_by:
            late += 1
            if late <= MOST_NOTES:
                detail = f"{name}: the sample at picture {count} came {gap.late_by} inferences late"
                yield reasons.entry(reasons.SAMPLE_LATE, detail)
        if gap is not None and gap.never_came:
            missing += 1
            if missing <= MOST_NOTES:
                missing_named += gap.never_came
                detail = f"{name}: {_missed(count - distance, gap.never_came, figures.interval * pictures)}"
                yield reasons.entry(reasons.SAMPLE_NEVER_CAME, detail, count=gap.never_came)
    if (rest := late - MOST_NOTES) > 0:
        yield reasons.entry(reasons.SAMPLE_LATE, f"{model}: {rest} more samples came late", count=rest)
    if missing > MOST_NOTES:
        rest = (figures.never_came or 0) - missing_named
        detail = f"{model}: {rest} more samples that were due never came"
        yield reasons.entry(reasons.SAMPLE_NEVER_CAME, detail, count=rest)


def _distances(loads: Sequence[Sequence[int]], model: str) -> Iterable[tuple[str, int, int]]:
    """The model, and which load of it where there are several; a sample's picture count; pictures since the last."""
    for number, counts in enumerate(loads, 1):
        name = f"{model}, load {number}" if len(loads) > 1 else model
        for before, count in pairwise(counts):
            yield name, count, count - before


def _missed(before: int, missing: int, step: int) -> str:
    """Which samples did not come after the one at picture `before`."""
    named = ", ".join(str(before + step * number) for number in range(1, min(missing, NAMED_PICTURES) + 1))
    rest = f" and {missing - NAMED_PICTURES} more, up to {before + step * missing}" if missing > NAMED_PICTURES else ""
    return f"due at picture {named}{rest}, never came"
