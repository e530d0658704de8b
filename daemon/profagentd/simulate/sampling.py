"""Which inferences the library samples (format page 2.3). Pure."""

from __future__ import annotations


class Sampling:
    """The interval rule of one loaded model.

    The first inference is sampled; a later one when `interval` > 0 and so many ran since the last sampled one.
    """

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._is_first = True
        self._since = 0

    def takes_next(self) -> bool:
        """Count one more inference, and say whether it is sampled."""
        self._since += 1
        if not self._is_first and not 0 < self._interval <= self._since:
            return False
        self._is_first = False
        self._since = 0
        return True
