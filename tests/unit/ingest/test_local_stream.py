"""A JOB directory as a stream: what is held goes on, what is not is sent, by the rules of the board's daemon."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from profagent.ingest.local import LocalStream, growing_kind, list_job
from profagent.link.messages import Chunk, Completed, Holding, LogEvent, Loss, Started
from profagentd.sources.job import kind_of
from profagentd.sources.source import LogKind as DaemonKind
from tests.fakes.dumps import write_files
from tests.fakes.small_job import PLAIN, SMALL_JOB

JOB = "JOB" + "A" * 29


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return write_files(tmp_path / JOB, SMALL_JOB)


def sent(job: Path, path: str, *held: object) -> list[LogEvent]:
    """What comes of a file to a host that holds generation, offset and digest of it."""
    stream = LocalStream(job, list_job(job))
    (log,) = (log for log in stream.logs if log.path == os.fsencode(path))
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


@pytest.mark.parametrize("held", [(300, b"x" * 16), (10_000, b"x" * 16)], ids=["other bytes", "longer"])
def test_what_is_held_of_another_file_is_not_mixed_with_it(job: Path, held: tuple[int, bytes]) -> None:
    assert told(sent(job, PLAIN, 3, *held))[:2] == [("started", 4, 0, "different"), ("chunk", 4, 0, SMALL_JOB[PLAIN])]


@pytest.mark.parametrize("path", [PLAIN, PLAIN + ".done"])
def test_a_fifo_in_the_place_of_a_file_holds_up_nothing(job: Path, path: str) -> None:
    stream = LocalStream(job, list_job(job))
    (job / path).unlink()
    os.mkfifo(job / path)
    (log,) = (log for log in stream.logs if log.path == PLAIN.encode())
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
