"""States of data logs: built again when they were forgotten, with their rows."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import pytest

from profagent.errors import StoreError
from profagent.formats.names import LogName, parse_log_name
from profagent.ingest.changes import Change, InferenceTimed, LogJudged, Redecoded, SegmentRecords
from profagent.ingest.states import LogStates
from tests.encoders import done_text
from tests.fakes.small_job import ALIKE, CALLS, EMPTY, ON_CPU, PLAIN, RELOADED, SMALL_JOB, TORN, UNENDED, aicore_done

T = TypeVar("T")


class Files(dict[str, bytes]):
    """Bytes that were decoded before; `largest` is what was read at once."""

    largest = 0

    def read(self, path: str, size: int | None = None, *, start: int = 0) -> bytes | None:
        data = self.get(path)
        if data is None:
            return None
        data = data[start : None if size is None else start + size]
        self.largest = max(self.largest, len(data))
        return data

    def names(self) -> list[str]:
        return list(self)


def name_of(path: str) -> LogName:
    name = parse_log_name(path)
    assert name is not None
    return name


def drained(steps: Generator[Change, None, T]) -> tuple[list[Change], T]:
    """What was yielded, and what was returned."""
    changes = []
    while True:
        try:
            changes.append(next(steps))
        except StopIteration as end:
            return changes, end.value


@pytest.fixture
def files() -> Files:
    return Files(SMALL_JOB)


@pytest.fixture
def states(files: Files) -> LogStates:
    return LogStates(files, None, 3)


def kinds(changes: list[Change]) -> list[type]:
    return [type(change) for change in changes]


def test_a_log_that_begins_says_nothing(states: LogStates) -> None:
    changes, log = drained(states.at(PLAIN, name_of(PLAIN), 0))
    assert (changes, log.facts.size, log.records) == ([], 0, 0)
    assert log.done is not None, "its .done may be there before it"
    assert states.known(PLAIN) is log


def test_a_log_in_use_goes_on_as_it_is(states: LogStates) -> None:
    _, log = drained(states.at(PLAIN, name_of(PLAIN), 0))
    assert kinds(list(states.grow(log, SMALL_JOB[PLAIN][:300]))) == [SegmentRecords]
    changes, same = drained(states.at(PLAIN, name_of(PLAIN), 300))
    assert (changes, same is log) == ([], True)
    assert kinds(list(states.grow(log, SMALL_JOB[PLAIN][300:]))) == [SegmentRecords]


@pytest.mark.parametrize("offset", [300, 1024, None])
def test_a_forgotten_log_has_its_rows_written_again(states: LogStates, offset: int | None) -> None:
    changes, log = drained(states.at(PLAIN, name_of(PLAIN), offset))
    assert kinds(changes) == [Redecoded, InferenceTimed]
    assert log.facts.size == (1024 if offset is None else offset)


def test_a_log_that_was_cut_back_has_its_rows_written_again(states: LogStates) -> None:
    drained(states.at(PLAIN, name_of(PLAIN), 1024))
    changes, log = drained(states.at(PLAIN, name_of(PLAIN), 512))
    (redecoded, _) = changes
    assert isinstance(redecoded, Redecoded)
    assert redecoded.records is not None
    assert len(redecoded.records.sequence) == log.records == 2


def test_calls_need_not_be_written_again(states: LogStates) -> None:
    changes, log = drained(states.at(CALLS, name_of(CALLS), None))
    assert (changes, log.records) == ([], 6)


@pytest.mark.parametrize(("offset", "records"), [(None, 6), (192, 6), (100, 3)])
def test_calls_are_counted_again_by_the_block(
    offset: int | None, records: int, states: LogStates, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, whole = drained(states.at(CALLS, name_of(CALLS), offset))
    monkeypatch.setattr("profagent.ingest.states.CALLS_BLOCK_BYTES", 64)
    states.forget(CALLS)
    files.largest = 0
    _, log = drained(states.at(CALLS, name_of(CALLS), offset))
    assert files.largest == 64
    assert (log.facts, log.records) == (whole.facts, records)


def test_calls_stay_known_while_segments_come_and_go(states: LogStates, files: Files) -> None:
    _, calls = drained(states.at(CALLS, name_of(CALLS), None))
    for picture in range(10):
        path = f"data/aicore.0.m.3.0.1.1.{100 + picture}"
        drained(states.at(path, name_of(path), 0))
    assert states.known(CALLS) is calls
    assert len(states) == 3 + 1


def test_a_log_without_a_whole_record_loses_the_rows_it_had(states: LogStates) -> None:
    changes, _ = drained(states.at(PLAIN, name_of(PLAIN), 100))
    assert changes == [Redecoded(PLAIN, None)]


def test_bytes_that_are_gone_are_an_error(states: LogStates) -> None:
    with pytest.raises(StoreError, match="1024 of 2000"):
        drained(states.at(PLAIN, name_of(PLAIN), 2000))


def test_a_log_at_its_end_is_taken_as_complete_when_it_is_there(states: LogStates) -> None:
    missing = "data/aicore.0.m.3.0.1.1.77"
    for path, settled in ((ALIKE, True), ("data/aicore.0.m.3.0.1.1.12", True), (missing, False)):
        _, log = drained(states.at_end(path, name_of(path)))
        assert log.settled is settled


def test_the_announced_length_splits_once(states: LogStates) -> None:
    changes, log = drained(states.at_end(ALIKE, name_of(ALIKE)))
    assert kinds(changes) == [Redecoded, InferenceTimed] * 2
    assert (log.last_stretch_record, log.facts.stretches) == (2, 2)
    assert drained(states.split_as_announced(log)) == ([], log)


def test_another_announced_length_splits_anew(states: LogStates, files: Files) -> None:
    _, log = drained(states.at_end(ALIKE, name_of(ALIKE)))
    files[ALIKE + ".done"] = aicore_done(512)
    log.done = states.done_of(ALIKE)
    changes, log = drained(states.split_as_announced(log))
    assert (log.last_stretch_record, log.facts.last_stretch_start) == (1, 256)
    assert isinstance(changes[-1], InferenceTimed)
    log.done = None
    changes, log = drained(states.split_as_announced(log))
    assert (log.last_stretch_record, log.facts.stretches) == (None, 1)


def test_the_done_speaks_of_the_last_inference(states: LogStates) -> None:
    _, log = drained(states.at(RELOADED, name_of(RELOADED), 0))
    first = list(states.grow(log, SMALL_JOB[RELOADED][:768]))
    second = list(states.grow(log, SMALL_JOB[RELOADED][768:]))
    assert times([*first, *second]) == [(0, False)]
    changes, _ = drained(states.judged(log))
    assert times(changes) == [(1, True)]
    assert changes[-1] == LogJudged(RELOADED, 2, "")


def times(changes: list[Change]) -> list[tuple[int, bool]]:
    """Of which inferences the changes tell times, and whether they know them."""
    return [(each.stretch, each.done is not None) for each in changes if isinstance(each, InferenceTimed)]


@pytest.mark.parametrize(
    ("path", "judged"),
    [
        (PLAIN, [LogJudged(PLAIN, 1, "")]),
        (ALIKE, [LogJudged(ALIKE, 2, "")]),
        (TORN, [LogJudged(TORN, 0, "the .done announces 512 bytes, 228 are there")]),
        (EMPTY, [LogJudged(EMPTY, 0, "the .done announces 768 bytes, 0 are there")]),
        (CALLS, []),
        (UNENDED, []),
    ],
)
def test_a_log_is_judged_by_its_done_and_the_bytes_that_are_there(
    path: str, judged: list[LogJudged], states: LogStates
) -> None:
    _, log = drained(states.at_end(path, name_of(path)))
    changes, _ = drained(states.judged(log))
    assert [change for change in changes if isinstance(change, LogJudged)] == judged


@pytest.mark.parametrize(
    ("file_len", "size", "fault"),
    [(228, 228, "the last one is torn"), (0, 0, "there are none"), (0, 256, ""), (128, 256, "")],
)
def test_a_log_may_end_within_a_record_or_hold_none(
    file_len: int, size: int, fault: str, states: LogStates, files: Files
) -> None:
    files[TORN] = SMALL_JOB[ON_CPU][:size]
    files[TORN + ".done"] = done_text(file_len=file_len, start_time=1, end_time=2)
    _, log = drained(states.at_end(TORN, name_of(TORN)))
    changes, _ = drained(states.judged(log))
    assert isinstance(changes[-1], LogJudged)
    assert changes[-1].fault == fault


def test_a_log_that_went_on_waits_for_the_board_and_for_a_done_written_anew(states: LogStates) -> None:
    _, log = drained(states.at_end(RELOADED, name_of(RELOADED)))
    states.goes_on(RELOADED)
    assert drained(states.judged(log)) == ([], log)
    states.growing.discard(RELOADED)
    assert drained(states.judged(log)) == ([], log), "its .done speaks of the inference before"
    states.renew_done(RELOADED, is_rewritten=True)
    assert kinds(drained(states.judged(log))[0]) == [InferenceTimed, LogJudged]


def test_a_done_written_anew_waits_for_the_bytes_that_it_speaks_of(states: LogStates) -> None:
    _, log = drained(states.at_end(RELOADED, name_of(RELOADED)))
    states.renew_done(RELOADED, is_rewritten=True)
    assert drained(states.judged(log)) == ([], log)
    states.goes_on(RELOADED)
    states.growing.discard(RELOADED)
    assert kinds(drained(states.judged(log))[0]) == [InferenceTimed, LogJudged]


def test_what_has_ended_is_judged_as_it_is(states: LogStates) -> None:
    _, log = drained(states.at_end(RELOADED, name_of(RELOADED)))
    states.goes_on(RELOADED)
    states.settle(RELOADED)
    assert kinds(drained(states.judged(log))[0]) == [InferenceTimed, LogJudged]


def test_a_done_that_cannot_be_read_is_none(states: LogStates, files: Files) -> None:
    files[PLAIN + ".done"] = b"file_len"
    assert states.done_of(PLAIN) is None
    assert states.done_of("data/none") is None


def test_only_so_many_are_remembered_those_in_use_longest(states: LogStates) -> None:
    paths = [f"data/aicore.0.m.3.0.1.1.{number}" for number in range(20, 24)]
    for path in paths[:3]:
        drained(states.at(path, name_of(path), 0))
    drained(states.at(paths[0], name_of(paths[0]), 0))
    drained(states.at(paths[3], name_of(paths[3]), 0))
    assert [states.known(path) is not None for path in paths] == [True, False, True, True]
    assert len(states) == 3
    states.forget(paths[0])
    assert len(states) == 2
