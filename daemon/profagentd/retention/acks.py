"""Which logs each consumer has, as long as they stand on the board.

A daemon that starts anew reads what an earlier one kept, and hears it again: each complete log is announced, held,
completed and acknowledged anew.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Callable, TypeVar

from profagentd.loop import on_disk
from profagentd.sources.files import Fingerprint
from profagentd.sources.job import done_of, ended_by, kind_of
from profagentd.sources.source import LogKind
from profagentd.sources.state import JobState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from profagentd.follow.log import FileEvent
    from profagentd.follow.registry import Job
    from profagentd.sources.files import Place


_LOGGER = logging.getLogger(__name__)

T = TypeVar("T")

DIRECTORY_NAME = "delivered"
# JOBs, and bytes in all their files, beyond which those are forgotten that were written to earliest.
JOBS_LIMIT = 1000
BYTES_LIMIT = 64 * 1024 * 1024
DIGEST_BYTES = 8
RECORD_BYTES = 2 * DIGEST_BYTES
_SEEN = struct.Struct("<QQq")


def log_key(consumer: str, place: Place, path: bytes) -> bytes:
    """What tells a consumer's log from all others."""
    return _digest(b"\0".join((consumer.encode("utf-8"), place.directory, path)))


def file_key(seen: Fingerprint) -> bytes:
    """What tells a file from what it was, and will be."""
    return _digest(_SEEN.pack(*seen))


class KeptAcks:
    """The files. All calls come from the loop."""

    def __init__(self, directory: Path | None) -> None:
        """`directory`: where they are kept; None keeps nothing."""
        self._directory = directory / DIRECTORY_NAME if directory else None
        self._is_failing = False
        self._writing = asyncio.Lock()

    async def read(self, place: Place) -> dict[bytes, bytes]:
        """Of a JOB, the file that was delivered of each log, both by their keys."""
        return await self._on_disk(_read, place) or {}

    async def append(self, place: Place, records: bytes) -> int:
        """Add records of a JOB; how many bytes there are of it now."""
        return await self._on_disk(_append, place, records) or 0

    async def replace(self, place: Place, records: Iterable[bytes]) -> None:
        """These are all records of a JOB; none of them is made before a thread writes them."""
        await self._on_disk(_replace, place, records)

    async def drop(self, place: Place) -> None:
        """The JOB was deleted."""
        await self._on_disk(_drop, place)

    async def _on_disk(self, work: Callable[..., T], place: Place, *arguments: object) -> T | None:
        """What a thread gives; None where nothing can be kept, which is said once."""
        if self._directory is None:
            return None
        async with self._writing:
            try:
                file = self._directory / os.path.basename(place.path).decode("ascii")
                found = await on_disk(os.fsencode(self._directory), work, file, *arguments)
            except OSError as error:
                if not self._is_failing:
                    self._is_failing = True
                    _LOGGER.warning("%s: %s: deliveries are known in memory only", self._directory, error.strerror)
                return None
            self._is_failing = False
            return found


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def _read(file: Path) -> dict[bytes, bytes]:
    """What a daemon that was killed wrote in part is passed over."""
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        return {}
    records = range(0, len(text) - RECORD_BYTES + 1, RECORD_BYTES)
    return {text[at : at + DIGEST_BYTES]: text[at + DIGEST_BYTES : at + RECORD_BYTES] for at in records}


def _append(file: Path, records: bytes) -> int:
    descriptor = _open(file, 0)
    try:
        size = os.fstat(descriptor).st_size
        end = size - size % RECORD_BYTES
        end += os.pwrite(descriptor, records, end)
    finally:
        os.close(descriptor)
    if not size:
        _bound(file)
    return end


def _replace(file: Path, records: Iterable[bytes]) -> None:
    new = file.with_name(f"{file.name}.new")
    with os.fdopen(_open(new, os.O_TRUNC), "wb") as text:
        text.writelines(records)
    os.replace(new, file)


def _drop(file: Path) -> None:
    with suppress(FileNotFoundError):
        file.unlink()


def _open(file: Path, flags: int) -> int:
    """It need not outlive the board's power: what was written last to its JOB does not either."""
    file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)


