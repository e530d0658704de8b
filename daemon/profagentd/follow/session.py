"""The state of one client's stream, without I/O: what it was sent, what it selected, and what is due next."""

from __future__ import annotations

import itertools
import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagentd.errors import Fault, Refusal
from profagentd.follow.log import OVER, FileEvent, Loss, LossReason, Turn, unread_loss
from profagentd.follow.reading import MISSED_S, ReadStep, ReadTask
from profagentd.follow.table import LogTurns
from profagentd.limits import NAMES_LIMIT, NAMES_OF_ONE, NAMES_TOGETHER, ODD_LIMIT, PAGE_ENTRIES, RESERVED_LOGS, ROOM_S
from profagentd.loop import is_late
from profagentd.sources.state import JobState
from profagentd.sources.walk import CollectionWalk, Sighting, WalkPage, look_up

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from profagentd.follow.log import Event, Log
    from profagentd.follow.registry import FollowedJob, Touches
    from profagentd.follow.table import Quota
    from profagentd.loop import ClockReading
    from profagentd.sources.files import Fingerprint, FolderPlace


@dataclass(frozen=True)
class NameLookup:
    """Names that are to be looked up in a collection: those that changed, or the next ones of a walk."""

    following: Following
    touches: Mapping[bytes, FileEvent]
    walk: CollectionWalk | None
    limit: int
    announced: Collection[bytes] | None  # as for `walk.look_up`

    def run(self) -> WalkPage:
        """Look the names up. Blocks, so it runs in a worker thread."""
        if self.walk:
            return self.walk.page(self.limit, self.announced or ())
        job = self.following.job
        return look_up(job.place, job.source, self.touches, self.announced)


