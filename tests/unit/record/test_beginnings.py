"""What had been there before one began to watch, and is passed over."""

from __future__ import annotations

from typing import Any

import pytest

from profagent.link.messages import JobStatus
from profagent.record.beginnings import PastFilter
from tests.unit.store.rows import JOB, name_of


def _status(state: str = "open", name: str = JOB) -> JobStatus:
    return JobStatus(1, name, "/board", state, caught_up=False)


def _name(pictures: int, model: str = "m") -> Any:
    return name_of(f"data/aicore.0.{model}.3.0.1.1.{pictures}")


def _event(pictures: int, model: str = "m") -> dict[str, Any]:
    return {"job": JOB, "model": model, "model_id": 0, "device_id": 0, "stream_id": 3, "current_pic_count": pictures}


@pytest.fixture
def past_filter() -> PastFilter:
    """One JOB that was open when the watching began, and has caught up."""
    found = PastFilter(from_start=False)
    assert found.wants(_status(), listed=True)
    found.caught_up(JOB)
    return found


@pytest.mark.parametrize("state", ["finished", "quiet", "removed"])
def test_what_had_ended_before_is_not_watched(state: str) -> None:
    assert not PastFilter(from_start=True).wants(_status(state), listed=True)


def test_a_job_that_appears_later_is_watched_from_its_start_even_when_it_has_ended() -> None:
    found = PastFilter(from_start=False)
    assert found.wants(_status("finished"), listed=False)
    assert not found.is_in_past(JOB)


def test_an_open_job_is_in_the_past_until_it_has_caught_up() -> None:
    found = PastFilter(from_start=False)
    found.wants(_status(), listed=True)
    assert found.is_in_past(JOB)
    found.caught_up(JOB)
    assert not found.is_in_past(JOB)


def test_after_a_lost_link_what_was_shown_is_passed_over(past_filter: PastFilter) -> None:
    past_filter.note_shown(_event(5))
    past_filter.link_is_new()
    assert past_filter.was_shown(JOB, _name(5))
    assert not past_filter.was_shown(JOB, _name(4))  # files come in any order: it was on its way
    assert not past_filter.was_shown(JOB, _name(6))
    assert not past_filter.was_shown(JOB, _name(5, "other"))
    past_filter.caught_up(JOB)
    assert not past_filter.was_shown(JOB, _name(5))


CORE, CPU = "data/aicore.0.m.3.0.1.1.7", "data/aicpu.0.m.3.0.1.1.7"


def test_an_inference_that_had_begun_before_is_passed_over_whole() -> None:
    found = PastFilter(from_start=False)
    assert found.wants(_status(), listed=True)
    assert found.passes_over(JOB, name_of(CORE))
    found.caught_up(JOB)
    # Its other unit's log and both `.done` come when all is from now on.
    assert all(found.passes_over(JOB, name_of(path)) for path in (CPU, f"{CORE}.done", f"{CPU}.done"))
    assert not found.passes_over(JOB, _name(8))


def test_what_was_passed_over_is_passed_over_when_the_link_is_back() -> None:
    found = PastFilter(from_start=False)
    assert found.wants(_status(), listed=True)
    assert found.passes_over(JOB, _name(6))
    assert found.passes_over(JOB, name_of("data/aicore.0.m.3.0.1.1.6.done"))
    found.caught_up(JOB)
    found.link_is_new()
    assert found.passes_over(JOB, _name(6))
    assert not found.passes_over(JOB, _name(9))
