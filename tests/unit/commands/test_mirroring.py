"""A board's events become bytes of the mirror, and changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from profagent.errors import ProtocolError
from profagent.ingest.changes import (
    Change,
    ContentLedger,
    LinkLedger,
    LogRemoved,
    Redecoded,
    SegmentRecords,
)
from profagent.ingest.mirror import digest_of
from profagent.link.messages import Acknowledgement, Chunk, Completed, LogEvent, Loss, Removed, Started
from profagent.link.session import FollowedLog, Happened
from profagent.record.mirroring import REMEMBERED_JOBS, BoardMirrors
from profagent.store.store import CommittedLog, HeldLog
from profagent.store.workspace import Workspace
from tests.encoders import layer_item
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
    mirrors.take(_events(Started(1, 1, 0, "new"), Chunk(1, 1, 0, DATA)))


def test_chunks_become_bytes_changes_and_an_acknowledgement(mirrors: BoardMirrors) -> None:
    changes, reached = mirrors.take(_events(Started(1, 1, 0, "new"), Chunk(1, 1, 0, DATA)))
    assert (mirrors.root / JOB / PATH).read_bytes() == DATA
    assert reached == [Acknowledgement(1, 1, len(DATA), complete=False)]
    assert [type(change) for change in changes[JOB] if isinstance(change, SegmentRecords)] == [SegmentRecords]
    mirrors.close()


def test_beginnings_of_a_batch_are_read_together(mirrors: BoardMirrors) -> None:
    logs = [_log(len(DATA)), _log(len(DATA), aicore_path(1))._replace(handle=2)]
    happened = [
        Happened(JOB, log, event)
        for log in logs
        for event in (Started(log.handle, 1, 0, "new"), Chunk(log.handle, 1, 0, DATA))
    ]
    changes, _ = mirrors.take(happened)
    one, other = (change.columns["ticks"] for change in changes[JOB] if isinstance(change, SegmentRecords))
    assert one.tolist() == other.tolist() == [700, 1400]
    assert one.base is other.base is not None
    mirrors.close()


def test_a_completion_is_acknowledged_when_the_copy_has_its_digest(mirrors: BoardMirrors) -> None:
    _arrived(mirrors)
    _, reached = mirrors.take(_events(Completed(1, 1, len(DATA), digest_of(DATA))))
    assert reached == [Acknowledgement(1, 1, len(DATA), complete=True)]
    with pytest.raises(ProtocolError, match="digest"):
        mirrors.take(_events(Completed(1, 1, len(DATA), digest_of(b"other"))))


def test_a_copy_that_was_edited_before_its_completion_is_found_out(mirrors: BoardMirrors) -> None:
    _arrived(mirrors)
    (mirrors.root / JOB / PATH).write_bytes(DATA[::-1])
    with pytest.raises(ProtocolError, match="digest"):
        mirrors.take(_events(Completed(1, 1, len(DATA), digest_of(DATA))))


@pytest.mark.parametrize("reason", ["different", "recreated"])
def test_a_file_made_anew_is_noted_and_the_earlier_one_set_aside(
    reason: str, mirrors: BoardMirrors, tmp_path: Path
) -> None:
    _arrived(mirrors)
    changes, _ = mirrors.take(_events(Started(1, 2, 0, reason), offset=0))
    noted = [change.entry for change in changes[JOB] if isinstance(change, LinkLedger)]
    assert [(entry.grade, entry.reason) for entry in noted] == [("note", reason)]
    assert (tmp_path / "superseded" / "board-1" / JOB / f"{PATH}.1").read_bytes() == DATA


def test_what_a_failed_batch_had_decoded_is_decoded_again(mirrors: BoardMirrors) -> None:
    _arrived(mirrors)
    table = FollowedLog(2, JOB, b"data/m.0.layer.info", snapshot=True)
    layers = layer_item(1, b"a\0", prof_layer_id=1)
    events = [
        Happened(JOB, table, event)
        for event in (
            Started(2, 1, 0, "new"),
            Chunk(2, 1, 0, layers),
            Completed(2, 1, len(layers), digest_of(layers)),
        )
    ]
    with pytest.raises(ProtocolError, match="digest"):
        mirrors.take([*events, *_events(Completed(1, 1, len(DATA), digest_of(b"other")))])
    mirrors.forget()
    changes, _ = mirrors.take(events)
    assert any(isinstance(change, Redecoded) for change in changes[JOB])


def test_a_log_that_is_vouched_for_again_as_it_is_held_changes_nothing(mirrors: BoardMirrors) -> None:
    _arrived(mirrors)
    held = HeldLog(1, len(DATA), complete=True, digest=digest_of(DATA))
    mirrors.compare(JOB, {PATH: _log(0)}, {PATH: held})
    told = _events(Started(1, 1, len(DATA), "same"), Completed(1, 1, len(DATA), digest_of(DATA)))
    changes, reached = mirrors.take(told)
    assert changes[JOB] == []
    assert reached == [Acknowledgement(1, 1, len(DATA), complete=True)]
    changes, _ = mirrors.take(_events(Chunk(1, 1, len(DATA), records(5)), offset=len(DATA) + 256))
    assert [len(change.sequence) for change in changes[JOB] if isinstance(change, SegmentRecords)] == [1]


def test_what_was_vouched_for_is_remembered_until_it_ends_or_a_stream_begins(mirrors: BoardMirrors) -> None:
    _arrived(mirrors)
    held = HeldLog(1, len(DATA), complete=True, digest=digest_of(DATA))
    for ends in (lambda: mirrors.take(_events(Completed(1, 1, len(DATA), digest_of(DATA)))), mirrors.begin_stream):
        mirrors.compare(JOB, {PATH: _log(0)}, {PATH: held})
        assert 1 in mirrors._vouched
        ends()
        assert 1 not in mirrors._vouched


def test_a_snapshot_that_took_its_place_without_its_rows_is_fetched_again(mirrors: BoardMirrors) -> None:
    path, data = "info.json.0", b"{}"
    log = FollowedLog(1, JOB, path.encode(), snapshot=True)
    events = (Started(1, 2, 0, "rewritten"), Chunk(1, 2, 0, data), Completed(1, 2, 2, digest_of(data)))
    mirrors.take([Happened(JOB, log, event) for event in events])
    (stale,), _ = mirrors.compare(JOB, {path: log}, {path: HeldLog(1, 2, complete=True, digest=digest_of(b"[]"))})
    assert (stale.generation, stale.offset) == (1, 0)
    (held,), _ = mirrors.compare(JOB, {path: log}, {path: HeldLog(2, 2, complete=True, digest=digest_of(data))})
    assert (held.generation, held.offset, held.prefix_digest) == (2, 2, digest_of(data))


def test_many_jobs_keep_few_files_open_and_go_on(mirrors: BoardMirrors) -> None:
    logs = [FollowedLog(1, f"JOB{number:029}", PATH.encode(), snapshot=False, generation=1) for number in range(60)]
    for log in logs:
        events = (Started(1, 1, 0, "new"), Chunk(1, 1, 0, DATA))
        mirrors.take([Happened(log.job, log, event) for event in events])
    assert len(mirrors._jobs) == REMEMBERED_JOBS
    open_files = [file.readlink() for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
    assert sum(file.is_relative_to(mirrors.root) for file in open_files) == REMEMBERED_JOBS
    changes, _ = mirrors.take([Happened(logs[0].job, logs[0], Chunk(1, 1, len(DATA), records(9)))])
    kinds = [type(change) for change in changes[logs[0].job] if isinstance(change, Redecoded | SegmentRecords)]
    assert kinds == [Redecoded, SegmentRecords]
    mirrors.close()


def test_a_removed_log_is_not_acknowledged(mirrors: BoardMirrors) -> None:
    _arrived(mirrors)
    chunk = Chunk(1, 1, len(DATA), b"more")
    changes, reached = mirrors.take(_events(chunk, Removed(1, 1, len(DATA) + 4, 4096)))
    assert reached == []
    assert LogRemoved(PATH) in changes[JOB]
    (loss,) = (change.entry for change in changes[JOB] if isinstance(change, LinkLedger))
    assert (loss.reason, loss.count) == ("removed-unread", 4096 - len(DATA) - 4)


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
    ((holding,), changes) = mirrors.compare(JOB, {PATH: _log(0)}, {PATH: HeldLog(3, 256, complete=True)})
    assert (holding.generation, holding.offset) == (3, 0)
    assert _told(changes) == [("note", "mirror-changed")]


@pytest.mark.parametrize(("complete", "told"), [(True, "mirror-changed"), (False, "different")])
def test_of_a_complete_log_that_differs_it_is_told_that_the_mirror_was_changed(
    complete: bool, told: str, mirrors: BoardMirrors, tmp_path: Path
) -> None:
    _arrived(mirrors)
    (mirrors.root / JOB / PATH).write_bytes(DATA[::-1])
    held = HeldLog(1, len(DATA), complete=complete, digest=digest_of(DATA) if complete else None)
    ((holding,), noted) = mirrors.compare(JOB, {PATH: _log(0)}, {PATH: held})
    assert (holding.offset, holding.prefix_digest) == (len(DATA), digest_of(DATA[::-1]))
    again = (Started(1, 2, 0, "different"), Chunk(1, 2, 0, DATA), Completed(1, 2, len(DATA), digest_of(DATA)))
    changes, _ = mirrors.take(_events(*again))
    assert [*_told(noted), *_told(changes[JOB])] == [("note", told)]
    assert (tmp_path / "superseded" / "board-1" / JOB / f"{PATH}.1").read_bytes() == DATA[::-1]


def _told(changes: Sequence[Change]) -> list[tuple[str, str]]:
    return [(change.entry.grade, change.entry.reason) for change in changes if isinstance(change, LinkLedger)]


@pytest.mark.parametrize("other", [b"", bytes(len(DATA)), bytes(2 * len(DATA))], ids=["empty", "as long", "longer"])
def test_a_file_made_anew_and_not_committed_is_none_that_is_held(mirrors: BoardMirrors, other: bytes) -> None:
    _arrived(mirrors)
    mirrors.take(_events(Started(1, 2, 0, "recreated"), Chunk(1, 2, 0, other), offset=len(other)))
    ((holding,), lost) = mirrors.compare(JOB, {PATH: _log(0)}, {PATH: HeldLog(1, len(DATA), complete=False)})
    assert (holding.generation, holding.offset, lost) == (1, len(DATA), [])
    assert holding.prefix_digest == digest_of(DATA)


def test_a_log_of_which_nothing_was_committed_may_be_gone(mirrors: BoardMirrors) -> None:
    ((holding,), lost) = mirrors.compare(JOB, {PATH: _log(0)}, {PATH: HeldLog(3, 0, complete=False)})
    assert (holding.generation, holding.offset, lost) == (3, 0, [])


def test_what_was_not_committed_is_cut(mirrors: BoardMirrors) -> None:
    _arrived(mirrors)
    mirrors.restore([CommittedLog(JOB, path, 1, size) for path, size in ((PATH, 256), (aicore_path(1), 0))])
    assert (mirrors.root / JOB / PATH).read_bytes() == DATA[:256]


def test_files_of_a_job_that_has_ended_are_closed_until_it_goes_on(mirrors: BoardMirrors) -> None:
    def opened() -> list[Path]:
        links = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
        return [path for path in links if path.is_relative_to(mirrors.root)]

    _arrived(mirrors)
    assert opened() == [mirrors.root / JOB / PATH]
    mirrors.assess(JOB, [], [])
    assert opened() == []
    mirrors.take(_events(Chunk(1, 1, len(DATA), DATA), offset=2 * len(DATA)))
    assert (mirrors.root / JOB / PATH).read_bytes() == 2 * DATA
    mirrors.close()


def test_a_job_that_has_ended_is_assessed(mirrors: BoardMirrors) -> None:
    _arrived(mirrors)
    told = [change for change in mirrors.assess(JOB, [PATH], []) if isinstance(change, ContentLedger)]
    assert {entry.reason for change in told for entry in change.entries} >= {"no-done"}
