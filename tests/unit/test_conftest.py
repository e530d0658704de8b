"""The check of tasks that every asyncio test gets: it sees a leak, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
CASES = {
    "leak": ("async def test_it(): kept.append(asyncio.create_task(asyncio.sleep(3600)))", 1),
    "leak_in_a_fixture": (
        (
            "@pytest.fixture\nasync def leaking(): kept.append(asyncio.create_task(asyncio.sleep(3600)))\n"
            "async def test_it(leaking): pass"
        ),
        1,
    ),
    "awaited": ("async def test_it(): await asyncio.create_task(asyncio.sleep(0))", 0),
    "ended_by_a_fixture": (
        (
            "@pytest.fixture\nasync def owned():\n"
            "    task = asyncio.create_task(asyncio.sleep(3600))\n    yield task\n    task.cancel()\n"
            "    with pytest.raises(asyncio.CancelledError): await task\n"
            "async def test_it(owned): assert not owned.done()"
        ),
        0,
    ),
    "not_asyncio": ("def test_it(): pass", 0),
}


def test_only_a_task_that_nobody_ends_fails_a_test(tmp_path: Path) -> None:
    shutil.copy(TESTS / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n", encoding="utf-8"
    )
    for name, (source, _) in CASES.items():
        (tmp_path / f"test_{name}.py").write_text(f"import asyncio, pytest\nkept = []\n{source}\n", encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    for name, (_, failures) in CASES.items():
        # What a fixture leaves is found when the fixtures end.
        is_told = any(f"{word} test_{name}.py::test_it" in run.stdout for word in ("FAILED", "ERROR"))
        assert is_told == bool(failures), run.stdout
    assert "tasks that nobody ended" in run.stdout
