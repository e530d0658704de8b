"""Records and calls as events of a timeline."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from profagent.export.trace import TaskEvents, trace_pieces
from profagent.store.queries import LayerRow
from tests.unit.export.rows import inference_row, task_row

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from profagent.store.selection import TaskRow

LAYERS = {0: LayerRow(4, "conv1+relu1", "Convolution+ReLU")}


def _trace(events: Any, **metadata: Any) -> Any:
    async def batches() -> AsyncIterator[list[Any]]:
        for event in events:
            yield [event]

    async def pieces() -> list[bytes]:
        return [piece async for piece in trace_pieces(batches(), lambda: metadata)]

    text = b"".join(asyncio.run(pieces()))
    return json.loads(text) if text else {"traceEvents": []}


def _tasks(
    tasks: list[TaskRow], *, frequency_mhz: int | None = 100, origin_us: int = 1000
) -> tuple[TaskEvents, list[Any], list[Any]]:
    events = TaskEvents(0, origin_us, frequency_mhz, LAYERS, "NPU 0")
    found = _trace(events.of_inference(inference_row(), tasks))["traceEvents"]
    return events, [event for event in found if event["ph"] == "X"], [e for e in found if e["name"] == "thread_name"]


def test_units_and_streams_have_tracks_of_their_own() -> None:
    events = TaskEvents(2, 0, 100, LAYERS, "NPU 2")
    rows = [task_row(10), task_row(0, is_aicpu=True, base_us=1010, end_us=1030)]
    found = []
    for stream in (3, 4, None):
        shifted = [row._replace(base_us=1000 + 100 * (stream or 0)) for row in rows[:1]]
        found += _trace(events.of_inference(inference_row(stream_id=stream), shifted))["traceEvents"]
    found += _trace(events.of_inference(inference_row(), rows[1:]))["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in found if event["name"] == "thread_name"}
    assert list(names.values()) == ["stream 3 AA CORE", "stream 4 AA CORE", "stream 0 AA CORE", "stream 3 AA CPU"]
    assert {event["pid"] for event in found} == {3}
    assert found[-1]["args"]["Task Type"] == "AA CPU"
    assert (found[-1]["ts"], found[-1]["dur"]) == (1010.0, 20.0)


def test_an_event_that_begins_before_its_forerunner_ends_is_drawn_beside_it() -> None:
    _, events, names = _tasks([task_row(100), task_row(100, base_us=1050), task_row(100, base_us=1100)])
    assert [event["tid"] for event in events] == [1, 2, 1]
    assert names[1]["args"]["name"] == "stream 3 AA CORE (2)"


def test_an_overlap_of_less_than_a_microsecond_is_rounding_and_moves_the_start() -> None:
    _, events, names = _tasks([task_row(100), task_row(100, base_us=1099.25)])
    assert [(event["ts"], event["dur"]) for event in events] == [(0.0, 100.0), (100.0, 100.0)]
    assert len(names) == 1


@pytest.mark.parametrize(
    ("row", "frequency_mhz"),
    [
        (task_row(10, base_us=None), 100),
        (task_row(10), None),
        (task_row(0, is_aicpu=True, base_us=1050, end_us=1040), 100),
    ],
)
def test_what_has_no_place_in_time_is_left_out_and_counted(row: Any, frequency_mhz: Any) -> None:
    events, found, _ = _tasks([row], frequency_mhz=frequency_mhz)
    assert (events.unplaced, found) == (1, [])
