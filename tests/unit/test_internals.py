"""The pages about internals name files, functions, messages and states of the code: they must be there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PAGES = sorted((ROOT / "docs" / "internals").glob("*.md"))
# A file of the code, or a file and names in it: `profagent/store/writer.py`: `JobRows.apply`, `write_batches`.
FILE = re.compile(r"`((?:profagentd|profagent_wire|profagent_app|profagent|tests|tools)/[\w/.-]+)`")
NAMES = re.compile(rf"{FILE.pattern}:((?:,?\s+`[\w.]+`)+)")
FOLDERS = {"profagent": "agent", "profagentd": "daemon", "profagent_app": "daemon", "profagent_wire": "protos"}


def _file(name: str) -> Path:
    return ROOT / FOLDERS.get(name.partition("/")[0], "") / name


def _defined(file: Path) -> set[str]:
    """Return the functions, classes, methods as `Class.method`, and constants of a module."""
    found: set[str] = set()
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef):
            inner = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
            found |= {node.name, *(f"{node.name}.{each.name}" for each in inner)}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_names_of_the_code_is_there(page: Path) -> None:
    text = page.read_text("utf-8")
    assert [name for name in FILE.findall(text) if not _file(name).exists()] == []
    lacking = [
        f"{file}: {name}"
        for file, names in NAMES.findall(text)
        for name in re.findall(r"[\w.]+", names)
        if name not in _defined(_file(file))
    ]
    assert lacking == []
