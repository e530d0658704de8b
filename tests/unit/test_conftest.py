"""The check of tasks that every asyncio test gets: it sees a leak, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
CASES = {
    "leak": ("async def test_it(): kept.append(asyncio.create_task(asyncio.sleep(3600)))", 1),
    "leak in a fixture": (
        (
            "@pytest.fixture\nasync def leaking(): kept.append(asyncio.create_task(asyncio.sleep(3600)))\n"
            "async def test_it(leaking): pass"
        ),
        1,
    ),
    "awaited": ("async def test_it(): await asyncio.create_task(asyncio.sleep(0))", 0),
    "ended by a fixture": (
        (
            "@pytest.fixture\nasync def owned():\n"
            "    task = asyncio.create_task(asyncio.sleep(3600))\n    yield task\n    task.cancel()\n"
            "    with pytest.raises(asyncio.CancelledError): await task\n"
            "async def test_it(owned): assert not owned.done()"
        ),
        0,
    ),
    "not asyncio": ("def test_it(): pass", 0),
}


@pytest.mark.parametrize(("source", "exit_code"), CASES.values(), ids=CASES)
def test_only_a_task_that_nobody_ends_fails_a_test(tmp_path: Path, source: str, exit_code: int) -> None:
    shutil.copy(TESTS / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n", encoding="utf-8"
    )
    (tmp_path / "test_case.py").write_text(f"import asyncio, pytest\nkept = []\n{source}\n", encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert run.returncode == exit_code, run.stdout
    assert ("tasks that nobody ended" in run.stdout) == bool(exit_code)
