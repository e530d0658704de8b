"""MindSpore's Profiler over the SS928's runtime: schedule, transitions, warnings, files."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from profagent_app import (
    AicoreMetrics,
    Profiler,
    ProfilerAction,
    ProfilerActivity,
    ProfilerLevel,
    acl,
    parameters,
    schedule,
    tensor_board_trace_handler,
    tensorboard_trace_handler,
)
from profagent_app.marks import Kind
from profagent_app.runtime import Mode, Runtime
from tests.program.conftest import MODEL

if TYPE_CHECKING:
    from tests.program.reader import MarksReader

NONE, WARM_UP, RECORD, SAVE = ProfilerAction


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(parameters, "_warned", set())
    monkeypatch.setenv("PATH", str(tmp_path))  # no `profagent` there
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("parameters", "actions"),
    [
        ({"wait": 1, "warmup": 1, "active": 2, "repeat": 1, "skip_first": 2}, "000123000"),
        ({"wait": 0, "active": 1}, "3333"),
        ({"wait": 1, "active": 1, "repeat": 2}, "0303000"),
        ({"wait": 0, "warmup": 2, "active": 2}, "11231123"),
        ({"wait": -1, "active": 0, "warmup": True, "repeat": "x", "skip_first": 1.5}, "333"),
    ],
)
def test_what_a_schedule_does(parameters: dict, actions: str) -> None:
    plan = schedule(**parameters)
    assert "".join(str(int(plan(step))) for step in range(len(actions))) == actions


def test_a_schedule_is_given_by_name_and_counts_from_0() -> None:
    with pytest.raises(TypeError):
        schedule(1, 1)  # type: ignore[misc]
    with pytest.raises(TypeError):
        schedule(wait=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="must be not less than 0"):
        schedule(wait=1, active=1)(-1)


def test_bad_values_and_no_warm_up_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    schedule(wait=-1, active=1)
    assert "Parameter wait should be of type int" in caplog.text
    assert "won't be using warmup" in caplog.text


LETTERS = {
    "init": "i", "start": "S", "stop": "P", "finalize": "F", "trace_ready": "T", "clear": "C", "delete_dir": "D",
}  # fmt: skip
TABLE = {
    NONE: ("", "i", "i S", "i S", ""),
    WARM_UP: ("W S P F C", "", "S", "S", "W F C D"),
    RECORD: ("W P F C", "W P F C", "", "", "W P F T C"),
    SAVE: ("P F T C", "P F T C i", "P F T C i S", "P F T C i S", "W P F T C"),
}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (before, after, row[place])
        for before, row in TABLE.items()
        for place, after in enumerate([*ProfilerAction, None])
    ],
)
def test_the_whole_transition_table(
    before: ProfilerAction,
    after: ProfilerAction | None,
    expected: str,
    runtime: Runtime,
    caplog: pytest.LogCaptureFixture,
) -> None:
    done = []

    class Watched:
        def __getattr__(self, name: str) -> Callable[[], None]:
            return lambda: done.append(LETTERS[name])

    subject = Profiler(runtime=runtime, start_profile=False)
    caplog.clear()
    subject._collection = Watched()  # type: ignore[assignment]
    subject._transit(before, after)
    warned = ["W"] if caplog.records else []
    assert " ".join(warned + done) == expected


@pytest.fixture
def ready(runtime: Runtime) -> Iterator[Runtime]:
    runtime.init()
    yield runtime
    runtime.finalize()


def the_directory(tmp_path: Path) -> Path:
    (found,) = tmp_path.glob("data/*_ascend_ms")
    return found


def test_the_pages_own_sample(ready: Runtime, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    subject = Profiler(
        profiler_level=ProfilerLevel.Level0,
        activities=[ProfilerActivity.CPU, ProfilerActivity.NPU],
        aicore_metrics=AicoreMetrics.AiCoreNone,
        runtime=ready,
    )
    model = ready.load_model(MODEL)
    ready.execute(model, 0, 0)
    subject.analyse()
    directory = the_directory(tmp_path)
    assert re.fullmatch(r".+_\d+_\d{17}_ascend_ms", directory.name)
    assert len(list(directory.glob("JOB*/data/aicore.*.done"))) == 1
    written = json.loads((directory / "profiler_info_0.json").read_text())["profiler_parameters"]
    assert written["profiler_level"] == "Level0"
    assert written["activities"] == ["CPU", "NPU"]
    assert written["is_set_schedule"] is False
    assert "the results are made on the host" in caplog.text
    assert ready.mode is Mode.OFF


def test_a_callback_that_starts_and_stops_at_steps(ready: Runtime, tmp_path: Path) -> None:
    """StopAtStep of the page: start_profile=False, start() and stop() by the program."""
    subject = Profiler(start_profile=False, runtime=ready)
    model = ready.load_model(MODEL)
    for step in range(6):
        if step == 2:
            subject.start()
        ready.execute(model, 0, 0)
        if step == 4:
            subject.stop()
    subject.analyse()
    assert len(list(the_directory(tmp_path).glob("JOB*/data/aicore.*.done"))) == 3


def test_a_schedule_records_its_active_steps_and_marks_all(ready: Runtime, fifo: MarksReader, tmp_path: Path) -> None:
    traces: list[object] = []
    plan = schedule(wait=1, warmup=1, active=2, repeat=1, skip_first=1)
    with Profiler(schedule=plan, on_trace_ready=traces.append, runtime=ready) as subject:
        model = ready.load_model(MODEL)
        for _ in range(7):
            ready.execute(model, 0, 0)
            subject.step()
    steps = fifo.read()
    assert [each.text for each in steps] == [f"ProfilerStep#{number}" for number in range(8)]
    assert {each.kind for each in steps} == {Kind.STEP}
    assert len(traces) == 1
    assert len(list(the_directory(tmp_path).glob("JOB*/data/aicore.*.done"))) == 2


def test_the_handlers_directory_and_name_win(ready: Runtime, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    handler = tensorboard_trace_handler("traces", worker_name="w7")
    with Profiler(
        on_trace_ready=handler, output_path="other", schedule=schedule(wait=0, active=1), runtime=ready
    ) as it:
        it.step()
    assert "the path of on_trace_ready is used" in caplog.text
    assert [each.name.split("_")[0] for each in (tmp_path / "traces").iterdir()] == ["w7"]
    assert tensorboard_trace_handler(worker_name="x" * 226).worker_name is None


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        (lambda it: it.start(), "has already started. Do not turn on again"),
        (lambda it: (it.stop(), it.stop()), "has not started. Do not turn off again"),
        (lambda it: it.step(), "With no schedule in the Profiler, step takes no effect"),
        (lambda it: it.add_metadata("a", 1), "must be string"),
        (lambda it: it.add_metadata_json("a", "{"), "must be a JSON text"),
        (lambda it: it.analyse(offline_path="/nowhere"), "Expected a *_ascend_ms_* directory"),
        (lambda it: it.offline_analyse(None), "offline_analyse failed"),
        (lambda it: it.offline_analyse(".", data_simplification=True), "data_simplification=True has no effect"),
        (lambda it: it.analyse(pretty=True), "pretty=True has no effect"),
        (lambda it: it.analyse(step_list=[]), "step_list=[] has no effect: all steps are imported"),
        (lambda it: it.analyse(mode="later"), """mode must be "sync" or "async", not 'later'"""),
        (lambda it: it.analyse(offline_path=5), "analyse failed"),
        (lambda it: it.add_metadata([], "a"), "must be string"),
        (lambda it: tensorboard_trace_handler(worker_name=5), "worker_name must be a string"),  # type: ignore[arg-type]
        (lambda it: tensorboard_trace_handler(dir_name=5), "dir_name must be a path"),  # type: ignore[arg-type]
        (lambda it: Profiler(on_trace_ready=tensorboard_trace_handler("a\0")), "the profiler cannot collect"),
        (lambda it: Profiler(on_trace_ready=print), "on_trace_ready is called with a schedule only"),
        (
            lambda it: Profiler(schedule=lambda step: "RECORD"),
            "schedule gives no ProfilerAction for step 0 ('RECORD' is",
        ),
        (lambda it: Profiler(schedule=lambda step: 1 // step), "gives no ProfilerAction for step 0 ("),
        (lambda it: it.offline_analyse(Path("x_ascend_ms").mkdir() or "."), "there is no JOB in"),  # type: ignore[func-returns-value]
    ],
)
def test_what_is_wrong_is_logged_and_not_raised(
    steps: Callable[[Profiler], object], text: str, ready: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    subject = Profiler(runtime=ready)
    steps(subject)
    assert text in caplog.text
    if subject._has_started:
        subject.stop()


def test_with_a_schedule_step_is_needed(ready: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    subject = Profiler(schedule=schedule(wait=0, active=2), runtime=ready)
    subject.stop()
    assert "Please use step() to collect data" in caplog.text
    subject.step()
    subject.analyse()
    assert "Please use 'on_trace_ready'" in caplog.text
    subject.step()
    assert "Profiler is stopped, step takes no effect" in caplog.text


def test_metadata_of_every_cycle_and_of_none_are_kept(ready: Runtime, tmp_path: Path) -> None:
    subject = Profiler(schedule=schedule(wait=0, active=1, repeat=2), runtime=ready)
    subject.add_metadata("name", "yolo")
    for cycle in range(3):
        subject.add_metadata_json(f"shape {cycle}", '{"w": 4}')
        subject.step()
    subject.add_metadata("after", "the last cycle")
    subject.stop()
    subject.add_metadata("at the", "end")
    assert metadata(tmp_path) == {
        "name": "yolo",
        **{f"shape {cycle}": {"w": 4} for cycle in range(3)},
        "after": "the last cycle",
        "at the": "end",
    }


def metadata(tmp_path: Path) -> dict:
    return json.loads((the_directory(tmp_path) / "profiler_metadata.json").read_text())


PROGRAM = """
import atexit, os, signal, sys
from profagent_app import Profiler, acl
from profagent_app.acl.binding import runtime

