"""Chosen inferences with their segments and records in pages of columns: where all of it was in time.

Records have no index on their inference. Those of a page are all of the logs that its segments are in, of which others
are dropped: a log has one inference, or as many as its model was loaded.
"""

from __future__ import annotations

import functools
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.formats.countermap import MAPPED_RATIOS
from profagent.limits import INFERENCES_PER_PAGE, RECORDS_PER_PAGE, ROWS_PER_PAGE
from profagent.store.database import fetched, fetched_one, pages

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Iterable, Sequence

    import aiosqlite
    from numpy.typing import NDArray

    from profagent.store.database import Row

FIRST_INFERENCES = 20


class SpanRow(NamedTuple):
    """When a chosen inference ran, from its first begin to its last end on both processors; None where not known."""

    position: int
    inference: int
    device_id: int
    model: int
    model_name: str
    model_id: int
    stream_id: int | None
    current_pic_count: int
    start_us: int | None
    end_us: int | None


class PlacedSegment(NamedTuple):
    """A segment of an inference, and when it ran."""

    segment: int
    position: int
    is_aicpu: int
    net: int
    start_us: float | None
    end_us: float | None


class PlacedRecords(NamedTuple):
    """Records of one unit as columns; `segment` is the segment's number, `layer` the layer's index or -1.

    `begin` and `end` are ticks after the segment's start (aicore) or board µs (aicpu). `ratios` are those of
    MAPPED_RATIOS, NaN where not known; none without a counter map.
    """

    segment: NDArray[np.int64]
    layer: NDArray[np.int64]
    begin: NDArray[np.float64]
    end: NDArray[np.float64]
    ratios: NDArray[np.float64]


class Page(NamedTuple):
    """Inferences of one device and model by their place in time, and what is in them, by its number."""

    spans: list[SpanRow]
    segments: list[PlacedSegment]
    aicore: PlacedRecords
    aicpu: PlacedRecords

    @property
    def records(self) -> int:
        """How many there are."""
        return len(self.aicore.segment) + len(self.aicpu.segment)


