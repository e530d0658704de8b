"""Chosen inferences with their segments and records in pages of columns: where all of it was in time.

Records have no index on their inference. Those of a page are all of the logs that its segments are in, of which others
are dropped: a log has one inference, or as many as its model was loaded.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.formats.countermap import RATIOS
from profagent.store.database import fetched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiosqlite
    from numpy.typing import NDArray

    from profagent.store.database import Row

# What a page should hold, and how many inferences the first one does.
RECORDS_PER_PAGE = 10_000
FIRST_INFERENCES, MOST_INFERENCES = 20, 2_000
ROWS_PER_READ = 5_000


class SpanRow(NamedTuple):
    """When a chosen inference ran; None where its `.done` does not tell."""

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

    `begin` and `end` are ticks after the segment's start (aicore) or board µs (aicpu). `ratios` are those of RATIOS,
    NaN where not known; none without a counter map.
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


_SPANS = """
SELECT c.position, c.inference, c.device_id, c.model, c.name, c.model_id, c.stream_id, c.current_pic_count, i.start_us,
       i.end_us
FROM temp.chosen c JOIN inference i USING (inference) WHERE c.position >= ? ORDER BY c.position LIMIT ?
"""
_SEGMENTS = """
SELECT g.segment, c.position, g.kind = 'aicpu', g.net, g.start_us, g.end_us
FROM temp.chosen c JOIN segment g USING (inference) WHERE c.position BETWEEN :first AND :last ORDER BY g.segment
"""
# CROSS JOIN keeps the order of the loops: parts first.
_OF_PARTS = """
FROM (SELECT DISTINCT p.part FROM temp.chosen c JOIN segment g USING (inference) JOIN part p USING (log)
      WHERE c.position BETWEEN :first AND :last AND g.kind = '{table}') q
CROSS JOIN {table} r ON r.record BETWEEN q.part << 24 AND (q.part << 24) + 0xFFFFFF
"""
_AICORE = (
    "SELECT r.segment, ifnull(r.layer_index, -1), r.ticks_before, r.ticks_before + r.ticks{ratios}"
    + _OF_PARTS.format(table="aicore")
)
_AICPU = "SELECT r.segment, ifnull(r.layer_index, -1), r.begin_us, r.end_us" + _OF_PARTS.format(table="aicpu")


async def chosen_spans(connection: aiosqlite.Connection) -> list[SpanRow]:
    """The inferences that a Selection has chosen, all of them."""
    return [SpanRow._make(row) for row in await fetched(connection, _SPANS, (0, -1))]


async def placed_pages(connection: aiosqlite.Connection, *, has_ratios: bool) -> AsyncIterator[Page]:
    """The inferences that a Selection has chosen, a page after the other."""
    await connection.execute("CREATE UNIQUE INDEX IF NOT EXISTS temp.chosen_position ON chosen (position)")
    aicore = _AICORE.format(ratios="".join(f", r.{name}" for name in RATIOS) if has_ratios else "")
    first, count = 0, FIRST_INFERENCES
    while rows := await fetched(connection, _SPANS, (first, count)):
        spans = _of_one_model([SpanRow._make(row) for row in rows])
        keys = {"first": first, "last": spans[-1].position}
        segments = [PlacedSegment._make(row) for row in await fetched(connection, _SEGMENTS, keys)]
        numbers = np.array([segment.segment for segment in segments], np.int64)
        page = Page(
            spans,
            segments,
            await _records(connection, aicore, keys, numbers),
            await _records(connection, _AICPU, keys, numbers),
        )
        yield page
        first = spans[-1].position + 1
        found = len(page.aicore.segment) + len(page.aicpu.segment)
        count = max(1, min(RECORDS_PER_PAGE * len(spans) // max(1, found), MOST_INFERENCES))


def _of_one_model(spans: list[SpanRow]) -> list[SpanRow]:
    """The first ones that are of one device and model."""
    key = spans[0].device_id, spans[0].model
    return [span for span in spans if (span.device_id, span.model) == key]


async def _records(
    connection: aiosqlite.Connection, query: str, keys: dict[str, int], segments: NDArray[np.int64]
) -> PlacedRecords:
    """The records of these segments, by segment and then as they stand in the log."""
    cursor = await connection.execute(query, keys)
    tables = []
    while rows := [*await cursor.fetchmany(ROWS_PER_READ)]:
        table = _table(rows)  # type: ignore[arg-type]
        # Of whole numbers this is a look-up each.
        is_ours = np.isin(table[:, 0].astype(np.int64), segments)
        tables.append(table if is_ours.all() else table[is_ours])
    whole = np.concatenate(tables) if tables else np.empty((0, 4))
    numbers = whole[:, 0].astype(np.int64)
    if (numbers[1:] < numbers[:-1]).any():
        order = np.argsort(numbers, kind="stable")
        whole, numbers = whole[order], numbers[order]
    return PlacedRecords(numbers, whole[:, 1].astype(np.int64), whole[:, 2], whole[:, 3], whole[:, 4:])


def _table(rows: list[Row]) -> NDArray[np.float64]:
    """Rows as an array; NULL is NaN."""
    try:
        # It takes two thirds of the time, and no NULL.
        return np.fromiter(chain.from_iterable(rows), np.float64, len(rows) * len(rows[0])).reshape(len(rows), -1)
    except TypeError:
        return np.array(rows, np.float64)
