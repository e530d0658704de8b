"""Only a source's own modules name its tables, views and their columns: all others ask `Source`."""

from __future__ import annotations

import ast
import re
import sqlite3
from contextlib import closing
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import profagent
from profagent.ingest.source import first_known, schemas, sources
from profagent.store import counters, marks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PACKAGE = Path(profagent.__file__).parent
NAMES = [name for each in sources() for name in re.findall(r"CREATE (?:TABLE|VIEW) IF NOT EXISTS (\w+)", each.schema)]
OWN = [PACKAGE / "ingest" / f"{name}.py" for name in ("marks", "dropped_marks", "ops", "metrics")]
OWN += (PACKAGE / "ascend").glob("*.py")
OTHERS = {*PACKAGE.rglob("*.py")} - {*OWN}
SQL = re.compile(r"\b(?:SELECT|WHERE|INSERT INTO|ORDER BY)\b")
# Other results have columns of these names, too.
COMMON = {"columns", "file", "rows"}


def test_no_other_module_names_a_table_of_a_source() -> None:
    asked = re.compile(rf"\b(?:FROM|JOIN|INTO|UPDATE)\s+(?:{'|'.join(NAMES)})\b")
    assert {f"{module}:{line}" for module, line, text in _texts(OTHERS) if asked.search(text)} == set()
    assert any(asked.search(text) for *_, text in _texts(OWN))


def test_no_other_module_asks_sql_for_a_column_that_only_a_source_has() -> None:
    names = _columns(schemas()) - _columns(()) - COMMON
    assert {"op_type", "lane", "collector", "cells"} <= names
    named = re.compile(rf"\b(?:{'|'.join(names)})\b")
    found = {(module, line): named.findall(text) for module, line, text in _texts(OTHERS) if SQL.search(text)}
    assert {place: columns for place, columns in found.items() if columns} == {}
    assert any(SQL.search(text) and named.search(text) for *_, text in _texts(OWN))


def _texts(modules: Iterable[Path]) -> Iterator[tuple[str, int, str]]:
    """Each text of modules, with its place; of one with values in it, the parts between them."""
    for module in modules:
        for node in ast.walk(ast.parse(module.read_bytes())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield str(module.relative_to(PACKAGE)), node.lineno, node.value


def _columns(scripts: Iterable[str]) -> set[str]:
    """The columns of all tables and views that the store has, with those of sources."""
    own = resources.files("profagent.store").joinpath("schema.sql").read_text("utf-8")
    with closing(sqlite3.connect(":memory:")) as connection:
        for script in (own, counters.SCHEMA, marks.SCHEMA, *scripts):
            connection.executescript(script)
        names = connection.execute("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')").fetchall()
        return {row[1] for (name,) in names for row in connection.execute(f"PRAGMA table_info({name})")}


@pytest.mark.parametrize(
    ("values", "found"), [({"t.0": 40.0, "t.1": 50.0}, 50.0), ({"t.0": 40.0, "chip": 30.0}, 30.0), ({"tx": 1.0}, None)]
)
def test_a_headline_is_the_first_counter_that_is_known(values: dict[str, float], found: float | None) -> None:
    assert first_known(("chip", "t."), values) == found