class Following:
    """JOB under its handle in this stream, and the names of a followed one that are still to be looked up."""

    def __init__(self, handle: int, job: FollowedJob) -> None:
        self.handle = handle
        self.job = job
        self.is_followed = False  # the client has selected it
        self.status_due = True  # the client does not know the present state
        self.caught_up_sent = False  # a caught-up status was sent, and holds
        self.touches: dict[bytes, FileEvent] = {}  # names to look up, oldest first
        self.walk: CollectionWalk | None = None  # the walk under way
        self.wants_walk = False  # a walk is to begin
        # True while names arrive in the order of their creation and every earlier one is announced: no walk is under
        # way, no names changed during one, and the JOB is not scanned. Only then may a new log be sent unasked.
        self.is_in_order = False
        self.announced: set[bytes] = set()  # paths announced while not in order, and unchanged since
        self.is_lookup_running = False  # a worker thread looks names up
        self.retry_at = float("-inf")  # monotonic time of the next lookup, after the directory was missing
        self._reported_odd: set[bytes] = set()  # paths of no regular files; each is one loss
        self._is_unreadable_reported = False  # the client knows that the directory is unreadable

    def follow(self, *, is_followed: bool) -> None:
        """Begin to follow the JOB from its first name, or stop."""
        self.is_followed = is_followed
        self.caught_up_sent = False
        self.touches.clear()
        self.walk, self.wants_walk, self.is_in_order = None, is_followed, False
        self.announced.clear()

    @property
    def is_removed(self) -> bool:
        """True if the JOB's directory is gone."""
        return self.job.state is JobState.REMOVED

    @property
    def has_pending_names(self) -> bool:
        """True if there are names to look up."""
        return bool(self.touches) or self.wants_walk or self.walk is not None

    def can_look_up(self, now: float) -> bool:
        """Return True if names can be looked up now: the JOB is followed, and its root answers."""
        return self.is_followed and self.has_pending_names and now >= self.retry_at and not is_late(self.job.place.root)

    def note(self, path: bytes, event: FileEvent) -> None:
        """Record a change of `path`. The mere removal of an unknown name needs no lookup."""
        self.announced.discard(path)
        known = self.touches.get(path)
        if known is not None:
            self.touches[path] = known | event
        elif not event.is_removal:
            self.touches[path] = event
            if len(self.touches) > NAMES_LIMIT:
                self.restart_walk()

    def restart_walk(self) -> None:
        """Walk the whole JOB again: any name may have changed."""
        self.follow(is_followed=True)
        self.retry_at = float("-inf")

    def take_created(self, limit: int) -> list[tuple[bytes, FileEvent]]:
        """Remove at most `limit` new names, oldest first, and return them: they are announced without a lookup."""
        made = ((path, event) for path, event in self.touches.items() if event.is_new_name)
        taken = list(itertools.islice(made, max(0, limit)))
        for path, _ in taken:
            del self.touches[path]
        return taken

    def begin_lookup(self, room: int) -> NameLookup:
        """Begin a lookup of the next names for `room` logs, and return it: changed names first, then those of the walk.

        The changed names are taken out, and a walk that is due begins. A changed name may bring up to NAMES_OF_ONE logs
        with it, a name of the walk few: half of the room is enough for these.
        """
        self.is_lookup_running = True
        announced = None if self.is_in_order else self.announced
        if self.touches:
            oldest = list(itertools.islice(self.touches, room // NAMES_OF_ONE))
            touches = {path: self.touches.pop(path) for path in oldest}
            return NameLookup(self, touches, None, room, announced)
        if self.wants_walk:
            self.wants_walk, self.walk = False, CollectionWalk(self.job.place, self.job.source)
        return NameLookup(self, {}, self.walk, min(PAGE_ENTRIES, room // 2), announced)

    def apply_lookup(self, names: NameLookup, page: WalkPage, now: float) -> None:
        """Apply the result of a lookup; names of a missing directory are looked up again later."""
        self.is_lookup_running = False
        if page.is_job_gone and not self.is_removed:
            self.walk, self.wants_walk, self.is_in_order = None, True, False
            self.retry_at = now + MISSED_S
            for path, event in names.touches.items():
                self.note(path, event)
        elif names.walk is self.walk and page.is_last:
            self.walk = None
        if not (self.has_pending_names or self.job.is_scanned):
            self.is_in_order = True
            self.announced.clear()

    def note_announced(self, path: bytes) -> None:
        """Record that the log at `path` is announced."""
        if not self.is_in_order:
            if len(self.announced) > NAMES_LIMIT:
                self.announced.clear()
            self.announced.add(path)

    def end(self) -> Iterator[Loss]:
        """Yield the losses of a JOB that is gone before all its names were looked up."""
        if self.wants_walk or self.walk:
            yield Loss(0, self.handle, LossReason.REMOVED_UNREAD, "the JOB was removed before all of it was looked at")
        yield from (unread_loss(self.handle, path) for path, event in self.touches.items() if event.implies_loss)
        self.touches.clear()
        self.walk, self.wants_walk = None, False

    def losses(self, names: NameLookup, page: WalkPage) -> Iterator[Loss]:
        """Yield the losses that the page shows and no announced log will report."""
        for path in page.missing:
            if names.touches.get(path, FileEvent.HINT).implies_loss:
                yield unread_loss(self.handle, path)
        for path in page.odd:
            if path not in self._reported_odd and len(self._reported_odd) < ODD_LIMIT:
                self._reported_odd.add(path)
                yield Loss(0, self.handle, LossReason.NOT_A_FILE, f"{os.fsdecode(path)} is not a regular file")
        if page.unreadable and not self._is_unreadable_reported:
            where = os.fsdecode(self.job.place.directory)
            yield Loss(0, self.handle, LossReason.UNREADABLE, f"{where}: {page.unreadable}")
        self._is_unreadable_reported = page.unreadable is not None


class FollowSession:
    """State machine of a stream: its JOBs, their logs, and what is to be done next. All calls come from the loop."""

    def __init__(self, quota: Quota) -> None:
        self._quota = quota  # shared by all streams
        quota.streams += 1
        self.table = LogTurns(quota)  # the announced logs
        self.awaits_room = False  # names wait until enough announced logs are released
        self._last_lookup_s = -math.inf  # monotonic time of the last lookup
        self._followings: dict[int, Following] = {}  # by handle, in the order in which the JOBs came
        self._by_job: dict[FollowedJob, Following] = {}  # the same
        self._last_handle = 0  # of a JOB; handles are never used again within a stream
        self._losses: list[Loss] = []  # of JOBs that are gone, to be sent
        self.sync_due: int | None = None  # number of the Sync that is not answered yet

    def close(self) -> None:
        """Give the stream's room back to the quota."""
        self._quota.streams -= 1
        # Session, followings and logs form cycles. Clearing them frees their memory now, not at the next collection.
        self.table.clear()
        self._followings.clear()
        self._by_job.clear()

    # Events of the registry

    def job_changed_state(self, job: FollowedJob) -> None:
        """Note a JOB that is new or has another state."""
        following = self._by_job.get(job)
        if following is None:
            self._last_handle += 1
            following = self._by_job[job] = Following(self._last_handle, job)
            self._followings[following.handle] = following
        # Another state takes back an earlier caught-up, which was said of the old state.
        following.status_due, following.caught_up_sent = True, False
        if following.is_followed and following.is_removed:
            self._losses += following.end()
            self._note_event_of_all(following, FileEvent.DELETED)

    def names_changed(self, job: FollowedJob, touches: Touches) -> None:
        """Note changes of these names: announced logs are read, other names are looked up."""
        following = self._by_job.get(job)
        if following is None or not following.is_followed:
            return
        if touches is None:
            following.restart_walk()
            for log in self.table.of_job(following.handle):
                log.needs_comparison = True
        if not touches:
            self._note_event_of_all(following, FileEvent.HINT)
        for path, event in (changed := touches or {}).items():
            ended = job.source.ended_by(path)
            if ended and not (ended in changed or event.is_removal):  # an event of the data log itself says more
                self._note_event(following, ended, FileEvent.HINT)
            self._note_event(following, path, event)
        # The caught-up status of an open JOB is sent once: repeating it after each write would be noise.
        if touches != {} and following.job.state is not JobState.OPEN:
            following.caught_up_sent = False

    # Messages of the client

    def select(self, follow: Iterable[int], unfollow: Iterable[int]) -> None:
        """Follow some JOBs and stop following others. Raises Refusal for a handle that never was."""
        for handle in follow:
            if (following := self._following_of(handle)) and not (following.is_followed or following.is_removed):
                following.follow(is_followed=True)
        for handle in unfollow:
            if following := self._following_of(handle):
                following.follow(is_followed=False)
                for log in self.table.of_job(handle):
                    self.table.release(log)

    def hold(self, handle: int, *, skip: bool, generation: int, offset: int, prefix_digest: bytes) -> None:
        """Apply the client's answer to an announced log. Raises Refusal."""
        log = self.table.get(handle)
        if log is None:
            return  # the log was released while the answer was under way
        if not log.is_holding_assumed:
            self.table.apply_holding(log, skip=skip, generation=generation, offset=offset, prefix_digest=prefix_digest)
        elif skip or generation:
            # The log was sent on the assumption that the client holds nothing, which was wrong. The client ignores the
            # bytes that come of it. The log is announced again, so that it continues from what the client holds.
            self.table.release(log)
            if not skip:
                following = self._followings[log.job]
                following.caught_up_sent = False
                following.note(log.path, FileEvent.WRITTEN)

    def sync(self, number: int) -> None:
        """Note a Sync: it is answered, with its number, once everything is sent that followed JOBs hold now.

        The caller handles the kernel's events that wait. Scanned JOBs have no events, so each is walked again.
        """
        self.sync_due = number
        for following in self._followings.values():
            if following.is_followed and following.job.is_scanned:
                following.restart_walk()
                self._note_event_of_all(following, FileEvent.HINT)

    def take_delivered(self) -> list[tuple[FolderPlace, bytes, Fingerprint]]:
        """Return logs that the client has whole, with the fingerprints of their files."""
        logs, self.table.delivered = self.table.delivered, []
        known = [(self._followings[log.job].job.place, log) for log in logs if log.job in self._followings]
        return [(place, log.path, log.fingerprint) for place, log in known if log.fingerprint]

    def job_handle(self, name: str) -> int:
        """Return the handle of the JOB of this name, 0 when there is none any more."""
        return next((each.handle for each in self._followings.values() if each.job.name == name), 0)

    # What is to be done

    def take_statuses(self) -> list[Following]:
        """Return JOBs whose status is to be sent. The end of a JOB comes after that of its logs."""
        changed = [each for each in self._followings.values() if each.status_due]
        due = [
            each
            for each in changed
            # A client that hears of a JOB's end expects no more of its logs, so these end first.
            if not (each.is_removed and (each.is_lookup_running or self.table.of_job(each.handle)))
        ]
        for each in due:
            each.status_due = False
            if each.is_removed:
                del self._followings[each.handle], self._by_job[each.job]
        return due

    def take_caught_up(self) -> list[Following]:
        """Return followed JOBs that are caught up, each once for its state.

        Logs of an open JOB may still wait for their completion: a spool that is written all the time never rests.
        """
        new = [each for each in self._followings.values() if each.is_followed and not each.caught_up_sent]
        due = [each for each in new if not (each.status_due or each.is_removed) and self._is_caught_up(each)]
        for each in due:
            each.caught_up_sent = True
        return due

    def take_synced(self) -> list[int]:
        """Return the number of the Sync that can be answered now, if there is one."""
        if self.sync_due is None or not all(map(self._has_sent, self._followings.values())):
            return []
        number, self.sync_due = self.sync_due, None
        return [number]

    @property
    def is_caught_up(self) -> bool:
        """True if everything was sent of all followed JOBs on roots that answer."""
        return all(is_late(each.job.place.root) or self._has_all(each) for each in self._followings.values())

    def take_losses(self) -> list[Loss]:
        """Return the losses of JOBs that are gone."""
        losses, self._losses = self._losses, []
        return losses

    def take_created(self, now: float) -> list[Log]:
        """Return new logs of followed JOBs, which are announced without a lookup.

        They are sent as if the client had answered that it holds nothing: this saves a round trip for each inference.
        """
        logs: list[Log] = []
        for following in self._followings.values():
            if following.is_in_order and following.can_look_up(now):
                for path, event in following.take_created(self.table.room):
                    sighting = Sighting(path, following.job.source.kind(path), 0, 0)
                    log = self.table.add(following.handle, sighting, now)
                    log.is_holding_assumed, log.file_events = True, event
                    log.set_holding(0, 0, b"")
                    self.table.queue(log)
                    logs.append(log)
        return logs

    def next_lookup(self, now: float) -> NameLookup | None:
        """Begin the next lookup of any JOB and return it, bounded by the room for logs; None without names or room.

        Idle logs are released first if the room is short.
        """
        self.awaits_room = False
        # The lowest handle first. A lookup is one page, so logs are read and sent between two of them.
        following = next((each for each in self._followings.values() if each.can_look_up(now)), None)
        if following is None:
            return None
        if self.table.room < RESERVED_LOGS:
            self.table.release_idle(now, PAGE_ENTRIES)
        room = self.table.room
        # Looking up a few names at a time, as logs are released, would cost a round trip for each few.
        self.awaits_room = room < NAMES_OF_ONE or (room < NAMES_TOGETHER and now < self._last_lookup_s + ROOM_S)
        if self.awaits_room:
            return None
        self._last_lookup_s = now
        return following.begin_lookup(room)

    def apply_lookup(self, names: NameLookup, page: WalkPage, now: ClockReading) -> tuple[list[Log], list[Loss]]:
        """Apply a lookup; return the logs to announce, which have handles now, and the losses that it showed."""
        following = names.following
        following.apply_lookup(names, page, now.monotonic)
        if not following.is_followed:
            return [], []
        new = []
        for sighting in page.logs:
            log = self.table.at(following.handle, sighting.path)
            if following.is_removed:
                page.missing.append(sighting.path)
            elif log is None:
                following.note_announced(sighting.path)
                log = self.table.add(following.handle, sighting, now.monotonic_of(sighting.changed_wall_us))
                new.append(log)
            elif sighting.path in names.touches:
                self.table.note_event(log, names.touches[sighting.path])
        if following.is_removed and page.is_job_gone:
            page.missing += names.touches
        # An announced log reports its own removal.
        page.missing = [path for path in page.missing if self.table.at(following.handle, path) is None]
        return new, list(following.losses(names, page))

    def take_read_tasks(self, limit: int, now: float) -> list[ReadTask]:
        """Return at most `limit` logs that are to be read, all below one root that answers."""
        # A batch is read by one thread of one root: a root that hangs must not hold up the others.
        tasks: list[ReadTask] = []
        root = None
        for log in self.table.take_ready(limit, now):
            following = self._followings[log.job]
            place = following.job.place
            if root is None and not is_late(place.root):
                root = place.root
            if place.root == root:
                tasks.append(ReadTask(log, place, following.job.source, following.is_removed))
            else:
                self.table.put_back((log,))
        return tasks

    def finish_turn(self, log: Log, step: ReadStep) -> Sequence[Event]:
        """Take back a log that was read; return the events for the client."""
        events = self.table.finish_turn(log, step)
        following = self._followings.get(log.job)
        # A file that came under the name since the log's end is another log, and is looked up.
        has_successor = log.state is OVER and log.turn is Turn.AGAIN
        if has_successor and following and following.is_followed and not following.is_removed:
            following.note(log.path, log.file_events)
        return events

    def _following_of(self, handle: int) -> Following | None:
        if not 0 < handle <= self._last_handle:
            raise Refusal(Fault.INVALID, f"there is no JOB {handle} in this stream")
        return self._followings.get(handle)

    def _note_event(self, following: Following, path: bytes, event: FileEvent) -> None:
        log = self.table.at(following.handle, path)
        if log:
            self.table.note_event(log, event)
        else:
            following.note(path, event)

    def _note_event_of_all(self, following: Following, event: FileEvent) -> None:
        for log in self.table.of_job(following.handle):
            self.table.note_event(log, event)

    def _is_caught_up(self, following: Following) -> bool:
        return self._has_sent(following) if following.job.state is JobState.OPEN else self._has_all(following)

    def _has_all(self, following: Following) -> bool:
        return self._has_no_pending_names(following) and all(
            log.is_settled for log in self.table.of_job(following.handle)
        )

    def _has_sent(self, following: Following) -> bool:
        return self._has_no_pending_names(following) and all(log.is_sent for log in self.table.of_job(following.handle))

    def _has_no_pending_names(self, following: Following) -> bool:
        return not (following.is_followed and (following.has_pending_names or following.is_lookup_running))
