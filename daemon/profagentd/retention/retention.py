"""What becomes of the board's files: who has them, what is deleted, what is lost; as the daemon runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from profagentd.retention.acks import SETTLE_S, AckTracker
from profagentd.retention.reaper import Reaper
from profagentd.retention.space import SpaceWatch

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Callable

    from profagentd.clock import Clock
    from profagentd.follow.registry import JobRegistry
    from profagentd.retention.acks import KeptAcks
    from profagentd.retention.losses import KeptLosses
    from profagentd.retention.policy import Policy
    from profagentd.roots import Roots
    from profagentd.sources.opening import Fingerprint, Place


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
        self._cleaner = Reaper(policy, roots, clock, board, self._deliveries, losses, self.space, has_npu=has_npu)
        board.add_listener(self._deliveries)

    def works(self) -> list[Coroutine[Any, Any, None]]:
        """What is to run as long as the daemon does."""
        return [self.space.run(), self._cleaner.run(), self._keep_deliveries()]

    async def settle(self) -> None:
        """Nobody is served any more: keep what was delivered last."""
        if self._deliveries.has_unkept:
            await self._clock.sleep(SETTLE_S)
            await self._deliveries.keep(self._clock.monotonic())

    def change_policy(self, policy: Policy) -> None:
        """Another policy from now on; what was delivered is told anew by streams that begin after this."""
        self.policy = policy
        self._deliveries.expect(policy.retain_for)
        self._cleaner.keep_to(policy)

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
