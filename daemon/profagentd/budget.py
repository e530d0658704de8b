"""Room that streams share: each has a little for sure, the rest goes to those who come first."""

from __future__ import annotations

# Logs of all streams that are announced and not over, beyond a few of each.
COMMON_LOGS = 3072


class Budget:
    """So much in all: `sure` for each share, and `common` beyond that for all of them together."""

    def __init__(self, sure: int, common: int) -> None:
        self.sure = sure
        self.common = common  # what is left of it

    def share(self) -> Share:
        """The part of one stream, which must be closed."""
        return Share(self)


class Share:
    """What one stream has taken."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._taken = 0

    @property
    def room(self) -> int:
        """How much more may be taken."""
        budget = self._budget
        if self._taken <= budget.sure and budget.common >= 0:
            return budget.sure - self._taken + budget.common
        return max(0, budget.sure - self._taken) + max(0, budget.common)

    def take(self, count: int = 1) -> None:
        """Take more, which there must be room for."""
        self._set(self._taken + count)

    def give_back(self, count: int = 1) -> None:
        """Need so much no longer."""
        self._set(self._taken - count)

    def close(self) -> None:
        """Need nothing any more."""
        self._set(0)

    def _set(self, taken: int) -> None:
        budget, before = self._budget, self._taken
        if taken > budget.sure or before > budget.sure:
            budget.common -= max(taken, budget.sure) - max(before, budget.sure)
        self._taken = taken


class Budgets:
    """What the streams of a daemon share."""

    def __init__(self) -> None:
        # A log that is announced takes about 0.5 KB, a name that has changed 40 bytes; bytes on their way are there
        # three times, over TLS four: as a message, serialised, in gRPC's hands, and encrypted.
        self.logs = Budget(sure=64, common=COMMON_LOGS)
        self.names = Budget(sure=256, common=20_000)
        self.sending_bytes = Budget(sure=8 * 1024, common=384 * 1024)
