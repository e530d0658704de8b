"""A JOB directory on this machine, sent as its board would send it: what is held of each log, then the rest.

So a copied JOB becomes what a live capture of it would have been, by the same way. Everything here blocks.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import TYPE_CHECKING

from profagent.files import content, required
from profagent.formats.done import is_whole_done
from profagent.formats.names import LogKind
from profagent.ingest.local import not_a_file
from profagent.ingest.mirror import DIGEST_BYTES
from profagent.ingest.states import DONE_SUFFIX
from profagent.link.messages import Chunk, Completed, FollowedLog, Happened, Loss, Started

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import FileIO
    from pathlib import Path

    from profagent.ingest.local import JobListing
    from profagent.link.messages import Holding, LogEvent

CHUNK_BYTES = 256 << 10
LARGEST_DONE_BYTES = 4096
# What the board's daemon takes as a log that grows, by its last component; anything else is a snapshot.
_GROWING = re.compile(rb"(?i:(aicore|aacore|aicpu|aacpu|acl_api|aclmodule)\.[0-9]+\..*[0-9])", re.DOTALL)
_KINDS = {
    b"aicore": LogKind.AICORE,
    b"aacore": LogKind.AICORE,
    b"aicpu": LogKind.AICPU,
    b"aacpu": LogKind.AICPU,
    b"acl_api": LogKind.ACL_API,
    b"aclmodule": LogKind.ACL_API,
}


class LocalStream:
    """The logs of one JOB directory. Links are not followed, and only what its listing has is read."""

    def __init__(self, directory: Path, listing: JobListing) -> None:
        self._directory = directory
        self._job = directory.name
        self._others = listing.others
        self.logs = [
            FollowedLog(handle, self._job, os.fsencode(path), snapshot=growing_kind(path) is None)
            for handle, path in enumerate(listing.files, 1)
        ]

    def odd(self) -> Iterator[Happened]:
        """Losses for what is no regular file."""
        for path in self._others:
            entry = not_a_file(path)
            yield Happened(self._job, None, Loss(0, 1, entry.reason, entry.detail, 0))

    def events(self, log: FollowedLog, holding: Holding) -> Iterator[Happened]:
        """What the host does not hold of a log."""
        path = os.fsdecode(log.path)
        try:
            with open(required(f"{self._directory}/{path}"), "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
                for event in self._of_file(log, path, holding, file):
                    yield Happened(self._job, log, event)
        except OSError as error:
            loss = Loss(log.handle, 1, "unreadable", f"{path}: {error.strerror}", 0)
            yield Happened(self._job, log, loss)

    def _of_file(self, log: FollowedLog, path: str, holding: Holding, file: FileIO) -> Iterator[LogEvent]:
        digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        generation, offset = max(holding.generation, 1), holding.offset
        if _goes_on(file, log, holding, digest):
            yield Started(log.handle, generation, offset, "same" if holding.generation else "new")
        else:
            generation, offset = holding.generation + 1, 0
            digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
            file.seek(0)
            yield Started(log.handle, generation, 0, "different")
        while data := file.read(CHUNK_BYTES):
            digest.update(data)
            yield Chunk(log.handle, generation, offset, data)
            offset += len(data)
        if log.snapshot or self._has_done(path):
            yield Completed(log.handle, generation, offset, digest.digest())

    def _has_done(self, path: str) -> bool:
        kind = growing_kind(path)
        try:
            text = content(f"{self._directory}/{path}{DONE_SUFFIX}", LARGEST_DONE_BYTES)
        except OSError:
            return False
        return kind is not None and text is not None and is_whole_done(text, kind)


def growing_kind(path: str) -> LogKind | None:
    """What a log that grows holds, by the rule of the board's daemon; None for a snapshot."""
    match = _GROWING.fullmatch(os.fsencode(path).rpartition(b"/")[2])
    return None if match is None else _KINDS[match[1].lower()]


def _goes_on(file: FileIO, log: FollowedLog, holding: Holding, digest: hashlib.blake2b) -> bool:
    """Whether the file begins with what is held, which `digest` has taken then; of a snapshot, whether it is all."""
    size = os.fstat(file.fileno()).st_size
    if size < holding.offset or (log.snapshot and holding.generation > 0 and size != holding.offset):
        return False
    left = holding.offset
    while left and (data := file.read(min(left, CHUNK_BYTES))):
        digest.update(data)
        left -= len(data)
    return left == 0 and (holding.offset == 0 or digest.digest() == holding.prefix_digest)
