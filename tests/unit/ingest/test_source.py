"""Only a source's own modules name its tables and views: all others ask `Source`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import profagent
from profagent.ingest.source import first_known, sources

PACKAGE = Path(profagent.__file__).parent
NAMES = [name for each in sources() for name in re.findall(r"CREATE (?:TABLE|VIEW) IF NOT EXISTS (\w+)", each.schema)]
OWN = [PACKAGE / "ingest" / f"{name}.py" for name in ("marks", "dropped_marks", "ops", "metrics", "ascend")]
OWN += (PACKAGE / "ascend").glob("*.py")


def test_no_other_module_names_a_table_of_a_source() -> None:
    asked = re.compile(rf"\b(?:FROM|JOIN|INTO|UPDATE)\s+(?:{'|'.join(NAMES)})\b")
    modules = {*PACKAGE.rglob("*.py")} - {*OWN}
    found = {
        f"{module.relative_to(PACKAGE)}:{node.lineno}"
        for module in modules
        for node in ast.walk(ast.parse(module.read_bytes()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and asked.search(node.value)
    }
    assert found == set()
    assert any(asked.search(module.read_text("utf-8")) for module in OWN)


@pytest.mark.parametrize(
    ("values", "found"), [({"t.0": 40.0, "t.1": 50.0}, 50.0), ({"t.0": 40.0, "chip": 30.0}, 30.0), ({"tx": 1.0}, None)]
)
def test_a_headline_is_the_first_counter_that_is_known(values: dict[str, float], found: float | None) -> None:
    assert first_known(("chip", "t."), values) == found
