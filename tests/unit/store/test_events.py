"""Events of inferences, composed from rows."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from profagent.formats.board_files import Done
from profagent.formats.counter_maps import simulated_map
from profagent.formats.countermap import MAPPED_RATIOS
from profagent.formats.inference_layers import LayerTimes
from profagent.formats.inference_times import EXECUTE
from profagent.formats.model_info import LayerTable, Run
from profagent.formats.records import API_DTYPE
from profagent.importing.in_place import WorkspaceInPlace
from profagent.ingest.changes import (
    ApiRecords,
    ContentLedger,
    FrequencyKnown,
    InferenceTimed,
    JobChanges,
    LayersKnown,
    LinkLedger,
    LogAdvanced,
    LogJudged,
    NamesAnnounced,
)
from profagent.ingest.feed import Arrival
from profagent.ingest.local import LocalStream, list_collection
from profagent.ledger import SEQUENCE_GAP, Entry
from profagent.link.messages import Holding, Received
from profagent.record.mirroring import BoardMirrors
from profagent.store.events import Composer
from profagent.store.figures import figures_of
from profagent.store.inference_columns import ColumnReader, InferenceColumns
from profagent.store.live_events import LiveComposer
from profagent.store.sessions import MapUsed
from tests.fakes.dumps import write_files
from tests.fakes.small_job import SMALL_JOB
from tests.golden.write_exports import NAMES, job_copy
from tests.unit.store.rows import AICORE, AICPU, CALLS, JOB, Rows, aicore, aicpu, name_of
from tests.unit.watch.arriving_job import InMemory

if TYPE_CHECKING:
    from collections.abc import Iterable

    from profagent.ingest.changes import Change

WRITTEN = "written"
ENDED = JobChanges(JOB, "", (), "finished", caught_up=True)


def changes_of(directory: Path) -> list[Change]:
    """What the files of a JOB mean, each of them being announced before any comes; calls come last."""
    listing = list_collection(directory)
    stream, mirrors = LocalStream(directory, listing), BoardMirrors(WorkspaceInPlace(directory), "", None)
    page = [(reading, [*map(stream.log, reading.paths)]) for reading in listing.readings]
    missing = [*stream.missing(page, {log.handle: Holding(log.handle) for _, logs in page for log in logs})]
    others = [each for each in missing if isinstance(each, Received)]
    by_job, _ = mirrors.take(others, [each for each in missing if isinstance(each, Arrival)])
    changes = by_job[directory.name]
    announced = [NamesAnnounced([path for path in listing.files if listing.grows(path)])]
    return [*announced, *sorted(changes, key=lambda change: isinstance(change, ApiRecords))]


def live_events(changes: Iterable[Change], **options: bool) -> list[dict[str, Any]]:
    """What is told while all of it comes, one change after the other."""
    rows, composer = InMemory(simulated_map()), LiveComposer(**options)
    batches = [*(JobChanges(JOB, "", [change]) for change in changes), ENDED]
    return [event for batch in batches for event in composer.batch_events(rows.apply(batch), 0.0)]


def read(rows: Rows) -> InferenceColumns:
    numbers = [number for (number,) in rows.query("SELECT inference FROM inference ORDER BY inference")]
    return ColumnReader(rows.connection).read(numbers)


def composed(rows: Rows, calls: Iterable[Change] = (), **options: bool) -> list[dict[str, Any]]:
    composer, columns = Composer(**options), read(rows)
    for change in calls:
        assert isinstance(change, ApiRecords)
        composer.expect_calls(JOB, (change.name.model or "", change.name.model_id or 0))
    found = [*composer.inference_events(columns, figures_of(columns, composer.slowest), range(len(columns.rows)))]
    return [*found, *composer.change_events(JobChanges(JOB, "", [*calls], "finished", caught_up=True))]


def of_kind(events: Iterable[dict[str, Any]], kind: str) -> list[str]:
    """The events of a kind as sorted texts."""
    return sorted(repr(_comparable(event)) for event in events if event["event"] == kind)


# What depends on what else had come by then.
_OF_THE_MOMENT = {"sampled", "due", "ledger", "latency_from", "simulated"}


def _comparable(event: dict[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in event.items() if key not in _OF_THE_MOMENT}
    if "times" in event:
        found["times"] = [float(time) for time in event["times"][1:4]]
    if isinstance(layers := event.get("layers"), LayerTimes):
        # To the last bit: records of a layer are added in the order of their log.
        found["layers"] = (layers.by_place.tolist(), layers.recorded, layers.us_per_tick)
    if "calls" in event:
        found["calls"] = event["calls"].tolist()
    return found


@pytest.mark.parametrize("name", [*NAMES, WRITTEN])
def test_events_from_rows_are_those_that_were_told_while_they_came(name: str, rows: Rows, tmp_path: Path) -> None:
    directory = write_files(tmp_path / JOB, SMALL_JOB) if name == WRITTEN else job_copy(name, tmp_path)
    changes = changes_of(directory)
    rows.apply(*changes)
    rows.finish()
    calls = [change for change in changes if isinstance(change, ApiRecords)]
    for options, kinds in (
        ({"with_records": True}, ("record", "inference")),
        ({"with_layers": True}, ("inference", "latency", "calls")),
    ):
        live, ours = live_events(changes, **options), composed(rows, calls, **options)
        for kind in kinds:
            assert of_kind(ours, kind) == of_kind(live, kind)
        assert of_kind(ours, "inference")
    shutil.rmtree(directory)


def test_every_field_of_an_inference_is_on_the_page_of_its_events(tmp_path: Path) -> None:
    """All have the same, whether their figures are known or not."""
    events = live_events(changes_of(job_copy("runtime-edge", tmp_path)))
    told = [event for event in events if event["event"] == "inference"]
    fields = {*told[0]}
    assert [fields ^ event.keys() for event in told] == [set()] * len(told)
    assert {event["figures"] for event in told} == {"final", "partial"}
    page = Path(__file__).parents[3] / "docs" / "howto" / "watch-the-screen.md"
    assert fields - {*re.findall(r"`(\w+)`", page.read_text("utf-8"))} == set()


def run(index: int, name: str) -> Run:
    return Run(index, (), index, name, "Op", 0, is_batch=False)


def timed(path: str, start_us: int, end_us: int, load: int = 0) -> InferenceTimed:
    return InferenceTimed(name_of(path), load, Done(0, start_us, end_us))


def test_layers_are_sums_over_both_units_and_the_earlier_of_two_alike_comes_first(rows: Rows) -> None:
    table = LayerTable((), tuple(run(index, name) for index, name in enumerate(("conv", "pool", "fc", "nms"))))
    busy = {name: [0.2, 0.2, 0.2, 0.2] for name in MAPPED_RATIOS} | {"mac_ppen": [0.8, 0.2, 0.2, 0.8]}
    rows.session(decoded_with=MapUsed("m", "0" * 32, ""))
    rows.apply(
        FrequencyKnown(1000),
        LayersKnown("m", 0, table),
        NamesAnnounced([AICORE, AICPU]),
        # The first and the last record are of one layer: 30 of its 40 ticks were 80 % effective.
        aicore(ticks=(10, 40, 20, 30), layers=(0, 1, 2, 0), counters=busy),
        LogJudged(AICORE, 1, ""),
        aicpu([(1_000, 1_003)], (1_000, 1_003)),
        LogJudged(AICPU, 1, ""),
        timed(AICORE, 900, 1_002),
    )
    (event,) = composed(rows)[:1]
    assert (event["layers_us"], event["aicpu_us"], event["latency_us"]) == (13.0, 3.0, 103.0)
    assert (event["recorded"], event["of_layers"], event["records"]) == (3, 4, 5)
    assert [
        (layer["layer_name"], layer["unit"], layer["duration_us"], layer["share"]) for layer in event["slowest"]
    ] == [
        ("conv", "aicore", 4.0, 0.0388),
        ("pool", "aicore", 4.0, 0.0388),
        (None, "aicpu", 3.0, 0.0291),
    ]
    assert [layer.get("bound_by") for layer in event["slowest"]] == ["cube", "unexplained", None]


def test_what_the_ledger_says_of_an_inference_is_counted_over_all_of_its_files(rows: Rows) -> None:
    entries = [Entry("note", "no-layer", "made up", count=count) for count in (2, 3)]
    rows.apply(
        aicore(ticks=(1, 2)),
        ContentLedger(AICORE, (entries[0], Entry("note", SEQUENCE_GAP, "made up", count=7))),
        aicpu([(1_000, 1_003)], (1_000, 1_003)),
        ContentLedger(AICPU, (entries[1],)),
        LogAdvanced(AICPU + ".done", 1, 1),
        LinkLedger(AICPU + ".done", Entry("loss", "removed", "made up")),
    )
    composer, columns = Composer(), read(rows)
    (event,) = composer.inference_events(columns, figures_of(columns), [0])
    assert event["ledger"] == [
        {"grade": "loss", "reason": "removed", "count": 1},
        {"grade": "note", "reason": "no-layer", "count": 5},
    ]
    assert (composer.ledger, composer.left_out) == ({"loss": 1, "note": 12}, 7)


def test_of_a_log_with_several_inferences_each_has_its_own_records_and_the_last_what_is_odd(rows: Rows) -> None:
    loads = [load for load in range(3) for _ in range(2)]
    rows.apply(
        FrequencyKnown(100),
        aicore(ticks=range(1, 7), ordinals=loads, loads=loads),
        ContentLedger(AICORE, (Entry("note", "appended", "made up"),)),
        LogJudged(AICORE, 2, ""),
    )
    rows.finish()
    reader = ColumnReader(rows.connection)
    for _ in range(2):  # where the records are is remembered
        ticks = [reader.read([number]).aicore.records.duration.tolist() for number in (1, 2, 3)]
        assert ticks == [[1, 2], [3, 4], [5, 6]]
    assert reader.read([3, 1]).aicore.records.duration.tolist() == [5, 6, 1, 2]
    events = composed(rows)[:3]
    assert [(event["figures"], event["layers_us"]) for event in events] == [
        ("final", 3.0),
        ("final", 7.0),
        ("partial", None),
    ]
    assert [len(event["ledger"]) for event in events] == [0, 0, 1]


def test_an_inference_that_is_told_later_than_its_call_waits_for_none(rows: Rows) -> None:
    rows.apply(FrequencyKnown(100), aicore(), LogJudged(AICORE, 1, ""), timed(AICORE, 1_000, 1_500))
    composer, columns = Composer(with_layers=True), read(rows)
    composer.expect_calls(JOB, ("m", 0))
    figures = figures_of(columns, composer.slowest)
    (waiting,) = composer.inference_events(columns, figures, [0])
    calls = np.array([(0x5A5A, EXECUTE, 900, 1_600, 1, 1)], API_DTYPE)
    change = ApiRecords(CALLS, name_of(CALLS), np.arange(1), calls)
    (_, latency) = composer.change_events(JobChanges(JOB, "", [change]))
    (known,) = composer.inference_events(columns, figures, [0])
    assert (waiting["latency_us"], waiting["latency_from"], waiting["times"].is_awaited) == (500.0, "records", True)
    assert (latency["event"], latency["latency_us"], latency["times"].number) == ("latency", 700.0, 1)
    assert (known["latency_us"], known["latency_from"], known["times"].is_awaited) == (700.0, "call", False)
    assert [*composer.change_events(JobChanges(JOB, "", (), caught_up=True))] == []
