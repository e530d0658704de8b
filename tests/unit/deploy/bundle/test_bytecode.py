"""Bytecode that runs without its source, and is the same wherever it is made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from profagent.deploy.bundle.bytecode import can_compile, compiled

SOURCE = b"""
'''A module.'''
NAMES = {'one', 'two', 'three'} | frozenset(('a', 'b'))
def has(name):
    return name in {'one', 'two', 'three'}
"""
AGAIN = """
import sys
from profagent.deploy.bundle.bytecode import compiled
NAMES = 'one', 'two', 'three'
sys.stdout.buffer.write(compiled({'some/module.py': sys.stdin.buffer.read()})['some/module.pyc'])
"""


def test_it_runs_without_its_source(tmp_path: Path) -> None:
    for path, data in compiled({"module.py": SOURCE}).items():
        (tmp_path / path).write_bytes(data)
    assert [path.name for path in tmp_path.iterdir()] == ["module.pyc"]
    program = "import module, sys; print(module.__doc__, module.has('two'), sorted(module.NAMES)[0])"
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert ran.stdout == "A module. True a\n"


def test_another_process_makes_the_same() -> None:
    here = compiled({"some/module.py": SOURCE})["some/module.pyc"]
    for seed in ("1", "2"):
        there = subprocess.run(
            [sys.executable, "-c", AGAIN],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            input=SOURCE,
            check=True,
            capture_output=True,
        )
        assert there.stdout == here


def test_what_does_not_compile_and_what_is_no_source_stay() -> None:
    files = {"a.py": b"print 'of another Python'", "b.so": b"\x7fELF", "c.txt": b"text"}
    assert compiled(files) == files


def test_only_its_own_version_is_compiled_for() -> None:
    major, minor = sys.version_info[:2]
    assert can_compile((major, minor))
    assert not can_compile((major, minor + 1))
