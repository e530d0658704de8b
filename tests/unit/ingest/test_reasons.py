"""The registry of the ledger has every reason that the program writes or a daemon tells, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from profagent.ingest import reasons
from profagent.ingest.reasons import REASONS, entry, grade_of

ROOT = Path(__file__).parents[3]


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
