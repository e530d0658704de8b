"""What goes wrong on the way to a board is one line and what to do."""

from __future__ import annotations

import asyncssh
import pytest

from profagent.errors import UnreachableError
from profagent.ssh.remote import connecting


async def test_jump_hosts_that_go_in_a_circle_are_named() -> None:
    options = asyncssh.SSHClientConnectionOptions(host="board", port=22, tunnel="hop", config=None)
    with (
        pytest.raises(UnreachableError, match="the jump host hop does not lead to board port 22"),
        connecting(options, lambda: False),
    ):
        raise RecursionError("maximum recursion depth exceeded")
