"""Inferences that came whole are decoded and written together, and have the rows that any other way gives them."""

from __future__ import annotations

import asyncio
import struct
import tempfile
from itertools import chain, pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profagent.formats.counter_maps import CounterMaps, simulated_map
from profagent.formats.names import parse_log_name
from profagent.ingest.feed import reading_order
from profagent.ingest.local import growing_kind
from profagent.ingest.mirror import digest_of
from profagent.link.messages import Chunk, Completed, FollowedLog, LogEvent, Received, Started
from profagent.record.options import RecordingOptions
from profagent.record.recording import Recording
from profagent.store.store import HeldLog, Store, StoredSession
from profagent.store.workspace import Workspace
from tests.fakes.dumps import Dump, assert_same, dump, imported
from tests.fakes.small_job import SMALL_JOB
from tests.fakes.ways import Way, going
from tests.property.streamed_board import JOB
from tests.property.written_jobs import RECORD_BYTES, WrittenJob, jobs, recorded, simulated
from tests.unit.record.link import board, job_status

MAP = simulated_map()
SHORT_JOB = simulated(inferences=2).files
LATE_US = 2**63
# What may be wrong with a file, and where: a fraction of its size in thousandths.
DAMAGES = st.tuples(
    st.integers(0, 99),
    st.sampled_from(["cut", "gone", "twice", "renumbered", "of another net", "late", "spelled", "of another"]),
    st.integers(0, 999),
)


def damaged(files: dict[str, bytes], number: int, damage: str, place: int) -> dict[str, bytes]:
    """Some JOB's files, of which one file of a unit is not as the runtime wrote it."""
    named = {path: parse_log_name(path) for path in sorted(files)}
    units = [path for path, name in named.items() if name is not None and name.kind in RECORD_BYTES]
    if not units:
        return files
    path = units[number % len(units)]
    data, at = files[path], len(files[path]) * place // 1000
    others = {each: content for each, content in files.items() if each != path}
    name = named[path]
    assert name is not None, "it is of a unit"
    record = at // RECORD_BYTES[name.kind] * RECORD_BYTES[name.kind]
    match damage:
        case "gone":
            return others
        case "spelled":
            return {**others, "data/AA" + path[len("data/ai") :]: data}
        case "twice":
            data += data
        case "of another":
            data = files[units[place % len(units)]]
        case "renumbered" if name.is_data:
            data = _patched(data, record, struct.pack("<I", place))
        case "of another net" if name.is_data:
            data = _patched(data, record + RECORD_BYTES[name.kind] - 4, struct.pack("<I", place))
        case "late" if name.is_data:
            data = _patched(data, record + 8, struct.pack("<QQ", LATE_US - 1, LATE_US + place))
        case _:
            data = data[:at]
    return {**others, path: data}


def _patched(data: bytes, at: int, field: bytes) -> bytes:
    return data[:at] + field + data[at + len(field) :] if at + len(field) <= len(data) else data


