"""Logs that are passed over on purpose and are not to stay on the host's disk: verified, acknowledged, and dropped.

They are fetched all the same: a board that deletes what was delivered counts a log by the acknowledgement of its
completion, which is given for bytes whose digest was seen.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from profagent.errors import ProtocolError
from profagent.ingest.changes import Chosen, Entry, LogAdvanced
from profagent.ingest.mirror import DIGEST_BYTES

if TYPE_CHECKING:
    from profagent.ingest.changes import Change
    from profagent.link.messages import Chunk, Completed, Started
    from profagent.link.session import FollowedLog

WANTED_AGAIN = Entry(
    "note",
    "wanted-again",
    "it was passed over and dropped, and went on at a time that is kept: the next stream fetches it whole",
)


class PassingLogs:
    """The logs of one stream that pass through, by their handles."""

    def __init__(self) -> None:
        self._digests: dict[int, hashlib.blake2b | None] = {}

    def __contains__(self, handle: int) -> bool:
        return handle in self._digests

    def begin(self, event: Started) -> None:
        """A log's bytes follow; of one that goes on, those before are gone, and its digest cannot be compared."""
        self._digests[event.handle] = hashlib.blake2b(digest_size=DIGEST_BYTES) if event.offset == 0 else None

    def take(self, event: Chunk) -> None:
        """Bytes that are looked at and dropped."""
        digest = self._digests[event.handle]
        if digest is not None:
            digest.update(event.data)

    def complete(self, log: FollowedLog, path: str, event: Completed) -> list[Change]:
        """The log has passed. Raises ProtocolError when its bytes were not those that the board vouches for."""
        digest = self._digests.pop(event.handle)
        if digest is not None and digest.digest() != event.digest:
            raise ProtocolError(
                f"the bytes of {log.job}/{path} do not have the board's digest", hint="the log is fetched anew"
            )
        advanced = LogAdvanced(path, event.generation, event.size, complete=True, digest=event.digest)
        return [Chosen(path, kept=False), advanced]

    def forget(self, handle: int) -> None:
        """Nothing more comes of this log."""
        self._digests.pop(handle, None)

    def clear(self) -> None:
        """Another stream begins, with handles of its own."""
        self._digests.clear()
