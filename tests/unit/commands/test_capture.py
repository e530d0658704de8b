from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from profagent.commands import capture
from profagent.commands.capture import Capture, JobChoice
from profagent.errors import ProfagentError, UnreachableError
from profagent.link.messages import Board, JobStatus

if TYPE_CHECKING:
    from profagent.ingest.changes import JobChanges


def _status(name: str = "A", state: str = "open") -> JobStatus:
    return JobStatus(1, name, "/root", state, caught_up=False)


class _Observer:
    """Notes what it is told; stops the capture after so many lost links."""

    def __init__(self, stop: asyncio.Event, losses: int) -> None:
        self.waits_s: list[float] = []
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

    def changed(self, changes: Sequence[JobChanges]) -> None:
        raise AssertionError(changes)

    def jobs_changed(self, jobs: Sequence[JobStatus]) -> None:
        raise AssertionError(jobs)


class _Losing(Capture):
    """A capture whose links are lost at once."""

    async def _converse(self) -> None:
        self.choice.was_listed = True
        raise UnreachableError("gone", hint="wait")


def _capture(kind: type[Capture], stop: asyncio.Event, observer: _Observer, *, is_patient: bool = False) -> Capture:
    sink: Any = None
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


def test_a_job_is_asked_for_once_and_the_answer_holds() -> None:
    asked: list[tuple[str, bool]] = []

    def wants(job: JobStatus, listed: bool) -> bool:
        asked.append((job.name, listed))
        return True

    choice = JobChoice(wants)
    assert choice.follows(_status())
    assert choice.follows(_status(state="finished"))
    choice.was_listed = True
    assert choice.follows(_status("B"))
    assert asked == [("A", True), ("B", False)]


def test_a_job_that_was_passed_over_may_be_followed_when_it_goes_on() -> None:
    choice = JobChoice(lambda job, listed: not (listed and job.has_ended))
    assert not choice.follows(_status(state="finished"))
    choice.was_listed = True
    assert not choice.follows(_status(state="quiet"))  # it was there when all were listed
    assert choice.follows(_status(state="open"))


async def test_a_first_connection_that_fails_is_an_error() -> None:
    stop = asyncio.Event()
    with pytest.raises(UnreachableError):
        await _capture(Capture, stop, _Observer(stop, 1)).run()


async def test_a_patient_capture_waits_for_a_board_that_never_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "delay_s", lambda *_: 0.0)
    stop = asyncio.Event()
    observer = _Observer(stop, 3)
    await _capture(Capture, stop, observer, is_patient=True).run()
    assert len(observer.waits_s) == 3


async def test_a_lost_link_is_tried_again_after_ever_longer_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[int] = []

    def no_wait(attempt: int, _: object) -> float:
        attempts.append(attempt)
        return 0.0

    monkeypatch.setattr(capture, "delay_s", no_wait)
    stop = asyncio.Event()
    observer = _Observer(stop, 4)
    await _capture(_Losing, stop, observer).run()
    assert attempts == [0, 1, 2, 3]
    assert observer.waits_s == [0.0] * 4


async def test_a_link_that_held_for_long_is_a_good_one(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[int] = []

    def no_wait(attempt: int, _: object) -> float:
        attempts.append(attempt)
        return 0.0

    monkeypatch.setattr(capture, "delay_s", no_wait)
    monkeypatch.setattr(capture, "SETTLED_S", -1.0)
    stop = asyncio.Event()
    await _capture(_Losing, stop, _Observer(stop, 3)).run()
    assert attempts == [0, 0, 0]


async def test_stopping_ends_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "delay_s", lambda *_: 3600.0)
    stop = asyncio.Event()
    observer = _Observer(stop, 99)
    running = asyncio.create_task(_capture(_Losing, stop, observer).run())
    async with asyncio.timeout(30):
        await observer.lost.wait()
        stop.set()
        await running
