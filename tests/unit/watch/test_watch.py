"""What `watch` shows, from when on, and how it explains silence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec.structs import replace

from profagent.errors import UnreachableError
from profagent.formats.names import parse_log_name
from profagent.ingest.changes import JobChanges, LogAnnounced
from profagent.ingest.decode import JobDecoder
from profagent.link.messages import JobStatus, Profiling
from profagent.store.counter_maps import CounterMaps, simulated_map
from profagent.watch.watch import NO_COUNTER_MAP, WatchOptions, WatchView
from tests.encoders import aicpu_record, done_text
from tests.unit.record.link import JOB, board
from tests.unit.watch.arriving_job import INFO_JSON, aicore_done, aicore_path, records

if TYPE_CHECKING:
    from profagent.ingest.changes import Change


class _NoFiles:
    def read(self, path: str, size: int | None = None, *, start: int = 0) -> bytes | None:
        return None

    def names(self) -> list[str]:
        return []


class Viewed:
    """A view of a watched board, what it showed and what it told."""

    def __init__(self, **options: Any) -> None:
        self.shown: list[dict[str, Any]] = []
        self.told: list[str] = []
        self.now_s = 100.0
        chosen = WatchOptions("euler:1", **options)
        self.view = WatchView(chosen, self.shown.append, self.told.append, lambda: self.now_s)
        self.decoder = JobDecoder(_NoFiles())

    def follow(self, *, listed: bool = True) -> None:
        assert self.view.beginnings.wants(self.status("open"), listed)
        self.changed(list(self.decoder.snapshot("info.json.0", 1, INFO_JSON, b"")))

    def state(self, state: str, *, caught_up: bool) -> None:
        self.view.jobs_changed([self.status(state, caught_up=caught_up)])

    def infer(self, pictures: int = 0) -> None:
        path = aicore_path(pictures)
        self.begin(pictures)
        self.changed(list(self.decoder.snapshot(path + ".done", 1, aicore_done(256), b"")))
        self.changed(list(self.decoder.complete(path, 1, 256, b"")))

    def begin(self, pictures: int = 0) -> None:
        """The data of an inference, without its `.done`."""
        path = aicore_path(pictures)
        self.changed([*self.decoder.begin(path, 1, 0), *self.decoder.append(path, 1, 0, records(700))])

    def changed(self, changes: Sequence[Change], state: str | None = None) -> None:
        self.view.changed([JobChanges(JOB, "/root", changes, state)])

    @property
    def pictures(self) -> list[int]:
        return [event["current_pic_count"] for event in self.shown if event["event"] == "inference"]

    @property
    def shown_figures(self) -> list[str]:
        return [event["figures"] for event in self.shown if event["event"] == "inference"]

    @staticmethod
    def status(state: str, *, caught_up: bool = False) -> JobStatus:
        return JobStatus(1, JOB, "/root", state, caught_up)


def test_what_is_from_before_is_not_shown_and_what_follows_is() -> None:
    viewed = Viewed()
    viewed.follow()
    viewed.infer(0)
    viewed.state("open", caught_up=True)
    viewed.infer(1)
    assert viewed.pictures == [1]
    assert viewed.view.events.summary()["inferences"] == 1


def test_what_was_shown_is_passed_over_when_the_link_is_back() -> None:
    viewed = Viewed(from_start=True)
    viewed.follow()
    viewed.infer(3)
    viewed.view.unlinked(UnreachableError("gone", hint="wait"), 0.5)
    name = parse_log_name(aicore_path(3))
    assert name is not None
    assert viewed.view.beginnings.was_shown(JOB, name)
    assert viewed.told[-1] == "gone; retrying in 1 s"


async def test_what_waited_for_long_is_shown_as_pending_and_again_when_it_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    viewed = Viewed(from_start=True)
    viewed.follow()
    viewed.state("open", caught_up=True)
    cpu = aicore_path().replace("aicore", "aicpu")
    viewed.changed([LogAnnounced(aicore_path()), LogAnnounced(cpu)])
    viewed.infer()
    assert viewed.shown_figures == []
    await _mind_waiting(viewed, monkeypatch)
    assert viewed.shown_figures == ["pending"]
    name = parse_log_name(aicore_path())
    assert name is not None
    viewed.view.unlinked(UnreachableError("gone", hint="wait"), 0.5)
    assert not viewed.view.beginnings.was_shown(JOB, name), "it comes again, to be shown whole"
    data = aicpu_record(0, 100, 140, (100, 140), 1)
    viewed.changed([*viewed.decoder.begin(cpu, 1, 0), *viewed.decoder.append(cpu, 1, 0, data)])
    done = done_text(file_len=128, start_time=100, end_time=140)
    viewed.changed(list(viewed.decoder.snapshot(cpu + ".done", 1, done, b"")))
    viewed.changed(list(viewed.decoder.complete(cpu, 1, 128, b"")))
    assert viewed.shown_figures == ["pending", "final"]
    assert viewed.view.beginnings.was_shown(JOB, name)
    await _mind_waiting(viewed, monkeypatch)
    assert viewed.shown_figures == ["pending", "final"]


def test_what_was_due_is_shown_once_the_job_has_caught_up() -> None:
    viewed = Viewed(from_start=True)
    viewed.follow()
    status = replace(viewed.status("open"), profiling=Profiling("acl.json", "10"))
    viewed.view.jobs_changed([status])
    for pictures in (0, 20):
        viewed.infer(pictures)
    viewed.view.jobs_changed([replace(status, caught_up=True)])
    viewed.infer(30)
    assert [event["due"] for event in viewed.shown if event["event"] == "inference"] == [None, None, 4]


def test_the_missing_counter_map_is_told_with_the_first_record_that_lacks_it() -> None:
    viewed = Viewed(from_start=True)
    viewed.follow()
    viewed.view.linked(board(), "operator")
    assert NO_COUNTER_MAP not in viewed.told
    viewed.infer(0)
    viewed.infer(1)
    assert viewed.told.count(NO_COUNTER_MAP) == 1


async def _mind_waiting(viewed: Viewed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look once for inferences that wait, when some seconds have passed."""
    looks = iter([3.0])

    async def pass_at_once(_: float) -> None:
        for seconds in looks:
            viewed.now_s += seconds
            return
        raise _Enough

    monkeypatch.setattr("asyncio.sleep", pass_at_once)
    with pytest.raises(_Enough):
        await viewed.view.mind()


class _Enough(Exception):  # noqa: N818 - an end, not a fault
    pass


def test_a_board_is_named() -> None:
    viewed = Viewed()
    viewed.view.linked(board(simulated=True), "operator")
    assert viewed.told == ["watching euler at euler:1 [simulated]"]


def test_a_map_that_is_not_certain_is_told_once() -> None:
    counters = simulated_map().counters
    likely = {"mac_busy": msgspec.structs.replace(counters["mac_busy"], verdict="likely")}
    learnt = msgspec.structs.replace(simulated_map(), counters={**counters, **likely})
    viewed = Viewed(maps=CounterMaps(learnt))
    viewed.view.linked(board(simulated=True), "operator")
    viewed.view.linked(board(simulated=True), "operator")
    assert viewed.told.count("the counter map is not certain of mac_busy: a ? marks what rests on it") == 1
    assert viewed.view.events.likely == ("mac_busy",)
