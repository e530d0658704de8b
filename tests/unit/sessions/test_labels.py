"""Labels, and sessions that are chosen by them."""

from __future__ import annotations

from typing import Any

import pytest

from profagent.errors import UsageError
from profagent.store.sessions import condition_of, fits, labels_of

SESSION: dict[str, Any] = {
    "board": "u-1",
    "hostname": "euler",
    "source": "record",
    "sdk_version": "Hi3403V100 V2.0",
    "frequencies_mhz": [700],
    "labels_by_key": {"build": "12", "note": "a=b c"},
}


def test_labels_are_read_and_the_last_of_a_key_holds() -> None:
    assert labels_of(["a=b", "c.D-9_=x=y z", "e=", "a=d"]) == {"a": "d", "c.D-9_": "x=y z", "e": ""}


@pytest.mark.parametrize(
    "text", ["", "a", "=b", "a b=c", "é=c", "k" * 65 + "=v", "k=\x1b[2J", "k=a\nb", "k=" + "v" * 257]
)
def test_what_is_no_label_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as error:
        labels_of(["fine=1", text])
    assert "KEY=VALUE" in error.value.hint


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("label=build", True),
        ("label=build=12", True),
        ("label=build=1", False),
        ("label=build=", False),
        ("label=note=a=b c", True),
        ("label=other", False),
        ("board=u-1", True),
        ("board=euler", True),
        ("board=eul", False),
        ("source=record", True),
        ("source=watch", False),
        ("sdk=Hi3403V100 V2.0", True),
        ("sdk=Hi3403V100", False),
        ("frequency=700", True),
        ("frequency=70", False),
    ],
)
def test_a_condition_is_read_and_holds_or_not(text: str, holds: bool) -> None:
    assert fits(SESSION, [condition_of(text)]) is holds


def test_all_conditions_must_hold() -> None:
    assert fits(SESSION, [])
    assert not fits(SESSION, [condition_of("label=build"), condition_of("source=import")])


@pytest.mark.parametrize("text", ["", "build=12", "label=", "label==x", "board=", "board", "session=1"])
def test_what_is_no_condition_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(UsageError) as error:
        condition_of(text)
    assert "label=KEY=VALUE" in error.value.hint
