"""Documents of --json: their published schemas, and what becomes of a change."""

from __future__ import annotations

import json
import sys
from typing import TypedDict, get_type_hints

import msgspec
import pytest

from profagent.cli import documents
from profagent.cli.main import group, run
from profagent.documents import DurationsDocument
from profagent.stats.figures import DurationFigures
from tests.documents import checked
from tools import publish_schemas
from tools.make_reference import leaves


@pytest.mark.parametrize("name", documents.DOCUMENTS)
def test_a_schema_is_as_it_was_published(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", name]) == 0
    printed = capsys.readouterr().out
    assert printed == documents.schema_text(documents.schema_of(name))
    assert json.loads(printed)["$id"] == f"profagent:{name}:{documents.DOCUMENTS[name].version}"


def test_the_list_has_every_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [*documents.DOCUMENTS]


def test_every_command_with_json_has_a_document_and_every_document_a_command() -> None:
    with_json = {
        name for name, command in leaves("", group) if any(option.name == "as_json" for option in command.params)
    }
    printing = {one for each in documents.DOCUMENTS.values() for one in each.command.split(", ")} - {"every command"}
    assert {name for name in with_json if not {name, name.split()[0]} & printing} == set()
    assert {each for each in printing if not any(each in {name, name.split()[0]} for name in with_json)} == set()


def test_a_documents_durations_are_the_figures_that_are_computed() -> None:
    assert get_type_hints(DurationsDocument) == get_type_hints(DurationFigures)


def test_an_unknown_document_or_version_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "statistics"]) == 2
    assert run(["schema", "stats", "--version", "99"]) == 2
    assert "there is no version 99 of stats" in capsys.readouterr().err


class _Changed(TypedDict):
    """Failure that lacks its hint."""

    error: str


def test_a_change_without_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["publish_schemas"])
    before = (publish_schemas.FOLDER / "failure.1.json").read_text("utf-8")
    changed = documents.DOCUMENTS["failure"]._replace(type=_Changed)
    monkeypatch.setitem(documents.DOCUMENTS, "failure", changed)
    with pytest.raises(SystemExit, match="the document failure has changed: raise its version"):
        publish_schemas.main()
    assert (publish_schemas.FOLDER / "failure.1.json").read_text("utf-8") == before


def test_a_document_with_another_key_or_without_one_is_noticed() -> None:
    failure = {"error": "no", "code": "failed", "hint": "mend it", "exit_code": 1}
    assert checked("failure", failure) == failure
    with pytest.raises(AssertionError, match=r"has keys that its type has not: \['\$.more'\]"):
        checked("failure", {**failure, "more": 1})
    with pytest.raises(msgspec.ValidationError, match="missing required field `hint`"):
        checked("failure", {name: value for name, value in failure.items() if name != "hint"})
