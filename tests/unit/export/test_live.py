"""Which events someone who watches is told, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profagent.commands.counter_maps import simulated_map
from profagent.export.live import REMEMBERED_JOBS, LiveEvents
from profagent.export.live_job import OPEN_INFERENCES
from profagent.ingest.changes import Entry, JobChanges, KeptLoss, LinkLedger, SegmentRecords
from tests.encoders import aicore_record, aicpu_record, api_record, done_text, layer_item
from tests.unit.export.arriving_job import JOB, LAYERS, START_US, ArrivingJob, aicore_done, aicore_path, records

AICPU = "data/aicpu.0.m.3.0.1.1.0"
CPU_SPAN = (START_US + 300, START_US + 340)


@pytest.fixture
def job() -> ArrivingJob:
    """A JOB with its tables, before its first inference."""
    live = ArrivingJob()
    live.begin()
    return live


def test_an_inference_is_told_when_its_done_and_its_records_are_there(job: ArrivingJob) -> None:
    assert job.send(aicore_path(), records(700, 1400, 7000)) == []
    (event,) = job.send(aicore_path() + ".done", aicore_done(768))
    assert event["event"] == "inference"
    assert (event["job"], event["model"], event["model_id"], event["current_pic_count"]) == (JOB, "m", 0, 0)
    assert (event["start_us"], event["end_us"]) == (START_US, START_US + 900)
    assert (event["records"], event["total_us"], event["complete"]) == (3, 1300.0, True)
    assert [layer["layer_name"] for layer in event["slowest"]] == ["fc", "pool", "conv"]
    assert [layer["share"] for layer in event["slowest"]] == [0.7692, 0.1538, 0.0769]


def test_a_done_before_its_data_waits_for_all_of_it(job: ArrivingJob) -> None:
    assert job.send(aicore_path() + ".done", aicore_done(768)) == []
    data = records(700, 1400, 7000)
    assert job.send(aicore_path(), data[:300]) == []
    assert job.send(aicore_path(), data[300:767]) == []
    (event,) = job.send(aicore_path(), data[767:])
    assert (event["records"], event["complete"]) == (3, True)


def test_a_length_that_never_comes_ends_when_the_board_vouches(job: ArrivingJob) -> None:
    job.send(aicore_path(), records(700, 1400))
    assert job.send(aicore_path() + ".done", aicore_done(1_000_000)) == []
    (event,) = job.complete(aicore_path())
    assert (event["event"], event["records"], event["complete"]) == ("inference", 2, True)
    assert [entry["reason"] for entry in event["ledger"]] == ["announced-length"]


def test_the_part_on_the_cpu_is_waited_for_once_a_model_had_one(job: ArrivingJob) -> None:
    cpu = aicpu_record(0, *CPU_SPAN, CPU_SPAN, 1)
    job.send(AICPU, cpu)
    job.send(aicore_path(), records(700))
    (first,) = job.send(aicore_path() + ".done", aicore_done(256))
    assert (first["aicpu_us"], first["total_us"]) == (40.0, 140.0)
    job.send(aicore_path(1), records(700))
    assert job.send(aicore_path(1) + ".done", aicore_done(256)) == []
    (second,) = job.send(AICPU[:-1] + "1", cpu)
    assert (second["current_pic_count"], second["total_us"]) == (1, 140.0)


def test_a_late_part_of_a_told_inference_is_counted_and_not_told_again(job: ArrivingJob) -> None:
    job.send(aicore_path(), records(700))
    job.send(aicore_path() + ".done", aicore_done(256))
    late = job.send(AICPU, aicpu_record(0, *CPU_SPAN, CPU_SPAN, 1))
    assert [event["reason"] for event in late] == ["no-layer"]
    assert job.events.summary()["records"] == {"aicore": 1, "aicpu": 1, "acl_api": 0}
    assert job.change_state("finished")[0]["event"] == "job"
    assert job.events.summary()["inferences"] == 1


def test_layers_that_become_known_late_name_what_was_not_told(job: ArrivingJob) -> None:
    job.send(aicore_path(), records(700, 1400))
    job.send("data/m.0.layer.info", layer_item(0, b"other\0", prof_layer_id=1))
    (event,) = job.send(aicore_path() + ".done", aicore_done(512))
    assert event["records"] == 2
    assert [layer["layer_name"] for layer in event["slowest"]] == [None, "other"]
    assert job.events.summary()["records"]["aicore"] == 2


def test_layers_that_become_known_late_tell_nothing_again(job: ArrivingJob) -> None:
    job.send(aicore_path(), records(700))
    assert job.send(aicore_path() + ".done", aicore_done(256))
    told = job.send("data/m.0.layer.info", layer_item(0, b"other\0", prof_layer_id=1))
    assert [event for event in told if event["event"] == "inference"] == []
    assert job.change_state("finished") == [
        {"event": "job", "job": JOB, "state": "finished", "simulated": False},
    ]


def test_batches_at_run_time_are_told_once(job: ArrivingJob) -> None:
    path = "data/aicore.0.m.3.0.2.3.0"
    job.send(path, records(*range(100, 109)))
    events = job.send(path + ".done", aicore_done(9 * 256, batches="2,1"))
    assert [event["event"] for event in events] == ["inference"]
    assert events[0]["records"] == 9


def test_a_model_loaded_again_is_another_inference(job: ArrivingJob) -> None:
    job.send(aicore_path(), records(700, 700))
    job.send(aicore_path() + ".done", aicore_done(512))
    job.complete(aicore_path())
    assert job.send(aicore_path(), records(1400, 1400)) == []
    events = job.send(aicore_path() + ".done", aicore_done(512, START_US + 5_000))
    events += job.complete(aicore_path())
    (event,) = (event for event in events if event["event"] == "inference")
    assert (event["total_us"], event["start_us"]) == (400.0, START_US + 5_000)
    assert [event["reason"] for event in events if event["event"] == "ledger"] == ["appended"]


def test_a_file_made_anew_is_told_anew(job: ArrivingJob) -> None:
    job.send(aicore_path(), records(700))
    (first,) = job.send(aicore_path() + ".done", aicore_done(256))
    (second,) = job.recreate(aicore_path(), records(1400))
    assert (first["total_us"], second["total_us"]) == (100.0, 200.0)


def test_a_file_made_anew_before_it_was_told_is_counted_by_its_new_records(job: ArrivingJob) -> None:
    job.send(aicore_path(), records(700, 700, 700))
    job.recreate(aicore_path(), records(1400))
    (event,) = job.send(aicore_path() + ".done", aicore_done(256))
    assert (event["records"], event["total_us"]) == (1, 200.0)


def test_what_never_got_a_done_is_told_when_its_job_has_ended(job: ArrivingJob) -> None:
    job.send(aicore_path(), records(700))
    job.send(aicore_path(1) + ".done", aicore_done(256))
    inference, state = job.change_state("quiet")
    assert (inference["records"], inference["complete"], inference["start_us"]) == (1, False, None)
    assert (state["event"], state["state"]) == ("job", "quiet")


def test_a_state_is_told_when_it_changes(job: ArrivingJob) -> None:
    assert [event["state"] for event in job.change_state("open")] == ["open"]
    assert job.change_state("open") == []
    assert [event["state"] for event in job.change_state("finished")] == ["finished"]


def test_the_oldest_of_too_many_open_inferences_are_told_as_they_are(job: ArrivingJob) -> None:
    events = [event for pictures in range(OPEN_INFERENCES + 2) for event in job.send(aicore_path(pictures), records(7))]
    assert [event["current_pic_count"] for event in events] == [0, 1]
    assert not any(event["complete"] for event in events)


def test_without_a_frequency_times_are_not_known() -> None:
    job = ArrivingJob()
    job.send(aicore_path(), records(700))
    (event,) = job.send(aicore_path() + ".done", aicore_done(256))
    assert (event["total_us"], event["records"], event["slowest"]) == (None, 1, [])


def test_a_ledger_entry_belongs_to_its_inference_while_that_is_open(job: ArrivingJob) -> None:
    gappy = records(700)[:256] + records(700, 700, 700)[512:]
    assert job.send(aicore_path(), gappy) == []
    (event,) = job.send(aicore_path() + ".done", aicore_done(512))
    assert event["ledger"] == [{"grade": "note", "reason": "sequence-gap", "count": 1}]
    assert job.events.summary()["ledger"] == {"loss": 0, "note": 1}


def test_other_ledger_entries_are_events_told_once(job: ArrivingJob) -> None:
    (event,) = job.send("data/core", b"foreign")
    assert (event["event"], event["log"], event["grade"], event["reason"], event["count"]) == (
        *("ledger", "data/core", "note", "foreign-file"),
        1,
    )
    assert job.send("data/core", b"foreign still") == []
    lost = LinkLedger(None, Entry("loss", "removed", "gone", count=40))
    (loss,) = job.feed([lost])
    assert (loss["log"], loss["grade"]) == (None, "loss")
    assert job.events.summary()["ledger"] == {"loss": 40, "note": 1}


def test_a_loss_that_the_daemon_keeps_is_told_when_it_is_new_or_goes_on(job: ArrivingJob) -> None:
    loss = KeptLoss(3, Entry("loss", "disk-full", "no space", count=2), lost_logs=2)
    grown = replace(loss, entry=replace(loss.entry, count=5), lost_logs=5)
    events = [event for told in (loss, loss, grown, grown) for event in job.events.feed(JobChanges("", "", (told,)))]
    assert [(event["event"], event["job"], event["lost_logs"]) for event in events] == [
        ("kept_loss", None, 2),
        ("kept_loss", None, 5),
    ]
    assert job.events.summary()["ledger"]["loss"] == 5


def test_a_name_for_people_has_no_control_characters() -> None:
    job = ArrivingJob()
    path = aicore_path(model="caf\udce9\x1b[2J")
    job.send(path, records(700))
    (event,) = job.send(path + ".done", aicore_done(256))
    assert event["model"] == "caf\\xe9\\x1b[2J"


def test_records_are_events_of_their_own() -> None:
    job = ArrivingJob(with_records=True, counter_map=simulated_map())
    job.begin()
    first, second = job.send(aicore_path(), records(700, 1400))
    assert (first["event"], first["unit"], first["segment"], first["sequence"]) == ("record", "aicore", 0, 0)
    assert (second["layer_name"], second["layer_type"], second["duration_us"]) == ("pool", "Convolution", 200.0)
    assert second["mac_busy"] == 0.0
    (cpu,) = job.send(AICPU, aicpu_record(0, *CPU_SPAN, CPU_SPAN, 1))
    assert (cpu["unit"], cpu["duration_us"]) == ("aicpu", 40.0)
    assert "mac_busy" not in cpu
    assert first["bound_by"] == "unexplained"
    assert "bound_by" not in cpu


def test_with_a_counter_map_each_layer_tells_what_bounds_it() -> None:
    job = ArrivingJob(counter_map=simulated_map())
    job.begin()
    job.events.likely = ("wld",)
    busy = {0x08: 45_000, 0x0C: 52_500}
    job.send(aicore_path(), aicore_record(0, 700, 0, busy) + aicore_record(1, 1400, 0, {0x20: 0xC000}))
    (event,) = job.send(aicore_path() + ".done", aicore_done(512))
    assert [layer["bound_by"] for layer in event["slowest"]] == ["DLD", "cube"]
    assert event["likely"] == ["wld"]


def test_without_a_counter_map_nothing_tells_what_bounds_a_layer(job: ArrivingJob) -> None:
    job.events.likely = ("wld",)
    job.send(aicore_path(), records(700))
    (event,) = job.send(aicore_path() + ".done", aicore_done(256))
    assert "bound_by" not in event["slowest"][0]
    assert "likely" not in event


def test_a_counter_that_the_map_does_not_name_leaves_unknown_what_bounds_a_layer() -> None:
    whole = simulated_map()
    job = ArrivingJob(counter_map=replace(whole, counters=whole.counters[1:]))
    job.begin()
    job.send(aicore_path(), records(700))
    (event,) = job.send(aicore_path() + ".done", aicore_done(256))
    assert event["slowest"][0]["bound_by"] is None


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


def test_calls_are_counted_and_not_told_with_inferences(job: ArrivingJob) -> None:
    assert job.send("data/acl_api.0.m.0", api_record(2, START_US, START_US + 500)) == []
    assert job.send("data/acl_api.0.m.0.done", done_text(file_len=32, start_time=1, end_time=2, pid=7, tid=8)) == []
    assert job.events.summary()["records"]["acl_api"] == 1


def test_what_is_passed_over_is_not_counted_and_not_told_later(job: ArrivingJob) -> None:
    changes = [
        *job.decoder.begin(aicore_path(), 1, 0),
        *job.decoder.append(aicore_path(), 1, 0, records(700)),
        *job.decoder.snapshot(aicore_path() + ".done", 1, aicore_done(256), b""),
    ]
    job.events.pass_over(JobChanges(JOB, "/board", changes))
    assert job.events.summary()["inferences"] == 0
    assert job.events.summary()["records"] == {"aicore": 0, "aicpu": 0, "acl_api": 0}
    assert job.change_state("finished") == [{"event": "job", "job": JOB, "state": "finished", "simulated": False}]


def test_an_inference_under_way_while_it_is_passed_over_is_told_whole(job: ArrivingJob) -> None:
    changes = [*job.decoder.begin(aicore_path(), 1, 0), *job.decoder.append(aicore_path(), 1, 0, records(700, 700))]
    job.events.pass_over(JobChanges(JOB, "/board", changes))
    (event,) = job.send(aicore_path() + ".done", aicore_done(512))
    assert event["records"] == 2


def test_a_simulated_job_marks_every_event(job: ArrivingJob) -> None:
    job.send("simulated", b"made by profagentd --simulate\n")
    assert job.change_state("open")[0]["simulated"] is True
    assert job.events.summary()["simulated"] is True


def test_an_inference_whose_records_never_end_is_told_as_it_is(
    job: ArrivingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("profagent.export.live.OPEN_RECORDS", 10)
    data = records(*range(1, 31))
    events = [event for at in range(0, len(data), 256) for event in job.send(aicore_path(), data[at : at + 256])]
    (event,) = [event for event in events if event["event"] == "inference"]
    assert (event["records"], event["complete"]) == (11, False)


def _segment(*ticks: int) -> SegmentRecords:
    """Records of an inference that no `.done` ends."""
    changes = ArrivingJob().decoder.append(aicore_path(), 1, 0, records(*ticks))
    (change,) = [change for change in changes if isinstance(change, SegmentRecords)]
    return change


def _job_names(count: int) -> list[str]:
    return [f"JOB{chr(65 + number)}{'B' * 28}" for number in range(count)]


def test_open_records_of_all_jobs_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profagent.export.live.OPEN_RECORDS", 10)
    live = LiveEvents()
    told = [
        [
            (event["job"], event["records"], event["complete"])
            for event in live.feed(JobChanges(name, "/root", [change]))
        ]
        for change in [_segment(*range(1, 5))]
        for name in _job_names(4)
    ]
    first, second, *_ = _job_names(4)
    assert told == [[], [], [(first, 4, False)], [(second, 4, False)]]


def test_records_that_come_anew_are_counted_once(job: ArrivingJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profagent.export.live.OPEN_RECORDS", 10)
    job.send(aicore_path(), records(*range(1, 7)))
    assert job.recreate(aicore_path(), records(*range(1, 7))) == []


def test_what_was_not_told_of_the_oldest_of_too_many_jobs_is_told() -> None:
    live = LiveEvents()
    change = _segment(700)
    names = _job_names(REMEMBERED_JOBS + 1)
    told = [event for name in names for event in live.feed(JobChanges(name, "/root", [change]))]
    assert [(event["event"], event["job"], event["complete"]) for event in told] == [("inference", names[0], False)]


def test_tables_of_layers_are_bounded_by_their_layers(job: ArrivingJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profagent.export.live_job.REMEMBERED_LAYERS", len(LAYERS))
    job.send("data/n.0.layer.info", layer_item(1, b"other\0", prof_layer_id=1))
    job.send(aicore_path(), records(700))
    (event,) = job.send(aicore_path() + ".done", aicore_done(256))
    assert [layer["layer_name"] for layer in event["slowest"]] == [None]
    assert event["total_us"] == 100.0
