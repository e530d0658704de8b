"""Which events someone who watches is told, and when."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from profagent.formats.counter_maps import simulated_map
from profagent.ingest.changes import JobChanges, LinkLedger, LogRemoved, RecordedLoss
from profagent.ledger import Entry
from profagent.watch.lines import line_of
from tests.encoders import aicore_record, aicpu_record, api_record, done_text, layer_item, net_item
from tests.unit.watch.arriving_job import INFO_JSON, JOB, START_US, ArrivingJob, aicore_done, aicore_path, records

AICPU = "data/aicpu.0.m.3.0.1.1.0"
CPU_SPAN = (START_US + 300, START_US + 340)


@pytest.fixture
def job() -> ArrivingJob:
    """A JOB with its tables, before its first inference."""
    live = ArrivingJob()
    live.begin()
    return live


def test_an_inference_is_told_when_its_done_and_its_records_are_there(job: ArrivingJob) -> None:
    assert job.send(aicore_path(), records(700, 1400, 3500)) == []
    (event,) = job.send(aicore_path() + ".done", aicore_done(768))
    assert event["event"] == "inference"
    assert (event["job"], event["model"], event["model_id"], event["current_pic_count"]) == (JOB, "m", 0, 0)
    assert (event["start_us"], event["end_us"]) == (START_US, START_US + 900)
    assert (event["records"], event["layers_us"], event["figures"], event["why"]) == (3, 800.0, "final", None)
    assert (event["latency_us"], event["latency_from"]) == (900.0, "records")
    assert [layer["layer_name"] for layer in event["slowest"]] == ["fc", "pool", "conv"]
    assert [layer["share"] for layer in event["slowest"]] == [0.5556, 0.2222, 0.1111], "of the latency"


def test_a_length_that_never_comes_ends_when_the_board_vouches(job: ArrivingJob) -> None:
    job.send(aicore_path(), records(700, 1400))
    assert job.send(aicore_path() + ".done", aicore_done(1_000_000)) == []
    (event,) = job.complete(aicore_path())
    assert (event["event"], event["records"], event["layers_us"]) == ("inference", 2, None)
    why = "aicore records: the .done announces 1000000 bytes, 512 are there"
    assert (event["figures"], event["why"]) == ("partial", why)
    assert [entry["reason"] for entry in event["ledger"]] == ["announced-length"]


def send_cpu(job: ArrivingJob, path: str = AICPU) -> list[dict[str, Any]]:
    """The part of an inference on the CPU, of 40 µs, and its `.done`."""
    told = job.send(path, aicpu_record(0, *CPU_SPAN, CPU_SPAN, 1))
    return told + job.send(path + ".done", done_text(file_len=128, start_time=CPU_SPAN[0], end_time=CPU_SPAN[1]))


def send_aicore(job: ArrivingJob, path: str = aicore_path()) -> list[dict[str, Any]]:
    """The part of an inference on the NPU, of 100 µs, and its `.done`."""
    told = job.send(path, records(700))
    return told + job.send(path + ".done", aicore_done(256))


def test_a_time_of_0_is_not_known_and_what_ran_on_the_cpu_alone_needs_no_clock(job: ArrivingJob) -> None:
    job.send(aicore_path(), records(700))
    done = done_text(file_len=256, start_time=0, end_time=0, cache_hit=1, cache_mis=1)
    (event,) = job.send(aicore_path() + ".done", done)
    assert (event["start_us"], event["end_us"], event["layers_us"]) == (None, None, 100.0)
    alone = ArrivingJob()
    (event,) = send_cpu(alone) + alone.complete(AICPU) + alone.wait(60)
    assert (event["layers_us"], event["aicpu_us"], event["records"], event["latency_us"]) == (40.0, 40.0, 1, 40.0)
    assert [(layer["unit"], layer["duration_us"]) for layer in event["slowest"]] == [("aicpu", 40.0)]


@pytest.mark.parametrize("is_sent", [True, False])
def test_a_part_that_is_removed_before_it_came_makes_an_inference_partial(job: ArrivingJob, is_sent: bool) -> None:
    job.announce(aicore_path(), AICPU)
    loss = LinkLedger(AICPU, Entry("loss", "removed", "gone", count=128))
    if not is_sent:
        job.feed([LogRemoved(AICPU), loss])
    told = send_aicore(job)
    if is_sent:
        assert told == []
        told = job.feed([LogRemoved(AICPU), loss])
    (event,) = told
    why = "aicpu records: their log was removed from the board before they had all come"
    assert (event["figures"], event["why"], event["layers_us"], event["aicpu_us"]) == ("partial", why, None, None)
    assert [entry["reason"] for entry in event["ledger"]] == (["removed"] if is_sent else [])
    assert job.wait(60) == []
    assert [event["event"] for event in job.change_state("finished")] == ["job"]
    assert (job.events.inferences, job.events.ledger["loss"]) == (1, 128)


def test_data_before_an_announced_table_is_told_with_the_names_of_its_layers() -> None:
    job = ArrivingJob()
    job.send("info.json.0", INFO_JSON)
    job.announce("data/m.0.layer.info", aicore_path())
    assert [event for event in send_aicore(job) if event["event"] == "inference"] == []
    (waiting,) = job.wait(2.1)
    assert (waiting["figures"], waiting["why"]) == ("pending", "the table of layers has not come yet")
    told = job.send("data/m.0.layer.info", layer_item(0, b"conv\0", prof_layer_id=1))
    (event,) = [event for event in told if event["event"] == "inference"]
    assert (event["figures"], event["layers_us"]) == ("final", 100.0)
    assert [layer["layer_name"] for layer in event["slowest"]] == ["conv"]


def test_a_model_loaded_again_is_another_inference(job: ArrivingJob) -> None:
    job.send(aicore_path(), records(700, 700))
    job.send(aicore_path() + ".done", aicore_done(512))
    job.complete(aicore_path())
    assert job.send(aicore_path(), records(1400, 1400)) == []
    events = job.send(aicore_path() + ".done", aicore_done(512, START_US + 5_000))
    events += job.complete(aicore_path())
    (event,) = events
    assert (event["layers_us"], event["start_us"]) == (400.0, START_US + 5_000)
    assert [entry["reason"] for entry in event["ledger"]] == ["appended"]


def test_a_file_made_anew_is_told_anew(job: ArrivingJob) -> None:
    job.send(aicore_path(), records(700))
    (first,) = job.send(aicore_path() + ".done", aicore_done(256))
    assert job.recreate(aicore_path(), records(1400)) == []  # the .done that is there is of what was before
    (second,) = job.send(aicore_path() + ".done", aicore_done(256))
    assert (first["layers_us"], second["layers_us"]) == (100.0, 200.0)


def test_records_that_come_twice_before_they_are_told_are_counted_once(job: ArrivingJob) -> None:
    job.send(aicore_path(), records(700))
    assert job.recreate(aicore_path(), records(700, 1400)) == []
    assert job.events.summary()["records"]["aicore"] == 0
    (event,) = job.send(aicore_path() + ".done", aicore_done(512))
    assert job.events.summary()["records"] == {"aicore": event["records"], "aicpu": 0, "acl_api": 0}


def test_what_is_odd_after_an_inference_was_told_is_told_by_itself(job: ArrivingJob) -> None:
    job.send(aicore_path(), records(700))
    job.send(aicore_path() + ".done", aicore_done(512))
    (partial,) = job.complete(aicore_path())
    assert partial["figures"] == "partial"
    (event,) = job.feed([LinkLedger(aicore_path(), Entry("loss", "removed", "gone", count=256))])
    assert (event["event"], event["log"], event["reason"]) == ("ledger", aicore_path(), "removed")


def test_an_inference_that_becomes_known_after_it_was_partial_is_counted_once() -> None:
    job = ArrivingJob(with_records=True)
    job.begin()
    job.send(aicore_path(), records(700))
    job.send(aicore_path() + ".done", aicore_done(512))
    told = job.complete(aicore_path())
    told += job.send(aicore_path(), records(700, 1400)[256:])
    told += job.send(aicore_path() + ".done", aicore_done(512, START_US + 1))
    assert [event["figures"] for event in told if event["event"] == "inference"] == ["partial", "final"]
    assert [event["duration_us"] for event in told if event["event"] == "record"] == [100.0, 200.0]
    assert job.events.summary()["inferences"] == 1


def test_a_ledger_entry_belongs_to_its_inference_while_that_is_open(job: ArrivingJob) -> None:
    unnamed = records(700, 700, 700, 700)
    assert job.send(aicore_path(), unnamed) == []
    (event,) = job.send(aicore_path() + ".done", aicore_done(1024))
    assert event["ledger"] == [{"grade": "note", "reason": "no-layer", "count": 1}]
    assert job.events.summary()["ledger"] == {"loss": 0, "note": 1}


def test_records_that_the_runtime_left_out_are_told_by_the_layers_and_once_at_the_end(job: ArrivingJob) -> None:
    gappy = records(700)[:256] + records(700, 700, 700)[512:]
    assert job.send(aicore_path(), gappy) == []
    (event,) = job.send(aicore_path() + ".done", aicore_done(512))
    assert (event["ledger"], event["recorded"], event["of_layers"]) == ([], 2, 3)
    summary = job.events.summary()
    assert (summary["ledger"]["note"], summary["left_out_records"]) == (1, 1)


def test_a_loss_that_the_daemon_keeps_is_told_when_it_is_new_or_goes_on(job: ArrivingJob) -> None:
    loss = RecordedLoss(3, Entry("loss", "disk-full", "no space", count=2), lost_logs=2)
    grown = replace(loss, entry=replace(loss.entry, count=5), lost_logs=5)
    events = [event for told in (loss, loss, grown, grown) for event in job.batch(JobChanges("", "", (told,)))]
    assert [(event["event"], event["job"], event["lost_logs"]) for event in events] == [
        ("kept_loss", None, 2),
        ("kept_loss", None, 5),
    ]
    assert job.events.summary()["ledger"]["loss"] == 5


def test_with_a_counter_map_each_layer_tells_what_bounds_it() -> None:
    job = ArrivingJob(counter_map=simulated_map())
    job.begin()
    job.events.likely = ("wld",)
    busy = {0x08: 45_000, 0x0C: 52_500}
    job.announce(aicore_path(), AICPU)
    send_cpu(job)
    job.send(aicore_path(), aicore_record(0, 700, 0, busy) + aicore_record(1, 1400, 0, {0x20: 0xC000}))
    (event,) = job.send(aicore_path() + ".done", aicore_done(512))
    assert [layer.get("bound_by") for layer in event["slowest"]] == ["DLD", "cube", None]
    assert event["likely"] == ["wld"]


CALLS = "data/acl_api.0.m.0"
# What an inference of this file waits for: 100 µs before the NPU begins, and 150 µs after it.
CALL = api_record(2, START_US - 100, START_US + 1050)
LATER_CALL = api_record(2, START_US + 2000, START_US + 3000)


def latencies(told: list[dict[str, Any]]) -> list[tuple[str, float | None, str | None]]:
    return [
        (event["event"], event["latency_us"], event["latency_from"])
        for event in told
        if event["event"] in {"inference", "latency"}
    ]


def infer_twice(job: ArrivingJob) -> list[dict[str, Any]]:
    told = send_aicore(job)
    told += job.send(aicore_path(1), records(700))
    return told + job.send(aicore_path(1) + ".done", aicore_done(256, START_US + 2010))


def test_an_inference_whose_call_is_here_has_its_latency(job: ArrivingJob) -> None:
    job.send(CALLS, CALL)
    assert latencies(send_aicore(job)) == [("inference", 1150.0, "call")]


def test_an_inference_does_not_wait_for_its_call_and_statistics_hear_of_it() -> None:
    job = ArrivingJob(with_layers=True)
    job.begin()
    job.announce(CALLS)
    told = infer_twice(job)
    assert latencies(told) == [("inference", 900.0, "records"), ("inference", 900.0, "records")]
    assert all(event["times"].is_awaited for event in told)
    later = [event for event in job.send(CALLS, CALL) if event["event"] != "calls"]
    assert latencies(later) == [("latency", 1150.0, "call")]
    assert later[0]["times"].number == told[0]["times"].number
    # Where the call comes no more, the latency stays what it was.
    assert latencies(job.change_state("finished")) == [("latency", 900.0, "records")]


def test_calls_of_which_none_is_left_have_no_event() -> None:
    job = ArrivingJob(with_layers=True)
    job.begin()
    assert [event["event"] for event in job.send(CALLS, bytes(len(CALL)))] == ["ledger"]


def test_a_call_that_the_runtime_lost_is_not_waited_for_when_later_ones_are_here() -> None:
    job = ArrivingJob(with_layers=True)
    job.begin()
    job.announce(CALLS)
    infer_twice(job)
    assert latencies(job.send(CALLS, LATER_CALL)) == [("latency", 900.0, "records"), ("latency", 1000.0, "call")]


def test_an_asynchronous_inference_lasts_until_the_synchronize_that_waited_for_it(job: ArrivingJob) -> None:
    job.send(CALLS, api_record(3, START_US - 100, START_US - 90) + api_record(4, START_US - 80, START_US + 1000))
    assert latencies(send_aicore(job)) == [("inference", 1100.0, "call")]


def test_the_oldest_of_too_many_that_wait_for_calls_wait_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profagent.ingest.live_latency.MOST_WAITING", 1)
    job = ArrivingJob(with_layers=True)
    job.begin()
    job.announce(CALLS)
    told = infer_twice(job)
    assert [event["event"] for event in told] == ["inference", "inference", "latency"]
    assert told[2]["times"].number == told[0]["times"].number


def test_without_a_log_of_calls_nothing_is_waited_for() -> None:
    job = ArrivingJob(with_layers=True)
    job.begin()
    (event,) = send_aicore(job)
    assert not event["times"].is_awaited


def test_layers_of_both_processors_are_among_the_slowest_with_shares_of_the_latency() -> None:
    """A network of which the CPU takes 94 %: 40 of 660 µs are the NPU's layer."""
    job = ArrivingJob()
    job.send("info.json.0", INFO_JSON)
    job.send("data/m.0.net.info", net_item(0, prof_layers=1) + net_item(1, prof_layers=1))
    items = layer_item(0, b"conv\0", prof_layer_id=1) + layer_item(1, b"nms\0", prof_layer_id=2, segment=1)
    job.send("data/m.0.layer.info", items)
    job.announce(aicore_path(), AICPU)
    job.send(CALLS, api_record(2, START_US - 10, START_US + 650))
    span = (START_US + 45, START_US + 645)
    job.send(AICPU, aicpu_record(0, *span, span, 1))
    job.send(AICPU + ".done", done_text(file_len=128, start_time=span[0], end_time=span[1]))
    job.send(aicore_path(), records(280))
    done = done_text(file_len=256, start_time=START_US, end_time=START_US + 40, cache_hit=1, cache_mis=1)
    (event,) = job.send(aicore_path() + ".done", done)
    assert (event["latency_us"], event["layers_us"], event["aicpu_us"], event["records"]) == (660.0, 640.0, 600.0, 2)
    assert (event["recorded"], event["of_layers"]) == (2, 2)
    slowest = [(layer["layer_name"], layer["unit"], layer["share"]) for layer in event["slowest"]]
    assert slowest == [("nms", "aicpu", 0.9091), ("conv", "aicore", 0.0606)]
    line = line_of(event)
    assert "  0.660 ms  2 of 2 layers  nms (cpu) 0.600 ms 90.9%  conv 0.040 ms 6.1%" in line


