"""Ledger entries for what a board reports."""

from __future__ import annotations

from profagent.ingest.changes import Entry, KeptLoss, LinkLedger
from profagent.ingest.reasons import LONGEST_DETAIL, checked_path, loss_change, removal_entry
from profagent.link.messages import FollowedLog, Loss

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
    kept = KeptLoss(9, Entry("loss", "deleted-undelivered", "made room", count=512), JOB, 3, 512, 10, 20)
    assert told(loss) == ("", kept)


def test_what_a_board_says_of_a_kept_loss_is_not_believed_blindly() -> None:
    name, most = "../" + JOB, 2**64 - 1
    job, kept = told(Loss(0, 0, "disk-full", "no\nspace" * 9999, most, most, name, most, most, most))
    assert job == ""
    assert isinstance(kept, KeptLoss)
    assert (kept.job, kept.lost_logs, kept.lost_bytes, kept.from_us, kept.to_us) == ("", None, None, None, None)
    assert kept.entry.count == 1
    assert len(kept.entry.detail) <= LONGEST_DETAIL