def profiler():
    it = Profiler()
    it.add_metadata("name", "yolo")
    return it

atexit.register(lambda: print(runtime().mode.value))
acl.init()
"""


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("it = profiler()", 0),
        ("it = profiler(); it.itself = it; del it", 0),
        ("def run(it=profiler()): pass", 0),
        ("it = profiler(); raise ValueError", 1),
        ("it = profiler(); sys.exit(3)", 3),
        ("it = profiler(); os.fork() or sys.exit(0); os.wait()", 0),
        ("it = profiler(); os.kill(os.getpid(), signal.SIGKILL)", -9),
    ],
)
def test_a_program_s_end_loses_no_file(end: str, code: int, library: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(parameters.__file__).parents[1])}
    command = [sys.executable, "-c", PROGRAM + end]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == code
    assert metadata(tmp_path) == {"name": "yolo"}
    assert sorted(each.name[:8] for each in the_directory(tmp_path).iterdir() if each.is_file()) == ["profiler"] * 2
    assert "failed" not in ended.stderr
    if code >= 0:
        assert ended.stdout.splitlines()[-1] == "off"
        assert ended.stderr.count("Profiler is stopped at the end of the program") == 1


def test_what_an_ss928_cannot_do_is_said_once(ready: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    wants = {"pcie": True, "with_stack": True, "sync_enable": False, "aicore_metrics": AicoreMetrics.L2Cache}
    Profiler(**wants, start_profile=False, runtime=ready)
    Profiler(**wants, start_profile=False, runtime=ready)
    for text in ("pcie has no meaning", "with_stack has", "sync_enable has", "ArithmeticUtilization only"):
        assert caplog.text.count(text) == 1


def test_every_argument_of_the_page_is_known_and_no_other(ready: Runtime) -> None:
    assert set(parameters.DEFAULTS) == {
        "start_profile", "output_path", "profiler_level", "activities", "schedule", "on_trace_ready", "profile_memory",
        "aicore_metrics", "with_stack", "data_simplification", "l2_cache", "hbm_ddr", "pcie", "data_process",
        "parallel_strategy", "sync_enable",
    }  # fmt: skip
    with pytest.raises(TypeError, match="no argument profile_all"):
        Profiler(profile_all=True, runtime=ready)


def test_without_the_library_the_program_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    with Profiler() as subject:
        subject.add_metadata("a", "b")
    subject.analyse()
    assert "the profiler cannot collect" in caplog.text


def jobs(tmp_path: Path) -> int:
    return len(list(tmp_path.glob("data/*_ascend_ms/JOB*")))


def aicore_logs(tmp_path: Path) -> int:
    return len(list(tmp_path.glob("data/*_ascend_ms/JOB*/data/aicore.*.done")))


def test_a_start_after_a_stop_is_a_new_job(
    ready: Runtime, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also within a millisecond, by which directories are named."""
    monkeypatch.setattr("profagent_app.profiler.time.time_ns", lambda: 1_700_000_000_000_000_000)
    subject = Profiler(start_profile=False, runtime=ready)
    for _ in range(2):
        subject.start()
        model = ready.load_model(MODEL)
        ready.execute(model, 0, 0)
        ready.unload_model(model)
        subject.stop()
    assert (jobs(tmp_path), aicore_logs(tmp_path)) == (2, 2)
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


