"""What `options check` calls right is right: it finds nothing wrong with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product

from profagent.ascend_options.documents import check_documents
from profagent.ascend_options.rules import all_rules
from profagent.doctor.acl_json import PROFILER_KEYS

ON = {"output": "/p", "training_trace": "on", "task_trace": "on", "aic_metrics": "PipeUtilization"}
ODD_TEXTS = ("foo", "", "a\nb", "ON", "yes", "99999", "Custom:x", "cpu,", "5")
ODD_VALUES: tuple[object, ...] = (None, 1, -1, 10**20, True, [], ["x"], {}, *ODD_TEXTS)
ODD_ARGUMENTS = (
    *("None", "1", "-1", "True", "'foo'", "'a\\nb'", "[]", "['x']", "'Level1'", "AicoreMetrics.Memory", "f()"),
    *("ProfilerLevel.Foo", "ProfilerLevel.LevelNone", "(ProfilerActivity.CPU,)", "[ProfilerActivity.GPU]"),
)
CALLS = {"mindspore": "Profiler", "profile": "profile", "experimental": "_ExperimentalConfig", "schedule": "schedule"}
# Tables that are right, whose keys say which they are.
TABLES: dict[str, dict[str, object]] = {
    "torch_profile": {"record_shapes": True, "profile_memory": True, "with_stack": True},
    "torch_dynamic": {"prof_dir": "/p", "start_step": 1, "is_valid": True},
    "torch_experimental": {"profiler_level": "Level1", "l2_cache": True, "op_attr": False},
    "torch_schedule": {"wait": 0, "warmup": 1, "active": 1, "repeat": 1},
}


def _odd_texts() -> Iterator[tuple[str, str | None]]:
    """Every key with every odd value, alone and with others."""
    rules = all_rules()
    on = {"switch": "on", "output": "/p", "aicpu": "on", "aic_metrics": "ArithmeticUtilization"}
    for slip in ("Profiler", "pofiler"):
        yield json.dumps({slip: on, "foo": "1"}), None
    for value in ODD_VALUES:
        for key in (*rules.keys_of("profiling_options"), "foo", "task_tiem"):
            yield json.dumps({**ON, key: value}), None
        for key in (*rules.keys_of("acl_json"), "foo"):
            yield json.dumps({"profiler": {**on, key: value}}), "atlas"
        for key in (*PROFILER_KEYS, "foo", "aclapi", "Switch"):
            yield json.dumps({"profiler": {**on, key: value}}), "ss928"
            yield json.dumps({"profiler": {"output": "/p", key: value}, "dump": {"a": value}}), "ss928"
    for family, name in CALLS.items():
        keys = [name for key in rules.keys_of(family).values() for name in (key.name, key.also) if name]
        both = {"schedule": "schedule(wait=-1)", "aic_metrics": "AicoreMetrics.Memory"}
        for key, value in product((*keys, "foo"), ODD_ARGUMENTS):
            yield f"{name}({key}={value})", None
            for other in both.keys() & {*keys} - {key}:
                yield f"{name}({other}={both[other]}, {key}={value})", None


def _odd_tables() -> Iterator[tuple[str, None]]:
    """Tables of torch_npu's arguments, in each of which one is odd."""
    for family, table in TABLES.items():
        for key, value in product((*all_rules().keys_of(family), "foo"), (*ODD_VALUES, "level1", ["cpu"], [{}])):
            yield json.dumps({**table, key: value}), None


def test_every_corrected_text_is_right() -> None:
    uncorrected = []
    for text, device in (*_odd_texts(), *_odd_tables()):
        results = check_documents({"f": text.encode()}, device)
        if any(not each.section.is_good for each in results) and not any(each.corrected for each in results):
            uncorrected.append(json.loads(text)["profiler"]["output"])
        for corrected in [each.corrected for each in results if each.corrected]:
            again = check_documents({"f": corrected.encode()}, device)
            # A call in a call has a correction of its own.
            again = again[:1] if device is None and not corrected.startswith("{") else again
            assert all(each.section.is_good and each.corrected is None for each in again), f"{text} → {corrected}"
    # Nobody but its owner knows a directory that is not named.
    assert {each for each in uncorrected if isinstance(each, str)} <= {""}
