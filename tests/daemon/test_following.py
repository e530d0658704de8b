"""Looks at one log, one after the other, over real files and a clock that is turned."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from profagentd.follow.log import Chunk, Completed, Event, FileEvent, Log, LogState, Loss, Removed, Started, StartReason
from profagentd.follow.reading import CHUNK_BYTES, COMPARE_BYTES, PIECE_BYTES, STABLE_S, Step, poll_log
from profagentd.sources.job import OpenFile, OpenJob, Place, kind_of
from tests.daemon.clocks import FakeClock
from tests.daemon.daemon_process import AICORE_DONE, make_job
from tests.daemon.privileges import without_privileges
from tests.daemon.wire_client import digest

DATA = b"data/aicore.0.model.3.0.1.1.0"
INFO = b"data/model.0.layer.info"
RECORD = bytes(range(256))


class Bench:
    """A JOB, one log of it, and a clock."""

    def __init__(self, root: Path, path: bytes) -> None:
        self.job = make_job(root)
        self.path = self.job / os.fsdecode(path)
        self.clock = FakeClock()
        self.place = Place(os.fsencode(root), os.fsencode(self.job.name))
        self.log = Log(7, 1, path, kind_of(path), 0, self.clock.now)

    def write(self, data: bytes) -> None:
        """The file is this, as of now."""
        self.path.write_bytes(data)
        self.date()

    def append(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)
        self.date()

    def date(self) -> None:
        """The file system's clock is the bench's."""
        ns = self.clock.wall * 1000
        os.utime(self.path, ns=(ns, ns))

    def hold(self, generation: int = 0, data: bytes = b"") -> None:
        self.log.hold(generation, len(data), digest(data))

    def look(self, *, check: bool = False) -> Step:
        with OpenJob(self.place) as files:
            return poll_log(self.log, files, self.clock.advance(0.0), check=check)

    def events(self, *, check: bool = False) -> list[Event]:
        """What looks give until there is nothing more to do at once."""
        events: list[Event] = []
        for _ in range(1000):
            step = self.look(check=check)
            events += step.events
            if not step.again:
                return events
        raise AssertionError("it never rests")

    def rest(self) -> list[Event]:
        """The events after the log was stable."""
        self.clock.advance(STABLE_S)
        return self.events()


@pytest.fixture
def data(tmp_path: Path) -> Bench:
    return Bench(tmp_path, DATA)


@pytest.fixture
def info(tmp_path: Path) -> Bench:
    return Bench(tmp_path, INFO)


def started(reason: StartReason, generation: int = 1, offset: int = 0) -> Started:
    return Started(7, generation, offset, reason)


def completed(content: bytes, generation: int = 1) -> Completed:
    return Completed(7, generation, len(content), digest(content))


# A log that grows


def test_a_log_that_was_truncated_and_grew_beyond_its_size_between_two_looks_is_found_before_it_is_complete(
    data: Bench,
) -> None:
    data.write(RECORD)
    data.hold()
    data.events()
    other = bytes(reversed(RECORD)) * 2
    data.write(other)
    assert data.events() == [Chunk(7, 1, 256, other[256:])]
    Path(f"{data.path}.done").write_bytes(AICORE_DONE % 512)
    assert data.rest() == [started(StartReason.RECREATED, 2), Chunk(7, 2, 0, other), completed(other, 2)]


@pytest.mark.parametrize("size", [3 * CHUNK_BYTES, 2 * CHUNK_BYTES])
def test_a_log_that_is_written_anew_while_it_is_sent_is_not_mixed_with_what_it_was(data: Bench, size: int) -> None:
    data.write(bytes(3 * CHUNK_BYTES))
    data.hold()
    data.look()
    data.clock.advance(1.0)
    other = b"\x01" * size
    data.write(other)
    begun, *chunks = data.events()
    assert begun == started(StartReason.RECREATED, 2)
    assert b"".join(chunk.data for chunk in chunks if isinstance(chunk, Chunk)) == other


def test_a_new_log_is_sent_from_its_start(data: Bench) -> None:
    data.write(RECORD)
    data.hold()
    assert data.events() == [started(StartReason.NEW), Chunk(7, 1, 0, RECORD)]


def test_what_is_appended_follows(data: Bench) -> None:
    data.write(RECORD)
    data.hold()
    data.events()
    data.append(b"more")
    assert data.events() == [Chunk(7, 1, 256, b"more")]
    assert data.events() == []


def test_a_large_log_comes_in_chunks_of_which_a_look_sends_one(data: Bench) -> None:
    data.write(bytes(CHUNK_BYTES + 5))
    data.hold()
    step = data.look()
    assert step.again
    pieces = [(event.offset, len(event.data)) for event in step.events if isinstance(event, Chunk)]
    assert pieces == [(at, PIECE_BYTES) for at in range(0, CHUNK_BYTES, PIECE_BYTES)]
    assert data.events() == [Chunk(7, 1, CHUNK_BYTES, bytes(5))]


def test_it_is_complete_when_its_done_parses_and_it_has_stopped(data: Bench) -> None:
    data.write(RECORD)
    data.hold()
    data.events()
    (data.job / f"{os.fsdecode(DATA)}.done").write_bytes(AICORE_DONE % 99999)
    step = data.look()
    assert step == Step((), due=data.log.changed + STABLE_S)
    assert data.rest() == [completed(RECORD)]
    assert data.events() == []
    assert data.log.is_complete


def test_it_is_complete_at_once_when_it_has_the_length_that_its_done_tells(data: Bench) -> None:
    data.write(RECORD)
    data.hold()
    data.events()
    (data.job / f"{os.fsdecode(DATA)}.done").write_bytes(AICORE_DONE % 256)
    assert data.events() == [completed(RECORD)]
    assert data.log.is_complete


def test_a_longer_one_than_its_done_tells_may_go_on(data: Bench) -> None:
    data.write(RECORD * 2)
    data.hold()
    data.events()
    (data.job / f"{os.fsdecode(DATA)}.done").write_bytes(AICORE_DONE % 256)
    assert data.events() == []
    assert data.rest() == [completed(RECORD * 2)]


def test_what_was_sent_whole_is_not_opened_again(data: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    data.write(RECORD)
    data.hold()
    data.events()
    opened: list[bytes] = []
    really = OpenJob.open

    def told(files: OpenJob, path: bytes) -> OpenFile:
        opened.append(path)
        return really(files, path)

    monkeypatch.setattr(OpenJob, "open", told)
    data.rest()
    assert set(opened) == {DATA + b".done"}
    data.append(RECORD)
    assert data.events() == [Chunk(7, 1, 256, RECORD)]
    assert DATA in opened


def test_it_is_not_complete_without_a_done_however_long_it_rests(data: Bench) -> None:
    data.write(RECORD)
    data.hold()
    data.events()
    data.clock.advance(1000.0)
    assert data.look() == Step()


def test_a_change_puts_completion_off(data: Bench) -> None:
    data.write(RECORD)
    data.hold()
    (data.job / f"{os.fsdecode(DATA)}.done").write_bytes(AICORE_DONE % 99999)
    data.events()
    data.clock.advance(STABLE_S - 0.1)
    data.append(RECORD)
    data.events()
    data.clock.advance(0.2)
    assert data.events() == []
    data.clock.advance(0.1)
    assert data.events() == [completed(RECORD * 2)]


def test_a_log_that_was_not_changed_for_long_is_complete_at_once(data: Bench) -> None:
    data.write(RECORD)
    data.clock.advance(10.0)
    data.log.changed = data.clock.now - 10.0
    data.log.size = 256
    (data.job / f"{os.fsdecode(DATA)}.done").write_bytes(AICORE_DONE % 99999)
    data.hold()
    assert data.events() == [started(StartReason.NEW), Chunk(7, 1, 0, RECORD), completed(RECORD)]


def test_a_complete_log_that_grows_is_completed_again(data: Bench) -> None:
    data.write(RECORD)
    (data.job / f"{os.fsdecode(DATA)}.done").write_bytes(AICORE_DONE % 256)
    data.hold()
    data.events()
    data.rest()
    data.append(RECORD)
    assert data.events() == [Chunk(7, 1, 256, RECORD)]
    assert not data.log.is_complete
    assert data.rest() == [completed(RECORD * 2)]


def test_an_empty_log_with_a_done_is_complete(data: Bench) -> None:
    data.write(b"")
    (data.job / f"{os.fsdecode(DATA)}.done").write_bytes(AICORE_DONE % 768)
    data.hold()
    assert data.events() == [started(StartReason.NEW)]
    assert data.rest() == [completed(b"")]


def test_a_held_prefix_is_gone_on_from(data: Bench) -> None:
    data.write(RECORD * 2)
    data.hold(5, RECORD)
    assert data.events() == [started(StartReason.SAME, 5, 256), Chunk(7, 5, 256, RECORD)]
    (data.job / f"{os.fsdecode(DATA)}.done").write_bytes(AICORE_DONE % 512)
    assert data.rest() == [completed(RECORD * 2, 5)]


def test_a_held_generation_of_which_nothing_came_is_gone_on_with(data: Bench) -> None:
    data.write(RECORD)
    data.hold(3)
    assert data.events() == [started(StartReason.SAME, 3), Chunk(7, 3, 0, RECORD)]


@pytest.mark.parametrize("held", [b"x" * 256, RECORD * 2], ids=["other bytes", "longer than the file"])
def test_another_prefix_begins_a_new_generation(data: Bench, held: bytes) -> None:
    data.write(RECORD)
    data.hold(5, held)
    assert data.events() == [started(StartReason.DIFFERENT, 6), Chunk(7, 6, 0, RECORD)]


def test_a_long_prefix_is_compared_in_several_looks(data: Bench) -> None:
    content = os.urandom(COMPARE_BYTES + 100)
    data.write(content)
    data.hold(2, content)
    assert data.look() == Step(again=True)
    assert data.events() == [started(StartReason.SAME, 2, len(content))]


def test_a_file_that_shrinks_while_it_is_compared_is_another(data: Bench) -> None:
    content = os.urandom(COMPARE_BYTES + 100)
    data.write(content)
    data.hold(2, content)
    data.look()
    data.write(RECORD)
    assert data.events() == [started(StartReason.DIFFERENT, 3), Chunk(7, 3, 0, RECORD)]


def test_a_shrunk_log_begins_a_new_generation(data: Bench) -> None:
    data.write(RECORD * 2)
    data.hold()
    data.events()
    os.truncate(data.path, 100)
    assert data.events() == [started(StartReason.RECREATED, 2), Chunk(7, 2, 0, RECORD[:100])]


def test_another_file_in_its_place_begins_a_new_generation(data: Bench) -> None:
    data.write(RECORD)
    data.hold()
    data.events()
    other = data.path.with_name("other")
    other.write_bytes(RECORD * 2)
    other.replace(data.path)
    assert data.events() == [started(StartReason.RECREATED, 2), Chunk(7, 2, 0, RECORD * 2)]


def test_a_doubted_log_that_is_the_same_goes_on_unseen(data: Bench) -> None:
    data.write(RECORD)
    data.hold()
    data.events()
    data.log.doubted = True
    data.append(b"more")
    assert data.events() == [Chunk(7, 1, 256, b"more")]
    assert not data.log.doubted


def test_a_doubted_log_that_is_another_begins_a_new_generation(data: Bench) -> None:
    """The file's inode may be the old one's: only the bytes tell."""
    data.write(RECORD)
    data.hold()
    data.events()
    data.write(b"x" * 300)
    data.log.doubted = True
    assert data.events() == [started(StartReason.RECREATED, 2), Chunk(7, 2, 0, b"x" * 300)]


def test_a_log_written_anew_in_its_place_is_a_new_generation(data: Bench) -> None:
    (data.job / f"{os.fsdecode(DATA)}.done").write_bytes(AICORE_DONE % 256)
    data.write(RECORD)
    data.hold()
    assert data.events()[-1] == completed(RECORD)
    data.clock.advance(1.0)
    data.write(b"x" * 256)
    assert data.events()[:2] == [started(StartReason.RECREATED, 2), Chunk(7, 2, 0, b"x" * 256)]


def test_a_log_that_was_merely_touched_gives_nothing(data: Bench) -> None:
    (data.job / f"{os.fsdecode(DATA)}.done").write_bytes(AICORE_DONE % 256)
    data.write(RECORD)
    data.hold()
    data.events()
    data.rest()
    data.clock.advance(1.0)
    data.date()
    assert data.events() == []
    assert data.log.is_complete


def test_with_check_what_was_sent_is_compared_before_it_is_called_complete(data: Bench) -> None:
    data.write(RECORD)
    data.hold()
    data.events()
    data.write(b"x" * 256)
    (data.job / f"{os.fsdecode(DATA)}.done").write_bytes(AICORE_DONE % 256)
    data.clock.advance(STABLE_S)
    assert data.events(check=True) == [
        started(StartReason.RECREATED, 2),
        Chunk(7, 2, 0, b"x" * 256),
        completed(b"x" * 256, 2),
    ]


def test_with_check_a_log_that_changed_after_it_was_compared_is_compared_again(data: Bench) -> None:
    (data.job / f"{os.fsdecode(DATA)}.done").write_bytes(AICORE_DONE % 256)
    data.write(RECORD)
    data.hold()
    assert data.events(check=True)[-1] == completed(RECORD)
    data.append(b"y" * 256)
    data.events(check=True)
    data.clock.advance(0.1)
    data.write(b"x" * 512)
    data.clock.advance(STABLE_S)
    data.events(check=True)
    data.clock.advance(STABLE_S)
    assert data.log.generation == 2
    assert data.log.was_sent(b"x" * 512)


def test_with_check_a_log_that_is_as_it_was_sent_is_complete(data: Bench) -> None:
    data.write(RECORD)
    (data.job / f"{os.fsdecode(DATA)}.done").write_bytes(AICORE_DONE % 256)
    data.hold()
    assert data.events(check=True) == [started(StartReason.NEW), Chunk(7, 1, 0, RECORD), completed(RECORD)]


# A log that is rewritten


def test_a_snapshot_is_sent_and_complete_when_it_is_stable(info: Bench) -> None:
    info.write(b"text")
    info.hold()
    assert info.events() == [started(StartReason.NEW), Chunk(7, 1, 0, b"text")]
    assert info.rest() == [completed(b"text")]


def test_a_done_that_parses_is_complete_at_once(tmp_path: Path) -> None:
    done = Bench(tmp_path, DATA + b".done")
    text = AICORE_DONE % 256
    done.write(text)
    done.hold()
    assert done.events() == [started(StartReason.NEW), Chunk(7, 1, 0, text), completed(text)]


def test_a_torn_done_is_complete_only_when_it_stays_so(tmp_path: Path) -> None:
    done = Bench(tmp_path, DATA + b".done")
    done.write(b"file_len:")
    done.hold()
    assert done.events() == [started(StartReason.NEW), Chunk(7, 1, 0, b"file_len:")]
    assert done.rest() == [completed(b"file_len:")]


def test_a_rewritten_snapshot_is_a_new_generation(info: Bench) -> None:
    info.write(b"text")
    info.hold()
    info.events()
    info.write(b"text and more")
    assert info.events() == [started(StartReason.REWRITTEN, 2), Chunk(7, 2, 0, b"text and more")]


def test_a_snapshot_of_the_same_length_and_time_is_seen_by_its_bytes(info: Bench) -> None:
    info.write(b"text")
    info.hold()
    info.events()
    info.write(b"TEXT")
    assert info.events() == [started(StartReason.REWRITTEN, 2), Chunk(7, 2, 0, b"TEXT")]


def test_a_snapshot_that_was_merely_touched_gives_nothing(info: Bench) -> None:
    info.write(b"text")
    info.hold()
    info.events()
    info.rest()
    info.clock.advance(5.0)
    info.write(b"text")
    assert info.events() == []
    assert info.log.is_complete


def test_an_empty_snapshot_that_is_filled_stays_one_generation(info: Bench) -> None:
    info.write(b"")
    info.hold()
    assert info.events() == [started(StartReason.NEW)]
    info.write(b"text")
    assert info.events() == [Chunk(7, 1, 0, b"text")]


def test_an_empty_snapshot_that_was_called_complete_is_rewritten(info: Bench) -> None:
    info.write(b"")
    info.hold()
    info.events()
    assert info.rest() == [completed(b"")]
    info.write(b"text")
    assert info.events() == [started(StartReason.REWRITTEN, 2), Chunk(7, 2, 0, b"text")]


def test_a_snapshot_that_is_emptied_is_a_new_generation(info: Bench) -> None:
    info.write(b"text")
    info.hold()
    info.events()
    info.write(b"")
    assert info.events() == [started(StartReason.REWRITTEN, 2)]
    assert info.rest() == [completed(b"", 2)]


def test_a_snapshot_that_is_held_whole_is_only_completed(info: Bench) -> None:
    info.write(b"text")
    info.hold(4, b"text")
    assert info.events() == [started(StartReason.SAME, 4, 4)]
    assert info.rest() == [completed(b"text", 4)]


def test_a_snapshot_of_which_a_part_is_held_is_sent_anew(info: Bench) -> None:
    info.write(b"text")
    info.hold(4, b"te")
    assert info.events() == [started(StartReason.DIFFERENT, 5), Chunk(7, 5, 0, b"text")]


def test_a_large_snapshot_comes_in_chunks(info: Bench) -> None:
    content = os.urandom(CHUNK_BYTES * 2 + 5)
    info.write(content)
    info.hold()
    chunks = [event for event in info.events() if isinstance(event, Chunk)]
    assert b"".join(chunk.data for chunk in chunks) == content
    assert info.rest() == [completed(content)]


def test_a_large_snapshot_that_changes_is_begun_anew_but_not_at_once(info: Bench) -> None:
    info.write(bytes(CHUNK_BYTES * 2))
    info.hold()
    info.events()
    info.clock.advance(0.01)
    info.append(b"x")
    step = info.look()
    assert step.events == ()
    assert step.due is not None
    info.clock.advance(step.due - info.clock.now)
    events = info.events()
    assert events[0] == started(StartReason.REWRITTEN, 2)
    assert sum(len(event.data) for event in events if isinstance(event, Chunk)) == CHUNK_BYTES * 2 + 1


# Ends and troubles


def test_a_removed_log_tells_what_was_sent(data: Bench) -> None:
    data.write(RECORD)
    data.hold()
    data.events()
    data.path.unlink()
    assert data.events() == [Removed(7, 1, 256, 256)]
    assert data.log.state is LogState.OVER


def test_a_log_removed_before_anything_was_sent_tells_what_is_lost(data: Bench) -> None:
    data.log.size = 500
    data.hold()
    assert data.events() == [Removed(7, 0, 0, 500)]


@pytest.mark.parametrize(("size", "sent"), [(500, 256), (256, 256), (255, 0)])
def test_a_log_removed_before_its_prefix_was_compared_counts_it_as_held_unless_it_is_shorter(
    data: Bench, size: int, sent: int
) -> None:
    data.log.size = size
    data.hold(3, RECORD)
    assert data.events() == [Removed(7, 3, sent, size)]


def test_a_log_removed_while_it_is_doubted_counts_what_was_sent(data: Bench) -> None:
    data.write(RECORD)
    data.hold()
    data.events()
    data.log.doubted = True
    data.path.unlink()
    assert data.events() == [Removed(7, 1, 256, 256)]


@pytest.mark.parametrize(
    ("news", "after"),
    [
        (FileEvent.WRITTEN | FileEvent.DELETED, "after 256 bytes were read, before the rest was"),
        (FileEvent.MADE | FileEvent.WRITTEN | FileEvent.DELETED, "before it was read"),
    ],
    ids=["written to", "another"],
)
def test_what_was_written_since_it_was_read_is_a_loss_when_it_is_gone(data: Bench, news: FileEvent, after: str) -> None:
    data.write(RECORD)
    data.hold()
    data.events()
    data.log.news = news
    data.path.unlink()
    loss, gone = data.events()
    assert isinstance(loss, Loss)
    assert (loss.handle, loss.job, loss.reason.value) == (0, 1, "removed-unread")
    assert loss.detail == f"{os.fsdecode(DATA)} was removed {after}"
    assert gone == Removed(7, 1, 256, 256)


@pytest.mark.parametrize("news", [FileEvent.WRITTEN | FileEvent.DELETED, FileEvent.WRITTEN | FileEvent.MOVED])
def test_of_a_snapshot_the_last_state_counts(info: Bench, news: FileEvent) -> None:
    info.write(b"table")
    info.hold()
    info.events()
    info.log.news = news
    assert info.events() == []
    info.log.news = news
    info.path.unlink()
    assert info.events() == [Removed(7, 1, 5, 5)]


@pytest.mark.parametrize("why", ["moved", "known", "read"])
def test_what_was_moved_or_was_read_is_no_loss_besides(data: Bench, why: str) -> None:
    data.write(RECORD)
    data.hold()
    data.events()
    data.log.news = FileEvent.WRITTEN | (FileEvent.MOVED if why == "moved" else FileEvent.DELETED)
    if why == "known":
        data.log.size = 512
    if why == "read":
        data.events()
    data.path.unlink()
    assert data.events() == [Removed(7, 1, 256, data.log.size)]


def test_what_is_complete_may_be_closed_and_go(data: Bench) -> None:
    data.write(RECORD)
    Path(f"{data.path}.done").write_bytes(AICORE_DONE % 256)
    data.hold()
    data.events()
    data.rest()
    data.log.news = FileEvent.WRITTEN | FileEvent.DELETED
    data.path.unlink()
    assert data.events() == [Removed(7, 1, 256, 256)]


def test_a_link_in_its_place_is_told_and_ends_it(data: Bench) -> None:
    data.write(RECORD)
    data.hold()
    data.events()
    data.path.unlink()
    data.path.symlink_to("/etc/passwd")
    loss, removed = data.events()
    assert isinstance(loss, Loss)
    assert (loss.handle, loss.job, loss.reason.value) == (7, 1, "not-a-file")
    assert removed == Removed(7, 1, 256, 256)


def test_an_unasked_log_that_goes_before_it_is_read_is_a_loss(data: Bench) -> None:
    data.log.come_unasked()
    loss, gone = data.events()
    assert isinstance(loss, Loss)
    assert (loss.handle, loss.job, loss.reason.value) == (0, 1, "removed-unread")
    assert gone == Removed(7, 0, 0, 0)


def test_an_unasked_log_that_was_read_before_it_goes_is_no_loss(data: Bench) -> None:
    data.write(RECORD)
    data.log.come_unasked()
    data.events()
    data.path.unlink()
    assert data.events() == [Removed(7, 1, 256, 256)]


def test_what_is_no_file_where_an_unasked_log_should_be_is_for_a_look_to_tell(data: Bench) -> None:
    data.path.mkdir()
    data.log.come_unasked()
    step = data.look()
    assert (step.events, step.wants_look) == ((), True)


def test_an_unreadable_log_is_told_once_until_it_was_read(data: Bench) -> None:
    data.write(RECORD)
    data.hold()
    data.path.chmod(0)
    with without_privileges():
        (loss,) = data.events()
        assert data.events() == []
    assert isinstance(loss, Loss)
    assert (loss.handle, loss.reason.value) == (7, "unreadable")
    assert "denied" in loss.detail
    data.path.chmod(0o600)
    assert data.events() == [started(StartReason.NEW), Chunk(7, 1, 0, RECORD)]
    data.path.chmod(0)
    with without_privileges():
        assert len(data.events()) == 1
