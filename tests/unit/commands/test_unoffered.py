"""Logs that were begun, and that the board has no longer when the link is back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from profagent.errors import DiskFullError
from profagent.ingest.commit import Step
from profagent.link.messages import Loss
from profagent.link.session import Happened
from tests.unit.commands.link import JOB
from tests.unit.commands.test_recording import Kept, keeping
from tests.unit.export.arriving_job import aicore_path, records

GONE = (
    "loss",
    "removed",
    "removed from the board while nobody followed it: what was written after 256 bytes is not here",
)


def full_at_once(step: Step) -> None:
    """Nothing is committed."""
    if step is Step.MIRRORED:
        raise DiskFullError("full", hint="make room")


async def told(kept: Kept) -> list[tuple[Any, ...]]:
    """What the ledger says of the log."""
    sql = "SELECT grade, reason, detail FROM ledger WHERE log = ? AND reason NOT IN ('no-done', 'no-layer')"
    return await kept.store.query(sql, (aicore_path(),))


async def begun(kept: Kept) -> None:
    """A part of a log comes, and the link is lost."""
    await kept.sender.send(aicore_path(), records(700), complete=False)
    await kept.sender.open()


async def test_a_begun_log_that_the_board_does_not_offer_again_is_a_loss(tmp_path: Path) -> None:
    async with keeping(tmp_path) as kept:
        await begun(kept)
        await kept.sender.send(aicore_path(1), records(700))
        await kept.recording.change_state(JOB, "open", caught_up=False)
        assert await told(kept) == []
        for state in ("open", "quiet", "finished"):
            await kept.recording.change_state(JOB, state, caught_up=True)
            assert await told(kept) == [GONE]
        assert await kept.rows("SELECT count FROM ledger WHERE reason = 'removed'") == [(1,)]


async def test_a_job_of_which_nothing_is_offered_has_lost_what_was_begun(tmp_path: Path) -> None:
    async with keeping(tmp_path) as kept:
        await begun(kept)
        await kept.recording.change_state(JOB, "finished", caught_up=True)
        assert await told(kept) == [GONE]


async def test_a_begun_log_that_is_offered_again_is_none(tmp_path: Path) -> None:
    async with keeping(tmp_path) as kept:
        await begun(kept)
        await kept.sender.offer(aicore_path())
        await kept.recording.change_state(JOB, "quiet", caught_up=True)
        assert await told(kept) == []


async def test_a_complete_log_may_go(tmp_path: Path) -> None:
    async with keeping(tmp_path) as kept:
        await kept.sender.send(aicore_path(), records(700))
        await kept.sender.open()
        await kept.recording.change_state(JOB, "finished", caught_up=True)
        assert await told(kept) == []


async def test_what_is_there_after_all_is_no_loss(tmp_path: Path) -> None:
    async with keeping(tmp_path) as kept:
        await begun(kept)
        await kept.recording.change_state(JOB, "quiet", caught_up=True)
        await kept.sender.open()
        await kept.sender.send(aicore_path(), records(700, 1400))
        await kept.recording.change_state(JOB, "finished", caught_up=True)
        assert await told(kept) == []


async def test_what_the_board_deleted_itself_its_kept_loss_counts(tmp_path: Path) -> None:
    async with keeping(tmp_path) as kept:
        await begun(kept)
        loss = Loss(0, 1, "deleted-undelivered", "made room", 512, 9, JOB, 10, 20, 1)
        await kept.sender.happen(Happened(JOB, None, loss))
        await kept.recording.change_state(JOB, "quiet", caught_up=True)
        assert await told(kept) == []
        assert await kept.rows("SELECT complete FROM log WHERE kind = 'aicore'") == [(2,)]


async def test_a_log_of_which_nothing_was_committed_is_a_loss_when_it_is_not_offered_again(tmp_path: Path) -> None:
    async with keeping(tmp_path, reached=full_at_once) as kept:
        for path in (aicore_path(), aicore_path(1)):
            with pytest.raises(DiskFullError):
                await kept.sender.send(path, records(700))
            await kept.sender.open()
        assert [file.name for file in kept.job.rglob("*") if file.is_file()] == []
        await kept.sender.offer(aicore_path())
        await kept.recording.change_state(JOB, "finished", caught_up=True)
        losses = "SELECT log, reason FROM ledger WHERE grade = 'loss'"
        assert await kept.rows(losses) == [(aicore_path(1), "removed")]


async def test_what_a_whole_log_had_more_is_a_loss_when_it_was_not_committed_and_is_not_offered_again(
    tmp_path: Path,
) -> None:
    async with keeping(tmp_path) as kept:
        await kept.sender.send(aicore_path(), records(700))
        await kept.recording.change_state(JOB, "finished", caught_up=True)
    async with keeping(tmp_path, reached=full_at_once) as kept:
        with pytest.raises(DiskFullError):
            await kept.sender.send(aicore_path(), records(700, 1400))
        await kept.sender.open()
        assert (kept.job / aicore_path()).read_bytes() == records(700)
        await kept.recording.change_state(JOB, "finished", caught_up=True)
        assert await told(kept) == [GONE]
