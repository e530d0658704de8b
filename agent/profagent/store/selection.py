"""Choice of inferences of a JOB, with their records in the order of the exports' files.

Records have no index on their inference. The choice is a temporary table; the records are one walk over the keys
between the first and the last part that can hold them, sorted by SQLite, which spills to disk and not into memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from profagent.errors import UsageError
from profagent.formats.names import LogKind
from profagent.store.columns import Segments, chunks
from profagent.store.database import KNOWN, fetched, fetched_one, pages

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator

    from profagent.store.database import Running
    from profagent.store.queries import Scope


class Choice(NamedTuple):
    """Condition on inferences: a picture count, each model's last ones, or a time; None sets no condition.

    An inference whose figures are not final is left out, unless it is named by its picture count. `from_us` and `to_us`
    choose those that ran between these times of the board's clock. `by_aicore` also takes inferences whose NPU records
    are complete: `is_known` tells them apart.
    """

    inference: int | None = None
    last: int | None = None
    from_us: int | None = None
    to_us: int | None = None
    by_aicore: bool = False


class InferenceRow(NamedTuple):
    """Chosen inference. `group` numbers device, model, model id and batch; `iter_id` numbers its model's from 0.

    `load` is 0, and higher for a model that was loaded again under the same name. `is_known` is 1 if its figures are
    final, or it was named by its picture count.
    """

    position: int
    group: int
    iter_id: int
    device_id: int
    model: int
    model_name: str
    model_id: int
    stream_id: int | None
    batch_num: int
    input_pic_num: int
    current_pic_count: int
    load: int
    start_us: int | None
    cache_hit: int | None
    cache_miss: int | None
    ticks: int
    is_known: int


# SQL condition: all NPU records of the inference are here, and their time is known.
_HAS_AICORE = """((:clockless OR (SELECT frequency_mhz FROM job WHERE job = :job) IS NOT NULL) AND EXISTS (
    SELECT 1 FROM segment g JOIN log l USING (log)
    WHERE g.inference = numbered.inference AND g.kind = 'aicore' AND l.whole > numbered.load))"""
_CHOOSE = f"""
CREATE TEMP TABLE chosen AS
WITH numbered AS (
    SELECT i.*, m.name, m.model_id,
           row_number() OVER (PARTITION BY device_id, model ORDER BY start_us IS NULL, start_us, load,
                              current_pic_count, inference) - 1 AS iter_id, {KNOWN} AS is_known
    FROM inference i JOIN model m USING (model) WHERE i.session = :session AND m.job = :job
), matching AS (
    SELECT *, row_number() OVER (PARTITION BY device_id, model ORDER BY iter_id DESC) AS from_last
    FROM numbered WHERE CASE WHEN :inference IS NULL THEN is_known OR (:by_aicore AND {_HAS_AICORE})
                        ELSE current_pic_count = :inference END
    AND (:from_us IS NULL OR end_us >= :from_us) AND (:to_us IS NULL OR start_us <= :to_us)
)
SELECT row_number() OVER files - 1 AS position,
       dense_rank() OVER (ORDER BY device_id, name, model_id, batch_num) - 1 AS file, iter_id, device_id, model, name,
       model_id, stream_id, batch_num, input_pic_num, current_pic_count, load, start_us, cache_hit, cache_miss,
       (SELECT ifnull(sum(ticks), 0) FROM segment g WHERE g.inference = matching.inference AND kind = 'aicore')
       AS ticks, is_known OR :inference IS NOT NULL AS is_known, inference
FROM matching WHERE (:last IS NULL OR from_last <= :last)
WINDOW files AS (ORDER BY device_id, name, model_id, batch_num, iter_id)
"""  # noqa: S608 - a condition of ours

_EARLIEST = """
SELECT (SELECT min(start_us) FROM chosen), (SELECT min(g.start_us) FROM chosen c JOIN segment g USING (inference))
"""
_CHOSEN = """
SELECT position, file, iter_id, device_id, model, name, model_id, stream_id, batch_num, input_pic_num,
       current_pic_count, load, start_us, cache_hit, cache_miss, ticks, is_known
FROM chosen ORDER BY position
"""
# Several inferences as one row: a column on which they differ is NULL.
_GROUPS = """
SELECT file, file, min(iter_id), device_id, model, name, model_id,
       CASE WHEN count(DISTINCT ifnull(stream_id, -1)) = 1 THEN min(stream_id) END,
       batch_num, min(input_pic_num), 0, 0, min(start_us),
       CASE WHEN count(cache_hit) = count(*) THEN sum(cache_hit) END,
       CASE WHEN count(cache_miss) = count(*) THEN sum(cache_miss) END, sum(ticks), max(is_known)
FROM chosen GROUP BY file ORDER BY file
"""


class Selection:
    """Chosen inferences of a scope. A connection holds one selection at a time."""

    def __init__(self, connection: Running) -> None:
        self._connection = connection

    @classmethod
    async def of(cls, connection: Running, scope: Scope, choice: Choice) -> Selection:
        """Choose inferences of a scope. Raises UsageError for a picture count that cannot be."""
        clockless = scope.job.frequency_mhz is None
        named = {"session": scope.session.session, "job": scope.job.job, "clockless": clockless}
        # A temporary table belongs to the connection, which may have an earlier selection.
        await connection.execute("DROP TABLE IF EXISTS temp.chosen")
        inference = None if choice.inference is None else _as_stored(choice.inference)
        await connection.execute(_CHOOSE, {**named, **choice._asdict(), "inference": inference})
        # After the rows: inserting into an index costs more than building it.
        await connection.execute("CREATE UNIQUE INDEX temp.chosen_inference ON chosen (inference)")
        return cls(connection)

    async def count(self) -> int:
        """Return the number of chosen inferences."""
        (count,) = await fetched_one(self._connection, "SELECT count(*) FROM chosen")
        return int(count)

    async def inferences(self) -> AsyncIterator[InferenceRow]:
        """Yield the chosen inferences by position: by device, model, model id, batch, and in the order they ran."""
        async for page in pages(self._connection, _CHOSEN):
            for row in map(InferenceRow._make, page):
                # A count from 2^63 on is a text in the database.
                yield row._replace(current_pic_count=int(row.current_pic_count))

    async def groups(self) -> list[InferenceRow]:
        """Return the chosen inferences of each device, model, model id and batch as one; `position` is the group."""
        return list(map(InferenceRow._make, await fetched(self._connection, _GROUPS)))

    async def earliest_us(self) -> float | None:
        """Return the earliest known time of the chosen inferences in µs of the board's clock; None if unknown."""
        known: list[float | None] = [*await fetched_one(self._connection, _EARLIEST)]
        known.append(await self._connection.run(_earliest_on_cpu))
        return min((time for time in known if time is not None), default=None)


def _earliest_on_cpu(connection: sqlite3.Connection) -> float | None:
    queries = chunks(connection, Segments.chosen(connection), LogKind.AICPU, ("begin_us",))
    begins = (query.read(connection).columns["begin_us"] for query in queries)
    return min((float(each.min()) for each in begins if len(each)), default=None)


def _as_stored(picture_count: int) -> int | str:
    """Return a picture count as the database holds it: an integer of SQLite has 63 bits."""
    if not 0 <= picture_count < 2**64:
        raise UsageError(f"the picture count cannot be {picture_count}", hint="`profagent show` tells those of the JOB")
    return picture_count if picture_count < 2**63 else str(picture_count)
