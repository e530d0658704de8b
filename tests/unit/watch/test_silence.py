"""What is said when nothing comes of a board whose program goes on."""

from __future__ import annotations

import pytest

from profagent.ingest.changes import JobChanges
from profagent.link.messages import JobStatus, Profiling
from profagent.watch.watch import INTERVAL_ZERO, SILENCE_S, Silence
from tests.unit.record.link import JOB
from tests.unit.store.rows import aicore
from tests.unit.watch.arriving_job import aicore_path

NONE_CAME = f"no inference has come for {SILENCE_S:.0f} s"


class Heard:
    """A board that is watched, at a time that a test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.silence = Silence(lambda: self.now_s)

    def job(self, state: str = "open", interval: str | None = None, *, caught_up: bool = True) -> None:
        told = None if interval is None else Profiling("/acl.json", interval)
        self.silence.jobs_changed([JobStatus(1, JOB, "/root", state, caught_up, told)])

    def infer(self, *counts: int) -> None:
        changes = [aicore(aicore_path(count), [100]) for count in counts]
        self.silence.take(JobChanges(JOB, "/root", changes))

    def after(self, seconds: float = SILENCE_S) -> str | None:
        self.now_s += seconds
        return self.silence.remark()


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.mark.parametrize("interval", [None, "0", ""])
@pytest.mark.parametrize("counts", [(), (0,), (0, 0)])
def test_an_interval_of_0_is_named_once_where_it_can_be(
    heard: Heard, interval: str | None, counts: tuple[int, ...]
) -> None:
    heard.job(interval=interval)
    heard.infer(*counts)
    assert heard.after(SILENCE_S - 1) is None
    assert heard.after(1) == INTERVAL_ZERO
    assert heard.after() is None


def test_where_inferences_came_before_no_interval_is_guessed(heard: Heard) -> None:
    heard.job()
    heard.infer(0, 1)
    assert heard.after() == NONE_CAME
    assert heard.after() is None


def test_after_a_lost_link_the_silence_begins_anew(heard: Heard) -> None:
    """And what came before is remembered."""
    heard.job()
    heard.infer(0, 1)
    heard.silence.unlinked()
    assert heard.after(60) is None
    heard.job()
    assert heard.after(SILENCE_S - 1) is None
    assert heard.after(1) == NONE_CAME
