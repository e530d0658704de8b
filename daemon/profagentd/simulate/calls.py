"""The acl_api records of one load of a model: a ring that is emptied into the log at each flush. Pure."""

from __future__ import annotations

from collections import deque

from profagentd.simulate import encode

RING_CALLS = 511
"""The newest calls that survive between two flushes (format page 3.3)."""


class CallRing:
    """Calls that ended and are not written yet."""

    def __init__(self, pid: int, tid: int) -> None:
        self._pid = pid
        self._tid = tid
        self._records: deque[bytes] = deque(maxlen=RING_CALLS)

    def add(self, api: int, begin_us: int, end_us: int) -> None:
        """Keep a call that has ended; a full ring forgets its oldest."""
        self._records.append(encode.api_record(api, begin_us, end_us, self._pid, self._tid))

    def flush(self) -> bytes:
        """The kept records, oldest first; the ring is empty after it."""
        data = b"".join(self._records)
        self._records.clear()
        return data
