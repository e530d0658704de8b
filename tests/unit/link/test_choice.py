"""Which JOBs are followed."""

from __future__ import annotations

from profagent.link.choice import JobChoice
from profagent.link.messages import JobStatus


def _status(name: str = "A", state: str = "open") -> JobStatus:
    return JobStatus(1, name, "/root", state, caught_up=False)


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


def test_a_job_that_was_refused_is_not_followed_again() -> None:
    choice = JobChoice(lambda *_: True)
    assert choice.follows(_status())
    choice.refuse("A")
    assert not choice.follows(_status())
