"""Results of other tools that were cut, doubled, joined or padded: what they hold is read, or counted as lost."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profagent.ascend.csv_rows import read_sheet
from profagent.ascend.summaries import import_sheet
from profagent.ascend.timeline import import_timeline
from profagent.errors import ResultError
from tests.unit.ascend.files import OP_SUMMARY, SUMMARIES, TIMELINES, kernel

# Cells of several lines would need a reader of CSV to count them.
SHEETS = {name: [header, row] for name, (header, row) in SUMMARIES.items() if "\n" not in row}
SHEETS["op_summary"] = [OP_SUMMARY, kernel("a", start="1.5"), kernel("b", start="2.5"), kernel("c", start="3.5")]
# An empty cell at a line's end and a mark of the encoding belong to real files.
SEPARATORS = ("", "\n", "\r\n", ",\n", "\0\0", "\n\ufeff")


class _Kept:
    """A draft that only keeps rows."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def add_block(self, _log: int, _first: int, _rows: int, cells: str) -> None:
        self.rows += json.loads(cells)

    def __getattr__(self, _name: str) -> Any:
        return lambda *_args, **_more: 0


def _read(reader: Any, *args: Any, **more: Any) -> tuple[list[Any], ResultError | None]:
    kept = _Kept()
    try:
        reader(kept, 1, *args, **more)
    except ResultError as error:
        return kept.rows, error
    return kept.rows, None


_CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("cut"), st.integers(1, 400)),
        st.tuples(st.just("double"), st.integers(0, 9)),
        st.tuples(st.just("join"), st.sampled_from(sorted(SHEETS))),
        st.tuples(st.just("pad"), st.integers(0, 9)),
    ),
    max_size=4,
)
_CHEAP = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _altered(lines: list[str], changes: list[tuple[str, Any]]) -> str:
    for kind, what in changes:
        place = 1 + what % len(lines) if isinstance(what, int) else 0
        if kind == "cut":
            text = "\n".join(lines)
            lines = text[: max(len(text) - what, len(lines[0]))].split("\n")
        elif kind == "double":
            lines[place:place] = [lines[place - 1]]
        elif kind == "join":
            lines = [*lines, *SHEETS[what]]
        else:
            lines[place - 1] += "\0" * 3
    return "\n".join(lines) + "\n"


@_CHEAP
@given(name=st.sampled_from(sorted(SHEETS)), changes=_CHANGES)
def test_each_line_of_a_sheet_is_a_row_or_is_counted(name: str, changes: list[tuple[str, Any]], tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    text = _altered(list(SHEETS[name]), changes)
    file.write_text(text, "utf-8", newline="")
    # One that is cut may be a header still.
    headers = [lines[0] for lines in SHEETS.values()]
    lines = [line for line in text.replace("\0", "").splitlines()[1:] if line]
    lines = [line for line in lines if not any(header.startswith(line) for header in headers)]
    found, error = _read(import_sheet, file, read_sheet(file), has_kernels=True)
    missing = Counter(tuple(row) for row in csv.reader(lines)) - Counter(map(tuple, found))
    assert missing.total() <= (0 if error is None else error.unread[2])


@_CHEAP
@given(data=st.data())
def test_each_event_of_a_timeline_is_a_row_or_stands_behind_the_place_that_is_told(
    data: st.DataObject, tmp_path: Path
) -> None:
    arrays = data.draw(st.lists(st.sampled_from(sorted(TIMELINES)), min_size=1, max_size=4))
    number, text, begins = 0, "", {}
    for name in arrays:
        is_object, separator = data.draw(st.booleans()), data.draw(st.sampled_from(SEPARATORS))
        text += ('{"schemaVersion": 1, "traceEvents": [' if is_object else "[") + "\0" * data.draw(st.integers(0, 2))
        for event in TIMELINES[name]:
            text += ", " * (not text.endswith(("[", "\0")))
            number += 1
            begins[number] = len(text.encode())
            text += json.dumps({**event, "number": number})
        text += ('], "displayTimeUnit": "ms"}' if is_object else "]") + separator
    content = text.encode()[: data.draw(st.integers(begins[1] + 1, len(text.encode())) | st.just(1 << 20))]
    file = tmp_path / "x.json"
    file.write_bytes(content)
    found, error = _read(import_timeline, file, wants=())
    missing = {*begins} - {event["number"] for event in found}
    told = len(content) if error is None else error.unread[0]
    assert isinstance(told, int)
    assert all(begins[each] >= told for each in missing)
    if len(content) == len(text.encode()):
        assert (missing, error) == (set(), None)
