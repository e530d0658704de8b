"""Logs that were begun before a stream, and that the board does not offer on it: they are gone from the board."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.ingest.changes import LinkLedger, LogRemoved
from profagent.ingest.loss import unfollowed_removal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from profagent.ingest.changes import Change
    from profagent.store.stored_session import StoredSession


class UnofferedLogs:
    """Those of one stream, by JOB and path, with how many bytes of each are committed."""

    def __init__(self) -> None:
        self._begun: dict[str, dict[str, int]] = {}

    async def offered(self, session: StoredSession, job: str, paths: Iterable[str]) -> None:
        """The board has these."""
        begun = await self._of(session, job)
        for path in paths:
            begun.pop(path, None)

    async def gone(self, session: StoredSession, job: str) -> Sequence[Change]:
        """All that the board has was offered: what the others mean, told once.

        What the board itself deleted of the JOB it tells in a kept loss, which counts them.
        """
        gone = await self._of(session, job)
        self._begun[job] = {}
        changes: list[Change] = [LogRemoved(path) for path in gone]
        if gone and not await session.was_deleted_from(job):
            changes += [LinkLedger(path, unfollowed_removal(copied)) for path, copied in gone.items()]
        return changes

    def clear(self) -> None:
        """Another stream begins."""
        self._begun.clear()

    async def _of(self, session: StoredSession, job: str) -> dict[str, int]:
        if job not in self._begun:
            self._begun[job] = await session.begun_logs(job)
        return self._begun[job]
