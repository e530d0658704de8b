"""The binding: order rules before the call, names for codes, the accessors' quirks."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from profagent_app.errors import CallError, LibraryError, OrderError
from profagent_app.runtime import Mode, Runtime
from tests.program.conftest import MODEL
from tests.program.test_fake_library import PIPES


def test_a_capture_through_the_interface_makes_a_job(runtime: Runtime, tmp_path: Path) -> None:
    runtime.init()
    runtime.prof_init(str(tmp_path))
    config = runtime.create_config()
    runtime.prof_start(config)
    model = runtime.load_model(MODEL)
    for _ in range(3):
        runtime.execute(model, 0, 0)
    runtime.unload_model(model)
    runtime.prof_stop(config)
    runtime.prof_finalize()
    runtime.destroy_config(config)
    runtime.finalize()
    (job,) = tmp_path.glob("JOB*")
    assert sorted(each.name for each in (job / "data").glob("*.done")) == [
        "acl_api.0.yolo.0.done",
        *(f"aicore.0.yolo.0.0.1.1.{count}.done" for count in range(3)),
    ]


Steps = Callable[[Runtime, str], Any]


def _reach(mode: Mode, runtime: Runtime, path: str) -> None:
    runtime.init(acl_json(path) if mode is Mode.JSON else None)
    if mode in {Mode.READY, Mode.STARTED}:
        runtime.prof_init(path)
    if mode is Mode.STARTED:
        runtime.prof_start(runtime.create_config())
    if mode is Mode.SUBSCRIBED:
        runtime.subscribe(runtime.load_model(MODEL), runtime.create_subscribe_config(1))


CALLS: dict[str, Steps] = {
    "prof_init": lambda runtime, path: runtime.prof_init(path),
    "prof_start": lambda runtime, path: runtime.prof_start(runtime.create_config()),
    "prof_stop": lambda runtime, path: runtime.prof_stop(runtime.create_config()),
    "prof_finalize": lambda runtime, path: runtime.prof_finalize(),
    "subscribe": lambda runtime, path: runtime.subscribe(0, runtime.create_subscribe_config(1)),
    "subscribe_elsewhere": lambda runtime, path: runtime.subscribe(0, runtime.create_subscribe_config(2)),
    "unsubscribe": lambda runtime, path: runtime.unsubscribe(0),
    "unsubscribe_another": lambda runtime, path: runtime.unsubscribe(1),
}


def acl_json(path: str, switch: str = "off", item: str = "acl_api") -> str:
    """A file that profiling is off by, which is by the file all the same."""
    file = Path(path) / "acl.json"
    file.write_text(json.dumps({"profiler": {"switch": switch, "output": path, item: "on"}}))
    return str(file)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("mode", Mode)
def test_a_wrong_order_names_its_rule_and_has_the_librarys_own_code(
    mode: Mode, name: str, runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the binding refuses, the library would refuse with the same code; what it lets pass, it takes."""
    _reach(mode, runtime, str(tmp_path))
    assert runtime.mode is mode
    ours = _answer(CALLS[name], runtime, tmp_path)
    if not isinstance(ours, OrderError):
        # The program may have loaded a model by itself.
        assert ours is None or (name[:9], ours.code) == ("subscribe", 100000)
        return
    assert runtime.mode is mode
    assert ours.rule in str(ours)
    monkeypatch.setattr(runtime, "_check", lambda function: None)
    monkeypatch.setattr("profagent_app.runtime._refuse_if", lambda *_: None)
    if name.startswith("unsubscribe"):
        runtime._subscribed.update({0: 0, 1: 0})
    theirs = _answer(CALLS[name], runtime, tmp_path)
    assert isinstance(theirs, CallError)
    assert theirs.code == ours.code


def _answer(call: Steps, runtime: Runtime, path: Path) -> OrderError | CallError | None:
    try:
        call(runtime, str(path))
    except (OrderError, CallError) as error:
        return error
    return None


def test_profiling_begins_before_a_model_is_loaded(runtime: Runtime, tmp_path: Path) -> None:
    runtime.init()
    runtime.load_model(MODEL)
    with pytest.raises(OrderError, match="before a model is loaded"):
        runtime.prof_init(str(tmp_path))


@pytest.mark.parametrize(
    ("switch", "item", "mode"),
    [("on", "aicpu", Mode.JSON), ("off", "aicpu", Mode.JSON), ("on", "aacpu", Mode.OFF)],
)
def test_an_acl_json_has_the_profiling_where_the_library_says_so(
    switch: str, item: str, mode: Mode, runtime: Runtime, tmp_path: Path
) -> None:
    runtime.init(acl_json(str(tmp_path), switch, item))
    assert runtime.mode is mode
    assert len(list(tmp_path.glob("JOB*"))) == ((switch, mode) == ("on", Mode.JSON))
    runtime.finalize()
    runtime.init()
    runtime.prof_init(str(tmp_path))


