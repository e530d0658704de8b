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
    LogAdvanced,
    LogRemoved,
    LogReset,
    LostCopy,
    Redecoded,
    SegmentRecords,
)
from profagent.ingest.mirror import digest_of
from profagent.link.messages import Acknowledgement, Chunk, Completed, LogEvent, Loss, Removed, Started
from profagent.link.session import FollowedLog, Happened
from profagent.record.mirroring import BoardMirrors
from profagent.record.open_jobs import REMEMBERED_JOBS
from profagent.store.stored_session import CommittedLog, HeldLog
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
    ((holding,), changes) = mirrors.compare(JOB, {PATH: _log(0)}, {PATH: HeldLog(3, 256, complete=True)})
    assert (holding.generation, holding.offset) == (3, 0)
    assert (_told(changes), changes[1]) == ([("note", "mirror-changed")], LostCopy(PATH, 256))


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


LOST = LostCopy(PATH, len(DATA), digest_of(DATA))


@pytest.mark.parametrize(
    ("came", "grades"), [(DATA, []), (DATA + DATA, []), (DATA[:256], ["loss"]), (DATA[::-1], ["loss"])]
)
def test_what_a_mirror_lost_is_known_over_streams_until_its_log_has_come(
    came: bytes, grades: list[str], mirrors: BoardMirrors
) -> None:
    mirrors.take(_events(Started(1, 1, 0, "same"), Chunk(1, 1, 0, came), offset=len(came)))
    mirrors.begin_stream()
    known = HeldLog(1, len(came), complete=False, lost=LOST)
    (_, changes) = mirrors.compare(JOB, {PATH: _log(0)}, {PATH: known})
    assert changes == []
    end = (Started(1, 1, len(came), "same"), Completed(1, 1, len(came), digest_of(came)))
    settled, _ = mirrors.take(_events(*end, offset=len(came)))
    assert LostCopy(PATH, 0) in settled[JOB]
    assert [grade for grade, _ in _told(settled[JOB])] == grades


@pytest.mark.parametrize(("size", "told"), [(256, ["removed", "deleted-uncopied"]), (len(DATA), ["removed"])])
def test_of_a_log_that_is_removed_before_it_came_again_what_was_lost_and_is_no_part_of_it_is_a_loss(
    size: int, told: list[str], mirrors: BoardMirrors
) -> None:
    mirrors.compare(JOB, {PATH: _log(0)}, {PATH: HeldLog(1, len(DATA), complete=True, digest=digest_of(DATA))})
    changes, _ = mirrors.take(_events(Removed(1, 1, 0, size), offset=0))
    assert [reason for _, reason in _told(changes[JOB])] == told


def test_of_a_copy_that_went_on_after_a_deletion_what_was_before_is_gone(mirrors: BoardMirrors) -> None:
    held = HeldLog(2, len(DATA), complete=True, digest=digest_of(DATA[256:]), base=256)
    (_, changes) = mirrors.compare(JOB, {PATH: _log(0)}, {PATH: held})
    assert _told(changes) == [("note", "mirror-changed"), ("loss", "deleted-uncopied")]


def test_a_whole_log_of_an_inference_of_which_the_other_is_not_is_taken_as_not_whole(mirrors: BoardMirrors) -> None:
    other, alone = PATH.replace("aicore", "aicpu"), aicore_path(1).replace("aicore", "aicpu")
    paths = {path: _log(0, path)._replace(handle=handle) for handle, path in enumerate((PATH, other, alone), 1)}
    for log in paths.values():
        events = (Started(log.handle, 1, 0, "new"), Chunk(log.handle, 1, 0, DATA))
        mirrors.take([Happened(JOB, log._replace(offset=len(DATA)), event) for event in events])
    whole = HeldLog(1, len(DATA), complete=True, digest=digest_of(DATA))
    begun = HeldLog(1, len(DATA), complete=False)
    holdings, _ = mirrors.compare(JOB, paths, {PATH: begun, other: whole, alone: whole})
    assert [holding.is_whole for holding in holdings] == [False, False, True]


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


MORE = records(300)


def _following(offset: int, *events: LogEvent) -> list[Happened]:
    log = FollowedLog(1, JOB, PATH.encode(), snapshot=False, generation=2, offset=offset)
    return [Happened(JOB, log._replace(base=len(DATA), goes_after=True), event) for event in events]


def test_a_file_made_anew_after_its_deletion_follows_the_whole_one(mirrors: BoardMirrors, tmp_path: Path) -> None:
    _arrived(mirrors)
    mirrors.take(_events(Completed(1, 1, len(DATA), digest_of(DATA))))
    events = (Started(1, 2, 0, "different", after_deletion=True), Chunk(1, 2, 0, MORE))
    changes, reached = mirrors.take(_following(len(MORE), *events, Completed(1, 2, len(MORE), digest_of(MORE))))
    assert (mirrors.root / JOB / PATH).read_bytes() == DATA + MORE
    assert reached == [Acknowledgement(1, 2, len(MORE), complete=True)]
    kinds = [type(change) for change in changes[JOB]]
    assert LogReset not in kinds
    noted = [change.entry for change in changes[JOB] if isinstance(change, LinkLedger)]
    assert [(entry.grade, entry.reason, entry.first) for entry in noted] == [("note", "made-anew", len(DATA))]
    advanced = [change for change in changes[JOB] if isinstance(change, LogAdvanced)][-1]
    assert (advanced.generation, advanced.base, advanced.offset) == (2, len(DATA), len(DATA + MORE))
    assert not (tmp_path / "superseded").exists()


def test_of_a_log_with_an_earlier_generation_only_the_present_one_is_held(mirrors: BoardMirrors) -> None:
    _arrived(mirrors)
    known = HeldLog(2, len(DATA), complete=True, digest=digest_of(DATA[256:]), base=256)
    ((holding,), _) = mirrors.compare(JOB, {PATH: _log(0)}, {PATH: known})
    assert (holding.generation, holding.offset, holding.prefix_digest) == (2, len(DATA) - 256, digest_of(DATA[256:]))
    assert (holding.base, holding.is_whole) == (256, True)
    size = len(DATA) - 256
    changes, reached = mirrors.take(
        _events(Started(1, 2, size, "same"), Completed(1, 2, size, digest_of(DATA[256:])), offset=size)
    )
    assert changes[JOB] == []
    assert reached == [Acknowledgement(1, 2, size, complete=True)]


def test_a_copy_that_was_not_whole_when_its_file_was_deleted_is_set_aside_as_a_loss(
    mirrors: BoardMirrors, tmp_path: Path
) -> None:
    _arrived(mirrors)
    changes, _ = mirrors.take(_events(Started(1, 2, 0, "different", after_deletion=True), offset=0))
    noted = [change.entry for change in changes[JOB] if isinstance(change, LinkLedger)]
    assert [(entry.grade, entry.reason) for entry in noted] == [("loss", "deleted-uncopied")]
    assert (tmp_path / "superseded" / "board-1" / JOB / f"{PATH}.1").read_bytes() == DATA