def by_import(files: dict[str, bytes], way: Way) -> tuple[Dump, int]:
    """What an import of the files gives, and how many of its inferences were decoded together."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, going(way) as together:
        return imported(Path(folder) / JOB, files, MAP), sum(together)


def compare(files: dict[str, bytes]) -> int:
    """Fail where the ways differ, also in whether a number is whole. Returns how many inferences came whole."""
    found, count = by_import(files, Way.TOGETHER)
    for way in (Way.ONE_BY_ONE, Way.AS_CHANGES):
        expected, _ = by_import(files, way)
        for what, rows in expected.items():
            assert list(map(repr, found[what])) == list(map(repr, rows)), f"{what}, {way.value}"
    return count


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(job=jobs(), damages=st.lists(DAMAGES, max_size=3))
def test_an_import_of_any_job_has_the_same_rows(job: WrittenJob, damages: list[tuple[int, str, int]]) -> None:
    files = job.files
    for damage in damages:
        files = damaged(files, *damage)
    compare(files)


@pytest.mark.parametrize(
    ("files", "together"),
    [(simulated().files, 3), (recorded()["runtime-api"].files, 8), (SMALL_JOB, 2)],
    ids=["simulated", "recorded", "small"],
)
def test_so_does_that_of_inferences_that_are_decoded_together(files: dict[str, bytes], together: int) -> None:
    assert compare(files) == together


# A stream, in batches


def stream(files: dict[str, bytes]) -> list[Received]:
    """Events of a JOB as a board sends them: the data of both units in pieces, then each `.done`."""
    events: list[Received] = []
    readings = (sorted(each.paths, key=lambda path: path.endswith(".done")) for each in reading_order(files))
    for handle, path in enumerate(chain.from_iterable(readings), 1):
        log = FollowedLog(handle, JOB, path.encode(), snapshot=growing_kind(path) is None)
        events += [Received(JOB, log, event) for event in _events(log, files[path])]
    return events


def _events(log: FollowedLog, data: bytes) -> list[LogEvent]:
    if log.snapshot:
        return [Started(log.handle, 1, 0, "new", data, digest_of(data))]
    half = len(data) // 2
    ended = Completed(log.handle, 1, len(data), digest_of(data))
    return [Started(log.handle, 1, 0, "new", data[:half]), Chunk(log.handle, 1, half, data[half:]), ended]


async def recorded_in(folder: Path, *batches: list[Received], streams: int = 1) -> Dump:
    """What a recording gives that takes these batches, in each of so many streams, until the JOB ends."""
    workspace = Workspace(folder)
    async with Store(workspace.database, durable=False) as store:
        recording = Recording(workspace, store, RecordingOptions(lambda: 1, maps=CounterMaps(MAP)))
        for _ in range(streams):
            await recording.begin(board(), "board:1")
            recording.know_job(job_status(JOB))
            logs = dict.fromkeys(each.log for batch in batches for each in batch if each.log is not None)
            await recording.holdings([*logs])
            for batch in batches:
                await recording.take(batch, _unheard)
        await recording.change_state(JOB, "finished", caught_up=True)
        await recording.end()
    return dump(workspace.database)


async def _unheard(_: object) -> None: ...


@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    job=jobs(),
    damages=st.lists(DAMAGES, max_size=2),
    cuts=st.lists(st.integers(0, 999), max_size=4),
    streams=st.sampled_from([1, 1, 2]),
)
def test_a_recording_of_any_job_has_the_same_rows(
    job: WrittenJob, damages: list[tuple[int, str, int]], cuts: list[int], streams: int
) -> None:
    files = job.files
    for damage in damages:
        files = damaged(files, *damage)
    events = stream(files)
    places = [0, *sorted(cut * len(events) // 1000 for cut in cuts), len(events)]
    batches = [events[begin:end] for begin, end in pairwise(places)]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        found = []
        for way in (Way.TOGETHER, Way.ONE_BY_ONE):
            with going(way):
                found.append(asyncio.run(recorded_in(Path(name) / way.value, *batches, streams=streams)))
    assert_same(*found)


async def test_a_batch_that_is_cut_anywhere_has_the_same_rows(tmp_path: Path) -> None:
    events = stream(SHORT_JOB)
    with going(Way.ONE_BY_ONE):
        expected = await recorded_in(tmp_path / "one by one", events)
    for place in range(len(events)):
        with going(Way.TOGETHER) as together:
            found = await recorded_in(tmp_path / f"{place}", events[:place], events[place:])
        assert_same(found, expected)
        # A cut takes an inference out, or none.
        assert sum(together) in (1, 2), place


async def test_nothing_is_lost_of_logs_that_are_taken_for_new_and_have_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: object) -> dict[str, HeldLog]:
        return {}

    events = stream(SHORT_JOB)
    expected = await recorded_in(tmp_path / "once", events)
    monkeypatch.setattr(StoredSession, "held", nothing)
    with going(Way.TOGETHER) as together:
        assert_same(await recorded_in(tmp_path / "twice", events, streams=2), expected)
    assert together == [2, 2]
