"""A capture: the link's machine with a clock, and what becomes of a stream that ends."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from profagent.errors import DiskFullError, ProfagentError, StoreError, UnreachableError
from profagent.link import machine
from profagent.link.messages import Board, JobsListed, JobStatus, Open, Welcome
from profagent.record.capture import Capture
from tests.unit.commands.link import board

if TYPE_CHECKING:
    from profagent.ingest.changes import JobChanges

FULL = DiskFullError("the disk is full", hint="make room")


class _Observer:
    """Notes what it is told; stops the capture after so many lost links."""

    def __init__(self, stop: asyncio.Event, losses: int) -> None:
        self.waits_s: list[float] = []
        self.remarks: list[str] = []
        self.lost = asyncio.Event()
        self._stop = stop
        self._losses = losses

    def linked(self, board: Board, role: str) -> None:
        raise AssertionError(board)

    def unlinked(self, error: ProfagentError, wait_s: float) -> None:
        self.waits_s.append(wait_s)
        self.lost.set()
        if len(self.waits_s) >= self._losses:
            self._stop.set()

    def remark(self, text: str) -> None:
        self.remarks.append(text)

    def changed(self, changes: Sequence[JobChanges]) -> None:
        raise AssertionError(changes)

    def jobs_changed(self, jobs: Sequence[JobStatus]) -> None:
        raise AssertionError(jobs)


class _Sink:
    """Only says whether it has room: at the third time that it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def has_room(self) -> bool:
        self.asked += 1
        return self.asked == 3


class _Losing(Capture):
    """A capture whose streams end at once, as `fails` says."""

    fails: ProfagentError = UnreachableError("gone", hint="wait")

    async def _follow(self) -> None:
        now = asyncio.get_running_loop().time()
        self.link.opened(now)
        self.link.receive(Welcome(board(), 0), now)
        self.link.receive(JobsListed(), now)
        raise self.fails


def _capture(kind: type[Capture], stop: asyncio.Event, observer: _Observer, *, is_patient: bool = False) -> Capture:
    sink: Any = _Sink()
    return kind(
        "127.0.0.1:1",
        sink,
        observer,
        wants=lambda *_: True,
        consumer="test",
        gather_s=0.0,
        stop=stop,
        is_patient=is_patient,
    )


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda *_: 0.0)
    monkeypatch.setattr(machine, "ROOM_S", 0.0)


async def test_a_first_connection_that_fails_is_an_error() -> None:
    stop = asyncio.Event()
    with pytest.raises(UnreachableError):
        await _capture(Capture, stop, _Observer(stop, 1)).run()


@pytest.mark.usefixtures("no_waits")
async def test_a_patient_capture_waits_for_a_board_that_never_answered() -> None:
    stop = asyncio.Event()
    observer = _Observer(stop, 3)
    await _capture(Capture, stop, observer, is_patient=True).run()
    assert len(observer.waits_s) == 3


@pytest.mark.usefixtures("no_waits")
async def test_a_lost_link_is_tried_again() -> None:
    stop = asyncio.Event()
    observer = _Observer(stop, 4)
    await _capture(_Losing, stop, observer).run()
    assert observer.waits_s == [0.0] * 4


async def test_stopping_ends_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda *_: 3600.0)
    stop = asyncio.Event()
    observer = _Observer(stop, 99)
    running = asyncio.create_task(_capture(_Losing, stop, observer).run())
    async with asyncio.timeout(30):
        await observer.lost.wait()
        stop.set()
        await running


@pytest.mark.usefixtures("no_waits")
async def test_a_full_disk_is_waited_for_and_said_once() -> None:
    stop = asyncio.Event()
    observer = _Observer(stop, 1)
    capture = _capture(_Losing, stop, observer)
    assert isinstance(capture, _Losing)
    capture.fails = FULL

    def remark(text: str) -> None:
        observer.remarks.append(text)
        if "room again" in text:
            capture.fails = UnreachableError("gone", hint="wait")

    observer.remark = remark  # type: ignore[method-assign]
    await capture.run()
    assert len(observer.remarks) == 2
    assert str(FULL) in observer.remarks[0]


async def test_a_disk_that_is_full_at_the_end_is_an_error() -> None:
    stop = asyncio.Event()
    capture = _capture(_Losing, stop, _Observer(stop, 1))
    assert isinstance(capture, _Losing)

    class AtTheEnd(_Losing):
        async def _follow(self) -> None:
            self.link.stop()
            raise FULL

    with pytest.raises(DiskFullError):
        await _capture(AtTheEnd, stop, _Observer(stop, 1)).run()


async def test_a_store_that_fails_otherwise_is_an_error_at_once() -> None:
    stop = asyncio.Event()
    capture = _capture(_Losing, stop, _Observer(stop, 1))
    assert isinstance(capture, _Losing)
    capture.fails = StoreError("broken", hint="see to it")
    with pytest.raises(StoreError, match="broken"):
        await capture.run()


def test_a_capture_says_who_it_is() -> None:
    stop = asyncio.Event()
    link = _capture(Capture, stop, _Observer(stop, 1)).link
    link.tick(0.0)
    (send,) = link.opened(0.0)
    assert isinstance(getattr(send, "message", None), Open)
