"""pyACL's names: order, codes, and the stamps' rules."""

from __future__ import annotations

import ctypes
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from profagent_app import acl
from profagent_app.acl import prof
from profagent_app.marks import Kind
from profagent_app.stamps import Stamps
from tests.program.conftest import MODEL

if TYPE_CHECKING:
    from tests.program.reader import MarksReader

ALL = 0xF


@pytest.fixture(autouse=True)
def _own_library(library: str) -> None:
    """Every test has a library of its own."""


def test_the_profiling_pages_order_makes_a_job(tmp_path: Path) -> None:
    assert acl.init() == 0
    assert acl.prof.init(str(tmp_path)) == 0
    config = acl.prof.create_config([0], 0, 0, ALL)
    assert acl.prof.start(config) == 0
    model, ret = acl.mdl.load_from_mem(acl.util.bytes_to_ptr(MODEL), len(MODEL))
    assert (model, ret) == (0, 0)
    assert acl.mdl.execute(model, 0, 0) == 0
    assert acl.prof.stop(config) == 0
    assert acl.prof.finalize() == 0
    assert acl.prof.destroy_config(config) == 0
    assert len(list(tmp_path.glob("JOB*/data/aicore.*.done"))) == 1


def test_problems_are_codes_and_told_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert acl.init() == 0
    assert acl.prof.start(1) == 100001
    assert "call prof_init first" in caplog.text
    assert acl.prof.init(str(tmp_path)) == 0
    assert acl.prof.model_subscribe(0, 1) == 148047
    assert acl.prof.get_op_num(b"", 0) == (0, 148047)
    assert acl.prof.get_op_start(b"", 0, 0) == 0


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("init", (5,), 100000),
        ("prof.init", (None,), 100000),
        ("prof.start", ([],), 100001),
        ("prof.destroy_config", ([],), 100000),
        ("prof.create_config", (None, 0, 0, ALL), 0),
        ("prof.create_config", (["0"], 0, 0, ALL), 0),
        ("prof.create_config", ([0, 1], 0, 0, ALL), 0),
        ("prof.create_config", ([0], 0, 1, ALL), 0),
        ("prof.create_subscribe_config", (1, 3, 1), 0),
        ("util.stop_thread", (1,), 100000),
        ("prof.create_subscribe_config", (2, 0, 1), 0),
        ("prof.create_subscribe_config", ([], [], 1), 0),
        ("prof.create_subscribe_config", (1, 0, "pipe"), 0),
        ("prof.get_op_num", ([], 4), (0, 100000)),
        ("mdl.load_from_file", ("/nonexistent",), (0, 100000)),
        ("mdl.load_from_file", (None,), (0, 100000)),
        ("mdl.load_from_mem", (0, 100), (0, 100000)),
        ("mdl.execute", ("model", 0, 0), 100000),
        ("mdl.execute_async", (0, 0, 0, 0), 100000),
        ("mdl.get_input_index_by_name", (0, 5), (0, 100000)),
        ("mdl.add_dataset_buffer", (0, 0), (0, 100000)),
        ("rt.create_context", ("device",), (0, 100000)),
        ("rt.malloc", (0, 2), (0, 100000)),
        ("rt.memcpy", (8, 4, 8, 5, 1), 100000),
        ("rt.memcpy", (0, 4, 8, 4, 1), 100000),
        ("create_data_buffer", ([], 4), 0),
        ("prof.mark", ([],), -1),
        ("prof.range_start", ([],), (0, -1)),
    ],
)
def test_what_no_argument_may_be_is_a_code_too(name: str, arguments: tuple[Any, ...], expected: object) -> None:
    assert acl.init() == 0
    assert attrgetter(name)(acl)(*arguments) == expected


