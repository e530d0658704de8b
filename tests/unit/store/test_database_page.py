"""docs/database.md tells every table, view and column of the schema, and none that is not there."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from importlib import resources
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "database.md"


@pytest.fixture(scope="module")
def documented() -> dict[str, list[str]]:
    """Columns by the heading that they stand under."""
    _, *sections = re.split(r"^### ", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    return {
        section.split("\n", 1)[0]: [
            name for name in re.findall(r"^\| (\w+) \|", section, re.MULTILINE) if name != "column"
        ]
        for section in sections
    }


@pytest.fixture(scope="module")
def schema() -> dict[str, list[str]]:
    """Columns of every table and view."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(resources.files("profagent.store").joinpath("schema.sql").read_text("utf-8"))
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')")]
        return {name: [row[1] for row in database.execute(f"PRAGMA table_info({name})")] for name in names}


def test_every_table_and_view_has_its_section(documented: dict[str, list[str]], schema: dict[str, list[str]]) -> None:
    assert sorted(documented) == sorted(schema)


def test_every_column_is_told_in_its_order(documented: dict[str, list[str]], schema: dict[str, list[str]]) -> None:
    assert documented == schema


def test_the_page_names_the_schema_s_version() -> None:
    (version,) = re.findall(r"user_version` is (\d+)", PAGE.read_text("utf-8"))
    text = resources.files("profagent.store").joinpath("schema.sql").read_text("utf-8")
    assert f"PRAGMA user_version = {version};" in text
