"""The public names: one list with their tiers, the examples of their docstrings, and what an import costs."""

from __future__ import annotations

import ast
import doctest
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

import profagent
from profagent.api.names import NAMES, Tier

STUB = Path(profagent.__file__).with_suffix(".pyi")


def test_the_list_of_names_is_what_the_package_and_its_stub_have() -> None:
    stub = {
        each.asname
        for node in ast.walk(ast.parse(STUB.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom)
        for each in node.names
    }
    assert {*profagent.__all__} == {*NAMES}
    assert stub == {*NAMES}
    assert dir(profagent) == sorted(NAMES)
    assert len(NAMES) <= 25
    assert {name.tier for name in NAMES.values()} == {*get_args(Tier)}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_typed_and_says_what_it_is(name: str) -> None:
    found = getattr(profagent, name)
    assert inspect.getdoc(found)
    members = (
        [found]
        if not inspect.isclass(found)
        else [each for key, each in vars(found).items() if inspect.isfunction(each) and not key.startswith("_")]
    )
    for member in members:
        signature = inspect.signature(member)
        assert signature.return_annotation is not inspect.Signature.empty, member
        assert inspect.getdoc(member), member


def test_other_names_are_none() -> None:
    for name in ("Sesion", "resolved", "__path_of__"):
        with pytest.raises(AttributeError, match=name):
            getattr(profagent, name)


class _Finder(doctest.DocTestFinder):
    """Finds examples of methods behind a decorator, too, which is of another module."""

    def _from_module(self, module: Any, object: Any) -> bool:  # noqa: A002 - its name there
        return bool(super()._from_module(module, inspect.unwrap(object)))  # type: ignore[misc]


def test_the_examples_of_the_names_are_true(lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lab").symlink_to(lab)
    monkeypatch.chdir(tmp_path)
    finder, runner = _Finder(exclude_empty=True), doctest.DocTestRunner()
    examined = set()
    for name in NAMES:
        for test in finder.find(_unwrapped(getattr(profagent, name)), name, globs={}):
            examined.add(test.name)
            runner.run(test)
    assert not runner.failures
    assert runner.tries > 30
    assert "Session.stats" in examined


def _unwrapped(found: Any) -> Any:
    return inspect.unwrap(found) if callable(found) and not inspect.isclass(found) else found


def test_a_subpackage_of_a_functions_name_stays_a_package() -> None:
    import profagent.diff.diff as module
    import profagent.record.record

    assert inspect.iscoroutinefunction(module.diff)
    assert profagent.record.record.RunRecording  # type: ignore[attr-defined] # the stub has the function
    assert list(inspect.signature(profagent.diff).parameters)[:2] == ["base", "new"]


def test_an_import_loads_nothing_but_itself() -> None:
    """Nor does a look at the version; numpy comes with a workspace."""
    program = "import sys, profagent; profagent.__version__; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout.split()
    assert [name for name in found if name.startswith("profagent.")] == []
    assert not {"numpy", "asyncio", "sqlite3", "click", "msgspec"} & {*found}
