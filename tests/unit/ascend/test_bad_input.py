"""What is damaged, altered, unknown or killed: what could be read is there, the rest is told, nothing is half."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from profagent.ascend import csv_rows, database, importing
from profagent.ascend import timeline as timelines
from profagent.ascend.timeline import EventPieces
from profagent.errors import ResultError, StoreError
from profagent.importing.cli import command as import_command
from profagent.store.subset import tables_of
from tests.unit.ascend import files
from tests.unit.ascend.files import OP_SUMMARY, event, kernel, process, rows, summary, taken, write

BYTES = {
    "empty": (b"", "0 bytes"),
    "utf-16": (f"{OP_SUMMARY}\n{kernel()}\n".encode("utf-16"), "line 1: it is not UTF-8"),
    "utf-16 events": (json.dumps(files.TIMELINES["msprof"]).encode("utf-16"), "it is not UTF-8, maybe UTF-16"),
    "latin-1": (f"{OP_SUMMARY},é\n{kernel()},1\n".encode("latin-1"), "line 1: it is not UTF-8"),
}


@pytest.mark.parametrize("name", BYTES)
def test_a_file_of_which_nothing_can_be_read_is_an_error_with_its_line(
    name: str, tmp_path: Path, workspace: Path
) -> None:
    content, said = BYTES[name]
    file = tmp_path / ("msprof_1.json" if name.endswith("events") else "op_summary_1.csv")
    file.write_bytes(content)
    (one,) = taken(workspace, file)
    assert said in str(one.error)
    assert str(file) in str(one.error)
    assert rows(workspace, "SELECT count(*) FROM session UNION ALL SELECT count(*) FROM log") == [(0,), (0,)]


def test_what_stands_before_a_damage_is_kept_with_a_loss(tmp_path: Path, workspace: Path) -> None:
    write(tmp_path / "b.csv", f"{OP_SUMMARY}\n{kernel()}\n{kernel()[:100]}")
    events = json.dumps(files.TIMELINES["msprof"])
    write(tmp_path / "c.json", events[: events.index('"conv1"') + 20])
    found = taken(workspace, *(tmp_path / name for name in ("b.csv", "c.json")))
    assert [(each.error, each.notes) for each in found] == [(None, 0)] * 2
    assert [each.losses for each in found] == [losses for (losses,) in rows(workspace, "SELECT losses FROM sessions")]
    details = rows(workspace, "SELECT grade, reason, detail FROM ledger ORDER BY session")
    assert {row[:2] for row in details} == {("loss", "damaged-result")}
    assert "line 3" in details[0][2]
    assert rows(workspace, "SELECT rows FROM ascend_files ORDER BY session") == [(1,), (3,)]


_ONE = '{"name": "a", "ph": "X", "ts": 1.5}'
DAMAGES = {
    "a quote is lost": (f'[{_ONE},\n{_ONE},\n {{"name: "b"}},\n{_ONE}]', "line 3: column 11: it is no JSON any more"),
    "a comma is lost": (f'[{_ONE},\n{_ONE},\n{{"ts": 1 "x": 2}},{_ONE}]', "line 3: column 10: it is no JSON any more"),
    "a byte is no UTF-8": (f'[{_ONE},{_ONE},\n{{"x": "\udcff"}},{_ONE}]', "line 2: column 8: it is not UTF-8"),
    "the end is lost": (f"[{_ONE},{_ONE},\n{_ONE[:20]}", "line 2: column 21: the file is cut off"),
    "a number is cut": (f"[{_ONE},{_ONE},\n{_ONE[:-2]}", "line 2: column 34: the file is cut off"),
}


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("size", [7, 37, 1 << 20])
def test_a_damaged_timeline_says_where_and_keeps_what_stands_before(
    name: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, said = DAMAGES[name]
    file = tmp_path / "x.json"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    monkeypatch.setattr(timelines, "TIMELINE_PIECE_BYTES", size)
    read: list[object] = []
    with pytest.raises(ResultError, match=re.escape(said)):
        read.extend(event for events, _ in EventPieces(file) for event in json.loads(events))
    assert read == [json.loads(_ONE)] * 2


@pytest.mark.parametrize("tail", ["", "\n", ',\n"otherData": {"a": [{}, {}]}}', "}"])
def test_what_stands_behind_the_events_is_no_damage(tail: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"[{_ONE},{_ONE}]{tail}" if not tail.strip() else f'{{"traceEvents": [{_ONE},{_ONE}]{tail}'
    file = write(tmp_path / "x.json", text + " " * 99)
    for size in (20, 1 << 20):
        monkeypatch.setattr(timelines, "TIMELINE_PIECE_BYTES", size)
        assert [event for events, _ in EventPieces(file) for event in json.loads(events)] == [json.loads(_ONE)] * 2


@pytest.mark.parametrize("odd", ['{"cat": null}', '{"args": []}', '{"args": "x"}', '{"name": 7}', "5", "[]", "null"])
def test_an_odd_event_is_kept_and_takes_no_other_with_it(odd: str, tmp_path: Path, workspace: Path) -> None:
    events = json.dumps(files.TIMELINES["msprof"] * 3)
    (one,) = taken(workspace, write(tmp_path / "x.json", f"{events[:-1]}, {odd}, {events[1:]}"))
    assert (one.error, one.kernels, one.rows, one.losses) == (None, 6, 25, 0)
    assert rows(workspace, "SELECT reason, count FROM ledger") == [("not-counted", 1)]


def test_a_file_of_no_family_is_no_success_and_is_kept_beside_others(tmp_path: Path, workspace: Path) -> None:
    people = summary(tmp_path / "people.csv", "name,age", "bob,3")
    letter = write(tmp_path / "letter.json", '{"a": 1}')
    found = taken(workspace, people, letter)
    assert ["no known family of results" in str(each.error) for each in found] == [True, True]
    folder = tmp_path / "run_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    summary(folder / "op_statistic.csv", *files.SUMMARIES["op_statistic"])
    summary(folder / "people.csv", "name,age", "bob,3")
    codes = {}
    for path in (people, folder):
        words = [str(path), "--workspace", str(workspace)]
        codes[path] = CliRunner().invoke(import_command, words, standalone_mode=False).return_value
    assert codes == {people: 1, folder: 0}
    assert rows(workspace, "SELECT log, grade, reason, detail FROM ledger") == [
        ("people.csv", "note", "unknown-family", "1 rows of a summary")
    ]


def test_blank_lines_before_a_header_and_a_long_first_event_hide_nothing(tmp_path: Path, workspace: Path) -> None:
    sheet = write(tmp_path / "x.csv", f"\n \n\n{OP_SUMMARY}\n{kernel()}\n{kernel()[:50]}\n")
    events = [{"stack": {"args": "s" * (300 << 10)}, **event("long", 1, 1.5)}, *files.TIMELINES["msprof"]]
    found = taken(workspace, sheet, write(tmp_path / "trace_view.json", json.dumps(events)))
    assert [(each.kernels, each.losses) for each in found] == [(1, 1), (1, 0)]
    ((detail,),) = rows(workspace, "SELECT detail FROM ledger WHERE grade = 'loss'")
    assert "x.csv: line 6: the row has" in detail


def test_a_mark_mixed_line_ends_and_empty_lines_change_nothing(tmp_path: Path, workspace: Path) -> None:
    text = f"\ufeff{OP_SUMMARY}\r\n{kernel()}\n\n{kernel()}\r\n"
    (one,) = taken(workspace, write(tmp_path / "x.csv", text))
    assert (one.rows, one.kernels, one.notes) == (2, 2, 0)
    (other,) = taken(workspace, write(tmp_path / "x.json", f"\ufeff{json.dumps(files.TIMELINES['msprof'])}"))
    assert (other.kernels, other.notes) == (1, 0)


def test_a_line_without_end_is_not_read_to_its_end(
    tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_rows, "LONGEST_CSV_LINE_BYTES", 1 << 20)
    monkeypatch.setattr(csv_rows, "CSV_PIECE_BYTES", 1 << 10)
    file = summary(tmp_path / "x.csv", OP_SUMMARY, kernel(), "x" * (2 << 20))
    (one,) = taken(workspace, file)
    assert (one.error, one.rows, one.losses) == (None, 1, 1)
    ((detail,),) = rows(workspace, "SELECT detail FROM ledger")
    assert "x.csv: line 3: it is not valid CSV from here on: it has more than 1 MiB" in detail


A, B = (kernel(name, start=f"178750400700586{place}.315\t") for place, name in enumerate("ab"))
_STATISTIC = files.SUMMARIES["op_statistic"]
# What a file holds, how many kernels and further rows are read, and the entries of the ledger.
SHEETS: dict[str, tuple[Any, ...]] = {
    "joined": (f"{OP_SUMMARY}\n{A}\n\ufeff{OP_SUMMARY}\n{B}\n", 2, 0, [("joined-result", None, 1)]),
    "of two generations": (
        f"{OP_SUMMARY}\n{A}\n{files.KERNEL_DETAILS},Device_id,Stream ID\n1,b,Conv2D,AI_CORE,1.5,2.5,0,8,0,1\n",
        *(2, 0, [("joined-result", None, 1)]),
    ),
    "of two families": (
        f"{OP_SUMMARY}\n{A}\n{_STATISTIC[0]}\n{_STATISTIC[1]}\n{OP_SUMMARY}\n{B}\n",
        *(2, 1, [("joined-result", None, 2)]),
    ),
    "padded": (f"{OP_SUMMARY}\n{A}\n\0\0\0{B}\n\0\0", 2, 0, [("joined-result", len(OP_SUMMARY) + len(A) + 2, 5)]),
    "a line without end": (f"{OP_SUMMARY}\n{A}\n{B}", 2, 0, [("joined-result", None, 1)]),
    "a line is cut": (f"{OP_SUMMARY}\n{A}\n{B[:60]}\n{A}\n", 2, 1, [("damaged-result", None, 1)]),
    "a quote is lost": (
        f"{OP_SUMMARY}\n{A}\n{A.replace('Conv2D', chr(34) + 'Conv' + chr(34) + '2D')}\n{B}\n",
        *(2, 0, [("damaged-result", None, 1)]),
    ),
    "a byte is no UTF-8": (
        f"{OP_SUMMARY}\n{A}\n{B.replace('b', chr(0xDCFF))}\n{A}\n",
        3,
        0,
        [("damaged-result", None, 1)],
    ),
    "a quote has no end": (
        "\n".join([files.KERNEL_DETAILS, *(f"1,{name},Conv2D,AI_CORE,1,2,0,8" for name in ("a", '"b', "c"))]),
        *(1, 0, [("damaged-result", None, 2)]),
    ),
}


@pytest.mark.parametrize("name", SHEETS)
def test_a_sheet_that_was_joined_padded_or_damaged_is_read_on(name: str, tmp_path: Path, workspace: Path) -> None:
    text, kernels, others, entries = SHEETS[name]
    file = tmp_path / "x.csv"
    file.write_bytes(text.encode(errors="surrogateescape"))
    (one,) = taken(workspace, file)
    assert (one.error, one.kernels, one.rows) == (None, kernels, kernels + others)
    assert rows(workspace, "SELECT reason, first, count FROM ledger") == entries


_ARRAYS = [
    json.dumps([process(1, "Ascend Hardware"), event(name, 1, 1, args={"Task Type": "AI_CORE"})]) for name in "ab"
]
_OBJECTS = [f'{{"schemaVersion": 1, "traceEvents": {array}, "displayTimeUnit": "ms"}}' for array in _ARRAYS]
TIMELINES = {
    "joined": ("".join(_ARRAYS), [("joined-result", None)]),
    "with a comma": (",\n".join(_ARRAYS), [("joined-result", None)]),
    "by line": ("\n\ufeff".join(_ARRAYS), [("joined-result", None)]),
    "padded": ("\0\0".join(_ARRAYS) + "\0", [("joined-result", None), ("joined-result", len(_ARRAYS[0]))]),
    "objects": ("".join(_OBJECTS), [("not-counted", None), ("joined-result", None)]),
    "twice in an object": (
        f'{{"traceEvents": {_ARRAYS[0]}, "a": {{"b": [], "traceEvents": []}}, "traceEvents" : {_ARRAYS[1]}}}',
        [("not-counted", None), ("joined-result", None)],
    ),
    "mixed": (_OBJECTS[0] + _ARRAYS[1], [("not-counted", None), ("joined-result", None)]),
}


@pytest.mark.parametrize("name", TIMELINES)
def test_arrays_that_stand_behind_the_first_are_read(
    name: str, tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, entries = TIMELINES[name]
    inputs = [write(tmp_path / f"msprof_{number}.json", text) for number in range(2)]
    assert [(one.error, one.kernels) for one in taken(workspace, inputs[0])] == [(None, 2)]
    assert rows(workspace, "SELECT reason, first FROM ledger") == entries
    monkeypatch.setattr(timelines, "TIMELINE_PIECE_BYTES", 7)
    assert [(one.error, one.kernels) for one in taken(workspace, inputs[1])] == [(None, 2)]


@pytest.mark.parametrize(
    ("tail", "said"),
    [("x", "what follows the end"), ('{"a": 1}', "what follows the end"), ("[1,", "the file is cut off")],
)
def test_what_cannot_be_read_behind_an_array_is_told_with_its_place(
    tail: str, said: str, tmp_path: Path, workspace: Path
) -> None:
    (one,) = taken(workspace, write(tmp_path / "x.json", f"{_ARRAYS[0]}\n{tail}"))
    size = len(_ARRAYS[0]) + 1 + len(tail)
    # The number before the place where it is cut may have had more digits.
    at = size - (2 if tail == "[1," else len(tail))
    assert (one.error, one.kernels, one.losses) == (None, 1, size - at)
    ((detail, *span),) = rows(workspace, "SELECT detail, first, last FROM ledger WHERE grade = 'loss'")
    assert said in detail
    assert span == [at, size]


_REPORT = '{{"step{}": {{"collective": {{"hcom_1": {{"Communication Time Info": {{}}}}}}}}}}'


@pytest.mark.parametrize(
    ("tail", "count", "entry"),
    [
        ("\n" + _REPORT.format(8), 2, ("joined-result", None, 2)),
        ("\0" + _REPORT.format(8) + "\0", 2, ("joined-result", None, 2)),
        ("x" * 5, 1, ("damaged-result", len(_REPORT.format(7)), 5)),
    ],
)
def test_reports_behind_the_first_are_read(
    tail: str, count: int, entry: tuple[str, int | None, int], tmp_path: Path, workspace: Path
) -> None:
    (one,) = taken(workspace, write(tmp_path / "communication.json", _REPORT.format(7) + tail))
    assert (one.error, one.rows) == (None, count)
    assert rows(workspace, "SELECT reason, first, count FROM ledger") == [entry]


def test_a_name_that_an_object_of_a_report_has_again_is_a_loss(tmp_path: Path, workspace: Path) -> None:
    text = f"{_REPORT.format(7)[:-1]}, {_REPORT.format(7)[1:]}"
    (one,) = taken(workspace, write(tmp_path / "communication.json", text))
    assert (one.error, one.rows, one.losses) == (None, 1, 1)
    ((reason, detail),) = rows(workspace, "SELECT reason, detail FROM ledger")
    assert (reason, "again: step7" in detail) == ("damaged-result", True)


def test_what_stands_behind_the_end_of_a_database_is_told_with_its_place(tmp_path: Path, workspace: Path) -> None:
    file = files.database(tmp_path / "msprof_1.db")
    size = file.stat().st_size
    file.write_bytes(file.read_bytes() * 2)
    (one,) = taken(workspace, file)
    assert (one.error, one.kernels, one.losses) == (None, 2, size)
    assert rows(workspace, "SELECT first, last, count FROM ledger") == [(size, 2 * size, size)]


def test_a_database_that_another_has_locked_or_altered_is_an_error(tmp_path: Path, workspace: Path) -> None:
    whole = files.database(tmp_path / "whole.db")
    altered = tmp_path / "msprof_2.db"
    altered.write_bytes(whole.read_bytes()[:4096] + b"\xff" * 4096)
    (one,) = taken(workspace, altered)
    assert "cannot read" in str(one.error)
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE something (x)")
    (two,) = taken(workspace, other)
    assert "no known family of results" in str(two.error)


@pytest.mark.parametrize(
    ("change", "told", "kernels"),
    [
        ("ALTER TABLE TASK RENAME COLUMN startNs TO begin", "TASK: no such column: t.startNs", 0),
        ("ALTER TABLE CANN_API DROP COLUMN endNs", "CANN_API: no such column: endNs", 2),
        ("UPDATE TASK SET startNs = 'late'", "TASK: ", 0),
    ],
)
def test_an_altered_table_is_told_and_the_others_are_read(
    change: str, told: str, kernels: int, tmp_path: Path, workspace: Path
) -> None:
    file = files.database(tmp_path / "msprof_1.db")
    tables = 9
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE StepTraceTime (step TEXT, computing NUMERIC)")
        connection.execute("INSERT INTO StepTraceTime VALUES ('7', 1.5)")
        connection.execute(change)
    (one,) = taken(workspace, file)
    assert (one.error, one.kernels, one.losses) == (None, kernels, 1)
    ((detail,),) = rows(workspace, "SELECT detail FROM ledger")
    assert told in detail
    assert rows(workspace, "SELECT count(*) FROM ascend_files") == [(tables,)]
    assert rows(workspace, "SELECT count(*) FROM figure WHERE key LIKE '%step %'") == [(2,)]


@pytest.mark.parametrize(
    ("change", "entry", "kernels", "steps"),
    [
        ("UPDATE TASK SET endNs = NULL WHERE taskId = 1", ("not-counted", 1), 1, 2),
        ("UPDATE TASK SET startNs = NULL WHERE taskId = 2", ("not-counted", 1), 1, 2),
        ("UPDATE TASK SET modelId = NULL, streamId = NULL WHERE taskId = 2", None, 2, 2),
        ("UPDATE STEP_TIME SET endNs = NULL WHERE id = 2", ("not-counted", 1), 2, 1),
        ("UPDATE CANN_API SET endNs = NULL", None, 2, 2),
        ("UPDATE STRING_IDS SET value = NULL WHERE id = 1", None, 2, 2),
        ("UPDATE STRING_IDS SET value = CAST(x'61ff' AS TEXT) WHERE id = 1", ("damaged-result", 1), 2, 2),
    ],
)
def test_an_odd_row_of_a_database_takes_no_other_with_it(
    change: str, entry: tuple[str, int] | None, kernels: int, steps: int, tmp_path: Path, workspace: Path
) -> None:
    file = files.database(tmp_path / "msprof_1.db")
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(change)
    (one,) = taken(workspace, file)
    assert (one.error, one.kernels) == (None, kernels)
    assert rows(workspace, "SELECT reason, count FROM ledger") == ([] if entry is None else [entry])
    assert rows(workspace, "SELECT count(*) FROM figure WHERE key LIKE '%step %'") == [(steps,)]
    texts = rows(workspace, "SELECT name FROM layer")
    assert texts == [("a\ufffd" if "61ff" in change else "N/A" if "value = NULL" in change else "conv1",)]


def test_a_database_that_another_writes_is_an_error_and_nothing_is_made_beside_it(
    tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "OTHERS_BUSY_MS", 10)
    file = files.database(tmp_path / "in" / "msprof_1.db")
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        (locked,) = taken(workspace, file)
        assert "locked" in str(locked.error)
        connection.execute("ROLLBACK")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("INSERT INTO STRING_IDS VALUES (9, 'new')")
        connection.commit()
        assert taken(workspace, file)[0].error is None
    texts = rows(workspace, "SELECT rows FROM ascend_files WHERE family = 'STRING_IDS'")
    assert texts == [(9,)]
    again = file.rename(tmp_path / "in" / "msprof_2.db")
    assert taken(workspace, again)[0].error is None
    assert [each.name for each in (tmp_path / "in").iterdir()] == ["msprof_2.db"]


@pytest.mark.parametrize(
    "facts",
    ["[]", '{"ms_profiler_info": null}', '{"ms_profiler_info": 5}', '{"cann_version": "\\ud800"}', "[" * 100_000],
)
def test_odd_facts_beside_results_are_no_hindrance(facts: str, tmp_path: Path, workspace: Path) -> None:
    folder = tmp_path / "run_ascend_pt"
    write(folder / "profiler_info_0.json", facts)
    summary(folder / "ASCEND_PROFILER_OUTPUT" / "op_summary_1.csv", OP_SUMMARY, kernel())
    assert taken(workspace, folder)[0].error is None


def test_what_is_nested_too_deep_stops_no_other(tmp_path: Path, workspace: Path) -> None:
    report = write(tmp_path / "a.json", '{"Rule Type": "Rule Suggestion", "a": ' + "[" * 100_000)
    events = write(tmp_path / "b.json", f'[{_ONE}, {{"ph": "X", "args": {"[" * 100_000}')
    found = taken(workspace, report, events, summary(tmp_path / "1.csv", OP_SUMMARY, kernel()))
    assert [(each.session, each.losses) for each in found] == [(None, 0), (1, 1), (2, 0)]


@pytest.mark.parametrize("more", [["--json"], []])
def test_a_name_that_is_no_utf_8_is_shown_as_such(more: list[str], tmp_path: Path, workspace: Path) -> None:
    folder = Path(os.fsdecode(bytes(tmp_path) + b"/\xff_ascend_pt/ASCEND_PROFILER_OUTPUT"))
    summary(folder / os.fsdecode(b"op_summary_\xfe.csv"), OP_SUMMARY, kernel())
    broken = summary(tmp_path / os.fsdecode(b"\xfd.csv"), "name,age", "bob,3")
    words = [str(folder.parent), str(broken), "--workspace", str(workspace), *more]
    answer = CliRunner().invoke(import_command, words, standalone_mode=False)
    assert (answer.exception, answer.return_value) == (None, 1)
    assert rows(workspace, "SELECT address FROM session") == [(f"{tmp_path}/\\xff_ascend_pt",)]
    assert rows(workspace, "SELECT name FROM job") == [("\\xff_ascend_pt",)]
    ((path, shown),) = rows(workspace, "SELECT path, shown_path FROM log")
    assert (path[-5:], shown[-8:]) == (b"\xfe.csv", "\\xfe.csv")


def test_a_workspace_whose_name_is_no_utf_8_takes_results(tmp_path: Path) -> None:
    (one,) = taken(tmp_path / os.fsdecode(b"\xff"), summary(tmp_path / "x.csv", OP_SUMMARY, kernel()))
    assert (one.error, one.session) == (None, 1)


def test_a_value_that_nobody_thought_of_stops_no_other(
    tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = [summary(tmp_path / name, OP_SUMMARY, kernel()) for name in ("1.csv", "2.csv")]
    fill = importing._fill

    def odd(draft: Any, source: Any) -> None:
        fill(draft, source)
        if source.path == inputs[0]:
            raise KeyError("odd")

    monkeypatch.setattr(importing, "_fill", odd)
    found = taken(workspace, *inputs)
    assert [each.session for each in found] == [None, 1]
    assert "values that no known file" in str(found[0].error)


def _dies_of_the_bad_one(asked: Any) -> importing.Drafted:
    """As `_drafted`, in a process that the system kills when it reads a certain file."""
    if asked[0].path.name == "bad.csv":
        os.kill(os.getpid(), signal.SIGKILL)
    return importing._drafted(asked)


def test_a_process_that_dies_takes_no_other_source_with_it(
    tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = [summary(tmp_path / name, OP_SUMMARY, kernel()) for name in ("1.csv", "bad.csv", "2.csv")]
    monkeypatch.setattr(importing, "WORTH_A_PROCESS_BYTES", 0)
    monkeypatch.setattr(importing, "_drafted", _dies_of_the_bad_one)
    found = taken(workspace, *inputs)
    assert [(each.path.name, each.session) for each in found] == [("1.csv", 1), ("bad.csv", None), ("2.csv", 2)]
    assert "was killed" in str(found[1].error)
    assert not [*workspace.glob(".import-*")]


_KILLED = """
import sys
from pathlib import Path
from profagent.ascend import importing
from tests.unit.ascend.files import taken
from tests.unit.ascend.test_bad_input import _kills_its_parent
importing.WORTH_A_PROCESS_BYTES, importing._drafted = 0, _kills_its_parent
taken(*map(Path, sys.argv[1:]))
"""


def _kills_its_parent(_asked: Any) -> importing.Drafted:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)
    raise AssertionError


def test_an_import_that_is_killed_leaves_nothing_behind(tmp_path: Path, workspace: Path) -> None:
    inputs = [summary(tmp_path / name, OP_SUMMARY, kernel()) for name in ("1.csv", "2.csv")]
    command = [sys.executable, "-c", _KILLED, *map(str, (workspace, *inputs))]
    # It waits for the processes, too, which have the same standard output.
    killed = subprocess.run(command, cwd=Path(__file__).parents[3], stdout=subprocess.PIPE, timeout=20, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [*workspace.glob(".import-*")]
    assert [each.session for each in taken(workspace, *inputs)] == [1, 2]
    assert not [*workspace.glob(".import-*")]


def test_a_source_that_memory_has_no_room_for_stops_no_other(
    tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = [summary(tmp_path / name, OP_SUMMARY, kernel()) for name in ("1.csv", "2.csv")]

    def refuse(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(importing, "import_sheet", refuse)
    # A source that is named twice comes once.
    found = taken(workspace, *inputs, *inputs, files.database(tmp_path / "msprof_1.db"))
    assert [each.session for each in found] == [None, None, 1]
    assert "out of memory" in str(found[0].error)


@pytest.mark.parametrize("table", ["ascend_block", "aicore", "figure"])
def test_a_store_that_cannot_be_written_has_nothing_of_it(table: str, tmp_path: Path, workspace: Path) -> None:
    file = files.database(tmp_path / "msprof_1.db")
    assert taken(workspace, summary(tmp_path / "1.csv", OP_SUMMARY, kernel()))[0].error is None
    with closing(sqlite3.connect(workspace / "profagent.db")) as connection:
        tables = [*tables_of(connection)]
    before = {each: rows(workspace, f"SELECT * FROM {each}") for each in tables}
    with closing(sqlite3.connect(workspace / "profagent.db")) as connection:
        # As SQLite does by itself when the disk is full.
        refuse = "BEGIN SELECT RAISE(ROLLBACK, 'no room'); END"
        connection.execute(f"CREATE TRIGGER refuse BEFORE INSERT ON {table} {refuse}")
    (one,) = taken(workspace, file)
    assert isinstance(one.error, StoreError)
    assert "no room" in str(one.error)
    assert {each: rows(workspace, f"SELECT * FROM {each}") for each in tables} == before


def test_what_cannot_be_read_and_an_odd_report_stop_no_other(
    tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary(tmp_path / "in" / "a.csv", OP_SUMMARY, kernel())
    write(tmp_path / "in" / "b.json", '{"step7": {"collective": [{"Communication Time Info": {}}]}}')
    locked = tmp_path / "in" / "locked"
    locked.mkdir()
    closed = summary(tmp_path / "in" / "closed.csv", OP_SUMMARY, kernel())
    entries, opened = Path.iterdir, Path.open

    def iterdir(folder: Path) -> Iterator[Path]:
        if folder == locked:
            raise PermissionError(errno.EACCES, "Permission denied")
        return entries(folder)

    def open_(file: Path, *how: Any, **more: Any) -> Any:
        if file == closed:
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(file, *how, **more)

    # The superuser, as whom tests may run, is refused nothing.
    monkeypatch.setattr(Path, "iterdir", iterdir)
    monkeypatch.setattr(Path, "open", open_)
    found = {each.path.name: each for each in taken(workspace, tmp_path / "in")}
    assert found["a.csv"].session == 1
    assert "values that no known file" in str(found["b.json"].error)
    assert "cannot be read: Permission denied" in str(found["closed.csv"].error)
    assert f"cannot read {locked}: Permission denied" in str(found["locked"].error)
