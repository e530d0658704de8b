"""How a target of a login is written."""

from __future__ import annotations

import pytest

from profagent.errors import UsageError
from profagent.ssh.connection import SshTarget


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("euler", SshTarget("euler")),
        ("root@192.0.2.2", SshTarget("192.0.2.2", "root")),
        ("root@fe80::1", SshTarget("fe80::1", "root")),
        ("ssh://root@board:2222", SshTarget("board", "root", 2222)),
        ("ssh://[2001:db8::2]:22/", SshTarget("2001:db8::2", None, 22)),
    ],
)
def test_a_target_is_written_as_for_ssh(text: str, target: SshTarget) -> None:
    assert SshTarget.parse(text) == target


@pytest.mark.parametrize("text", ["", "root@", "-oProxyCommand=x", "ssh://", "ssh://board:99999", "a b"])
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not an SSH target"):
        SshTarget.parse(text)
