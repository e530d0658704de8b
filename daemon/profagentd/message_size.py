"""How large a message of bytes may be: small, until the link has shown that it takes large ones in no time."""

from __future__ import annotations

# Over 10 kB/s a message comes within half of the time after which a peer that is not heard is taken as gone.
SMALL_BYTES = 64 * 1024
LARGE_BYTES = 256 * 1024
# A link is judged by so many bytes, each time anew. At this rate a large message takes a quarter of a second.
JUDGED_BYTES = 1024 * 1024
QUICK_BYTES_PER_S = 1024 * 1024


class MessageSize:
    """The size for one stream. Each message costs both ends about the same, however large it is."""

    def __init__(self) -> None:
        self.limit = SMALL_BYTES
        self._bytes = 0
        self._seconds = 0.0

    def sent(self, size: int, seconds: float) -> None:
        """The link has taken `size` bytes of logs within so long."""
        self._bytes += size
        self._seconds += seconds
        is_slow = self._seconds > JUDGED_BYTES / QUICK_BYTES_PER_S
        if is_slow or self._bytes >= JUDGED_BYTES:
            self.limit = SMALL_BYTES if is_slow else LARGE_BYTES
            self._bytes, self._seconds = 0, 0.0
