"""Which logs retention has deleted of the JOBs that stand, told by few words: there may be very many of them.

An inference's files are named alike but for the picture count at the end (format page 2.1), and go about in its order.
So of each such series the highest count that went is kept, over restarts of the daemon.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from typing import TYPE_CHECKING, Any

from profagentd.changes import Touch
from profagentd.disks import on_disk
from profagentd.logs import LogKind, api_model, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from profagentd.board import Job
    from profagentd.opening import Place

_LOGGER = logging.getLogger(__name__)

FILE_NAME = "deleted.json"
# JOBs, and series of a JOB, beyond which the earliest are forgotten.
JOBS_LIMIT = 1000
SERIES_LIMIT = 1000
# Files whose loss is known one by one, the newest: those who follow them hear of their end soon.
LOST_LIMIT = 10_000
_MADE = Touch.MADE
_COUNT = re.compile(rb"(.*)\.(\d{1,20})", re.DOTALL)


class Deleted:
    """Kept also of JOBs that seem gone: their root may come back. `has` and `lost` may be asked by any thread."""

    def __init__(self, directory: Path | None) -> None:
        """`directory`: where it is kept; None keeps it in memory only."""
        self._directory = directory
        self._jobs: dict[bytes, dict[bytes, int]] = {}  # by the JOB's directory: series, and the highest count
        self._lost: dict[tuple[bytes, bytes], None] = {}  # directory and path of files that a kept loss counts
        self._is_saved = True
        self._is_failing = False
        self._saving = asyncio.Lock()

    def note(self, place: Place, paths: Iterable[bytes]) -> None:
        """These are about to be deleted; only logs that grow matter."""
        series = self._jobs.pop(place.directory, {})
        self._jobs[place.directory] = series
        for path in (each for each in paths if kind_of(each) is LogKind.DATA):
            name, count = _split(path)
            if series.get(name, -1) < count:
                series[name] = count
                self._is_saved = False
        _bound(series, SERIES_LIMIT)
        _bound(self._jobs, JOBS_LIMIT)

    def has(self, place: Place, path: bytes) -> bool:
        """Whether a log of this name was deleted, as far as is known."""
        name, count = _split(path)
        return count <= self._jobs.get(place.directory, {}).get(name, -1)

    def forget(self, place: Place) -> None:
        """The JOB itself was deleted: no log of it is made anew."""
        if self._jobs.pop(place.directory, None) is not None:
            self._is_saved = False

    def lose(self, place: Place, paths: Iterable[bytes]) -> None:
        """These are about to be deleted undelivered, which a kept loss counts."""
        self._lost.update(((place.directory, path), None) for path in paths)
        _bound(self._lost, LOST_LIMIT)

    def keep(self, place: Place, paths: Iterable[bytes]) -> None:
        """These were to be lost, and stand; or others do under their names."""
        for path in paths:
            self._lost.pop((place.directory, path), None)

    def lost(self, place: Place, path: bytes) -> bool:
        """Whether a kept loss counts the file of this name that was deleted lately."""
        return (place.directory, path) in self._lost

    # What the board tells

    def job_changed_state(self, job: Job) -> None:
        """What is lost stays lost, whatever becomes of its JOB."""

    def names_changed(self, job: Job, touches: Mapping[bytes, Touch]) -> None:
        """Of another file that was made under a name no loss is kept."""
        if self._lost:
            self.keep(job.place, [path for path, touch in touches.items() if touch & _MADE])

    def names_removed(self, job: Job) -> None:
        """What is gone is not made anew."""

    def anything_changed(self, job: Job) -> None:
        """Another file may stand under each name."""
        self.keep(job.place, [path for directory, path in self._lost if directory == job.place.directory])

    async def load(self) -> None:
        """Take up what an earlier daemon kept."""
        if self._directory is None:
            return
        try:
            text = await on_disk(os.fsencode(self._directory), (self._directory / FILE_NAME).read_text, "ascii")
            self._jobs = _parsed(text)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            _LOGGER.warning("%s: %s: earlier deletions are not known", self._directory / FILE_NAME, error)

    async def save(self) -> None:
        """Keep what is known over the end of this process; where that is not possible it is said once."""
        async with self._saving:
            if self._directory is None or self._is_saved:
                return
            self._is_saved = True
            try:
                await on_disk(os.fsencode(self._directory), _write, self._directory, _text(self._jobs))
            except OSError as error:
                self._note_failure(error)

    def _note_failure(self, error: OSError) -> None:
        if not self._is_failing:
            self._is_failing = True
            _LOGGER.warning("%s: %s: deletions are known in memory only", self._directory, error.strerror)


def _split(path: bytes) -> tuple[bytes, int]:
    """The series of a log, and its picture count; a log of calls is a series of its own."""
    match = _COUNT.fullmatch(path) if api_model(path) is None else None
    return (match.group(1), int(match.group(2))) if match else (path, 0)


def _bound(known: dict[Any, Any], limit: int) -> None:
    while len(known) > limit:
        del known[next(iter(known))]


def _text(jobs: Mapping[bytes, Mapping[bytes, int]]) -> str:
    return json.dumps(
        {os.fsdecode(job): {os.fsdecode(name): n for name, n in each.items()} for job, each in jobs.items()}
    )


def _parsed(text: str) -> dict[bytes, dict[bytes, int]]:
    """Raises ValueError for what no daemon wrote."""
    jobs = json.loads(text)
    if not isinstance(jobs, dict) or not all(isinstance(each, dict) for each in jobs.values()):
        raise ValueError("it has no JOBs")
    if not all(isinstance(count, int) for each in jobs.values() for count in each.values()):
        raise ValueError("it has no picture counts")
    return {os.fsencode(job): {os.fsencode(name): n for name, n in each.items()} for job, each in jobs.items()}


def _write(directory: Path, text: str) -> None:
    """Replace the file. It need not outlive the board's power: the programs that write into its JOBs do not either."""
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    new = directory / f"{FILE_NAME}.new"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
    os.replace(new, directory / FILE_NAME)
