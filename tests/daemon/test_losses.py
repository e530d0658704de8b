"""Losses that are kept: told with their newer figures under one number, and over restarts."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from profagentd.follow.log import LossReason
from profagentd.retention.losses import FILE_NAME, LOSSES_LIMIT, KeptLosses

if TYPE_CHECKING:
    import pytest

FULL, DELETED = LossReason.DISK_FULL, LossReason.DELETED_UNDELIVERED


async def saved(directory: Path | None, count: int = 1) -> KeptLosses:
    losses = KeptLosses(directory)
    for number in range(count):
        losses.begin(DELETED, f"JOB{number}", 1_000 + number, lost_bytes=10, lost_logs=1)
    await losses.save()
    return losses


async def loaded(directory: Path) -> KeptLosses:
    losses = KeptLosses(directory)
    await losses.load()
    return losses


def test_a_loss_that_goes_on_keeps_its_number_and_beginning() -> None:
    losses = KeptLosses(None)
    number = losses.begin(DELETED, "JOB", 5, lost_bytes=10, lost_logs=1)
    losses.go_on(number, 9, lost_bytes=20, lost_logs=2)
    (loss,) = losses.since(0)
    assert (loss.id, loss.from_wall_us, loss.to_wall_us, loss.lost_bytes, loss.lost_logs) == (number, 5, 9, 30, 3)
    assert "3 logs of 30 bytes" in loss.detail


def test_only_what_changed_is_told_again() -> None:
    losses = KeptLosses(None)
    first = losses.begin(FULL, "JOB", 5)
    losses.begin(DELETED, "JOB", 6)
    told = losses.revision
    assert losses.since(told) == []
    losses.go_on(first, 7)
    assert [loss.id for loss in losses.since(told)] == [first]


def test_listeners_hear_of_each_change_until_they_leave() -> None:
    losses, heard = KeptLosses(None), []

    def hear() -> None:
        heard.append(losses.revision)

    losses.add_listener(hear)
    number = losses.begin(FULL, "JOB", 5)
    losses.go_on(number, 6)
    losses.remove_listener(hear)
    losses.go_on(number, 7)
    assert heard == [1, 2]


def test_the_last_loss_of_a_kind_is_found() -> None:
    losses = KeptLosses(None)
    losses.begin(DELETED, "JOB", 5)
    second = losses.begin(DELETED, "JOB", 6)
    losses.begin(FULL, "JOB", 7)
    losses.begin(DELETED, "OTHER", 8)
    assert losses.last(DELETED, "JOB") == second
    assert losses.last(DELETED, "NONE") is None


async def test_the_newest_are_kept_over_a_restart(tmp_path: Path) -> None:
    before = await saved(tmp_path / "new" / "state", LOSSES_LIMIT + 5)
    after = await loaded(tmp_path / "new" / "state")
    assert after.since(0) == before.since(0)
    assert len(after.since(0)) == LOSSES_LIMIT
    assert after.since(0)[0].job == "JOB5"


async def test_what_is_not_saved_yet_leaves_the_old_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = await saved(tmp_path)
    whole = (tmp_path / FILE_NAME).read_bytes()

    def fail(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    losses.begin(FULL, "JOB", 5)
    await losses.save()
    assert (tmp_path / FILE_NAME).read_bytes() == whole
    monkeypatch.undo()
    await losses.save()
    assert (await loaded(tmp_path)).since(0) == losses.since(0)


async def test_where_nothing_can_be_written_they_are_in_memory_which_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    with caplog.at_level(logging.WARNING):
        losses = await saved(tmp_path / "file", 2)
        losses.begin(FULL, "JOB", 5)
        await losses.save()
    assert len(losses.since(0)) == 3
    assert [record.message for record in caplog.records if "in memory only" in record.message] != []
    assert len(caplog.records) == 1


async def test_lines_that_are_no_losses_are_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    losses = await saved(tmp_path)
    good = (tmp_path / FILE_NAME).read_text()
    wrong = {**json.loads(good), "lost_bytes": "many"}
    bad = ["[]", "{", '{"id": 1}', json.dumps(wrong), json.dumps({**wrong, "lost_bytes": -1}), "\ufffd"]
    (tmp_path / FILE_NAME).write_text("\n".join([*bad, good]))
    assert (await loaded(tmp_path)).since(0) == losses.since(0)
    assert len(caplog.records) == len(bad)


async def test_without_a_file_nothing_was_lost(tmp_path: Path) -> None:
    assert (await loaded(tmp_path / "missing")).since(0) == []
