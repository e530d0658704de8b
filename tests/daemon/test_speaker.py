"""What is said in one turn, of real files: what goes together, and what waits for no answer."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from profagentd.board import Job
from profagentd.budget import Budgets
from profagentd.changes import Touch
from profagentd.disks import THREADS, on_disk
from profagentd.following import STABLE_S
from profagentd.opening import Place
from profagentd.speaker import ANSWER_S, CHOICE_S, LENIENCE_S, Speaker
from profagentd.state import Activity, JobState
from profagentd.stream import Stream
from tests.daemon.clocks import FakeClock
from tests.daemon.daemon_process import make_job
from tests.fakes.hung_mount import hung_mount

if TYPE_CHECKING:
    from profagent_wire.v1 import board_pb2 as wire

KNOWN, NEW = b"data/aicore.0.model.3.0.1.1.0", b"data/aicore.0.model.3.0.2.1.0"
SOON_S = 10.0
NO_LOSSES = SimpleNamespace(since=lambda _: [], revision=0)


class Missing:
    """A board that remembers which JOBs were not found."""

    def __init__(self) -> None:
        self.missed_places: list[Place] = []

    def missed(self, place: Place) -> None:
        self.missed_places.append(place)


class Said:
    """A speaker about one JOB of which one log is followed, and what it has said since."""

    custody = SimpleNamespace(losses=NO_LOSSES)

    def __init__(self, root: Path) -> None:
        self.board = Missing()
        self.clock = FakeClock()
        self.directory = make_job(root)
        self.messages: list[wire.ServerMessage] = []
        self.budgets, self.woken = Budgets(), asyncio.Event()
        self.stream = Stream(self.budgets)
        self.speaker = Speaker(self, self.stream, self._write, self.woken.set)  # type: ignore[arg-type]
        place = Place(bytes(root), self.directory.name.encode())
        self.job = Job(place, 1, 1, Activity(self.clock.now, 60.0), is_scanned=False)

    async def _write(self, message: wire.ServerMessage) -> None:
        self.messages.append(message)

    def grow(self, *paths: bytes, touch: Touch = Touch.WRITTEN) -> None:
        """A record more in each of these files."""
        for path in paths:
            with (self.directory / path.decode()).open("ab") as file:
                file.write(b"record")
        self.stream.names_changed(self.job, dict.fromkeys(paths, touch))

    def answer(self) -> None:
        """The client holds nothing of what it was asked about."""
        for message in self.messages:
            for log in message.announced.logs:
                self.stream.hold(log.handle, skip=False, generation=0, offset=0, prefix_digest=b"")

    async def turn(self) -> list[str | None]:
        """The kinds of what is said in one turn."""
        self.messages.clear()
        await self.speaker.turn()
        return [message.WhichOneof("message") for message in self.messages]

    def sizes(self) -> list[int]:
        events = (event for message in self.messages for event in message.batch.events)
        return [len(event.chunk.data) for event in events if event.HasField("chunk")]


@pytest.fixture
async def said(tmp_path: Path) -> Said:
    made = Said(tmp_path)
    made.stream.job_changed_state(made.job)
    await made.turn()
    made.stream.select([1], [])
    made.grow(KNOWN)
    while await made.turn():
        made.answer()
    return made


async def test_a_log_that_grew_is_sent_with_the_new_ones(said: Said) -> None:
    said.grow(KNOWN, NEW)
    assert await said.turn() == ["announced"]
    said.answer()
    assert await said.turn() == ["batch"]
    assert len(said.sizes()) == 2


async def test_it_is_sent_without_them_when_no_answer_comes(said: Said) -> None:
    said.grow(KNOWN, NEW)
    assert await said.turn() == ["announced"]
    assert await said.turn() == []
    assert said.speaker.due == said.clock.now + ANSWER_S
    said.clock.now += ANSWER_S
    assert await said.turn() == ["batch"]
    assert len(said.sizes()) == 1


async def test_a_log_that_was_made_is_sent_with_its_announcement(said: Said) -> None:
    said.grow(NEW, touch=Touch.MADE)
    assert await said.turn() == ["announced", "batch"]
    assert [log.unasked for log in said.messages[0].announced.logs] == [True]
    said.answer()
    await said.turn()
    said.grow(KNOWN)
    assert await said.turn() == ["batch"]


async def test_what_is_made_and_is_no_file_is_told_once_however_often(said: Said) -> None:
    (said.directory / NEW.decode()).mkdir()
    losses = []
    for _ in range(3):
        said.stream.names_changed(said.job, {NEW: Touch.MADE})
        while await said.turn():
            losses += [event.loss for message in said.messages for event in message.batch.events]
    assert [(loss.handle, loss.reason) for loss in losses] == [(0, "not-a-file")]


async def test_a_client_that_was_told_of_a_job_has_a_moment_to_choose_it(tmp_path: Path) -> None:
    said = Said(tmp_path)
    assert said.speaker.has_all
    said.stream.job_changed_state(said.job)
    assert await said.turn() == ["job_status"]
    assert not said.speaker.has_all
    assert said.speaker.due == said.clock.now + CHOICE_S
    said.clock.now += CHOICE_S
    assert said.speaker.has_all


async def test_a_client_that_has_chosen_is_waited_for_no_longer(said: Said) -> None:
    said.stream.job_changed_state(said.job)
    assert await said.turn() == ["job_status"]
    while await said.turn():
        pass
    assert said.speaker.has_all


@pytest.mark.parametrize("is_contested", [False, True])
async def test_what_came_unasked_is_not_had_before_the_client_has_said_whether_it_takes_it(
    said: Said, *, is_contested: bool
) -> None:
    said.grow(NEW, touch=Touch.MADE)
    assert await said.turn() == ["announced", "batch"]
    (log,) = said.messages[0].announced.logs
    said.clock.now += STABLE_S
    while await said.turn():
        pass
    assert said.stream.is_caught_up
    assert not said.speaker.has_all
    if is_contested:
        said.stream.hold(log.handle, skip=False, generation=4, offset=1, prefix_digest=b"")
        assert not said.speaker.has_all
        while await said.turn():
            pass
    else:
        said.stream.window.acknowledge(log.handle, generation=1, offset=1, complete=False)
    assert said.speaker.has_all


async def test_what_a_walk_finds_holds_up_nothing(said: Said) -> None:
    (said.directory / NEW.decode()).write_bytes(b"record")
    said.grow(KNOWN)
    said.stream.anything_changed(said.job)
    assert await said.turn() == ["announced", "batch"]
    assert len(said.sizes()) == 1


async def test_of_a_job_that_is_not_there_nothing_is_told_until_it_is_known_to_be_gone(said: Said) -> None:
    """Its root may be mounted again in a moment."""
    missed, elsewhere = said.board.missed_places, said.directory.with_name("elsewhere")
    said.directory.rename(elsewhere)
    (elsewhere / NEW.decode()).write_bytes(b"record")
    said.stream.names_changed(said.job, dict.fromkeys((KNOWN, NEW), Touch.WRITTEN))
    said.clock.now += ANSWER_S
    while await said.turn():
        assert not said.messages
    assert missed == [said.job.place] * 2
    assert not said.stream.is_caught_up
    elsewhere.rename(said.directory)
    said.stream.anything_changed(said.job)
    assert await said.turn() == ["announced"]
    said.answer()
    said.grow(KNOWN)
    said.clock.now += ANSWER_S
    assert await said.turn() == ["batch"]
    assert said.sizes() == [len("record")] * 2
    said.clock.now += STABLE_S + LENIENCE_S
    while await said.turn():
        pass
    assert said.stream.is_caught_up


async def test_what_stands_where_a_job_was_is_not_read(said: Said) -> None:
    said.job.state = JobState.REMOVED
    said.stream.job_changed_state(said.job)
    assert await said.turn() == ["batch"]
    assert [event.WhichOneof("event") for event in said.messages[0].batch.events] == ["removed"] * 2
    assert await said.turn() == ["job_status"]


@pytest.mark.parametrize("path", [KNOWN, NEW])
async def test_what_a_root_that_hangs_held_is_free_for_others(said: Said, path: bytes) -> None:
    other = Stream(said.budgets)
    before = other.logs.room, other.sending_bytes.room
    said.grow(path)
    with hung_mount(said.directory):
        while await said.turn():
            assert not said.messages
        assert (other.logs.room, other.sending_bytes.room) == before
    await asyncio.wait_for(said.woken.wait(), SOON_S)
    await said.turn()
    assert (other.logs.room, other.sending_bytes.room) == before


async def test_what_begins_when_it_is_late_already_reads_nothing(said: Said) -> None:
    """Its room is others' by then."""
    said.grow(KNOWN)
    with hung_mount(said.directory):
        place = said.job.place
        hanging = [on_disk(place.root, os.listdir, place.directory) for _ in range(THREADS)]
        while await said.turn():
            assert not said.messages
    for each in hanging:
        with pytest.raises(OSError, match="not connected"):
            await each
    await asyncio.wait_for(said.woken.wait(), SOON_S)
    said.grow(KNOWN)
    assert await said.turn() == ["batch"]
    assert said.sizes() == [2 * len("record")]