def _bound(newest: Path) -> None:
    """Forget JOBs that were removed long ago by others than retention."""
    with os.scandir(newest.parent) as entries:
        found = [(entry.stat(follow_symlinks=False), entry.path) for entry in entries if entry.name != newest.name]
    size = 0
    for number, (status, path) in enumerate(sorted(found, key=lambda each: -each[0].st_mtime_ns), 2):
        size += status.st_size
        if number > JOBS_LIMIT or size > BYTES_LIMIT:
            _drop(Path(path))


# A log is left alone for so long after its delivery: what happens to it meanwhile is seen.
SETTLE_S = 0.5
# A file's fingerprint and a bit for each consumer: there may be as many of them as there are files.
_MARK = struct.Struct("<QQqQ")
# Whose delivery counts where nobody is named: whoever's.
_ANYONE = ""
# A JOB's file of records is written anew when it has this many more than twice as many as there are logs.
SPARE_RECORDS = 10_000


class AckTracker:
    """A listener of the board: whatever seems to happen to a log takes its delivery back."""

    def __init__(self, retain_for: Sequence[str], kept: KeptAcks) -> None:
        self._kept = kept
        self._bits: dict[str, int] = {}
        self._all = 0
        self._marks: dict[Place, dict[bytes, bytes]] = {}
        self._due: dict[Place, dict[bytes, float]] = {}  # data and other logs that may be whole, with their time
        self._news: set[Place] = set()  # JOBs of which more may go than did
        self._earlier: dict[Place, dict[bytes, bytes]] = {}  # what was kept before, by its keys
        self._unkept: dict[tuple[Place, bytes], float] = {}  # logs whose delivery is to be kept, with its time
        self.expect(retain_for)

    def expect(self, retain_for: Sequence[str]) -> None:
        """These consumers, or anyone when none is named, must have a log; of earlier ones what was kept counts."""
        self._bits = {consumer: 1 << number for number, consumer in enumerate(retain_for or (_ANYONE,))}
        self._all = (1 << len(self._bits)) - 1
        for known in (self._marks, self._due, self._earlier, self._unkept):
            known.clear()

    def delivered(self, consumer: str, place: Place, path: bytes, seen: Fingerprint, now: float) -> None:
        """The consumer has the whole of this log, as it was when it had this fingerprint."""
        counted = consumer if consumer in self._bits else _ANYONE
        bit = self._bits.get(counted)
        if bit is None:
            return
        marks = self._marks.setdefault(place, {})
        known, bits = _unpacked(marks[path]) if path in marks else (None, 0)
        marks[path] = _packed(seen, bit | bits if known == seen else bit)
        self._due.setdefault(place, {})[ended_by(path) or path] = now + SETTLE_S
        self._unkept.pop((place, path), None)  # in the order of their times
        self._unkept[place, path] = now + SETTLE_S
        self._news.add(place)
        if earlier := self._earlier.get(place):
            earlier.pop(log_key(counted, place, path), None)

    def has_news(self, place: Place) -> bool:
        """Whether anything was delivered of the JOB, or changed in it, since the news were taken."""
        return place in self._news

    def take_news(self, place: Place) -> None:
        """The JOB is looked through now."""
        self._news.discard(place)

    def give_news_back(self, place: Place) -> None:
        """The JOB could not be looked through, or not all that may go could be deleted."""
        self._news.add(place)

    def has(self, place: Place, path: bytes, seen: Fingerprint) -> bool:
        """Whether every consumer has this very file. Any thread may ask."""
        mark = self._marks.get(place, {}).get(path)
        known, bits = _unpacked(mark) if mark else (seen, 0)
        if known != seen:
            return False
        return all(bits & bit or self._had(consumer, place, path, seen) for consumer, bit in self._bits.items())

    def _had(self, consumer: str, place: Place, path: bytes, seen: Fingerprint) -> bool:
        earlier = self._earlier.get(place)
        return bool(earlier and earlier.get(log_key(consumer, place, path)) == file_key(seen))

    def due(self, place: Place, now: float, limit: int) -> list[tuple[tuple[bytes, Fingerprint], ...]]:
        """Logs, with their `.done`, that every consumer has and that have settled; each once, unless offered again."""
        waiting = self._due.get(place, {})
        settled = [path for path in itertools.islice(waiting, limit) if waiting[path] <= now]
        for path in settled:
            del waiting[path]
        return [files for files in (self._together(place, path) for path in settled) if files]

    def offer_again(self, place: Place, logs: Iterable[bytes], now: float) -> None:
        """These could not be deleted: they are due again from `now` on, as far as they are still delivered."""
        marks, waiting = self._marks.get(place, {}), self._due.get(place, {})
        waiting.update((path, now) for path in logs if path in marks)

    def forget(self, place: Place, paths: Iterable[bytes]) -> None:
        """These are not there any more, or are not what they were."""
        earlier = self._earlier.get(place) or {}
        for path in paths:
            self._marks.get(place, {}).pop(path, None)
            self._due.get(place, {}).pop(path, None)
            for consumer in self._bits if earlier else ():
                earlier.pop(log_key(consumer, place, path), None)

    def _together(self, place: Place, path: bytes) -> tuple[tuple[bytes, Fingerprint], ...]:
        """A log and its `.done`; nothing when a part is missing that somebody still is to have."""
        paths = (path, done_of(path)) if kind_of(path) is LogKind.DATA else (path,)
        marks = [self._marks.get(place, {}).get(each) for each in paths]
        known = [(each, *_unpacked(mark)) for each, mark in zip(paths, marks) if mark]
        if len(known) < len(paths) or any(bits != self._all for _, _, bits in known):
            return ()
        return tuple((each, seen) for each, seen, _ in known)

    # What is kept

    @property
    def has_unkept(self) -> bool:
        """Whether there are deliveries that a daemon that starts anew would not know."""
        return bool(self._unkept)

    async def recall(self, place: Place) -> None:
        """Know what was delivered of a JOB before it was found."""
        if place not in self._earlier:
            found = await self._kept.read(place)
            self._earlier.setdefault(place, found)

    async def keep(self, now: float) -> None:
        """Keep the deliveries that have settled, and stand: from then on a restart changes nothing about them."""
        settled = [log for log, _ in itertools.takewhile(lambda each: each[1] <= now, self._unkept.items())]
        records: dict[Place, list[bytes]] = {}
        for place, path in settled:
            del self._unkept[place, path]
            mark = self._marks.get(place, {}).get(path)
            if mark:
                records.setdefault(place, []).extend(self._records(place, path, mark))
        for place, news in records.items():
            await self.recall(place)
            size = await self._kept.append(place, b"".join(news))
            logs = len(self._marks.get(place, {})) * len(self._bits) + len(self._earlier.get(place, {}))
            if size > (2 * logs + SPARE_RECORDS) * RECORD_BYTES:
                await self._kept.replace(place, self._all_records(place))

    async def drop(self, place: Place) -> None:
        """The JOB itself was deleted."""
        await self._kept.drop(place)

    def _records(self, place: Place, path: bytes, mark: bytes) -> Iterator[bytes]:
        seen, bits = _unpacked(mark)
        return (log_key(each, place, path) + file_key(seen) for each, bit in self._bits.items() if bits & bit)

    def _all_records(self, place: Place) -> Iterator[bytes]:
        marks, earlier = dict(self._marks.get(place, {})), dict(self._earlier.get(place, {}))
        yield from itertools.starmap(bytes.__add__, earlier.items())
        for path, mark in marks.items():
            if (place, path) not in self._unkept:
                yield from self._records(place, path, mark)

    # What the board tells

    def job_changed_state(self, job: Job) -> None:
        """A JOB that is gone has no logs."""
        if job.state is JobState.REMOVED:
            self.anything_changed(job)
            self._news.discard(job.place)

    def names_changed(self, job: Job, touches: Mapping[bytes, FileEvent]) -> None:
        """What was written, made or removed is to be delivered again."""
        self._news.add(job.place)
        if job.place in self._marks or job.place in self._earlier:
            self.forget(job.place, (path for path, touch in touches.items() if touch))

    def names_removed(self, job: Job) -> None:
        """What is gone is not found when it is to be deleted."""
        self._news.add(job.place)

    def anything_changed(self, job: Job) -> None:
        """Everything is announced again, and so delivered again; until then what was kept counts."""
        self._news.add(job.place)
        for known in (self._marks, self._due, self._earlier):
            known.pop(job.place, None)


def _packed(seen: Fingerprint, bits: int) -> bytes:
    return _MARK.pack(seen.inode, seen.size, seen.mtime_ns, bits)


def _unpacked(mark: bytes) -> tuple[Fingerprint, int]:
    inode, size, mtime_ns, bits = _MARK.unpack(mark)
    return Fingerprint(inode, size, mtime_ns), bits
