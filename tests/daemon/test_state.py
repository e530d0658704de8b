"""Open, finished, quiet: by the monotonic clock, and reversible."""

from __future__ import annotations

import pytest

from profagentd.follow.registry import NPU_LOOK_S, JobStateTracker
from profagentd.sources.state import JobState

QUIET_S = 60.0


@pytest.fixture
def activity() -> JobStateTracker:
    """A JOB that changed at 100."""
    return JobStateTracker(100.0, QUIET_S)


def state(activity: JobStateTracker) -> JobState:
    """Its state now; a property read twice looks the same to a type checker."""
    return activity.state


def test_it_is_finished_when_all_is_complete(activity: JobStateTracker) -> None:
    activity.see(102.0)
    activity.survey(complete=True, begun=102.0)
    assert state(activity) is JobState.FINISHED
    assert activity.is_settled


def test_a_survey_that_began_before_a_change_says_nothing(activity: JobStateTracker) -> None:
    activity.see(102.0)
    activity.change(102.5)
    activity.survey(complete=True, begun=102.0)
    activity.see(105.0)
    assert state(activity) is JobState.OPEN
    assert activity.wants_survey


def test_it_is_quiet_after_its_time(activity: JobStateTracker) -> None:
    activity.see(100.0 + QUIET_S)
    assert state(activity) is JobState.QUIET
    assert not activity.is_settled  # a survey may still find it finished
    activity.survey(complete=False, begun=160.0)
    assert activity.is_settled


@pytest.mark.parametrize("complete", [True, False])
def test_a_change_makes_it_open_again(activity: JobStateTracker, complete: bool) -> None:
    activity.see(200.0)
    activity.survey(complete=complete, begun=200.0)
    assert state(activity) is not JobState.OPEN
    activity.change(201.0)
    assert state(activity) is JobState.OPEN
    activity.see(203.0)
    assert activity.wants_survey


def test_a_program_with_the_npu_open_keeps_it_from_being_quiet(activity: JobStateTracker) -> None:
    activity.see(100.0 + QUIET_S)
    assert activity.wants_npu(160.0)
    activity.npu(is_open=True, at=160.0)
    assert state(activity) is JobState.OPEN
    assert not activity.wants_npu(160.0 + NPU_LOOK_S - 0.1)
    assert activity.wants_npu(160.0 + NPU_LOOK_S)
    activity.npu(is_open=False, at=165.0)
    assert state(activity) is JobState.QUIET


def test_a_removed_job_stays_removed(activity: JobStateTracker) -> None:
    activity.remove()
    activity.change(101.0)
    activity.see(500.0)
    assert state(activity) is JobState.REMOVED
    assert activity.is_settled
    assert not activity.wants_survey
    assert not activity.wants_npu(500.0)


def test_names_that_go_finish_what_waited_for_them_and_open_nothing(activity: JobStateTracker) -> None:
    activity.see(102.0)
    activity.survey(complete=False, begun=102.0)
    activity.lose()
    assert activity.wants_survey
    activity.survey(complete=True, begun=102.0)
    activity.lose()
    assert state(activity) is JobState.FINISHED
    assert not activity.wants_survey