def test_calls_are_events_and_an_unknown_begin_has_no_duration() -> None:
    job = ArrivingJob(with_records=True)
    calls = api_record(2, START_US, START_US + 500) + api_record(9, 0, START_US + 600)
    known, unknown, note = job.send("data/acl_api.0.m.0", calls)
    assert (known["name"], known["begin_us"], known["duration_us"], known["pid"], known["tid"]) == (
        *("svp_acl_mdl_execute", START_US, 500),
        *(7, 8),
    )
    assert (unknown["name"], unknown["begin_us"], unknown["duration_us"]) == ("unknown(9)", None, None)
    assert note["reason"] == "begin-unknown"


def test_what_is_passed_over_is_not_counted_and_not_told_later(job: ArrivingJob) -> None:
    changes = [
        *job.decoder.begin(aicore_path(), 1, 0),
        *job.decoder.append(aicore_path(), 1, 0, records(700)),
        *job.decoder.snapshot(aicore_path() + ".done", 1, aicore_done(256), b""),
        *job.decoder.complete(aicore_path(), 1, 256, b""),
    ]
    job.events.pass_over(job.rows.apply(JobChanges(JOB, "/board", changes)), job.now_s)
    assert job.events.summary()["inferences"] == 0
    assert job.events.summary()["records"] == {"aicore": 0, "aicpu": 0, "acl_api": 0}
    assert job.change_state("finished") == [{"event": "job", "job": JOB, "state": "finished", "simulated": False}]


def test_an_inference_that_grows_after_it_was_looked_at_is_told_whole(job: ArrivingJob) -> None:
    """Two inferences in one log: where the records of each are is remembered no longer than that is true."""
    job.send(aicore_path(), records(700, 700))
    job.send(aicore_path() + ".done", aicore_done(512))
    job.complete(aicore_path())
    job.send(aicore_path(), records(700))
    (waiting,) = job.wait(3)
    job.send(aicore_path(), records(700, 1400)[256:])
    told = job.send(aicore_path() + ".done", aicore_done(512, START_US + 5_000))
    told += job.complete(aicore_path())
    (event,) = [event for event in told if event["event"] == "inference"]
    assert (waiting["figures"], waiting["records"]) == ("pending", 1)
    assert (event["figures"], event["records"], event["layers_us"]) == ("final", 2, 300.0)
