"""What may be deleted, by policy and by what is known."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profagentd.retention.policy import UNSEEN_REST_S, Deletion, JobFacts, Part, Policy, Retain, Stored, is_over, plan
from profagentd.sources.files import Fingerprint, Place
from profagentd.sources.state import JobState

if TYPE_CHECKING:
    from collections.abc import Sequence

JOB = Place(b"/root", b"JOB")
DELIVERED = Policy(Retain.DELIVERED, ("a",))
ROOM = Policy(Retain.MIN_FREE, ("a",), min_free_bytes=1)
ROOM_AT_ANY_PRICE = dataclasses.replace(ROOM, delete_undelivered=True)


def stored(
    name: bytes = b"x",
    *,
    part: Part = Part.WORK,
    size: int = 100,
    age: int = 0,
    complete: bool = True,
    delivered: bool = True,
) -> Stored:
    return Stored(JOB, ((name, Fingerprint(1, size, 1_000_000 - age)),), part, complete, complete and delivered)


def gone(policy: Policy, *logs: Stored, over: bool = True, whole: bool = True, short: int = 0) -> list[bytes]:
    deletions = plan(policy, [JobFacts(logs, whole, over)], short)
    return [path for each in deletions for path, _ in each.stored.files]


@pytest.mark.parametrize(
    ("policy", "named", "another"),
    [
        (Policy(retain_for=("a",)), False, False),
        (DELIVERED, True, False),
        (ROOM_AT_ANY_PRICE, True, False),
        (dataclasses.replace(ROOM_AT_ANY_PRICE, retain_for=()), True, True),
        (dataclasses.replace(ROOM, retain_for=()), False, False),
        (dataclasses.replace(DELIVERED, retain_for=()), False, False),
    ],
)
def test_a_consumer_counts_by_name_or_where_anything_may_go(policy: Policy, named: bool, another: bool) -> None:
    assert (policy.counts("a"), policy.counts("b")) == (named, another)


def test_keep_deletes_nothing() -> None:
    assert gone(Policy(), stored(), short=10**9) == []


def test_delivered_logs_go_while_their_job_goes_on_and_others_stay() -> None:
    logs = stored(b"had"), stored(b"not", delivered=False), stored(b"open", complete=False)
    assert gone(DELIVERED, *logs, over=False) == [b"had"]
    assert gone(DELIVERED, *logs, short=10**9) == [b"had"]


def test_calls_go_when_their_job_is_over() -> None:
    calls = stored(part=Part.CALLS)
    assert gone(DELIVERED, calls, over=False) == []
    assert gone(DELIVERED, calls) == [b"x"]


@pytest.mark.parametrize(
    ("other", "over", "whole", "goes"),
    [
        (None, True, True, True),
        (stored(b"o"), True, True, True),
        (stored(b"o"), False, True, False),
        (stored(b"o"), True, False, False),
        (stored(b"o", delivered=False), True, True, False),
        (stored(b"o", complete=False), True, True, False),
        (stored(b"o", part=Part.TABLE, delivered=False), True, True, False),
    ],
    ids=["alone", "with the rest", "job goes on", "foreign files", "undelivered rest", "open rest", "open table"],
)
def test_tables_go_last_with_all_the_rest(other: Stored | None, over: bool, whole: bool, goes: bool) -> None:
    names = gone(DELIVERED, stored(b"t", part=Part.TABLE), *([other] if other else []), over=over, whole=whole)
    assert (b"t" in names) == goes
    assert not goes or names[-1] == b"t"


def test_room_is_made_by_the_oldest_that_are_delivered() -> None:
    logs = stored(b"new", age=1), stored(b"old", age=9), stored(b"other", age=99, delivered=False)
    assert gone(ROOM, *logs, short=0) == []
    assert gone(ROOM, *logs, short=4096) == [b"old"]
    assert gone(ROOM, *logs, short=4097) == [b"old", b"new"]
    assert gone(ROOM, *logs, short=10**9) == [b"old", b"new"]


def test_others_go_after_them_when_that_is_allowed_and_are_losses() -> None:
    logs = [stored(b"had", age=1), stored(b"not", age=9, delivered=False), stored(b"open", age=99, complete=False)]
    deletions = plan(ROOM_AT_ANY_PRICE, [JobFacts(logs, is_all=True, is_over=False)], 10**9)
    assert deletions == [Deletion(logs[0], is_loss=False), Deletion(logs[1], is_loss=True)]


def test_the_free_space_that_is_wanted_is_a_size_or_a_share() -> None:
    assert Policy(Retain.MIN_FREE, min_free_bytes=5).wanted_bytes(1000) == 5
    assert Policy(Retain.MIN_FREE, min_free_share=0.1).wanted_bytes(1000) == 100


@pytest.mark.parametrize(
    ("state", "rest_s", "npu_is_open", "over"),
    [
        (JobState.OPEN, 1e9, False, False),
        (JobState.REMOVED, 1e9, False, False),
        (JobState.FINISHED, 60.0, False, True),
        (JobState.QUIET, 60.0, False, True),
        (JobState.FINISHED, 59.0, False, False),
        (JobState.FINISHED, 1e9, True, False),
        (JobState.FINISHED, 60.0, None, False),
        (JobState.FINISHED, UNSEEN_REST_S, None, True),
    ],
)
def test_a_job_is_over_when_nobody_can_go_on_with_it(
    state: JobState, rest_s: float, npu_is_open: bool | None, over: bool
) -> None:
    assert is_over(state, rest_s, 60.0, npu_is_open) is over


LOGS = st.builds(
    stored,
    st.binary(min_size=1, max_size=3),
    part=st.sampled_from(Part),
    size=st.integers(0, 1000),
    age=st.integers(0, 1000),
    complete=st.booleans(),
    delivered=st.booleans(),
)
JOBS = st.lists(st.builds(JobFacts, st.lists(LOGS, max_size=6), st.booleans(), st.booleans()), max_size=4)
POLICIES = st.sampled_from([Policy(), DELIVERED, ROOM, ROOM_AT_ANY_PRICE])


@settings(max_examples=200, derandomize=True)
@given(policy=POLICIES, jobs=JOBS, short=st.integers(-1000, 30_000))
def test_whatever_is_known_what_must_stay_stays(policy: Policy, jobs: Sequence[JobFacts], short: int) -> None:
    deletions = plan(policy, jobs, short)
    chosen = [id(each.stored) for each in deletions]
    assert len(chosen) == len(set(chosen))
    if policy.retain is not Retain.DELIVERED and (policy.retain is Retain.KEEP or short <= 0):
        assert deletions == []
    for each in deletions:
        (job,) = (job for job in jobs if any(log is each.stored for log in job.logs))
        assert each.stored.is_complete
        assert each.is_loss == (not each.stored.is_delivered)
        assert each.stored.is_delivered or policy is ROOM_AT_ANY_PRICE
        assert each.stored.part is Part.WORK or job.is_over
        assert each.stored.part is not Part.TABLE or all(id(log) in chosen for log in job.logs)


@settings(max_examples=100, derandomize=True)
@given(jobs=JOBS, short=st.integers(1, 30_000))
def test_no_more_goes_than_is_needed(jobs: Sequence[JobFacts], short: int) -> None:
    sizes = [each.stored.disk_bytes for each in plan(ROOM, jobs, short) if each.stored.part is not Part.TABLE]
    assert sum(sizes[:-1]) < short
