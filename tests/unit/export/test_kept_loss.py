"""Kept losses as lines."""

from __future__ import annotations

from profagent.cli.provenance import kept_loss_fields, kept_loss_line
from profagent.ingest.changes import Entry, KeptLoss

JOB = "JOB" + "A" * 29


def line(loss: KeptLoss) -> str:
    return kept_loss_line(kept_loss_fields(loss))


def test_a_line_has_what_how_much_and_when() -> None:
    loss = KeptLoss(1, Entry("loss", "deleted-undelivered", "made room"), JOB, 12, 3456, 1_700_000_000_000_000)
    assert line(loss) == (
        f"loss: {JOB}: deleted-undelivered: 12 logs, 3456 bytes, 2023-11-14 22:13:20 UTC to N/A: made room"
    )


def test_what_is_not_known_is_said_so() -> None:
    loss = KeptLoss(1, Entry("loss", "disk-full", "no space"), to_us=2**63 - 1)
    assert line(loss) == "loss: the board: disk-full: N/A logs, N/A bytes, N/A to N/A: no space"
