"""What is odd in a log, weighed: losses are bytes that existed and are gone, notes what the runtime does."""

from __future__ import annotations

import pytest

from profagent.formats.done import Done
from profagent.ingest.changes import Entry
from profagent.ingest.datalog import LogFacts, Places, assess, orphan_done
from profagent.store.sampling import ring_entry


def facts(**values: object) -> LogFacts:
    return LogFacts(256, **values)  # type: ignore[arg-type]


def grades(found: tuple[Entry, ...]) -> list[tuple[str, str]]:
    return [(entry.grade, entry.reason) for entry in found]


def done(file_len: int) -> Done:
    return Done(file_len, 1, 2)


def test_places_keep_the_first_and_the_last() -> None:
    places = Places()
    places.add(256, 256, 1)
    places.add(512, 1024, 3)
    assert places.entry("no-layer", "what") == Entry("note", "no-layer", "what", 256, 1024, 4)


def test_a_log_that_is_as_announced_has_nothing_odd() -> None:
    assert assess(facts(size=512, stretches=1), done(512), settled=True, ended=True) == ()


@pytest.mark.parametrize("state", [{"settled": True, "ended": False}, {"settled": False, "ended": True}])
@pytest.mark.parametrize(
    ("size", "file_len", "expected"),
    [
        (512, 768, [("note", "announced-length")]),
        (512, 3 << 30, [("note", "announced-length")]),
        (0, 768, [("loss", "missing-data")]),
        (612, 612, [("loss", "torn-record")]),
        (612, 768, [("loss", "torn-record"), ("note", "announced-length")]),
        (512, 256, []),
    ],
)
def test_sizes_are_compared_with_the_done(
    size: int, file_len: int, expected: list[tuple[str, str]], state: dict[str, bool]
) -> None:
    assert grades(assess(facts(size=size, stretches=1), done(file_len), **state)) == expected


def test_sizes_are_not_compared_while_the_log_may_grow() -> None:
    assert assess(facts(size=612, stretches=2), done(768), settled=False, ended=False) == ()


def test_a_torn_record_is_told_with_its_place() -> None:
    (entry,) = assess(facts(size=612, stretches=1), done(612), settled=True, ended=False)
    assert (entry.first, entry.last, entry.detail) == (512, 612, "the last record has 100 of 256 bytes")


@pytest.mark.parametrize(("size", "reason"), [(0, "empty"), (512, "no-done")])
def test_data_without_done_is_a_note_when_its_job_has_ended(size: int, reason: str) -> None:
    assert assess(facts(size=size, stretches=1), None, settled=False, ended=False) == ()
    assert grades(assess(facts(size=size, stretches=1), None, settled=False, ended=True)) == [("note", reason)]


@pytest.mark.parametrize(("size", "said"), [(0, "has no bytes"), (512, "may miss its end")])
def test_an_empty_done_shows_that_data_could_not_be_written(size: int, said: str) -> None:
    (entry,) = assess(facts(size=size, stretches=1), None, settled=False, ended=True, is_done_empty=True)
    assert (entry.grade, entry.reason, entry.count) == ("loss", "missing-data", 1)
    assert said in entry.detail


def test_a_model_that_was_loaded_again_is_a_note() -> None:
    found = assess(facts(size=1280, stretches=2, last_stretch_start=512), done(768), settled=True, ended=False)
    assert [(entry.reason, entry.first, entry.last, entry.count) for entry in found] == [("appended", 512, 1280, 2)]


@pytest.mark.parametrize(
    ("field", "grade", "reason"),
    [
        ("missing", "note", "sequence-gap"),
        ("jumped", "note", "sequence-jump"),
        ("nameless", "note", "no-layer"),
        ("without_magic", "loss", "bad-record"),
        ("begun_before", "note", "begin-unknown"),
    ],
)
def test_what_records_show_is_told_at_once(field: str, grade: str, reason: str) -> None:
    found = assess(facts(size=512, **{field: Places(3, 0, 512)}), None, settled=False, ended=False)
    assert [(e.grade, e.reason, e.first, e.last, e.count) for e in found] == [(grade, reason, 0, 512, 3)]


def test_a_done_without_data_is_a_loss_of_what_it_announces() -> None:
    assert (orphan_done(768).grade, orphan_done(768).count) == ("loss", 768)
    assert orphan_done(0).grade == "note"


def test_a_full_ring_is_a_note_with_its_calls() -> None:
    assert (ring_entry(600).grade, ring_entry(600).reason, ring_entry(600).count) == ("note", "ring-full", 600)
