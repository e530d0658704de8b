"""The ports that tests are given are theirs alone."""

from __future__ import annotations

import itertools
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.daemon.daemon_process import environment
from tests.fakes import ports

if TYPE_CHECKING:
    import pytest

FROM = "import itertools, sys; from tests.fakes import ports; ports._numbers = itertools.count(int(sys.argv[1]))"


def test_two_processes_are_not_given_the_same() -> None:
    mine = ports.own_port()
    command = [sys.executable, "-c", f"{FROM}; print(ports.own_port())", str(mine - ports._FIRST)]
    other = subprocess.run(command, env=environment("."), check=True, capture_output=True, text=True).stdout
    assert mine < int(other) < mine + 1000


def test_one_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = int(server.getsockname()[1])
        monkeypatch.setattr(ports, "_FIRST", taken)
        monkeypatch.setattr(ports, "_numbers", itertools.count(0))
        assert ports.own_port() > taken
