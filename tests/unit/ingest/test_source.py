"""Only a source's own modules name its tables, views and their columns: all others ask `Source`."""

from __future__ import annotations

import ast
import re
import sqlite3
from contextlib import closing
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import profagent
from profagent.formats.countermap import COUNTERS
from profagent.ingest.source import Headline, schemas, sources, views
from profagent.store import counters, marks, thinning

if TYPE_CHECKING:
    from collections.abc import Iterable

PACKAGE = Path(profagent.__file__).parent
NAMES = [name for each in sources() for name in re.findall(r"CREATE (?:TABLE|VIEW) IF NOT EXISTS (\w+)", each.schema)]
OWN = (
    *(PACKAGE / "ingest" / f"{name}.py" for name in ("marks", "dropped_marks", "ops", "metrics")),
    *(PACKAGE / "ascend").glob("*.py"),
)
OTHERS = (*({*PACKAGE.rglob("*.py")} - {*OWN}),)
SQL = re.compile(r"\b(?:SELECT|WHERE|INSERT INTO|ORDER BY)\b")
ASKS = re.compile(r"\b(?:SELECT|WHERE|INTO|ORDER|FROM|JOIN|UPDATE)\b")
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


def test_a_column_of_a_view_has_the_kind_that_its_table_declares() -> None:
    """What is forgotten of a new column: it would be a text in Parquet files."""
    declared = _declared(schemas())
    for view in views():
        kinds = {
            "INTEGER": view.whole | view.unsigned | {"session"},
            "REAL": view.fractions,
            "TEXT": declared[view.name].keys() - view.whole - view.fractions - view.unsigned,
        }
        forgotten = {
            column: kind
            for column, kind in declared[view.name].items()
            if kind in kinds and column not in kinds[kind] and not (column.endswith("_us") and kind != "TEXT")
        }
        assert forgotten == {}, view.name
        assert view.whole | view.fractions | view.unsigned | view.mixed <= declared[view.name].keys(), view.name


def test_a_counter_of_records_is_in_its_table_its_view_and_the_list_of_counters() -> None:
    declared = _declared(())
    assert {name for name, kind in declared["aicore"].items() if kind == "REAL"} == {*COUNTERS}
    assert COUNTERS.keys() <= declared["op_records"].keys()
    assert all(COUNTERS.values())


@cache
def _texts(modules: tuple[Path, ...]) -> list[tuple[str, int, str]]:
    """Each text of modules that ask anything, with its place; of one with values in it, the parts between them."""
    return [
        (str(module.relative_to(PACKAGE)), node.lineno, node.value)
        for module in modules
        if ASKS.search(text := module.read_text("utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def _columns(scripts: Iterable[str]) -> set[str]:
    return {column for columns in _declared(scripts).values() for column in columns}


def _declared(scripts: Iterable[str]) -> dict[str, dict[str, str]]:
    """The columns of all tables and views that the store has, with those of sources, and the type of each."""
    own = resources.files("profagent.store").joinpath("schema.sql").read_text("utf-8")
    with closing(sqlite3.connect(":memory:")) as connection:
        for script in (own, counters.SCHEMA, marks.SCHEMA, thinning.SCHEMA, *scripts):
            connection.executescript(script)
        names = connection.execute("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')").fetchall()
        return {name: {row[1]: row[2] for row in connection.execute(f"PRAGMA table_info({name})")} for (name,) in names}


@pytest.mark.parametrize(
    ("values", "found"), [({"t.0": 40.0, "t.1": 50.0}, 50.0), ({"t.0": 40.0, "chip": 30.0}, 30.0), ({"tx": 1.0}, None)]
)
def test_a_headline_is_the_first_counter_that_is_known(values: dict[str, float], found: float | None) -> None:
    headline = Headline(("chip", "t."), "{} C", "{:.1f}")
    assert headline.known(values) == found
    assert headline.text(found, "N/A") == ("N/A C" if found is None else f"{found} C")
