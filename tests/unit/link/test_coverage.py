"""The intervals of a capture."""

from __future__ import annotations

from profagent.limits import MOST_ENDED_INTERVALS
from profagent.link.coverage import Coverage, Interval, Standing

S = 1_000_000
JOB = "JOB" + "A" * 29


def test_intervals_follow_each_other_without_a_gap() -> None:
    coverage = Coverage(0)
    coverage.stand(Standing.COVERED, 1 * S)
    coverage.stand(Standing.COVERED, 2 * S)
    assert coverage.take(3 * S) == [
        Interval("", 0, 1 * S, Standing.CONNECTING),
        Interval("", 1 * S, 3 * S, Standing.COVERED),
    ]
    coverage.stand(Standing.AWAY, 6 * S, detail="the link was lost")
    assert coverage.take(8 * S) == [
        Interval("", 1 * S, 6 * S, Standing.COVERED),
        Interval("", 6 * S, 8 * S, Standing.AWAY, "the link was lost"),
    ]
    assert [coverage.lasted_us(each, 8 * S) // S for each in (Standing.COVERED, Standing.AWAY)] == [5, 2]
    coverage.end(9 * S)
    assert coverage.take(20 * S) == [Interval("", 6 * S, 9 * S, Standing.AWAY, "the link was lost")]
    assert coverage.lasted_us(Standing.AWAY, 20 * S) == 3 * S


def test_a_silence_that_is_found_out_late_began_earlier() -> None:
    coverage = Coverage(0)
    coverage.stand(Standing.COVERED, 1 * S)
    coverage.take(9 * S)
    coverage.stand(Standing.SILENT, 10 * S, since_us=4 * S)
    assert coverage.take(10 * S) == [
        Interval("", 1 * S, 4 * S, Standing.COVERED),  # shorter than it was taken for
        Interval("", 4 * S, 10 * S, Standing.SILENT),
    ]


def test_a_job_is_behind_by_itself_only_if_that_lasts() -> None:
    coverage = Coverage(0)
    coverage.stand(Standing.COVERED, 0)
    coverage.jobs(["quick", JOB], 0)
    coverage.jobs([JOB], S // 2)
    assert coverage.take(2 * S) == [
        Interval("", 0, 0, Standing.CONNECTING),
        Interval("", 0, 2 * S, Standing.COVERED),
        Interval(JOB, 0, 2 * S, Standing.BEHIND),
    ]
    coverage.stand(Standing.AWAY, 3 * S)  # which is true of the JOB as well
    assert Interval(JOB, 0, 3 * S, Standing.BEHIND) in coverage.take(9 * S)
    assert coverage.take(9 * S) == [Interval("", 3 * S, 9 * S, Standing.AWAY)]


def test_a_clock_that_is_set_back_makes_no_interval_negative() -> None:
    coverage = Coverage(10 * S)
    coverage.stand(Standing.COVERED, 5 * S)
    (away, covered) = coverage.take(4 * S)
    assert (away.from_us, away.to_us) == (10 * S, 10 * S)
    assert covered.to_us >= covered.from_us


def test_intervals_that_nobody_takes_are_not_kept_without_end() -> None:
    coverage = Coverage(0)
    for second in range(1, MOST_ENDED_INTERVALS + 3):
        coverage.stand((Standing.COVERED, Standing.AWAY)[second % 2], second * S)
    taken = coverage.take(2 * MOST_ENDED_INTERVALS * S)
    assert (len(taken), taken[0].from_us) == (MOST_ENDED_INTERVALS + 1, 2 * S), "the newest, and the one that goes on"
    assert coverage.lasted_us(Standing.CONNECTING, 0) == S, "sums are of all of them"
