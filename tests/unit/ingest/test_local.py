"""A JOB directory on this machine: what is listed, in which order it is read, and what is not a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from profagent.errors import UnsupportedBoardError, UsageError
from profagent.ingest.feed import Arrival
from profagent.ingest.local import JobListing, LocalStream, growing_kind, list_job
from profagent.link.messages import Chunk, Completed, Holding, LogEvent, Loss, Received, Started
from profagentd.sources.job import kind_of
from profagentd.sources.source import LogMode as DaemonKind
from tests.fakes.dumps import write_files
from tests.fakes.small_job import PLAIN, SMALL_JOB


def test_a_data_folder_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    write_files(tmp_path / "elsewhere", SMALL_JOB)
    job = write_files(tmp_path / "job", {"info.json.0": SMALL_JOB["info.json.0"]})
    (job / "data").symlink_to(tmp_path / "elsewhere" / "data")
    assert list_job(job).files == ("info.json.0",)
    assert list_job(job).others == ("data",)


@pytest.mark.parametrize("make", [lambda path: None, Path.mkdir, lambda path: path.write_bytes(b"")])
def test_what_is_no_job_is_told(tmp_path: Path, make: object) -> None:
    folder = tmp_path / "JOB"
    make(folder)  # type: ignore[operator]
    with pytest.raises(UsageError) as caught:
        list_job(folder)
    assert "-dir" in caught.value.hint or "itself" in caught.value.hint


def test_a_job_of_another_soc_is_refused_by_its_names(tmp_path: Path) -> None:
    write_files(tmp_path, {"data/aicore.0.1.1": b"", "data/aicore.0.1.1.done": b""})
    with pytest.raises(UnsupportedBoardError, match="Hi3519DV500"):
        list_job(tmp_path)


def missing(job: Path, listing: JobListing, *held: Holding) -> list[Arrival | Received]:
    """What a host lacks of a JOB of which it holds this."""
    stream = LocalStream(job, listing)
    page = [(reading, [*map(stream.log, reading.paths)]) for reading in listing.readings]
    holdings = {log.handle: Holding(log.handle) for _, logs in page for log in logs}
    return [*stream.missing(page, holdings | {each.handle: each for each in held})]


def test_a_file_that_vanishes_is_a_loss(tmp_path: Path) -> None:
    listing = list_job(write_files(tmp_path, SMALL_JOB))
    (tmp_path / PLAIN).unlink()
    events = [each.event for each in missing(tmp_path, listing) if isinstance(each, Received)]
    (lost,) = (event for event in events if isinstance(event, Loss))
    assert (lost.reason, lost.detail.startswith(PLAIN)) == ("unreadable", True)


# A JOB directory as a stream: what is held goes on, what is not is sent, by the rules of the board's daemon

JOB = "JOB" + "A" * 29


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return write_files(tmp_path / JOB, SMALL_JOB)


def sent(job: Path, path: str, *held: object) -> list[LogEvent]:
    """What comes of a file to a host that holds generation, offset and digest of it."""
    stream = LocalStream(job, list_job(job))
    log = stream.log(path)
    holding = Holding(log.handle, *held)  # type: ignore[arg-type]
    events = [received.event for received in stream.events(log, holding)]
    assert {event.handle for event in events} <= {log.handle}
    return events


def told(events: list[LogEvent]) -> list[tuple[object, ...]]:
    """The events without handles and check values."""
    found: list[tuple[object, ...]] = []
    for event in events:
        match event:
            case Started():
                found.append(("started", event.generation, event.offset, event.reason))
            case Chunk():
                found.append(("chunk", event.generation, event.offset, event.data))
            case Completed():
                found.append(("completed", event.generation, event.size, event.digest))
            case Loss():
                found.append(("loss", event.reason))
    return found


def test_the_files_of_a_new_inference_come_whole_and_are_taken_at_once(job: Path) -> None:
    listing = list_job(job)
    (reading,) = (each for each in listing.readings if PLAIN in each.paths)
    (taken,) = (each for each in missing(job, listing) if isinstance(each, Arrival) and each.group.aicore.path == PLAIN)
    assert [os.fsdecode(each.log.path) for each in taken.received if each.log] == [*reading.paths]
    assert all(isinstance(each.event, Started) and each.event.is_whole for each in taken.received)
    log = LocalStream(job, listing).log(PLAIN)
    for held, comes in ((Holding(log.handle, 1, 256, b"x" * 16), True), (Holding(log.handle, skip=True), False)):
        found = [each for each in missing(job, listing, held) if isinstance(each, Received)]
        assert {os.fsencode(path) for path in reading.paths} - {each.log.path for each in found if each.log} == (
            set() if comes else {log.path}
        ), "one by one"


@pytest.mark.parametrize("held", [(300, b"x" * 16), (10_000, b"x" * 16)], ids=["other bytes", "longer"])
def test_what_is_held_of_another_file_is_not_mixed_with_it(job: Path, held: tuple[int, bytes]) -> None:
    assert told(sent(job, PLAIN, 3, *held))[:2] == [("started", 4, 0, "different"), ("chunk", 4, 0, SMALL_JOB[PLAIN])]


@pytest.mark.parametrize("path", [PLAIN, PLAIN + ".done"])
def test_a_fifo_in_the_place_of_a_file_holds_up_nothing(job: Path, path: str) -> None:
    stream = LocalStream(job, list_job(job))
    (job / path).unlink()
    os.mkfifo(job / path)
    log = stream.log(PLAIN)
    events = told([received.event for received in stream.events(log, Holding(log.handle))])
    assert events[-1][0] == ("loss" if path == PLAIN else "chunk"), "nobody vouches for it"


def test_what_is_no_file_is_told(job: Path) -> None:
    (job / "data" / "odd").mkdir()
    (loss,) = LocalStream(job, list_job(job)).odd()
    assert loss.reason == "not-a-file"


NAMES = [
    *SMALL_JOB,
    "data/AAcore.0.m.0.1.1.0",
    "data/aacpu.0.m.0.1.1.0",
    "data/AclModule.0.m.0",
    "data/aicore.0.m.99999999999999999999999.1.1.0",
    "data/aicore.x.m.3.0.1.1.0",
    "data/aicore.0.m.3.0.1.1.0.tmp",
    "data/aicore.0.\udcff\n.3.0.1.1.0",
    "data/cont.0.m.0.1.1.0",
    "aicore.0.m.3.0.1.1.0",
    "simulated",
]


@pytest.mark.parametrize("path", NAMES)
def test_logs_grow_by_the_daemon_s_rule(path: str) -> None:
    assert (growing_kind(path) is not None) == (kind_of(os.fsencode(path)) is DaemonKind.DATA)