class PagePlan(NamedTuple):
    """What a page is read with: a query for each unit and its parameter, which know nothing of a Selection."""

    spans: list[SpanRow]
    segments: list[PlacedSegment]
    queries: list[tuple[str, tuple[str]]]

    @property
    def first(self) -> int:
        """The position of its first inference."""
        return self.spans[0].position

    @property
    def end(self) -> int:
        """The position of the inference behind it."""
        return self.spans[-1].position + 1

    def inferences_next(self, records: int) -> int:
        """How many inferences the next page should have, where this one has so many records.

        As many as this one has, if that is about right: who reads ahead has to begin anew for another size.
        """
        if 2 / 3 <= records / RECORDS_PER_PAGE <= 3 / 2:
            return len(self.spans)
        return max(1, min(RECORDS_PER_PAGE * len(self.spans) // max(1, records), INFERENCES_PER_PAGE))

    def page(self, rows: Iterable[Iterable[list[Row]]]) -> Page:
        """The page, of what its queries give, some rows at a time."""
        numbers = np.array([segment.segment for segment in self.segments], np.int64)
        aicore, aicpu = (_records([_table(some, numbers) for some in of_unit]) for of_unit in rows)
        return Page(self.spans, self.segments, aicore, aicpu)


_CPU_SEGMENTS = "FROM segment g WHERE g.inference = i.inference AND g.kind = 'aicpu' AND g.start_us > 0"
_SPANS = f"""
SELECT c.position, c.inference, c.device_id, c.model, c.name, c.model_id, c.stream_id, c.current_pic_count,
       (SELECT min(us) FROM (SELECT i.start_us AS us UNION ALL SELECT g.start_us {_CPU_SEGMENTS})),
       (SELECT max(us) FROM (SELECT i.end_us AS us UNION ALL SELECT g.end_us {_CPU_SEGMENTS}))
FROM temp.chosen c JOIN inference i USING (inference) WHERE c.position >= ? ORDER BY c.position LIMIT ?
"""  # noqa: S608 - ours
_SEGMENTS = """
SELECT g.segment, c.position, g.kind = 'aicpu', g.net, g.start_us, g.end_us
FROM temp.chosen c JOIN segment g USING (inference) WHERE c.position BETWEEN :first AND :last ORDER BY g.segment
"""
_PARTS = """
SELECT json_group_array(part) FROM (
    SELECT DISTINCT p.part FROM temp.chosen c JOIN segment g USING (inference) JOIN part p USING (log)
    WHERE c.position BETWEEN :first AND :last AND g.kind = :kind)
"""
# CROSS JOIN keeps the order of the loops: parts first.
_OF_PARTS = """
FROM json_each(?) q CROSS JOIN {table} r ON r.record BETWEEN q.value << 24 AND (q.value << 24) + 0xFFFFFF
"""
_AICORE = (
    "SELECT r.segment, ifnull(r.layer_index, -1), r.ticks_before, r.ticks_before + r.ticks{ratios}"
    + _OF_PARTS.format(table="aicore")
)
_AICPU = "SELECT r.segment, ifnull(r.layer_index, -1), r.begin_us, r.end_us" + _OF_PARTS.format(table="aicpu")


async def chosen_spans(connection: aiosqlite.Connection) -> list[SpanRow]:
    """The inferences that a Selection has chosen, all of them."""
    return [SpanRow._make(row) for row in await fetched(connection, _SPANS, (0, -1))]


async def placed_pages(connection: aiosqlite.Connection) -> AsyncIterator[Page]:
    """The inferences that a Selection has chosen, a page after the other, without ratios."""
    first, count = 0, FIRST_INFERENCES
    while plan := await plan_page(connection, first, count, has_ratios=False):
        page = await read_page(connection, plan)
        yield page
        first, count = plan.end, plan.inferences_next(page.records)


async def plan_page(connection: aiosqlite.Connection, first: int, count: int, *, has_ratios: bool) -> PagePlan | None:
    """A page of so many inferences at most; None behind the last one."""
    await connection.execute("CREATE UNIQUE INDEX IF NOT EXISTS temp.chosen_position ON chosen (position)")
    rows = await fetched(connection, _SPANS, (first, count))
    if not rows:
        return None
    spans = _of_one_model([SpanRow._make(row) for row in rows])
    keys = {"first": first, "last": spans[-1].position}
    segments = [PlacedSegment._make(row) for row in await fetched(connection, _SEGMENTS, keys)]
    aicore = _AICORE.format(ratios="".join(f", r.{name}" for name in MAPPED_RATIOS) if has_ratios else "")
    queries = []
    for kind, query in (("aicore", aicore), ("aicpu", _AICPU)):
        (parts,) = await fetched_one(connection, _PARTS, {**keys, "kind": kind})
        queries.append((query, (parts,)))
    return PagePlan(spans, segments, queries)


async def read_page(connection: aiosqlite.Connection, plan: PagePlan) -> Page:
    """What was planned."""
    return plan.page([[rows async for rows in pages(connection, *query)] for query in plan.queries])


def fetched_page(connection: sqlite3.Connection, plan: PagePlan) -> Page:
    """The same, by a connection of this thread's own."""
    cursors = (connection.execute(*query) for query in plan.queries)
    return plan.page(iter(functools.partial(cursor.fetchmany, ROWS_PER_PAGE), []) for cursor in cursors)


def _of_one_model(spans: list[SpanRow]) -> list[SpanRow]:
    """The first ones that are of one device and model."""
    key = spans[0].device_id, spans[0].model
    return [span for span in spans if (span.device_id, span.model) == key]


def _records(tables: Sequence[NDArray[np.float64]]) -> PlacedRecords:
    """Records by segment, and then as they stand in the log."""
    whole = np.concatenate(tables) if tables else np.empty((0, 4))
    numbers = whole[:, 0].astype(np.int64)
    if (numbers[1:] < numbers[:-1]).any():
        order = np.argsort(numbers, kind="stable")
        whole, numbers = whole[order], numbers[order]
    return PlacedRecords(numbers, whole[:, 1].astype(np.int64), whole[:, 2], whole[:, 3], whole[:, 4:])


def _table(rows: list[Row], segments: NDArray[np.int64]) -> NDArray[np.float64]:
    """Rows of these segments as an array; NULL is NaN."""
    try:
        # It takes two thirds of the time, and no NULL.
        table = np.fromiter(chain.from_iterable(rows), np.float64, len(rows) * len(rows[0])).reshape(len(rows), -1)
    except TypeError:
        table = np.array(rows, np.float64)
    # Of whole numbers this is a look-up each.
    is_ours = np.isin(table[:, 0].astype(np.int64), segments)
    return table if is_ours.all() else table[is_ours]
