"""However a segment's bytes come, and whoever reads on, its rows are the same; no byte of it stops a capture."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from profagent.ingest.changes import Change, ContentLedger, SourceRows
from profagent.ingest.source import decoder_of, schemas
from profagent_app.marks import Kind
from tests.fakes.spooled import START_US, mark, sweeps

SEGMENT = "00000001"
GOOD = {
    "ops": b"".join(bytes([number]) * 4 + bytes(112) + bytes(140) for number in range(5)),
    "marks": b"".join(mark(Kind.SPAN, "é" * number, START_US, START_US + number, number=number) for number in range(5)),
    "metrics": sweeps((START_US, 1.5), (START_US + 5, 2), names=("a.b", "c d")) + b"e thermal gone\ns 7 0=3\n",
}


class Held:
    """The bytes that came."""

    def __init__(self) -> None:
        self.data = b""

    def read(self, _path: str, size: int | None = None, *, start: int = 0) -> bytes:
        return self.data[start : None if size is None else start + size]

    def names(self) -> list[str]:
        return [SEGMENT]


def rows_of(changes: Iterable[Change]) -> dict[str, list[tuple[Any, ...]]]:
    found: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for change in changes:
        if isinstance(change, SourceRows) and change.rows:
            found[change.table] = [*([] if change.anew else found[change.table]), *change.rows]
    return dict(found)


def decoded(source: str, data: bytes, cuts: Iterable[int], forgotten: Iterable[int] = ()) -> list[Change]:
    """What a segment's bytes mean that come in pieces; at some of these another process goes on."""
    held, anew = Held(), set(forgotten)
    decoder = decoder_of(source)(held)
    changes = list(decoder.begin(SEGMENT, 1, 0))
    places = sorted({0, *(cut % (len(data) + 1) for cut in cuts), len(data)})
    for number, (begin, end) in enumerate(pairwise(places)):
        if number in anew:
            decoder = decoder_of(source)(held)
            changes += decoder.begin(SEGMENT, 1, begin)
        held.data = data[:end]
        changes += decoder.append(SEGMENT, 1, begin, data[begin:end])
    return [*changes, *decoder.complete(SEGMENT, 1, len(data), b"")]


@given(
    st.sampled_from(sorted(GOOD)), st.lists(st.integers(0, 5000)), st.sets(st.integers(0, 9)), st.binary(max_size=40)
)
def test_pieces_and_other_processes_make_no_difference(
    source: str, cuts: list[int], forgotten: set[int], torn: bytes
) -> None:
    data = GOOD[source] + torn
    whole, pieces = decoded(source, data, ()), decoded(source, data, cuts, forgotten)
    # Names are told again to who goes on.
    assert {table: list(dict.fromkeys(rows)) for table, rows in rows_of(pieces).items()} == rows_of(whole)
    assert len(rows_of(whole)) > 0
    ledgers = [[each for each in changes if isinstance(each, ContentLedger)][-1] for changes in (whole, pieces)]
    assert ledgers[0] == ledgers[1]


@given(
    st.sampled_from(sorted(GOOD)),
    st.lists(st.sampled_from([b"n 0 % a\n", b"s ", b"0=1", b"0=1e999\n", b"9" * 30, b"\n", b"=", b" "]) | st.binary()),
    st.integers(0, 1500),
)
def test_whatever_a_board_sends_fits_into_the_tables(source: str, pieces: list[bytes], place: int) -> None:
    nonsense = b"".join(pieces)
    data = GOOD[source][:place] + nonsense + GOOD[source][place + len(nonsense) :]
    with sqlite3.connect(":memory:") as database:
        for schema in schemas():
            for statement in schema.split(";\n"):
                if "CREATE TABLE" in statement:
                    database.execute(statement[statement.index("CREATE TABLE") :])
        for table, rows in rows_of(decoded(source, data, [place])).items():
            places = ", ?" * len(rows[0])
            database.executemany(f"INSERT INTO {table} VALUES (1, 1{places})", rows)