def test_a_start_with_a_model_loaded_names_the_rule_and_leaves_nothing(
    ready: Runtime, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    subject = Profiler(runtime=ready)
    ready.load_model(MODEL)
    subject.stop()
    subject.start()
    assert "call prof_init before a model is loaded" in caplog.text
    subject.stop()
    assert ready.mode is Mode.OFF
    assert len(list(the_directory(tmp_path).glob("JOB*"))) == 1


def test_only_the_owner_and_its_group_see_the_results(ready: Runtime, tmp_path: Path) -> None:
    before = os.umask(0o022)
    Profiler(runtime=ready).stop()
    os.umask(before)
    directory = the_directory(tmp_path)
    assert {stat.S_IMODE(each.stat().st_mode) for each in (directory, *directory.glob("ASCEND*"))} == {0o750}


def test_a_repeat_goes_on_with_the_job_that_there_is(ready: Runtime, tmp_path: Path) -> None:
    """No model that is loaded already would be recorded in another."""
    seen: list[str] = []
    plan = schedule(wait=0, active=1, repeat=2)
    with Profiler(schedule=plan, on_trace_ready=lambda it: seen.append(it.directory), runtime=ready) as subject:
        model = ready.load_model(MODEL)
        for _ in range(2):
            ready.execute(model, 0, 0)
            subject.step()
    assert seen == [str(the_directory(tmp_path))] * 2
    assert (jobs(tmp_path), aicore_logs(tmp_path)) == (1, 2)


def test_on_trace_ready_may_take_nothing(ready: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    called = []
    with Profiler(
        schedule=schedule(wait=0, active=1), on_trace_ready=lambda: called.append(1), runtime=ready
    ) as subject:
        subject.step()
    assert called == [1, 1]
    assert "failed" not in caplog.text


@pytest.mark.parametrize("handler", [tensorboard_trace_handler, tensor_board_trace_handler])
def test_the_handler_may_be_given_without_a_call(
    handler: type, ready: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    with Profiler(schedule=schedule(wait=0, active=1), on_trace_ready=handler, runtime=ready) as it:
        it.step()
    assert "profagent import" in caplog.text
    assert "dir_name" not in caplog.text


def test_analyse_within_a_schedule_ends_it(ready: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    subject = Profiler(schedule=schedule(wait=0, active=2), runtime=ready)
    subject.analyse()
    assert ready.mode is Mode.OFF
    subject.stop()
    assert "has not started. Do not turn off again" in caplog.text
    Profiler(runtime=ready).stop()
    assert not [each for each in caplog.records if "failed" in each.message or "cannot" in each.message]


def test_one_with_nothing_to_record_leaves_the_next_one_usable(
    ready: Runtime, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Profiler(activities=[ProfilerActivity.GPU], runtime=ready)
    assert "an SS928 records none of these activities: name ProfilerActivity.NPU" in caplog.text
    assert not list(tmp_path.glob("data/*"))
    assert ready.mode is Mode.OFF
    with Profiler(schedule=schedule(wait=0, active=2), runtime=ready):  # without a step, too
        pass
    assert ready.mode is Mode.OFF
    assert jobs(tmp_path) == 1


@pytest.mark.parametrize("arguments", [{"start_profile": False}, {"schedule": schedule(wait=0, active=2)}])
def test_one_that_is_deleted_leaves_the_next_one_usable(
    arguments: dict, ready: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    subject = Profiler(runtime=ready, **arguments)
    del subject
    assert ready.mode is Mode.OFF
    Profiler(runtime=ready).stop()
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


def test_the_profiler_and_acl_are_one_state(library: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert acl.init() == 0
    assert acl.prof.create_stamp() == 0
    subject = Profiler()
    assert acl.prof.init(str(tmp_path)) == 100002
    assert acl.prof.destroy_stamp(acl.prof.create_stamp()) == 0
    subject.stop()
    assert acl.prof.create_stamp() == 0
    assert acl.prof.init(str(tmp_path)) == 0
    caplog.clear()
    Profiler()
    assert "prof_init was called already" in caplog.text
    assert acl.prof.finalize() == 0
    assert acl.finalize() == 0


@pytest.mark.parametrize(
    ("arguments", "name", "expected", "text"),
    [
        ({"aicore_metrics": AicoreMetrics.Memory}, "aicore_metrics", "ArithmeticUtilization", "Utilization only: they"),
        ({}, "aicore_metrics", "ArithmeticUtilization", ""),
        ({"activities": [ProfilerActivity.CPU]}, "aicore_metrics", "AiCoreNone", ""),
        (
            {"activities": [ProfilerActivity.CPU], "aicore_metrics": AicoreMetrics.ArithmeticUtilization},
            "aicore_metrics",
            "AiCoreNone",
            "needs ProfilerActivity.NPU",
        ),
        ({"activities": [ProfilerActivity.GPU, ProfilerActivity.NPU]}, "activities", ["NPU"], "no GPU"),
        ({"pcie": True}, "pcie", False, "pcie has no meaning"),
        ({"data_simplification": False}, "data_simplification", True, "data_simplification has no meaning"),
        ({"data_process": True, "schedule": schedule(wait=0, active=1)}, "data_process", False, "data_process"),
        ({"activities": None}, "activities", ["CPU", "NPU"], "activities must be"),
        ({"activities": ["NPU"]}, "activities", ["CPU", "NPU"], "activities must be"),
        ({"output_path": 5}, "output_path", "./data", "output_path must be"),
        ({"output_path": ""}, "output_path", "./data", "output_path must be"),
        ({"on_trace_ready": 5}, "on_trace_ready", None, "on_trace_ready must be callable"),
        ({"profiler_level": "Level1"}, "profiler_level", "Level0", "profiler_level must be of type ProfilerLevel"),
        ({"aicore_metrics": [1]}, "profiler_level", "Level0", "aicore_metrics must be of type AicoreMetrics"),
        ({"start_profile": "no"}, "start_profile", True, "start_profile must be of type bool"),
        ({"profiler_level": ProfilerLevel.LevelNone}, "profiler_level", "Level0", "no LevelNone"),
    ],
)
def test_arguments_that_are_put_right(
    arguments: dict, name: str, expected: object, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert parameters.to_json(parameters.check_arguments(arguments))[name] == expected
    assert text in caplog.text


def test_without_the_activity_npu_there_is_no_npu_data(ready: Runtime, tmp_path: Path) -> None:
    with Profiler(activities=[ProfilerActivity.CPU], runtime=ready):
        ready.execute(ready.load_model(MODEL), 0, 0)
    assert (jobs(tmp_path), aicore_logs(tmp_path)) == (1, 0)


def test_offline_analyse_of_nothing_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Profiler.offline_analyse(str(tmp_path / "gone_ascend_ms"))
    assert "Invalid path" in caplog.text
