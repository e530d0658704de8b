from __future__ import annotations

from pathlib import Path

import pytest

from profagent.commands.mirroring import BoardMirrors
from profagent.commands.workspace import Workspace
from profagent.errors import ProtocolError
from profagent.ingest.changes import ContentLedger, LinkLedger, LogRemoved, SegmentRecords
from profagent.ingest.mirror import digest_of
from profagent.link.messages import Acknowledgement, Chunk, Completed, LogEvent, Loss, Removed, Started
from profagent.link.session import FollowedLog, Happened
from profagent.store.store import HeldLog
from tests.unit.commands.link import JOB
from tests.unit.export.arriving_job import aicore_path, records

PATH = aicore_path()
DATA = records(700, 1400)


@pytest.fixture
def mirrors(tmp_path: Path) -> BoardMirrors:
    return BoardMirrors(Workspace(tmp_path), "board-1", None)


def _log(offset: int, path: str = PATH) -> FollowedLog:
    return FollowedLog(1, JOB, path.encode(), snapshot=False, generation=1, offset=offset)


def _events(*events: LogEvent, offset: int = len(DATA)) -> list[Happened]:
    return [Happened(JOB, _log(offset), event) for event in events]


def _arrived(mirrors: BoardMirrors) -> None:
    mirrors.take(_events(Started(1, 1, 0, "new"), Chunk(1, 1, 0, DATA, 0)))


def test_chunks_become_bytes_changes_and_an_acknowledgement(mirrors: BoardMirrors) -> None:
    changes, reached = mirrors.take(_events(Started(1, 1, 0, "new"), Chunk(1, 1, 0, DATA, 0)))
    assert (mirrors.root / JOB / PATH).read_bytes() == DATA
    assert reached == [Acknowledgement(1, 1, len(DATA), complete=False)]
    assert [type(change) for change in changes[JOB] if isinstance(change, SegmentRecords)] == [SegmentRecords]
    mirrors.sync()
    mirrors.close()


def test_a_completion_is_acknowledged_when_the_copy_has_its_digest(mirrors: BoardMirrors) -> None:
    _arrived(mirrors)
    _, reached = mirrors.take(_events(Completed(1, 1, len(DATA), digest_of(DATA))))
    assert reached == [Acknowledgement(1, 1, len(DATA), complete=True)]
    with pytest.raises(ProtocolError, match="digest"):
        mirrors.take(_events(Completed(1, 1, len(DATA), digest_of(b"other"))))


@pytest.mark.parametrize("reason", ["different", "recreated"])
def test_a_file_made_anew_is_noted_and_the_earlier_one_set_aside(
    reason: str, mirrors: BoardMirrors, tmp_path: Path
) -> None:
    _arrived(mirrors)
    changes, _ = mirrors.take(_events(Started(1, 2, 0, reason), offset=0))
    noted = [change.entry for change in changes[JOB] if isinstance(change, LinkLedger)]
    assert [(entry.grade, entry.reason) for entry in noted] == [("note", reason)]
    assert (tmp_path / "superseded" / "board-1" / JOB / f"{PATH}.1").read_bytes() == DATA


def test_a_removed_log_is_not_acknowledged(mirrors: BoardMirrors) -> None:
    _arrived(mirrors)
    chunk = Chunk(1, 1, len(DATA), b"more", 0)
    changes, reached = mirrors.take(_events(chunk, Removed(1, 1, len(DATA) + 4, 4096)))
    assert reached == []
    assert LogRemoved(PATH) in changes[JOB]
    (loss,) = (change.entry for change in changes[JOB] if isinstance(change, LinkLedger))
    assert (loss.reason, loss.count) == ("removed", 4096 - len(DATA) - 4)


def test_a_loss_of_the_whole_board_is_about_no_job(mirrors: BoardMirrors) -> None:
    changes, _ = mirrors.take([Happened("", None, Loss(0, 0, "unreadable", "a root", 0))])
    assert [type(change) for change in changes[""]] == [LinkLedger]


def test_what_is_held_is_told_with_its_digest(mirrors: BoardMirrors) -> None:
    _arrived(mirrors)
    logs = {PATH: _log(0), aicore_path(1): _log(0, aicore_path(1))}
    (held, unknown), lost = mirrors.compare(JOB, logs, {PATH: HeldLog(1, 256, complete=False)})
    assert (held.generation, held.offset, held.prefix_digest) == (1, 256, digest_of(DATA[:256]))
    assert (unknown.generation, unknown.offset) == (0, 0)
    assert lost == []


def test_a_log_that_the_mirror_does_not_have_is_fetched_again(mirrors: BoardMirrors) -> None:
    ((holding,), (entry,)) = mirrors.compare(JOB, {PATH: _log(0)}, {PATH: HeldLog(3, 256, complete=True)})
    assert (holding.generation, holding.offset) == (3, 0)
    assert (entry.grade, entry.reason) == ("note", "mirror-changed")


def test_what_was_not_committed_is_cut(mirrors: BoardMirrors) -> None:
    _arrived(mirrors)
    mirrors.cut([(JOB, PATH, 256), (JOB, aicore_path(1), 0)])
    assert (mirrors.root / JOB / PATH).read_bytes() == DATA[:256]


def test_a_job_that_has_ended_is_assessed(mirrors: BoardMirrors) -> None:
    _arrived(mirrors)
    told = [change for change in mirrors.assess(JOB, [PATH], []) if isinstance(change, ContentLedger)]
    assert {entry.reason for change in told for entry in change.entries} >= {"no-done"}
