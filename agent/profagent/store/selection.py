"""Choosing inferences of a JOB, and streaming their records in the order of the exports' files.

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
    """Which inferences: those of a picture count, of these each model's last ones; None leaves nothing out.

    Unless it is asked for by its picture count, one whose figures are not final is left out. `from_us` and `to_us`
    choose those that ran between these moments of the board's clock.
    `by_aicore` takes those as well of which all is known that the NPU recorded: `is_known` tells them apart.
    """

    inference: int | None = None
    last: int | None = None
    from_us: int | None = None
    to_us: int | None = None
    by_aicore: bool = False


class InferenceRow(NamedTuple):
    """A chosen inference. `group` numbers device, model, model id and batch, `iter_id` all of its model's from 0.

    `load` is 0, and higher for a model that was loaded again under the same name. `is_known`: its figures are final, or
    it was asked for by its picture count.
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


# All that the NPU recorded of it is here, and when that was.
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
# Several inferences as one: what they do not share is not known.
_GROUPS = """
SELECT file, file, min(iter_id), device_id, model, name, model_id,
       CASE WHEN count(DISTINCT ifnull(stream_id, -1)) = 1 THEN min(stream_id) END,
       batch_num, min(input_pic_num), 0, 0, min(start_us),
       CASE WHEN count(cache_hit) = count(*) THEN sum(cache_hit) END,
       CASE WHEN count(cache_miss) = count(*) THEN sum(cache_miss) END, sum(ticks), max(is_known)
FROM chosen GROUP BY file ORDER BY file
"""


class Selection:
    """The chosen inferences of a scope; a connection holds one selection at a time."""

    def __init__(self, connection: Running) -> None:
        self._connection = connection

    @classmethod
    async def of(cls, connection: Running, scope: Scope, choice: Choice) -> Selection:
        """Choose. UsageError when a picture count is asked for that no inference of the JOB has."""
        clockless = scope.job.frequency_mhz is None
        named = {"session": scope.session.session, "job": scope.job.job, "clockless": clockless}
        await connection.execute("DROP TABLE IF EXISTS temp.chosen")
        inference = None if choice.inference is None else _as_stored(choice.inference)
        await connection.execute(_CHOOSE, {**named, **choice._asdict(), "inference": inference})
        await connection.execute("CREATE UNIQUE INDEX temp.chosen_inference ON chosen (inference)")
        return cls(connection)

    async def count(self) -> int:
        """How many were chosen."""
        (count,) = await fetched_one(self._connection, "SELECT count(*) FROM chosen")
        return int(count)

    async def inferences(self) -> AsyncIterator[InferenceRow]:
        """The chosen inferences by position: by device, model, model id, batch, and then in the order they ran."""
        async for page in pages(self._connection, _CHOSEN):
            for row in map(InferenceRow._make, page):
                # From 2^63 on it is a text in the database.
                yield row._replace(current_pic_count=int(row.current_pic_count))

    async def groups(self) -> list[InferenceRow]:
        """All chosen inferences of a device, model, model id and batch as one; `position` is the group."""
        return list(map(InferenceRow._make, await fetched(self._connection, _GROUPS)))

    async def earliest_us(self) -> float | None:
        """The first moment that the chosen inferences know of."""
        known: list[float | None] = [*await fetched_one(self._connection, _EARLIEST)]
        known.append(await self._connection.run(_earliest_on_cpu))
        return min((time for time in known if time is not None), default=None)


def _earliest_on_cpu(connection: sqlite3.Connection) -> float | None:
    queries = chunks(connection, Segments.chosen(connection), LogKind.AICPU, ("begin_us",))
    begins = (query.read(connection).columns["begin_us"] for query in queries)
    return min((float(each.min()) for each in begins if len(each)), default=None)


def _as_stored(picture_count: int) -> int | str:
    """A picture count as the database holds it (an integer of SQLite has 63 bits)."""
    if not 0 <= picture_count < 2**64:
        raise UsageError(f"no picture count can be {picture_count}", hint="`profagent show` tells those of the JOB")
    return picture_count if picture_count < 2**63 else str(picture_count)