def test_a_text_that_does_not_fit_is_refused(compiled: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = (Path(__file__).parents[1] / "data" / "pipe" / "pipe_basic.bin").read_bytes()
    assert prof.get_op_type(data, len(data), 0, 4) == ("", 500000)
    assert "more than the 4 that were given" in caplog.text
    assert prof.get_op_name_len(data, len(data), 0) == (len(prof.get_op_name_v2(data, len(data), 0)[0]), 0)


def test_configurations_are_checked_before_the_library_frees_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert acl.init() == 0
    assert acl.prof.init(str(tmp_path)) == 0
    config, same, other = (acl.prof.create_config([0], 0, 0, types) for types in (ALL, ALL, 0x2))
    assert acl.prof.start(config) == 0
    assert acl.prof.stop(other) == 100000
    assert "that profiling was started with" in caplog.text
    assert acl.prof.stop(same) == 0  # the page asks for the same values
    assert acl.prof.destroy_config(config) == 0
    caplog.clear()
    assert [acl.prof.destroy_config(config), acl.prof.start(config)] == [100000, 100000]
    assert caplog.text.count("it was destroyed already") == 2
    assert acl.prof.finalize() == 0
    subscription = acl.prof.create_subscribe_config(1, 0, 1)
    assert [acl.prof.destroy_subscribe_config(subscription) for _ in range(2)] == [0, 100000]
    assert acl.prof.model_subscribe(0, subscription) == 100000


@pytest.fixture
def running(fifo: MarksReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(prof, "stamps", Stamps(prof.stamps._is_running))
    (tmp_path / "out").mkdir()
    assert acl.init() == 0
    assert acl.prof.init(str(tmp_path / "out")) == 0
    config = acl.prof.create_config([0], 0, 0, ALL)
    assert acl.prof.start(config) == 0
    return config


def stamp(text: str) -> int:
    number = acl.prof.create_stamp()
    assert acl.prof.set_stamp_trace_message(number, text, len(text)) == 0
    return number


def test_stamps_become_marks_spans_and_ranges(running: int, fifo: MarksReader) -> None:
    outer, inner = stamp("outer"), stamp("inner")
    assert acl.prof.mark(outer) == 0
    assert acl.prof.push(outer) == 0
    assert acl.prof.push(inner) == 0
    assert acl.prof.pop() == 0
    assert acl.prof.pop() == 0
    number, ret = acl.prof.range_start(inner)
    assert ret == 0
    assert acl.prof.range_stop(number) == 0
    assert acl.prof.destroy_stamp(inner) == 0
    marks = fifo.read()
    assert [(each.kind, each.text) for each in marks] == [
        (Kind.MARK, "outer"),
        (Kind.SPAN, "inner"),
        (Kind.SPAN, "outer"),
        (Kind.RANGE, "inner"),
    ]
    assert marks[2].begin_ns <= marks[1].begin_ns <= marks[1].end_ns <= marks[2].end_ns
    assert [each.number for each in marks] == [0, 1, 2, 3]


def test_a_stamp_s_span_and_range_do_not_end_each_other(
    running: int, fifo: MarksReader, caplog: pytest.LogCaptureFixture
) -> None:
    both = stamp("both")
    assert acl.prof.push(both) == 0
    assert acl.prof.range_stop(both) == -1
    assert f"range {both} was not started: its stamp was pushed, call pop" in caplog.text
    assert acl.prof.push(both) == 0
    assert acl.prof.range_start(both) == (both, 0)
    assert acl.prof.range_start(both) == (0, -1)
    assert "call range_stop first" in caplog.text
    assert [acl.prof.pop(), acl.prof.range_stop(both), acl.prof.pop()] == [0, 0, 0]
    inner, ranged, outer = fifo.read()
    assert [each.kind for each in (inner, ranged, outer)] == [Kind.SPAN, Kind.RANGE, Kind.SPAN]
    assert outer.begin_ns < inner.begin_ns <= ranged.begin_ns <= inner.end_ns <= ranged.end_ns <= outer.end_ns
    caplog.clear()
    assert [acl.prof.range_stop(both), acl.prof.pop()] == [-1, -1]
    assert [acl.prof.push(both), acl.prof.destroy_stamp(both)] == [0, 0]
    assert [each.getMessage() for each in caplog.records] == [
        f"acl.prof.range_stop: range {both} was not started",
        "acl.prof.pop: call push first",
        f"acl.prof.destroy_stamp: stamp {both} was not ended by pop or range_stop: its time is lost",
    ]


def test_a_message_may_be_an_address(running: int, fifo: MarksReader) -> None:
    text = ctypes.create_string_buffer(b"by address")
    number = acl.prof.create_stamp()
    assert acl.prof.set_stamp_trace_message(number, ctypes.addressof(text), 10) == 0
    assert acl.prof.mark(number) == 0
    assert fifo.read()[0].text == "by address"


def test_the_rules_of_stamps(running: int) -> None:
    number = stamp("a")
    assert acl.prof.set_stamp_trace_message(number, "x" * 128, 128) == -1
    assert acl.prof.set_stamp_trace_message(number, "x" * 127, 127) == 0
    assert acl.prof.set_stamp_trace_message(number, "short", 128) == -1
    assert acl.prof.set_stamp_trace_message(number, 8, 1 << 20) == -1  # an address that nobody may read
    wrong: list[Any] = [(None, 3), (0, 4), ("text", None)]
    for message, length in wrong:
        assert acl.prof.set_stamp_trace_message(number, message, length) == -1
    assert acl.prof.mark(99) == -1
    assert acl.prof.pop() == -1
    assert acl.prof.range_stop(number) == -1
    assert acl.prof.destroy_stamp(number) == 0
    assert acl.prof.mark(number) == -1
    stamps = [acl.prof.create_stamp() for _ in range(100)]
    assert 0 not in stamps
    assert acl.prof.create_stamp() == 0
    assert acl.prof.destroy_stamp(stamps[7]) == 0
    assert acl.prof.create_stamp() == stamps[7]
    assert acl.prof.stop(running) == 0
    assert acl.prof.mark(stamps[0]) == -1
    assert acl.prof.create_stamp() == 0
