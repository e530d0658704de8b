"""Which inferences the library samples (format page 2.3). Pure."""

from __future__ import annotations

STALL_EACH = 10
"""Which samples find a slow disk, when the simulated board is told to be busy; invented."""


class Sampling:
    """The interval rule of one loaded model.

    The first inference is sampled; a later one when `interval` > 0, so many ran since the last sampled one, and that
    one is written. Each `each`th sample is being written while `busy` inferences run; a postponed sample is not
    queued, and the count restarts where it was taken.
    """

    def __init__(self, interval: int, busy: int = 0, each: int = STALL_EACH) -> None:
        self._interval = interval
        self._busy = busy
        self._each = each
        self._samples = 0
        self._since = 0

    def takes_next(self) -> bool:
        """Count one more inference, and say whether it is sampled."""
        self._since += 1
        if self._samples and not (0 < self._interval <= self._since and self._busy_now <= self._since):
            return False
        self._samples += 1
        self._since = 0
        return True

    @property
    def _busy_now(self) -> int:
        """How many inferences the writing of the last sample takes."""
        return 0 if self._samples % self._each else self._busy
