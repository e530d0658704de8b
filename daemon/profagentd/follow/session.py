"""The state of one client's stream, without any I/O: what it was told, what it asked, what is to be done next."""

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
from profagentd.limits import NAMES_LIMIT, NAMES_OF_ONE, NAMES_TOGETHER, ODD_LIMIT, PAGE_ENTRIES, ROOM_S, SURE_LOGS
from profagentd.loop import is_late
from profagentd.sources.state import JobState
from profagentd.sources.walk import CollectionWalk, Sighting, WalkPage, look

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from profagentd.follow.log import Event, Log
    from profagentd.follow.registry import FollowedJob, Touches
    from profagentd.follow.table import Quota
    from profagentd.loop import ClockReading
    from profagentd.sources.files import Fingerprint, FolderPlace


@dataclass(frozen=True)
class Look:
    """Names to look at: those that were touched, or the next ones of a walk."""

    following: Following
    touches: Mapping[bytes, FileEvent]
    walk: CollectionWalk | None
    limit: int
    announced: Collection[bytes] | None  # as in `walk.look`

    def look(self) -> WalkPage:
        """Look at them. Blocks; for a worker thread."""
        if self.walk:
            return self.walk.page(self.limit, self.announced or ())
        job = self.following.job
        return look(job.place, job.source, self.touches, self.announced)