def test_each_rule_of_subscriptions_is_named(runtime: Runtime) -> None:
    runtime.init()
    models = [runtime.load_model(MODEL) for _ in range(3)]
    config, other = runtime.create_subscribe_config(1), runtime.create_subscribe_config(2)
    runtime.unload_model(models[2])
    runtime.subscribe(models[0], config)
    for call, rule in (
        (lambda: runtime.subscribe(models[0], config), "subscribed already"),
        (lambda: runtime.subscribe(models[1], other), "with one descriptor"),
        (lambda: runtime.subscribe(models[2], config), "is unloaded"),
        (lambda: runtime.unsubscribe(models[1]), "the model is not subscribed"),
        (lambda: runtime.destroy_subscribe_config(config), "subscribed with this configuration"),
    ):
        with pytest.raises(OrderError, match=rule):
            call()
    runtime.unsubscribe(models[0])
    runtime.destroy_subscribe_config(config)
    runtime.subscribe(models[1], other)


def test_no_accessor_is_called_while_profiling(runtime: Runtime, tmp_path: Path) -> None:
    assert runtime.op_desc_size() == 256
    _reach(Mode.READY, runtime, str(tmp_path))
    for call in (runtime.op_desc_size, lambda: runtime.operators(bytes(256))):
        with pytest.raises(OrderError, match="exclude each other"):
            call()


def test_the_librarys_pointer_to_a_descriptor_outlives_its_configuration(runtime: Runtime) -> None:
    """It keeps that of the model that was subscribed last, also when another's goes on."""
    read, write = os.pipe()
    runtime.init()
    models = [runtime.load_model(MODEL) for _ in range(2)]
    configs = [runtime.create_subscribe_config(write) for _ in models]
    runtime.subscribe(models[0], configs[0])
    runtime.subscribe(models[1], configs[1])
    runtime.unsubscribe(models[1])
    runtime.destroy_subscribe_config(configs[1])
    junk = [ctypes.c_int(-1) for _ in range(10_000)]  # where the number was
    runtime.execute(models[0], 0, 0)
    os.close(write)
    assert len(os.read(read, 1 << 16)) == 3 * 256
    os.close(read)
    del junk


def test_nothing_goes_on_after_the_end(runtime: Runtime, tmp_path: Path) -> None:
    runtime.init()
    runtime.finalize()
    with pytest.raises(OrderError, match="svp_acl_init"):
        runtime.prof_init(str(tmp_path))


def test_a_program_may_have_initialised_the_runtime_by_itself(runtime: Runtime, tmp_path: Path) -> None:
    runtime._library.svp_acl_init(None)
    runtime.prof_init(str(tmp_path))
    assert runtime.mode is Mode.READY


def test_a_code_comes_with_its_name_and_likely_cause(runtime: Runtime, tmp_path: Path) -> None:
    with pytest.raises(CallError, match=r"100001 \(UNINITIALIZE\): svp_acl_init"):
        runtime.prof_init(str(tmp_path))
    runtime.init()
    runtime._library.fake_refuse_start(1)
    runtime.prof_init(str(tmp_path))
    with pytest.raises(CallError, match="the device refused"):
        runtime.prof_start(runtime.create_config())
    assert runtime.mode is Mode.READY


def test_a_missing_library_says_where_it_was_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROFAGENT_SVP_ACL", raising=False)
    with pytest.raises(LibraryError, match="set PROFAGENT_SVP_ACL"):
        Runtime()
    with pytest.raises(LibraryError, match="/not/there"):
        Runtime("/not/there.so")


def test_a_library_of_another_chip_is_refused() -> None:
    with pytest.raises(LibraryError, match="not the SS928's runtime"):
        Runtime("libc.so.6")


@pytest.mark.parametrize("pipe", PIPES, ids=lambda pipe: pipe.stem)
def test_operators_are_what_the_library_says_of_the_bytes(pipe: Path, runtime: Runtime) -> None:
    data, said = pipe.read_bytes(), json.loads(pipe.with_suffix(".json").read_text())
    operators = runtime.operators(data)
    assert len(operators) == said["op_num"]
    for index, operator in enumerate(operators):
        op = said["ops"][index]
        assert operator[3:] == (op["start"], op["end"], op["duration"])
        assert operator.model_id == op["model_id"]
        for kind, text in (("type", operator.op_type), ("name", operator.op_name)):
            if op[f"{kind}_rc"] == 0:
                assert text == op[f"{kind}_written"].rstrip("\0")
            else:  # the accessor refuses 32 bytes; the bytes have them
                assert len(text) in {31, 32}


def test_an_index_past_the_end_is_an_error_and_no_time(runtime: Runtime) -> None:
    with pytest.raises(CallError):
        runtime.op_number("op_start", PIPES[0].read_bytes(), 256, 1)


def test_a_subscription_writes_what_is_executed(runtime: Runtime) -> None:
    read, write = os.pipe()
    runtime.init()
    model = runtime.load_model(MODEL)
    config = runtime.create_subscribe_config(write)
    runtime.subscribe(model, config)
    runtime.execute(model, 0, 0)
    runtime.unsubscribe(model)
    runtime.destroy_subscribe_config(config)
    os.close(write)
    operators = runtime.operators(os.read(read, 1 << 16))
    os.close(read)
    assert [(each.op_type, each.op_name, each.duration_us) for each in operators] == [
        ("Convolution", "conv1", 100),
        ("Pooling", "pool1", 50),
        ("InnerProduct", "fc", 200),
    ]
    assert operators[1].start_us == operators[0].end_us
