"""Losses that happened whether or not somebody listened, kept over the daemon's restarts (board.proto, Loss.id)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Callable

from profagentd.follow.log import LossReason
from profagentd.loop import on_disk

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_LOGGER = logging.getLogger(__name__)

# The newest that are kept.
LOSSES_LIMIT = 1000
FILE_NAME = "losses.jsonl"
_ID_BITS = 63
_TEXTS = ("reason", "job")


@dataclass(frozen=True)
class KeptLoss:
    """One loss; its number names it for ever. Times are the board's wall clock in microseconds."""

    id: int
    reason: str
    job: str
    from_wall_us: int
    to_wall_us: int
    lost_bytes: int = 0
    lost_logs: int = 0

    @property
    def detail(self) -> str:
        """A sentence for people."""
        if self.reason == LossReason.DISK_FULL.value:
            return "no space was left for the JOB: what its program wrote meanwhile is gone, how much is not known"
        return f"{self.lost_logs} logs of {self.lost_bytes} bytes were deleted to make room before they were delivered"


class KeptLosses:
    """All that are kept, the one that changed last at the end. All calls come from the loop."""

    def __init__(self, directory: Path | None) -> None:
        """`directory`: where they are kept; None keeps them in memory only."""
        self._directory = directory
        self._losses: dict[int, tuple[int, KeptLoss]] = {}  # by id, with the revision of the newest change
        self._revision = 0
        self._saved_revision = 0
        self._is_failing = False
        self._saving = asyncio.Lock()
        self._listeners: list[Callable[[], None]] = []

    @property
    def revision(self) -> int:
        """Grows with each change."""
        return self._revision

    def since(self, revision: int) -> list[KeptLoss]:
        """What has changed after that revision, oldest change first."""
        return [loss for changed, loss in self._losses.values() if changed > revision]

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call it, on the loop, after each change."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """Call it no more."""
        self._listeners.remove(listener)

    def begin(self, reason: LossReason, job: str, at_wall_us: int, *, lost_bytes: int = 0, lost_logs: int = 0) -> int:
        """Something is lost from now on; the loss's number."""
        number = random.SystemRandom().getrandbits(_ID_BITS) or 1
        self._put(KeptLoss(number, reason.value, job, at_wall_us, at_wall_us, lost_bytes, lost_logs))
        return number

    def go_on(self, number: int, at_wall_us: int, *, lost_bytes: int = 0, lost_logs: int = 0) -> None:
        """It still goes on, with so much more; nothing when it is not kept any more."""
        if number in self._losses:
            loss = self._losses.pop(number)[1]
            bytes_now, logs_now = loss.lost_bytes + lost_bytes, loss.lost_logs + lost_logs
            self._put(replace(loss, to_wall_us=at_wall_us, lost_bytes=bytes_now, lost_logs=logs_now))

    def last(self, reason: LossReason, job: str) -> int | None:
        """The number of the newest loss of this kind in this JOB."""
        numbers = (
            loss.id
            for _, loss in reversed(list(self._losses.values()))
            if (loss.reason, loss.job) == (reason.value, job)
        )
        return next(numbers, None)

    async def load(self) -> None:
        """Take up what an earlier daemon kept."""
        if self._directory is None:
            return
        try:
            text = await on_disk(os.fsencode(self._directory), (self._directory / FILE_NAME).read_bytes)
        except FileNotFoundError:
            return
        except OSError as error:
            _LOGGER.warning("%s: %s: earlier losses are not known", self._directory / FILE_NAME, error.strerror)
            return
        for loss in _parsed(text):
            self._put(loss)
        self._saved_revision = self._revision

    async def save(self) -> None:
        """Make what is known durable; where that is not possible it is in memory only, which is said once."""
        async with self._saving:
            revision = self._revision
            if self._directory is None or revision == self._saved_revision:
                return
            text = "".join(json.dumps(asdict(loss)) + "\n" for _, loss in self._losses.values())
            try:
                await on_disk(os.fsencode(self._directory), _write, self._directory, text.encode("utf-8"))
            except OSError as error:
                self._note_failure(error)
            else:
                self._saved_revision, self._is_failing = revision, False

    def _put(self, loss: KeptLoss) -> None:
        self._revision += 1
        self._losses[loss.id] = (self._revision, loss)
        if len(self._losses) > LOSSES_LIMIT:
            del self._losses[next(iter(self._losses))]
        for listener in self._listeners:
            listener()

    def _note_failure(self, error: OSError) -> None:
        if not self._is_failing:
            self._is_failing = True
            _LOGGER.warning("%s: %s: losses are kept in memory only", self._directory, error.strerror)


def _parsed(text: bytes) -> Iterable[KeptLoss]:
    for line in text.splitlines():
        try:
            values = json.loads(line)
            _check(values)
            yield KeptLoss(**values)
        except (ValueError, TypeError):
            _LOGGER.warning("a kept loss cannot be read: %s", line[:200])


def _check(values: Any) -> None:
    """Raise ValueError for what the wire cannot carry."""
    numbers = [each for key, each in values.items() if key not in _TEXTS] if isinstance(values, dict) else [-1]
    is_right = all(isinstance(each, int) and 0 <= each < 1 << 64 for each in numbers)
    if not is_right or not all(isinstance(values.get(key), str) for key in _TEXTS):
        raise ValueError(values)


def _write(directory: Path, text: bytes) -> None:
    """Replace the file by one that is on the disk whole."""
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    new = directory / f"{FILE_NAME}.new"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, directory / FILE_NAME)
    above = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(above)
    finally:
        os.close(above)
