"""The registry of the ledger has every reason that the program writes or a daemon tells, and no other."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from profagent import ledger
from profagent.ingest.changes import LinkLedger, RecordedLoss, loss_change
from profagent.ledger import REASONS, Entry, checked_path, entry, grade_of, removal_entry
from profagent.limits import LONGEST_DETAIL
from profagent.link.messages import FollowedLog, Loss

if TYPE_CHECKING:
    from profagent.codes import IssueCode

ROOT = Path(__file__).parents[3]
WORD = re.compile(r"\b[A-Z][A-Z_]+\b")


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
def test_a_reason_says_what_it_means_and_what_to_do(reason: IssueCode) -> None:
    assert reason.severity in {"loss", "note"}
    assert len(reason.text.split(". ")[0].split()) < 25
    for sentence in (reason.text, reason.remedy):
        assert sentence[0].isupper() or sentence[0] == "`"
        assert sentence.endswith(".")


def test_a_reason_is_written_or_told_by_a_daemon() -> None:
    words = Counter(word for file in (ROOT / "agent").rglob("*.py") for word in WORD.findall(file.read_text("utf-8")))
    # Once where it is made, once where it is written.
    unused = {name for name in vars(ledger) if WORD.fullmatch(name) and words[name] < 2}
    reasons = REASONS.keys() & {value for name in unused if isinstance(value := getattr(ledger, name), str)}
    assert reasons - _daemons_reasons() == set()


def test_an_entry_has_the_grade_of_its_reason_unless_the_case_has_the_other() -> None:
    assert entry(ledger.TORN_RECORD, "x").grade == "loss"
    assert entry(ledger.DONE_WITHOUT_DATA, "x", grade=ledger.NOTE).grade == "note"
    with pytest.raises(AssertionError, match="torn-record"):
        entry(ledger.TORN_RECORD, "x", grade=ledger.NOTE)
    with pytest.raises(KeyError):
        entry("a-word-of-its-own", "x")


def test_what_a_newer_board_tells_counts_as_the_wire_calls_it() -> None:
    assert (grade_of("not-a-file"), grade_of("word-of-a-newer-daemon")) == ("note", "loss")


# Ledger entries for what a board reports

JOB = "JOB" + "A" * 29


def test_only_bytes_that_were_not_sent_are_lost_by_a_removal() -> None:
    assert removal_entry(300, 300) == []
    assert removal_entry(300, 200) == []
    (entry,) = removal_entry(300, 512)
    assert (entry.grade, entry.reason, entry.first, entry.last, entry.count) == (
        "loss",
        "removed-unread",
        300,
        512,
        212,
    )


def told(loss: Loss, job: str = JOB, log: FollowedLog | None = None) -> tuple[str, object]:
    return loss_change(job, None if log is None else checked_path(log.path), loss)


def test_a_loss_that_is_told_once_belongs_to_its_log_and_job() -> None:
    log = FollowedLog(7, JOB, b"data/x", snapshot=False)
    assert told(Loss(7, 1, "unreadable", "EIO", 5), log=log) == (
        JOB,
        LinkLedger("data/x", Entry("loss", "unreadable", "EIO", count=5)),
    )
    assert told(Loss(0, 0, "unreadable", "EIO", 0), job="") == (
        "",
        LinkLedger(None, Entry("loss", "unreadable", "EIO")),
    )


def test_a_kept_loss_belongs_to_the_board_whatever_it_is_about() -> None:
    loss = Loss(0, 1, "deleted-undelivered", "made room", 512, 9, JOB, 10, 20, 3)
    kept = RecordedLoss(9, Entry("loss", "deleted-undelivered", "made room", count=512), JOB, 3, 512, 10, 20)
    assert told(loss) == ("", kept)


def test_what_a_board_says_of_a_kept_loss_is_not_believed_blindly() -> None:
    job, kept = told(Loss(0, 0, "disk-full", "no\nspace" * 9999, 0, 2**64 - 1, "../" + JOB))
    assert job == ""
    assert isinstance(kept, RecordedLoss)
    assert (kept.job, kept.lost_logs, kept.lost_bytes, kept.from_us, kept.to_us) == ("", None, None, None, None)
    assert kept.entry.count == 1
    assert len(kept.entry.detail) <= LONGEST_DETAIL
