"""What becomes of the board's files: who has them, what is deleted, what is lost; as the daemon runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from profagentd.retention.acks import SETTLE_S, AckTracker
from profagentd.retention.policy import Retain
from profagentd.retention.reaper import Reaper
from profagentd.retention.space import SpaceWatch

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Callable

    from profagentd.follow.registry import JobRegistry
    from profagentd.loop import Clock
    from profagentd.retention.acks import KeptAcks
    from profagentd.retention.losses import KeptLosses
    from profagentd.retention.policy import Policy
    from profagentd.roots import Roots
    from profagentd.sources.files import Fingerprint, Place


# How often deliveries are kept.
KEEP_S = 0.25


class Retention:
    """The parts that keep the policy, put together."""

    def __init__(
        self,
        policy: Policy,
        roots: Roots,
        clock: Clock,
        board: JobRegistry,
        losses: KeptLosses,
        delivered: KeptAcks,
        *,
        has_npu: bool,
    ) -> None:
        self.policy = policy
        self.losses = losses
        self.space = SpaceWatch(roots, clock, board, losses)
        self._clock = clock
        self._deliveries = AckTracker(policy.retain_for, delivered)
        self._reaper = Reaper(policy, roots, clock, board, self._deliveries, losses, self.space, has_npu=has_npu)
        self._board = board
        self._is_listening = False
        self._listen()

    def _listen(self) -> None:
        """Deliveries are taken back by what happens to files; where nothing is deleted they are of no consequence."""
        is_wanted = self.policy.retain is not Retain.KEEP
        if is_wanted and not self._is_listening:
            self._board.add_listener(self._deliveries)
        elif self._is_listening and not is_wanted:
            self._board.remove_listener(self._deliveries)
        self._is_listening = is_wanted

    def works(self) -> list[Coroutine[Any, Any, None]]:
        """What is to run as long as the daemon does."""
        return [self.space.run(), self._reaper.run(), self._keep_deliveries()]

    async def settle(self) -> None:
        """Nobody is served any more: keep what was delivered last."""
        if self._deliveries.has_unkept:
            await self._clock.sleep(SETTLE_S)
            await self._deliveries.keep(self._clock.monotonic())

    def change_policy(self, policy: Policy) -> None:
        """Another policy from now on; what was delivered is told anew by streams that begin after this."""
        self.policy = policy
        self._listen()
        self._deliveries.expect(policy.retain_for)
        self._reaper.keep_to(policy)

    def taker(self, consumer: str) -> Callable[[Place, bytes, Fingerprint], None] | None:
        """Whom to tell of this consumer's deliveries; None when they are of no consequence."""
        if not self.policy.counts(consumer):
            return None
        return lambda place, path, seen: self._deliveries.delivered(
            consumer, place, path, seen, self._clock.monotonic()
        )

    async def _keep_deliveries(self) -> None:
        while True:
            await self._deliveries.keep(self._clock.monotonic())
            await self._clock.sleep(KEEP_S)