class Following:
    """A JOB as this stream names it, and what is still to be looked at of one that the client follows."""

    def __init__(self, handle: int, job: FollowedJob) -> None:
        self.handle = handle
        self.job = job
        self.is_followed = False
        self.status_due = True
        self.caught_up_sent = False
        self.touches: dict[bytes, FileEvent] = {}  # names to look at, oldest first
        self.walk: CollectionWalk | None = None
        self.wants_walk = False
        # Names come in the order of their making, and each that was made before was announced: no walk is under way,
        # nor were any touched during one, nor is the JOB scanned.
        self.is_in_order = False
        self.announced: set[bytes] = set()  # while it was not in order, and unchanged since
        self.is_looking = False
        self.missed_until = float("-inf")  # monotonic; its directory was not there
        self._odd_sent: set[bytes] = set()
        self._is_unreadable_sent = False

    def follow(self, *, is_followed: bool) -> None:
        """The client chose it, or chose otherwise."""
        self.is_followed = is_followed
        self.caught_up_sent = False
        self.touches.clear()
        self.walk, self.wants_walk, self.is_in_order = None, is_followed, False
        self.announced.clear()

    @property
    def is_over(self) -> bool:
        """Whether the JOB is gone."""
        return self.job.state is JobState.REMOVED

    @property
    def wants_look(self) -> bool:
        """Whether there are names to look at."""
        return bool(self.touches) or self.wants_walk or self.walk is not None

    def may_look(self, now: float) -> bool:
        """Whether there are names to look at, and a directory to look in."""
        return self.is_followed and self.wants_look and now >= self.missed_until and not is_late(self.job.place.root)

    def note(self, path: bytes, event: FileEvent) -> None:
        """`path` may have changed; a mere end of what was not to be looked at is no reason to look."""
        self.announced.discard(path)
        known = self.touches.get(path)
        if known is not None:
            self.touches[path] = known | event
        elif not event.is_removal:
            self.touches[path] = event
            if len(self.touches) > NAMES_LIMIT:
                self.look_everywhere()

    def look_everywhere(self) -> None:
        """Any name may have changed."""
        self.follow(is_followed=True)
        self.missed_until = float("-inf")

    def take_made(self, limit: int) -> list[tuple[bytes, FileEvent]]:
        """Names that were made, oldest first; nobody looks at them."""
        made = ((path, event) for path, event in self.touches.items() if event.is_making)
        taken = list(itertools.islice(made, max(0, limit)))
        for path, _ in taken:
            del self.touches[path]
        return taken

    def next_look(self, room: int) -> Look:
        """The next names, for so many logs: changed ones first, then those of the walk, which come with few others."""
        self.is_looking = True
        announced = None if self.is_in_order else self.announced
        if self.touches:
            oldest = list(itertools.islice(self.touches, room // NAMES_OF_ONE))
            touches = {path: self.touches.pop(path) for path in oldest}
            return Look(self, touches, None, room, announced)
        if self.wants_walk:
            self.wants_walk, self.walk = False, CollectionWalk(self.job.place, self.job.source)
        return Look(self, {}, self.walk, min(PAGE_ENTRIES, room // 2), announced)

    def looked(self, names: Look, page: WalkPage, now: float) -> None:
        """These names were looked at."""
        self.is_looking = False
        if page.is_job_gone and not self.is_over:
            self.walk, self.wants_walk, self.is_in_order = None, True, False
            self.missed_until = now + MISSED_S
            for path, event in names.touches.items():
                self.note(path, event)
        elif names.walk is self.walk and page.is_last:
            self.walk = None
        if not (self.wants_look or self.job.is_scanned):
            self.is_in_order = True
            self.announced.clear()

    def note_announced(self, path: bytes) -> None:
        """The log is announced."""
        if not self.is_in_order:
            if len(self.announced) > NAMES_LIMIT:
                self.announced.clear()
            self.announced.add(path)

    def end(self) -> Iterator[Loss]:
        """The JOB is gone, and with it whatever was to be looked at."""
        if self.wants_walk or self.walk:
            yield Loss(0, self.handle, LossReason.REMOVED_UNREAD, "the JOB was removed before all of it was looked at")
        yield from (unread_loss(self.handle, path) for path, event in self.touches.items() if event.is_loss)
        self.touches.clear()
        self.walk, self.wants_walk = None, False

    def losses(self, names: Look, page: WalkPage) -> Iterator[Loss]:
        """What the page shows that no announced log will tell."""
        for path in page.missing:
            if names.touches.get(path, FileEvent.HINT).is_loss:
                yield unread_loss(self.handle, path)
        for path in page.odd:
            if path not in self._odd_sent and len(self._odd_sent) < ODD_LIMIT:
                self._odd_sent.add(path)
                yield Loss(0, self.handle, LossReason.NOT_A_FILE, f"{os.fsdecode(path)} is no regular file")
        if page.unreadable and not self._is_unreadable_sent:
            where = os.fsdecode(self.job.place.directory)
            yield Loss(0, self.handle, LossReason.UNREADABLE, f"{where}: {page.unreadable}")
        self._is_unreadable_sent = page.unreadable is not None


class FollowSession:
    """The JOBs of a stream and what is done about them. All calls come from the loop."""

    def __init__(self, quota: Quota) -> None:
        self._quota = quota
        quota.streams += 1
        self.table = LogTurns(quota)
        self.awaits_room = False  # names wait until announced logs are released
        self._looked = -math.inf
        self._followings: dict[int, Following] = {}  # by handle, in the order in which the JOBs came
        self._by_job: dict[FollowedJob, Following] = {}
        self._last_handle = 0
        self._losses: list[Loss] = []
        self.sync_due: int | None = None  # the number of a Sync that is not answered yet

    def close(self) -> None:
        """Leave its room to other streams; what it knew goes now, and not when cycles are collected."""
        self._quota.streams -= 1
        self.table.clear()
        self._followings.clear()
        self._by_job.clear()

    # What the board tells

    def job_changed_state(self, job: FollowedJob) -> None:
        """The JOB is new or has another state."""
        following = self._by_job.get(job)
        if following is None:
            self._last_handle += 1
            following = self._by_job[job] = Following(self._last_handle, job)
            self._followings[following.handle] = following
        following.status_due, following.caught_up_sent = True, False
        if following.is_followed and following.is_over:
            self._losses += following.end()
            self._touch_all(following, FileEvent.DELETED)

    def names_changed(self, job: FollowedJob, touches: Touches) -> None:
        """These names of the JOB may have changed."""
        following = self._by_job.get(job)
        if following is None or not following.is_followed:
            return
        if touches is None:
            following.look_everywhere()
            for log in self.table.of_job(following.handle):
                log.doubted = True
        if not touches:
            self._touch_all(following, FileEvent.HINT)
        for path, event in (changed := touches or {}).items():
            ended = job.source.ended_by(path)
            if ended and not (ended in changed or event.is_removal):  # what happened to data itself says more
                self._touch(following, ended, FileEvent.HINT)
            self._touch(following, path, event)
        # While a JOB is open its client hears of it once: to say so for each write would be noise.
        if touches != {} and following.job.state is not JobState.OPEN:
            following.caught_up_sent = False

    # What the client says

    def select(self, follow: Iterable[int], unfollow: Iterable[int]) -> None:
        """Follow some JOBs, and some no longer. Raises Refusal."""
        for handle in follow:
            if (following := self._asked(handle)) and not (following.is_followed or following.is_over):
                following.follow(is_followed=True)
        for handle in unfollow:
            if following := self._asked(handle):
                following.follow(is_followed=False)
                for log in self.table.of_job(handle):
                    self.table.release(log)

    def hold(self, handle: int, *, skip: bool, generation: int, offset: int, prefix_digest: bytes) -> None:
        """The answer to an announced log. Raises Refusal."""
        log = self.table.get(handle)
        if log is None:
            return  # it was given up while the answer was on its way
        if not log.unasked:
            self.table.answered(log, skip=skip, generation=generation, offset=offset, prefix_digest=prefix_digest)
        elif skip or generation:
            # The client passes over what comes of it. What it holds is asked for, so that it goes on from there.
            self.table.release(log)
            if not skip:
                following = self._followings[log.job]
                following.caught_up_sent = False
                following.note(log.path, FileEvent.WRITTEN)

    def sync(self, number: int) -> None:
        """Answer, with this number, when everything has been sent that followed JOBs hold now.

        The caller takes the kernel's events that wait. Scanned JOBs have none: each is looked at anew.
        """
        self.sync_due = number
        for following in self._followings.values():
            if following.is_followed and following.job.is_scanned:
                following.look_everywhere()
                self._touch_all(following, FileEvent.HINT)

    def take_delivered(self) -> list[tuple[FolderPlace, bytes, Fingerprint]]:
        """Logs that the client has whole, with the fingerprints of the files that it has."""
        logs, self.table.delivered = self.table.delivered, []
        known = [(self._followings[log.job].job.place, log) for log in logs if log.job in self._followings]
        return [(place, log.path, log.fingerprint) for place, log in known if log.fingerprint]

    def job_handle(self, name: str) -> int:
        """The handle of the JOB of this name; 0 when there is none any more."""
        return next((each.handle for each in self._followings.values() if each.job.name == name), 0)

    # What is to be done

    def take_statuses(self) -> list[Following]:
        """JOBs whose status the client must be told, each asked for once; of their end after that of their logs."""
        asked = [each for each in self._followings.values() if each.status_due]
        due = [each for each in asked if not (each.is_over and (each.is_looking or self.table.of_job(each.handle)))]
        for each in due:
            each.status_due = False
            if each.is_over:
                del self._followings[each.handle], self._by_job[each.job]
        return due

    def take_caught_up(self) -> list[Following]:
        """Followed JOBs of which everything was sent that there is, each told once for its state.

        Logs of an open one may still wait for their completion: a spool that is written all the time never rests.
        """
        new = [each for each in self._followings.values() if each.is_followed and not each.caught_up_sent]
        due = [each for each in new if not (each.status_due or each.is_over) and self._is_caught_up(each)]
        for each in due:
            each.caught_up_sent = True
        return due

    def take_synced(self) -> list[int]:
        """The number of the Sync that can be answered now, where there is one."""
        if self.sync_due is None or not all(map(self._has_sent, self._followings.values())):
            return []
        number, self.sync_due = self.sync_due, None
        return [number]

    @property
    def is_caught_up(self) -> bool:
        """Whether everything was sent that there is of what is followed, on roots that answer."""
        return all(is_late(each.job.place.root) or self._has_all(each) for each in self._followings.values())

    def take_losses(self) -> list[Loss]:
        """What was lost with JOBs that are gone."""
        losses, self._losses = self._losses, []
        return losses

    def take_made(self, now: float) -> list[Log]:
        """Logs that were made since their JOBs are followed: they are announced without a look.

        They are sent as if the client had said that it holds nothing.
        """
        logs: list[Log] = []
        for following in self._followings.values():
            if following.is_in_order and following.may_look(now):
                for path, event in following.take_made(self.table.room):
                    sighting = Sighting(path, following.job.source.kind(path), 0, 0)
                    log = self.table.add(following.handle, sighting, now)
                    log.unasked, log.news = True, event
                    log.hold(0, 0, b"")
                    self.table.queue(log)
                    logs.append(log)
        return logs

    def next_look(self, now: float) -> Look | None:
        """Names to look at, no more than there is room for; None when there are none, or no room."""
        self.awaits_room = False
        following = next((each for each in self._followings.values() if each.may_look(now)), None)
        if following is None:
            return None
        if self.table.room < SURE_LOGS:
            self.table.release_idle(now, PAGE_ENTRIES)
        room = self.table.room
        # A few at a time, as others are released, would cost a message each way for each few.
        self.awaits_room = room < NAMES_OF_ONE or (room < NAMES_TOGETHER and now < self._looked + ROOM_S)
        if self.awaits_room:
            return None
        self._looked = now
        return following.next_look(room)

    def looked(self, names: Look, page: WalkPage, now: ClockReading) -> tuple[list[Log], list[Loss]]:
        """These names were looked at: logs to announce, which have handles from now on, and what is not as it was."""
        following = names.following
        following.looked(names, page, now.monotonic)
        if not following.is_followed:
            return [], []
        new = []
        for sighting in page.logs:
            log = self.table.at(following.handle, sighting.path)
            if following.is_over:
                page.missing.append(sighting.path)
            elif log is None:
                following.note_announced(sighting.path)
                log = self.table.add(following.handle, sighting, now.seen(sighting.changed_wall_us))
                new.append(log)
            elif sighting.path in names.touches:
                self.table.touch(log, names.touches[sighting.path])
        if following.is_over and page.is_job_gone:
            page.missing += names.touches
        page.missing = [path for path in page.missing if self.table.at(following.handle, path) is None]
        return new, list(following.losses(names, page))

    def take_read_tasks(self, limit: int, now: float) -> list[ReadTask]:
        """Turns that are due, at most `limit`, of one root that answers."""
        tasks: list[ReadTask] = []
        root = None
        for log in self.table.take_ready(limit, now):
            following = self._followings[log.job]
            place = following.job.place
            if root is None and not is_late(place.root):
                root = place.root
            if place.root == root:
                tasks.append(ReadTask(log, place, following.job.source, following.is_over))
            else:
                self.table.put_back((log,))
        return tasks

    def stepped(self, log: Log, step: ReadStep) -> Sequence[Event]:
        """A log had its turn; what the client is to be told. What came under its name since its end is another log."""
        events = self.table.stepped(log, step)
        following = self._followings.get(log.job)
        is_anew = log.state is OVER and log.turn is Turn.AGAIN
        if is_anew and following and following.is_followed and not following.is_over:
            following.note(log.path, log.news)
        return events

    def _asked(self, handle: int) -> Following | None:
        if not 0 < handle <= self._last_handle:
            raise Refusal(Fault.INVALID, f"there is no JOB {handle} in this stream")
        return self._followings.get(handle)

    def _touch(self, following: Following, path: bytes, event: FileEvent) -> None:
        """An announced log tells by itself what became of it, others are looked at."""
        log = self.table.at(following.handle, path)
        if log:
            self.table.touch(log, event)
        else:
            following.note(path, event)

    def _touch_all(self, following: Following, event: FileEvent) -> None:
        for log in self.table.of_job(following.handle):
            self.table.touch(log, event)

    def _is_caught_up(self, following: Following) -> bool:
        return self._has_sent(following) if following.job.state is JobState.OPEN else self._has_all(following)

    def _has_all(self, following: Following) -> bool:
        """Return True if everything was sent, and no log waits for its completion."""
        return self._has_looked(following) and all(log.is_settled for log in self.table.of_job(following.handle))

    def _has_sent(self, following: Following) -> bool:
        """Return True if everything was sent."""
        return self._has_looked(following) and all(log.is_sent for log in self.table.of_job(following.handle))

    def _has_looked(self, following: Following) -> bool:
        return not (following.is_followed and (following.wants_look or following.is_looking))
