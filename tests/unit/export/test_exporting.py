"""Tables and timelines as files of a folder."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from profagent.errors import UsageError
from profagent.export.show import show, shown_as_document, shown_as_text
from profagent.export.summary import export_summary
from profagent.export.timeline import TaskEvents, export_timeline, trace_pieces
from profagent.store.queries import LayerRow
from profagent.store.selection import Choice
from tests.unit.export.rows import inference_row, task_row
from tests.unit.store.database import JOB, START_US, DatabaseBuilder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from profagent.export.timeline import Task


OTHER_JOB = JOB[::-1].replace("BOJ", "JOB")
LAYERS = ("conv1+relu1", "pool2", "nms3")


@pytest.fixture
def database(builder: DatabaseBuilder) -> Path:
    """Two inferences of 400 µs at 700 MHz, each with an aicpu layer of 50 µs, and two calls."""
    session = builder.session(simulated=1)
    job = builder.job(session)
    model = builder.model(job, layers=LAYERS)
    for number in range(2):
        start = 1000 * number
        inference = builder.inference(session, model, 6 * number, input_pic_num=6, start_us=START_US + start)
        builder.aicore(inference, builder.new_part(session, model, "aicore"), [700, 2100], start_us=START_US + start)
        builder.aicpu(inference, builder.new_part(session, model, "aicpu"), [(start + 400, start + 450)], [2])
    log = builder.log(job, model, "acl_api", "data/acl_api.0.yolo.0")
    builder.calls(builder.part(session, log), [(0, None, 0), (2, -10, 460), (2, 990, 1460)])
    builder.ledger(session, "note", "filter gap", 3, job)
    return builder.close()


def _json(file: Path) -> Any:
    return json.loads(file.read_text("utf-8"))


def _spans(file: Path) -> list[Any]:
    return [event for event in _json(file)["traceEvents"] if event["ph"] == "X"]


@pytest.mark.parametrize("choice", [Choice(last=1), Choice(inference=6)])
async def test_a_choice_leaves_the_other_inferences_out(database: Path, tmp_path: Path, choice: Choice) -> None:
    (exported,) = await export_summary(database, tmp_path, job=JOB, choice=choice)
    assert [name for name in exported.files if name.startswith("op_")] == [
        "op_summary_0.yolo.0.1.6.6.0.2500.700.csv",
        "op_statistic_0_0_6_1.csv",
    ]


async def test_a_timeline_has_tasks_and_calls_on_one_clock(database: Path, tmp_path: Path) -> None:
    (exported,) = await export_timeline(database, tmp_path, job=JOB)
    assert exported.files == ("task_time_0.yolo.0.1.json", "acl_0.yolo.0.1.json")
    tasks, calls = (_spans(tmp_path / name) for name in exported.files)
    assert [(event["name"], event["ts"], event["dur"], event["args"]["Task Id"]) for event in tasks] == [
        ("conv1+relu1", 10.0, 100.0, 0),
        ("pool2", 110.0, 300.0, 1),
        ("nms3", 410.0, 50.0, 2),
        ("conv1+relu1", 1010.0, 100.0, 0),
        ("pool2", 1110.0, 300.0, 1),
        ("nms3", 1410.0, 50.0, 2),
    ]
    assert [(event["ts"], event["dur"]) for event in calls] == [(0, 470), (1000, 470)]
    assert _json(tmp_path / exported.files[0])["metadata"]["origin_us"] == START_US - 10


async def test_simulated_data_and_the_ledger_are_told_in_every_place(database: Path, tmp_path: Path) -> None:
    (timeline,) = await export_timeline(database, tmp_path / "timeline", job=JOB)
    (summary,) = await export_summary(database, tmp_path / "summary", job=JOB)
    trace = _json(timeline.directory / timeline.files[0])
    assert trace["traceEvents"][0]["args"]["name"] == "NPU 0, yolo (simulated)"
    metadata = [_json(exported.directory / "metadata.json") for exported in (timeline, summary)]
    for found in (*metadata, trace["metadata"]):
        assert found["simulated"] is True
        assert found["ledger"] == {"loss": {}, "note": {"filter gap": 3}}
    assert list(metadata[1]["files"]) == list(summary.files)
    assert (timeline.simulated, timeline.ledger["note"]) == (True, {"filter gap": 3})


async def test_what_cannot_be_placed_is_counted(database: Path, tmp_path: Path) -> None:
    assert [exported.unplaced for exported in await export_timeline(database, tmp_path, job=JOB)] == [1]
    assert _json(tmp_path / "metadata.json")["unplaced"] == 1
    assert _json(tmp_path / "acl_0.yolo.0.1.json")["metadata"]["unplaced"] == 1


async def test_loads_streams_and_models_that_share_a_name_have_files_of_their_own(
    builder: DatabaseBuilder, tmp_path: Path
) -> None:
    session = builder.session()
    job = builder.job(session)
    for name in ("a", "b"):
        model = builder.model(job, name)
        for stream, load in ((3, 0), (4, 0), (3, 1)):
            inference = builder.inference(session, model, stream_id=stream, load=load)
            builder.aicore(inference, builder.new_part(session, model, "aicore"), [7])
    (exported,) = await export_summary(builder.close(), tmp_path, job=JOB)
    assert len(set(exported.files)) == len(exported.files) == 12
    of_a = [name for name in exported.files if name.startswith("op_summary_0.a.")]
    assert [name.removeprefix("op_summary_0.a.0.1.1.0.0.2500.700") for name in of_a] == [
        ".csv",
        ".2.csv",
        ".reload1.csv",
    ]
    assert "op_statistic_0_0_0_0.2.csv" in exported.files


async def test_an_unknown_session_or_job_is_refused_before_anything_is_made(database: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        await export_summary(database, tmp_path / "out", session=9)
    with pytest.raises(UsageError):
        await export_timeline(database, tmp_path / "out", job=OTHER_JOB)
    assert not (tmp_path / "out").exists()


# The tables of `show`, and what is said beside them


def _filled(builder: DatabaseBuilder, **session: Any) -> Path:
    number = builder.session(**session)
    job = builder.job(number)
    model = builder.model(job, "检测", layers=("conv", "pool"))
    for pic in range(3):
        inference = builder.inference(number, model, pic, start_us=START_US + 100 * pic)
        builder.aicore(inference, builder.new_part(number, model, "aicore"), [70 + pic, 140])
    log = builder.log(job, model, "acl_api", "data/acl_api.0.检测.0")
    builder.calls(builder.part(number, log), [(2, 0, 50)])
    builder.ledger(number, "loss", "torn record", 1, job)
    builder.ledger(number, "note", "filter gap", 2, job)
    return builder.close()


async def test_it_says_how_many_inferences_are_not_shown(builder: DatabaseBuilder) -> None:
    file = _filled(builder)
    assert any("1 of 3 inferences shown" in line for line in shown_as_text((await show(file))[0]))
    everything = (await show(file, choice=Choice()))[0]
    assert not any(" shown; " in line for line in shown_as_text(everything))
    assert [table.kind for table in everything.tables].count("AA core metric") == 3


async def test_losses_and_notes_follow_the_tables(builder: DatabaseBuilder) -> None:
    text = "\n".join(shown_as_text((await show(_filled(builder)))[0]))
    assert "loss: torn record x 1\nnote: filter gap x 2\n" in text
    assert "loss: none" not in text


async def test_the_document_is_json_with_rows_by_column(builder: DatabaseBuilder) -> None:
    document = json.loads(json.dumps(shown_as_document((await show(_filled(builder)))[0])))
    assert document["ledger"]["loss"] == {"torn record": 1}
    tables = {table["table"]: table for table in document["tables"]}
    assert tables["AA core metric"]["about"]["model"] == "检测"
    assert [row["Layer Name"] for row in tables["AA core metric"]["rows"]] == ["conv", "pool", "total"]
    assert tables["Frequency"]["rows"] == [{"Device Id": 0, "Frequency(MHz)": 700}]


async def test_a_model_s_name_cannot_move_the_cursor(builder: DatabaseBuilder) -> None:
    session = builder.session()
    model = builder.model(builder.job(session), "a\x1b[2J\n")
    builder.aicore(builder.inference(session, model), builder.new_part(session, model, "aicore"), [7])
    lines = list(shown_as_text((await show(builder.close()))[0]))
    assert not any("\x1b" in line or "\n" in line for line in lines)


# Records and calls as events of a timeline

LAYER_ROWS = {0: LayerRow(4, "conv1+relu1", "Convolution+ReLU")}


def _trace(events: Any, **metadata: Any) -> Any:
    async def batches() -> AsyncIterator[list[Any]]:
        for event in events:
            yield [event]

    async def pieces() -> list[bytes]:
        return [piece async for piece in trace_pieces(batches(), lambda: metadata)]

    text = b"".join(asyncio.run(pieces()))
    return json.loads(text) if text else {"traceEvents": []}


def _tasks(
    tasks: list[Task], *, frequency_mhz: int | None = 100, origin_us: int = 1000
) -> tuple[TaskEvents, list[Any], list[Any]]:
    events = TaskEvents(0, origin_us, frequency_mhz, LAYER_ROWS, "NPU 0")
    found = _trace(events.of_inference(inference_row(), tasks))["traceEvents"]
    return events, [event for event in found if event["ph"] == "X"], [e for e in found if e["name"] == "thread_name"]


def test_units_and_streams_have_tracks_of_their_own() -> None:
    events = TaskEvents(2, 0, 100, LAYER_ROWS, "NPU 2")
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
