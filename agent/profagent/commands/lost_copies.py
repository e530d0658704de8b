"""Logs of which the mirror has lost bytes: the board is asked for them again, and may have deleted them since."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.formats.names import LogKind, parse_log_name
from profagent.ingest.changes import Entry, LinkLedger, LostCopy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from profagent.ingest.changes import Change
    from profagent.ingest.mirror import JobMirror
    from profagent.link.messages import Completed, Holding, Removed
    from profagent.link.session import FollowedLog
    from profagent.store.stored_session import HeldLog

_GONE = Entry(
    "loss",
    "deleted-uncopied",
    "the mirror lost bytes of it that the board had deleted once they were copied: they are gone, what stands on the"
    " board is copied",
)


class LostCopies:
    """Those of one stream, by their handles; the database knows them until the board has vouched for their logs."""

    def __init__(self) -> None:
        self._lost: dict[int, LostCopy] = {}
        self._told: set[int] = set()  # handles of those that were found in this stream

    def add(self, handle: int, path: str, known: HeldLog) -> list[Change]:
        """What was held of a log is not there; returns what that is in the ledger, and what was lost."""
        self._told.add(handle)
        detail = f"the mirror's {path} lost bytes that were committed: what the board has of it is copied anew"
        note = LinkLedger(None, Entry("note", "mirror-changed", detail))
        if known.base:
            # What stands before the base the board has deleted.
            return [note, LinkLedger(path, _GONE)]
        lost = self._lost[handle] = LostCopy(path, known.offset, known.digest)
        return [note, lost]

    def was_told(self, handle: int) -> bool:
        """Whether the ledger says of this stream's log that the mirror was changed: the board's file need not be."""
        return handle in self._told

    def go_on(self, handle: int, lost: LostCopy | None) -> None:
        """What an earlier stream lost of a log, of which the board did not come to vouch for what it has."""
        if lost is not None:
            self._lost[handle] = lost

    def settle(self, log: FollowedLog, path: str, event: Completed | Removed, mirror: JobMirror) -> list[Change]:
        """The board vouches for a log, or has none any more: it is told whether it began with what was lost."""
        lost = self._lost.pop(log.handle, None)
        if lost is None:
            return []
        is_there = event.size >= lost.size and self._begins_with(lost, log, path, mirror)
        return [LostCopy(path, 0), *([] if is_there else [LinkLedger(path, _GONE)])]

    def clear(self) -> None:
        """Another stream begins, with handles of its own."""
        self._lost.clear()
        self._told.clear()

    def _begins_with(self, lost: LostCopy, log: FollowedLog, path: str, mirror: JobMirror) -> bool:
        """Whether what has come does, as far as that is known: what has not come of a removed log is another loss."""
        is_known = lost.digest is not None and log.offset >= lost.size
        return not is_known or mirror.prefix_digest(path, lost.size) == lost.digest


def together(holdings: Iterable[Holding], logs: Mapping[str, FollowedLog]) -> list[Holding]:
    """What is held, where one log of an inference is not whole with the other as not whole either.

    Nothing may go on after them once the board has deleted both: their loads would be counted from different ones.
    """
    held = list(holdings)
    if not any(holding.is_whole for holding in held):
        return held
    paths = {log.handle: path for path, log in logs.items()}
    torn = {_inference(paths[holding.handle]) for holding in held if not holding.is_whole} - {None}
    return [
        holding._replace(is_whole=False) if _inference(paths[holding.handle]) in torn else holding for holding in held
    ]


def _inference(path: str) -> str | None:
    """What the names of an inference's two logs share; None for any other log."""
    name = parse_log_name(path)
    if name is None or name.is_done or name.kind not in (LogKind.AICORE, LogKind.AICPU):
        return None
    return path.rpartition("/")[2].partition(".")[2]
