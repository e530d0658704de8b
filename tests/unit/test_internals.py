"""The pages about internals name files, functions, messages and states of the code: they must be there."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from pathlib import Path
from types import ModuleType

import pytest

from profagent import limits
from profagent.formats.figure_states import FigureState
from profagent.link import session
from profagent.link.session import State
from profagent_wire.v1 import board_pb2 as wire
from profagentd import limits as daemon_limits
from profagentd.follow.log import TRANSITIONS

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


# The session on the wire


def _rows(page: str, first: str) -> list[list[str]]:
    """Return the cells of the table on a page whose heading row begins with `first`."""
    lines = (ROOT / "docs" / "internals" / page).read_text("utf-8").split("\n")
    (heading,) = (at for at, line in enumerate(lines) if line == f"| {first} |")
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines[heading + 2 :])
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def _quoted(text: str) -> set[str]:
    return set(re.findall(r"`([\w-]+)`", text))


def test_the_page_has_every_message_of_the_wire() -> None:
    text = (ROOT / "docs" / "internals" / "session-on-the-wire.md").read_text("utf-8")
    of_host, of_board = text.split("Of the board:")
    for message, part in ((wire.ClientMessage, of_host.split("Of the host:")[1]), (wire.ServerMessage, of_board)):
        table = part.split("\n## ")[0]
        assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == [
            field.name for field in message.DESCRIPTOR.oneofs_by_name["message"].fields
        ]


def test_the_page_has_every_transition_of_a_log() -> None:
    found = {
        state: _quoted(after)
        for (state, _, after) in _rows("session-on-the-wire.md", "state | what is true in it | may become")
    }
    assert found == {f"`{state.value}`": {each.value for each in after} for state, after in TRANSITIONS.items()}


def test_the_page_has_every_state_of_the_host_and_each_function_that_changes_it() -> None:
    states = [row[0] for row in _rows("session-on-the-wire.md", "state | what is true in it")]
    assert states == [f"`{state.name}`" for state in State]
    rows = _rows("session-on-the-wire.md", "from | event | to | function")
    assert {(function, to) for _, _, to, function in rows} == {
        (f"`{method.name}`", f"`{assigned.value.attr}`")
        for method in _methods(session, "LinkSession")
        if method.name != "__init__"
        for assigned in ast.walk(method)
        if isinstance(assigned, ast.Assign) and ast.unparse(assigned.targets[0]) == "self.state"
        if isinstance(assigned.value, ast.Attribute)
    }
    assert set().union(*(_quoted(before) for before, *_ in rows)) <= {state.name for state in State}


def _methods(module: ModuleType, name: str) -> list[ast.FunctionDef]:
    (found,) = (
        each
        for each in ast.parse(inspect.getsource(module)).body
        if isinstance(each, ast.ClassDef) and each.name == name
    )
    return [each for each in found.body if isinstance(each, ast.FunctionDef)]


def test_the_page_has_every_table_with_a_key_of_its_own() -> None:
    schema = (ROOT / "agent/profagent/store/schema.sql").read_text("utf-8")
    rows = _rows("the-store.md", "table | a row is | key | its parent")
    named = set().union(*(_quoted(row[0]) for row in rows))
    assert named <= set(re.findall(r"^CREATE TABLE (\w+)", schema, re.MULTILINE))
    assert {"aicore", "aicpu", "api", "log", "part", "inference", "segment"} <= named
    states = [row[0] for row in _rows("the-store.md", "`figures` | meaning | shown as")]
    assert {*states} == {f"`{state.value}`" for state in FigureState}


# The memory budget


def test_the_sizes_of_the_memory_budget_are_those_of_the_limits() -> None:
    text = (ROOT / "docs" / "internals" / "memory-budget.md").read_text("utf-8")
    tables = 0
    for part in text.split("\n## ")[1:]:
        module = daemon_limits if part.startswith(("The daemon", "The profiled program")) else limits
        for table in re.findall(r"(?:^\|.*\n)+", part, re.MULTILINE):
            total = 0
            for row in table.split("\n")[2:-1]:
                _, bound, most, _ = (cell.strip() for cell in row.strip("|").split("|"))
                size = int(eval(bound.strip("`"), {**vars(module)})) if bound else total
                assert most == f"{size / (1 << 20):.0f} MiB", bound
                total += size
            tables += 1
    assert tables == 6
    assert set(re.findall(r"`([A-Z][A-Z_]+)`", text)) <= {*vars(limits), *vars(daemon_limits)}
