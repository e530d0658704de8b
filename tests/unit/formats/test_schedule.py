"""Which inferences a host keeps."""

from __future__ import annotations

import pytest

from profagent.errors import UsageError
from profagent.formats.names import InferenceKey
from profagent.formats.sampling import EachNth, Schedule, parse_schedule, step_of


def kept(choice: Schedule | EachNth, steps: int) -> list[int]:
    return [step for step in range(steps) if choice.keeps(step)]


def test_the_example_of_the_manual() -> None:
    assert kept(Schedule(wait=1, warmup=1, active=2, repeat=1, skip_first=2), 20) == [4, 5]


def test_cycles_repeat_as_often_as_told() -> None:
    schedule = parse_schedule("skip_first=10,wait=5,warmup=2,active=3,repeat=4")
    assert kept(schedule, 100) == [17, 18, 19, 27, 28, 29, 37, 38, 39, 47, 48, 49]


def test_repeat_0_goes_on_for_ever() -> None:
    assert kept(parse_schedule("wait=1,active=1"), 9) == [1, 3, 5, 7]
    assert parse_schedule("wait=1,active=1").keeps(10**12 + 1)


def test_without_waiting_every_step_is_kept() -> None:
    assert kept(parse_schedule("wait=0, active=1"), 5) == [0, 1, 2, 3, 4]


def test_each_nth_begins_with_the_first() -> None:
    assert kept(EachNth(4), 10) == [0, 4, 8]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "is not one of"),
        ("wait", "is not one of"),
        ("wait=1", "active must be given"),
        ("active=1", "wait must be given"),
        ("warmup=1", "wait and active must be given"),
        ("wait=1,active=0", "active must be at least 1"),
        ("wait=-1,active=1", "wait=-1 is no whole number"),
        ("wait=1.5,active=1", "is no whole number"),
        ("wait=,active=1", "is no whole number"),
        ("wait=1,wait=2,active=1", "given twice"),
        ("wait=1,active=1,often=2", "'often=2' is not one of"),
        ("wait=1,active=1,", "is not one of"),
        ("wait=9999999999,active=1", "is no whole number"),
        ("wait=٣,active=1", "is no whole number"),
    ],
)
def test_a_schedule_without_a_clear_meaning_is_refused(text: str, part: str) -> None:
    with pytest.raises(UsageError, match=part) as raised:
        parse_schedule(text)
    assert "skip_first=10" in raised.value.hint


def test_a_schedule_says_itself() -> None:
    assert str(parse_schedule("wait=5,active=3")) == "schedule skip_first=0,wait=5,warmup=0,active=3,repeat=0"
    assert str(parse_schedule(str(parse_schedule("wait=5,active=3")).removeprefix("schedule "))).endswith("repeat=0")
    assert str(EachNth(10)) == "every 10"


@pytest.mark.parametrize(
    ("pictures", "count", "interval", "step"),
    [
        (1, 0, None, 0),
        (1, 17, None, 17),
        (4, 68, None, 17),
        (1, 170, 10, 17),
        (4, 680, 10, 17),
        (1, 173, 10, 17),
        (0, 5, 0, 5),
    ],
)
def test_a_step_follows_from_a_files_name(pictures: int, count: int, interval: int | None, step: int) -> None:
    assert step_of(InferenceKey(0, "net", 0, 3, 1, pictures, count), interval) == step
