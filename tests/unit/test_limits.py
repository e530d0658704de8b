"""Bounds stand in `limits.py` alone, each with its unit and with what becomes of more."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from profagent.deploy.bundle.by_hand import MODULES
from tools.make_reference import read_bounds

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (ROOT / "agent/profagent", ROOT / "daemon/profagentd")
BOUND = re.compile(
    r"_?(REMEMBERED|MOST|LARGEST|LONGEST|KEPT|SHOWN|QUEUED)_\w+|\w+_(TOGETHER|LIMIT|TIMEOUT_M?S)"
    r"|\w+_PER_(BATCH|BLOCK|FETCH|GROUP|MESSAGE|PAGE|PIECE|QUERY|READ|STATEMENT)"
)
# Modules that a board has without the rest of the package.
ALONE = {f"{name}.py" for name in MODULES}
# Modules whose bounds have not moved yet.
NOT_YET = {
    *(
        f"{name}.py"
        for name in ("formats/countermap", "ingest/decoder", "ingest/reasons", "link/translate", "doctor/job")
    ),
    *(f"ingest/{name}.py" for name in ("decode", "feed", "live", "live_job", "live_latency", "local", "states")),
    *(f"record/{name}.py" for name in ("mirroring", "recording")),
    *(f"store/{name}.py" for name in ("columns", "database", "events", "records", "rows", "writer")),
    *(f"watch/{name}.py" for name in ("live_board", "replay", "stored", "watching")),
    "importing/importing.py",
}
QUEUES = {"deque", "lru_cache", "LRUCache", "Queue", "Semaphore"}


@cache
def _modules(package: Path) -> list[tuple[str, ast.Module]]:
    paths = {path.relative_to(package).as_posix(): path for path in sorted(package.rglob("*.py"))}
    return [(name, ast.parse(path.read_text("utf-8"))) for name, path in paths.items() if name != "limits.py"]


def _is_number(value: ast.expr) -> bool:
    arithmetic = (ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    return all(
        isinstance(each.value, (int, float)) if isinstance(each, ast.Constant) else isinstance(each, arithmetic)
        for each in ast.walk(value)
    )


def _named(module: ast.Module) -> Iterator[str]:
    """Constants of a module that are numbers and have a name of a bound."""
    for statement in module.body:
        if isinstance(statement, ast.Assign):
            names = [each.id for target in statement.targets for each in ast.walk(target) if isinstance(each, ast.Name)]
            values = statement.value.elts if isinstance(statement.value, ast.Tuple) else [statement.value]
            if any(map(_is_number, values)):
                yield from filter(BOUND.fullmatch, names)


def _unnamed(module: ast.Module) -> Iterator[str]:
    """Queues and caches of a module whose bound is a bare number."""
    for call in ast.walk(module):
        if isinstance(call, ast.Call) and _callee(call) in QUEUES and any(map(_is_number, _arguments(call))):
            yield f"line {call.lineno}: {ast.unparse(call)}"


def _callee(call: ast.Call) -> str:
    callee = call.func.value if isinstance(call.func, ast.Subscript) else call.func
    return callee.attr if isinstance(callee, ast.Attribute) else getattr(callee, "id", "")


def _arguments(call: ast.Call) -> Iterator[ast.expr]:
    yield from (*call.args, *(keyword.value for keyword in call.keywords))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_no_module_has_a_bound_of_its_own(package: Path) -> None:
    looked_at = {name: module for name, module in _modules(package) if name not in ALONE | NOT_YET}
    found = {name: [*_named(module), *_unnamed(module)] for name, module in looked_at.items()}
    assert {name: bounds for name, bounds in found.items() if bounds} == {}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_every_bound_has_a_module_that_keeps_to_it(package: Path) -> None:
    known = {
        each.name for bounds in read_bounds((package / "limits.py").read_text("utf-8")).values() for each in bounds
    }
    used = {each.id for _, module in _modules(package) for each in ast.walk(module) if isinstance(each, ast.Name)}
    assert known - used == set()


def test_a_bound_without_its_unit_or_what_becomes_of_more_makes_no_page() -> None:
    heading, bound = "# Queues\n", 'MOST_JOBS = 3\n"""JOBs: the oldest is forgotten."""\n'
    assert [each.unit for each in read_bounds(heading + bound)["Queues"]] == ["JOBs"]
    for source in (
        bound,
        heading + "MOST_JOBS = 3\n",
        heading + 'MOST_JOBS = 3\n"""JOBs."""\n',
        heading + "MOST = 1\n" + bound,
    ):
        with pytest.raises(SystemExit, match="MOST"):
            read_bounds(source)
