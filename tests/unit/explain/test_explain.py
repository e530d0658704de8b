"""Issue codes: each is one thing, says what to do where that is needed, and `explain` prints it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from profagent import errors
from profagent.cli.main import run
from profagent.codes import IssueFamily, Severity
from profagent.errors import ERRORS, ProfagentError
from profagent.explain import registry
from profagent.explain.registry import issue_codes
from profagent.ledger import INCOMPLETE
from tests.documents import checked
from tools.code_pages import codes_page

if TYPE_CHECKING:
    from collections.abc import Iterator

SEVERITIES = {
    IssueFamily.LEDGER: {Severity.LOSS, Severity.NOTE},
    IssueFamily.CHECK: {Severity.BAD, Severity.UNKNOWN, Severity.INFO},
    IssueFamily.ADVICE: {Severity.HIGH, Severity.MEDIUM, Severity.LOW, Severity.INFO},
    IssueFamily.COMPARISON: {Severity.BLOCKING, Severity.BLOCKS_METRIC, Severity.INFORMATIVE},
    IssueFamily.EXIT: {Severity.ERROR},
}
# Of these nobody has to do anything.
INFORMING = {Severity.NOTE, Severity.INFO, Severity.INFORMATIVE}


def test_every_code_says_what_it_means_and_what_to_do_where_somebody_must() -> None:
    codes = issue_codes()
    for family, severities in SEVERITIES.items():
        of_family = [each for each in codes.values() if each.family is family]
        assert {each.severity for each in of_family} == severities
    for code, each in codes.items():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", code), code
        assert each.text.endswith("."), code
        assert each.remedy or each.severity in INFORMING, code
        assert "{" not in each.text + each.remedy, code


def test_two_families_cannot_have_one_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ERRORS, "ring-full", ERRORS["usage"]._replace(code="ring-full"))
    with pytest.raises(AssertionError, match="two families"):
        registry.issue_codes()


def _classes(base: type[ProfagentError]) -> Iterator[type[ProfagentError]]:
    yield base
    for below in base.__subclasses__():
        yield from _classes(below)


def test_every_error_has_a_code_of_its_own_and_the_exit_code_of_its_row() -> None:
    own = [each for each in _classes(ProfagentError) if each.__module__ == errors.__name__]
    assert {*(each.code for each in own), errors.INTERRUPTED.code} == ERRORS.keys()
    assert len(own) + 1 == len(ERRORS)
    assert {(each.code, each.exit_code) for each in own} <= {(code, row.exit_code) for code, row in ERRORS.items()}


def test_losses_and_the_reasons_of_an_incomplete_capture_have_the_exit_code_4() -> None:
    ledger = [each for each in issue_codes().values() if each.family is IssueFamily.LEDGER]
    assert {each.code for each in ledger if each.exit_code} == {
        *(each.code for each in ledger if each.severity is Severity.LOSS),
        *INCOMPLETE,
    }
    assert {"stopped-early", "not-covered", "nothing-recorded"} == INCOMPLETE
    assert issue_codes()["not-ended"].exit_code == 4


def test_explain_prints_a_code_or_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "host-disk-full"]) == 0
    assert capsys.readouterr().out == (
        "host-disk-full (exit, error)\n"
        "  The disk of this host, or a quota on it, takes no more. What was committed is safe.\n"
        "  To do: Make room; a running capture then goes on.\n"
        "  Exit code: 1\n"
    )
    assert run(["explain", "done-without-data"]) == 0
    assert "missing. A note when it announces no bytes.\n" in capsys.readouterr().out
    assert run(["explain"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [*issue_codes()]


def test_explain_prints_the_codes_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "--json"]) == 0
    document = checked("codes", json.loads(capsys.readouterr().out))
    assert [each["code"] for each in document] == [*issue_codes()]
    assert run(["explain", "npu-clock", "--json"]) == 0
    (rule,) = json.loads(capsys.readouterr().out)
    assert (rule["severity"], rule["exit_code"]) == ("blocking", 4)
    assert rule["remedy"].endswith("`--allow npu-clock`.")


def test_an_unknown_code_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "ring-ful"]) == 2
    assert "did you mean 'ring-full'?" in capsys.readouterr().err


def test_the_page_has_every_code_once() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|", codes_page(), re.MULTILINE)
    assert rows == sorted(issue_codes())
