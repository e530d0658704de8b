"""A verdict that cannot be told ends no night."""

from __future__ import annotations

import pytest

from profagent.nightly.cli import tell_night
from profagent.nightly.night import Night, Tell


@pytest.mark.parametrize(
    "to",
    [
        Tell(webhook="http://lab:http/x"),
        Tell(webhook="http://a lab/"),
        Tell(webhook="http://"),
        Tell(command=["/none/such"]),
        Tell(command=["a\0b"]),
    ],
)
def test_whom_nobody_can_tell_is_a_remark(to: Tell) -> None:
    (remark,) = tell_night(Night("now", []), to)
    assert "was not told: " in remark
