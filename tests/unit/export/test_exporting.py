"""Tables and timelines as files of a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from profagent.errors import UsageError
from profagent.export.export import export_summary, export_timeline
from profagent.store.selection import Choice
from tests.unit.store.database import JOB, START_US, DatabaseBuilder

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
    assert metadata[1]["files"] == list(summary.files)
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
