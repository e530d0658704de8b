"""Logs of which the mirror has lost bytes: the board is asked for them again, and may have deleted them since."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from profagent.formats.names import LogKind, parse_log_name
from profagent.ingest.changes import Entry, LinkLedger

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from profagent.ingest.changes import Change
    from profagent.ingest.mirror import JobMirror
    from profagent.link.messages import Completed, Holding
    from profagent.link.session import FollowedLog
    from profagent.store.stored_session import HeldLog

_GONE = Entry(
    "loss",
    "deleted-uncopied",
    "the mirror lost bytes of it that the board had deleted once they were copied: they are gone, what stands on the"
    " board is copied",
)


class LostCopies:
    """Those of one stream, by their handles."""

    def __init__(self) -> None:
        self._held: dict[int, HeldLog] = {}

    def add(self, handle: int, path: str, known: HeldLog) -> Entry:
        """What was held of a log is not there; returns what that is in the ledger."""
        self._held[handle] = known
        detail = f"the mirror's {path} lost bytes that were committed: what the board has of it is copied anew"
        return Entry("note", "mirror-changed", detail)

    def apart(self, holdings: Iterable[Holding], logs: Mapping[str, FollowedLog]) -> list[Holding]:
        """What is held, with the logs of an inference of which another is lost as not whole.

        Nothing may go on after them: their loads would be counted from another one than the lost log's.
        """
        paths = {log.handle: path for path, log in logs.items()}
        torn = {_inference(paths[handle]) for handle in self._held if handle in paths} - {None}
        return [
            replace(holding, is_whole=False) if _inference(paths[holding.handle]) in torn else holding
            for holding in holdings
        ]

    def settle(self, log: FollowedLog, path: str, event: Completed, mirror: JobMirror) -> list[Change]:
        """The board vouches for a log: it is told whether it begins with what was lost."""
        known = self._held.pop(log.handle, None)
        if known is None or log.snapshot:
            return []
        is_there = known.base == 0 and known.size <= event.size
        if is_there and known.digest is not None:
            is_there = mirror.prefix_digest(path, known.size) == known.digest
        return [] if is_there else [LinkLedger(path, _GONE)]

    def clear(self) -> None:
        """Another stream begins, with handles of its own."""
        self._held.clear()


def _inference(path: str) -> str | None:
    """What the names of an inference's two logs share; None for any other log."""
    name = parse_log_name(path)
    if name is None or name.is_done or name.kind not in (LogKind.AICORE, LogKind.AICPU):
        return None
    return path.rpartition("/")[2].partition(".")[2]
