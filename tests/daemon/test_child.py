"""Answers of a process that is a copy of another one, which has no threads."""

from __future__ import annotations

import subprocess
import sys

from tests.daemon.daemon_process import environment

SCRIPT = """
import os
from profagentd.tls_files import answer_of
own = os.getpid()
print(answer_of(lambda: "another" if os.getpid() != own else "own"))
print(len(answer_of(lambda: "x" * 1_000_000)))
try:
    answer_of(lambda: 1 / 0)
except RuntimeError as error:
    print(error)
"""


def test_the_answer_comes_from_another_process() -> None:
    command = [sys.executable, "-c", SCRIPT]
    result = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=True)
    whose, size, failure = result.stdout.splitlines()
    assert (whose, size) == ("another", "1000000")
    assert "stands above" in failure
    assert "ZeroDivisionError" in result.stderr
