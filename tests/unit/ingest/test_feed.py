"""Which inferences come whole and may be plain, in a directory and in a batch of a stream."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise

import pytest

from profagent import ledger
from profagent.formats.names import LogKind, LogName, parse_log_name
from profagent.ingest.decode import Joins
from profagent.ingest.feed import (
    Arrival,
    Feed,
    Group,
    Reading,
    WholeFile,
    decode_groups,
    group_of,
    reading_order,
)
from profagent.ingest.mirror import digest_of
from profagent.limits import LARGEST_PLAIN_BYTES
from profagent.link.messages import Chunk, Completed, FollowedLog, LogEvent, Loss, Received, Removed, Started
from tests.encoders import aicore_record, aicpu_record, done_text
from tests.fakes.small_job import ON_CPU, PLAIN, SMALL_JOB, aicore_done

JOB = "JOB" + "A" * 29
NPU_FILES = (PLAIN, PLAIN + ".done")
FILES = (*NPU_FILES, ON_CPU, ON_CPU + ".done")

# A directory


def test_the_files_of_an_inference_are_read_together_behind_what_names_and_times_them() -> None:
    other, alone = "data/aicore.0.m.3.0.1.1.1", "data/aicpu.0.m.3.0.1.1.2"
    first = ["data/m.0.layer.info", "data/m.0.net.info", "info.json.0", "simulated"]
    rest = ["data/acl_api.0.m.0", "data/acl_api.0.m.0.done", "data/odd", "odd"]
    paths = [alone, *first, *FILES, other, other + ".done", *rest]
    name = parse_log_name
    assert reading_order(reversed(paths)) == [
        *(Reading((path,)) for path in (*first, *rest)),
        Reading(FILES, name(PLAIN)),
        Reading((other, other + ".done"), name(other)),
        Reading((alone,)),
    ]


@pytest.mark.parametrize(
    "paths",
    [
        (PLAIN,),
        (PLAIN, ON_CPU),
        (ON_CPU, ON_CPU + ".done"),
        (*NPU_FILES, ON_CPU),
        (*NPU_FILES, ON_CPU + ".done"),
        (*NPU_FILES, "data/AACORE.0.m.3.0.1.1.0"),
        ("data/aicore.junk", "data/aicore.junk.done"),
        ("data/aicore.0.m.3.0.1.1.0.DONE", PLAIN),
    ],
)
def test_files_that_are_not_each_one_of_an_inference_are_read_file_by_file(paths: Sequence[str]) -> None:
    assert all(reading.name is None for reading in reading_order(paths))


def test_spellings_of_one_inference_may_differ() -> None:
    mixed = ("data/AAcore.0.m.3.0.1.1.0", "data/AAcore.0.m.3.0.1.1.0.done", ON_CPU, ON_CPU + ".done")
    assert reading_order(mixed) == [Reading(mixed, parse_log_name(PLAIN))]


# The files of a group


def whole(path: str, data: bytes | None = None, generation: int = 1) -> WholeFile:
    data = SMALL_JOB[path] if data is None else data
    return WholeFile(path, generation, data, digest_of(data))


def made(files: Sequence[WholeFile], name: LogName | None = None) -> Group | None:
    name = name or parse_log_name(PLAIN)
    assert name is not None
    return group_of(name, files)


@pytest.mark.parametrize("paths", [FILES, NPU_FILES])
def test_whole_files_with_their_dones_are_a_group(paths: Sequence[str]) -> None:
    group = made([whole(path) for path in paths])
    assert group is not None
    assert [file.path for file in group.files] == [*paths]
    assert group.aicore_done.done is not None
    assert group.aicore_done.done.file_len == len(group.aicore.data) == 1024
    assert [file.done is not None for file in group.files] == [path.endswith(".done") for path in paths]


NO_TEXT = "data/aicore.0.\udcff.3.0.1.1.0"
LARGE = LARGEST_PLAIN_BYTES + 256


@pytest.mark.parametrize(
    "files",
    [
        [whole(PLAIN, SMALL_JOB[PLAIN] + b"torn"), whole(PLAIN + ".done", aicore_done(1028))],
        [whole(PLAIN, b""), whole(PLAIN + ".done", aicore_done(0))],
        [whole(PLAIN), whole(PLAIN + ".done", aicore_done(256))],
        [whole(PLAIN), whole(PLAIN + ".done", b"")],
        [whole(PLAIN), whole(PLAIN + ".done", aicore_done(1024) + b"more")],
        [whole(PLAIN, bytes(LARGE)), whole(PLAIN + ".done", aicore_done(LARGE))],
        [whole(PLAIN, generation=2), whole(PLAIN + ".done")],
        [whole(PLAIN), whole(PLAIN + ".done", generation=2)],
        [*map(whole, NPU_FILES), whole(ON_CPU), whole(ON_CPU + ".done", done_text(file_len=128))],
        [whole(NO_TEXT, SMALL_JOB[PLAIN]), whole(NO_TEXT + ".done", SMALL_JOB[PLAIN + ".done"])],
        [whole("data/AAcore.0.m.3.0.1.1.0", SMALL_JOB[PLAIN]), whole(PLAIN + ".done")],
    ],
    ids=[
        *("torn", "empty", "loads", "no .done", "odd .done", "large", "again", ".done again", "odd aicpu", "no text"),
        "another's .done",
    ],
)
def test_what_is_odd_about_a_file_leaves_its_inference_to_the_general_way(files: list[WholeFile]) -> None:
    assert made(files) is None


def test_a_count_that_the_database_cannot_hold_is_odd() -> None:
    assert made([*map(whole, NPU_FILES)], parse_log_name(f"data/aicore.0.m.3.0.1.1.{2**63}")) is None


# A stream


class Stream:
    """A feed to which logs were announced, with handles in their order."""

    def __init__(self, *paths: str, held: Sequence[str] = (), most: int = 100) -> None:
        self.feed = Feed(most)
        self.logs: dict[str, FollowedLog] = {}
        self.announce(*paths, held=held)

    def announce(self, *paths: str, held: Sequence[str] = ()) -> None:
        for path in paths:
            log = FollowedLog(len(self.logs) + 1, JOB, os.fsencode(path), snapshot=path.endswith(".done"))
            self.logs[path] = log
            self.feed.announce(log, path, is_new=path not in held)

    def received(self, path: str, event: LogEvent) -> Received:
        return Received(JOB, self.logs[path], event)

    def comes(self, path: str, data: bytes | None = None, generation: int = 1, offset: int = 0) -> Received:
        """All of a log."""
        data = SMALL_JOB[path] if data is None else data
        event = Started(self.logs[path].handle, generation, offset, "new", data, digest_of(data))
        return self.received(path, event)

    def pieces(self, path: str, *places: int) -> list[Received]:
        """A log that was cut at these places."""
        data, handle = SMALL_JOB[path], self.logs[path].handle
        cuts = [*places, len(data)]
        return [
            self.received(path, Started(handle, 1, 0, "new", data[: cuts[0]])),
            *(self.received(path, Chunk(handle, 1, start, data[start:end])) for start, end in pairwise(cuts)),
            self.received(path, Completed(handle, 1, len(data), digest_of(data))),
        ]

    def take(self, *events: Received) -> tuple[list[Arrival], list[Received]]:
        arrivals, left = self.feed.take(events)
        assert set(arrivals) <= {JOB}
        return arrivals.get(JOB, []), left


@pytest.mark.parametrize("paths", [FILES, NPU_FILES])
def test_new_logs_that_come_whole_in_one_batch_are_a_group(paths: Sequence[str]) -> None:
    stream = Stream(*paths)
    events = [stream.comes(path) for path in paths]
    ((group, received),), left = stream.take(*reversed(events))
    assert group == made([whole(path) for path in paths])
    assert (list(received), left) == (events, [])


def test_pieces_of_a_log_are_joined() -> None:
    stream = Stream(*FILES)
    cut = [each for path in FILES for each in stream.pieces(path, 0, len(SMALL_JOB[path]) // 2)]
    ((group, received),), left = stream.take(*cut)
    assert group == made([whole(path) for path in FILES])
    assert ([each.event for each in received], left) == ([stream.comes(path).event for path in FILES], [])


def test_other_events_stay_in_their_order() -> None:
    other = "data/acl_api.0.m.0"
    stream = Stream(*NPU_FILES, other)
    first, last = stream.pieces(other)
    loss = Received(JOB, None, Loss(0, 1, "unreadable", "", 0))
    (_, left) = stream.take(first, stream.comes(PLAIN), loss, stream.comes(PLAIN + ".done"), last)
    assert left == [first, loss, last]


@pytest.mark.parametrize("held", FILES)
def test_a_log_of_which_something_is_held_leaves_its_inference_to_the_general_way(held: str) -> None:
    stream = Stream(*FILES, held=[held])
    events = [stream.comes(path) for path in FILES]
    assert stream.take(*events) == ([], events)


@pytest.mark.parametrize("missing", FILES)
def test_a_file_that_is_awaited_leaves_its_inference_to_the_general_way(missing: str) -> None:
    stream = Stream(*FILES)
    events = [stream.comes(path) for path in FILES if path != missing]
    assert stream.take(*events) == ([], events)
    # What came is not new any more.
    assert stream.take(stream.comes(missing)) == ([], [stream.comes(missing)])


@pytest.mark.parametrize("spelling", ["aicpu", "AAcpu"])
def test_an_aicpu_log_that_came_before_is_not_forgotten(spelling: str) -> None:
    on_cpu = ON_CPU.replace("aicpu", spelling)
    stream = Stream(*NPU_FILES, on_cpu, on_cpu + ".done")
    stream.take(stream.comes(on_cpu, SMALL_JOB[ON_CPU]), stream.comes(on_cpu + ".done", SMALL_JOB[ON_CPU + ".done"]))
    events = [stream.comes(path) for path in NPU_FILES]
    assert stream.take(*events) == ([], events)


def odd_events(stream: Stream) -> dict[str, list[Received]]:
    """Events of an aicore log that are not all of its first generation."""
    handle, size = stream.logs[PLAIN].handle, len(SMALL_JOB[PLAIN])
    start, middle, end = stream.pieces(PLAIN, 256)
    return {
        "cut": [start, middle],
        "no beginning": [middle, end],
        "a gap": [start, end],
        "twice": [start, middle, middle, end],
        "of another size": [start, middle, stream.received(PLAIN, Completed(handle, 1, size + 1, b""))],
        "goes on": [stream.comes(PLAIN, offset=256)],
        "a second generation": [stream.comes(PLAIN, generation=2)],
        "removed": [stream.comes(PLAIN), stream.received(PLAIN, Removed(handle, 1, size, size))],
        "more behind its end": [stream.comes(PLAIN), middle],
        "a loss": [stream.received(PLAIN, Loss(handle, 1, "unreadable", "", 0))],
        "begun again": [start, stream.comes(PLAIN)],
    }


@pytest.mark.parametrize("odd", odd_events(Stream(*FILES)))
def test_events_that_are_not_all_of_a_log_leave_its_inference_to_the_general_way(odd: str) -> None:
    stream = Stream(*FILES)
    events = [*odd_events(stream)[odd], *(stream.comes(path) for path in FILES[1:])]
    assert stream.take(*events) == ([], events)


def test_two_logs_of_one_inference_and_unit_are_no_group() -> None:
    twin = PLAIN.replace("aicore", "AACORE")
    stream = Stream(*NPU_FILES, twin)
    events = [stream.comes(PLAIN), stream.comes(twin, SMALL_JOB[PLAIN]), stream.comes(PLAIN + ".done")]
    assert stream.take(*events) == ([], events)


def test_a_job_may_be_kept_from_having_groups() -> None:
    stream = Stream(*NPU_FILES)
    events = [stream.comes(path) for path in NPU_FILES]
    assert stream.feed.take(events, is_plain_allowed=lambda job: job != JOB) == ({}, events)


def test_handles_of_an_earlier_stream_mean_nothing() -> None:
    stream = Stream(*NPU_FILES)
    stream.feed.begin_stream()
    events = [stream.comes(path) for path in NPU_FILES]
    assert stream.take(*events) == ([], events)


def test_so_many_new_logs_are_remembered() -> None:
    stream = Stream(*NPU_FILES, most=3)
    stream.announce(ON_CPU, ON_CPU + ".done")
    events = [stream.comes(path) for path in FILES]
    assert stream.take(*events) == ([], events)
    stream = Stream(*FILES, most=4)
    assert len(stream.take(*(stream.comes(path) for path in FILES))[0]) == 1


# Groups as columns


class Tables:
    """The tables of layers of the small JOB."""

    def read(self, path: str, size: int | None = None, *, start: int = 0) -> bytes | None:
        data = SMALL_JOB.get(path)
        return None if data is None else data[start:][:size]

    def names(self) -> list[str]:
        return [*SMALL_JOB]


Times = tuple[int, int, tuple[int, int]]


def inference(number: int, aicore: bytes, *aicpu: Times) -> Group:
    """A group; times of each record on the CPU: its own, and those of its segment."""
    npu = f"data/aicore.0.m.3.0.1.1.{number}"
    files = [whole(npu, aicore), whole(npu + ".done", aicore_done(len(aicore)))]
    if aicpu:
        data = b"".join(aicpu_record(index, *times, net=1) for index, times in enumerate(aicpu))
        on_cpu, done = npu.replace("core", "cpu"), done_text(file_len=len(data), start_time=1, end_time=2)
        files += [whole(on_cpu, data), whole(on_cpu + ".done", done)]
    found = made(files, parse_log_name(npu))
    assert found is not None
    return found


def records(*sequence: int, net: int = 0) -> bytes:
    return b"".join(aicore_record(number, 10, net) for number in sequence)


LATEST_US = 2**63 - 1
TIMES = (5, 6, (4, 7))
GROUPS = [
    inference(0, records(0, 1, 2), TIMES, TIMES),
    inference(1, records(0, 2)),
    inference(2, records(0, 1) + records(9, net=2), (5, LATEST_US, (4, LATEST_US))),
]
ODD = {
    "loaded twice": inference(7, records(0, 1, 0, 1)),
    "an earlier net": inference(7, records(0, 1) + records(0, net=2) + records(0, net=1)),
    "a late record": inference(7, records(0), (5, LATEST_US + 1, (4, 7))),
    "a late segment": inference(7, records(0), TIMES, (5, 6, (4, LATEST_US + 1))),
}


def test_groups_become_columns_of_each_unit() -> None:
    plain, odd = decode_groups(GROUPS, Joins(Tables()), None)
    assert plain is not None
    assert (plain.groups, odd) == (GROUPS, ())
    of_units = {kind: of.tolist() for kind, of in plain.places.items()}
    assert of_units == {LogKind.AICORE: [0, 1, 2], LogKind.AICPU: [0, 2]}
    layers = {kind: unit.columns["layer_index"].tolist() for kind, unit in plain.units.items()}
    assert layers == {LogKind.AICORE: [0, 1, 2, 0, 2, 0, 1, -1], LogKind.AICPU: [3, 4, 3]}
    entries = {
        log: [(each.reason, each.first, each.count) for each in of] for log, of in plain.entries[LogKind.AICORE].items()
    }
    unknown = (ledger.NO_LAYER, 512, 1)
    assert entries == {1: [(ledger.SEQUENCE_GAP, 256, 1)], 2: [(ledger.SEQUENCE_GAP, 512, 9), unknown]}
    assert not plain.entries[LogKind.AICPU]


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_groups_whose_records_are_odd_are_left_to_the_general_way(odd: Group) -> None:
    plain, left = decode_groups([*GROUPS[:1], odd, *GROUPS[1:]], Joins(Tables()), None)
    expected, _ = decode_groups(GROUPS, Joins(Tables()), None)
    assert plain is not None
    assert expected is not None
    assert (plain.groups, left) == (GROUPS, [odd])
    for kind, unit in expected.units.items():
        assert plain.places[kind].tolist() == expected.places[kind].tolist()
        assert plain.units[kind].columns["layer_index"].tolist() == unit.columns["layer_index"].tolist()
    assert plain.entries == expected.entries
    assert decode_groups([odd], Joins(Tables()), None) == (None, [odd])
