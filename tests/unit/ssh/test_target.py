"""How a target of a login is written."""

from __future__ import annotations

import pytest

from profagent.errors import UsageError
from profagent.ssh.connection import Target


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("euler", Target("euler")),
        ("root@192.0.2.2", Target("192.0.2.2", "root")),
        ("root@fe80::1", Target("fe80::1", "root")),
        ("ssh://root@board:2222", Target("board", "root", 2222)),
        ("ssh://[2001:db8::2]:22/", Target("2001:db8::2", None, 22)),
    ],
)
def test_a_target_is_written_as_for_ssh(text: str, target: Target) -> None:
    assert Target.parse(text) == target


@pytest.mark.parametrize("text", ["", "root@", "-oProxyCommand=x", "ssh://", "ssh://board:99999", "a b"])
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="nobody to log in to"):
        Target.parse(text)
