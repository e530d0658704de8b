"""The registry of the ledger has every reason that the program writes or a daemon tells, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from profagent.ingest import reasons
from profagent.ingest.reasons import REASONS, entry, grade_of

ROOT = Path(__file__).parents[3]
AGENT = ROOT / "agent" / "profagent"
BY_CONSTANT = {
    name: value
    for name, value in vars(reasons).items()
    if name.isupper() and isinstance(value, str) and value in REASONS
}


def _trees() -> list[tuple[Path, ast.Module]]:
    files = [file for file in AGENT.rglob("*.py") if file != AGENT / "ingest" / "reasons.py"]
    return [(file, ast.parse(file.read_text("utf-8"))) for file in files]


def _daemons_reasons() -> set[str]:
    for file in (ROOT / "daemon").rglob("*.py"):
        found = re.search(
            r"^class LossReason\(enum\.Enum\):\n(.*?)^\S", file.read_text("utf-8"), re.MULTILINE | re.DOTALL
        )
        if found:
            return set(re.findall(r'= "([a-z-]+)"', found[1]))
    raise AssertionError("the daemon has no class LossReason")


def test_the_registry_has_what_a_daemon_tells() -> None:
    assert _daemons_reasons() <= REASONS.keys()


def test_every_reason_of_the_registry_is_written_by_somebody() -> None:
    named = {node.attr for _, tree in _trees() for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    named |= {node.id for _, tree in _trees() for node in ast.walk(tree) if isinstance(node, ast.Name)}
    used = {reason for constant, reason in BY_CONSTANT.items() if constant in named}
    assert REASONS.keys() - used - _daemons_reasons() == set(), "take these out of the registry"


def test_no_code_makes_an_entry_without_the_registry() -> None:
    """A reason is named by its constant: neither Entry(…) with a literal nor a literal in SQL."""
    odd = []
    for file, tree in _trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in {
                "Entry",
                "entry",
            }:
                odd += [f"{file.name}:{node.lineno}" for part in node.args[:2] if _is_reason(part)]
            elif (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and re.search(r"reason\s*(=|IN)\s*\(?'", node.value)
            ):
                odd.append(f"{file.name}:{node.lineno}")
    assert odd == []


def _is_reason(part: ast.expr) -> bool:
    return isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value in {*REASONS, "loss", "note"}


def test_reasons_in_the_schema_are_those_of_the_registry() -> None:
    schema = (AGENT / "store" / "schema.sql").read_text("utf-8")
    assert set(re.findall(r"reason = '([^']+)'", schema)) <= REASONS.keys()


@pytest.mark.parametrize("reason", REASONS.values(), ids=REASONS)
def test_a_reason_says_what_it_means_and_what_to_do(reason: reasons.Reason) -> None:
    assert reason.grade in {"loss", "note"}
    assert len(reason.text.split(". ")[0].split()) < 25
    for sentence in (reason.text, reason.remedy):
        assert sentence[0].isupper() or sentence[0] == "`"
        assert sentence.endswith(".")


def test_an_entry_has_the_grade_of_its_reason_unless_the_case_has_the_other() -> None:
    assert entry(reasons.TORN_RECORD, "x").grade == "loss"
    assert entry(reasons.DONE_WITHOUT_DATA, "x", grade=reasons.NOTE).grade == "note"
    with pytest.raises(KeyError):
        entry("a-word-of-its-own", "x")


def test_what_a_newer_board_tells_counts_as_the_wire_calls_it() -> None:
    assert (grade_of("not-a-file"), grade_of("word-of-a-newer-daemon")) == ("note", "loss")
