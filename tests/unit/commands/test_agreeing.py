"""Who is asked before what somebody may rely on is replaced."""

from __future__ import annotations

import pytest

from profagent.deploy.deploying import agreed
from profagent.errors import UsageError
from tests.board.askers import Nobody, Ready

KEYS = "the keys of the CA lab"


async def test_nobody_is_asked_about_nothing() -> None:
    await agreed((), "euler", Nobody())


async def test_a_person_is_asked() -> None:
    person = Ready()
    await agreed((KEYS,), "euler", person)
    assert person.asked == ["Replace this? (yes/no) "]


async def test_without_one_nothing_is_replaced() -> None:
    with pytest.raises(UsageError, match=f"nothing was changed on euler, which is to lose {KEYS}") as error:
        await agreed((KEYS, "the service"), "euler", Nobody())
    assert "--replace" in error.value.hint
