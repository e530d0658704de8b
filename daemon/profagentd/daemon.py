"""The daemon's parts put together, run, and brought to an end."""

from __future__ import annotations

import asyncio
import logging
import signal
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from profagentd import __version__
from profagentd.board import Board
from profagentd.claim import claimed
from profagentd.credentials import server_credentials
from profagentd.custody import Custody
from profagentd.deleted import Deleted
from profagentd.describe import identify
from profagentd.examine import Examiner
from profagentd.gate import Gate
from profagentd.kept_deliveries import KeptDeliveries
from profagentd.leash import held
from profagentd.losses import KeptLosses
from profagentd.named_roots import real_roots
from profagentd.notify import Notifier
from profagentd.reloading import Reloading
from profagentd.reporting import report
from profagentd.revocation import Revocations
from profagentd.roots import Roots
from profagentd.server import Server
from profagentd.servicer import Servicer
from profagentd.simulate import SimulationOptions, simulate
from profagentd.state import JobState
from profagentd.supervisor import until_first
from profagentd.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Coroutine

    import grpc

    from profagentd.clock import Clock
    from profagentd.config import DaemonConfig, Examined

_LOGGER = logging.getLogger(__name__)

# Threads for reading files and directories.
THREADS = 4
# Where the daemon keeps what it must not forget.
STATE_DIRECTORY = Path("/var/lib/profagentd")
# How long clients are sent what there is for them once the daemon is to end.
DRAIN_S = 5.0


@dataclass(frozen=True)
class Orders:
    """What to do: settings, how to read them anew, what to simulate, and for how long silence on stdin is borne.

    `settings_file` is where settings stand; empty when they are all arguments.
    """

    config: DaemonConfig
    simulation: SimulationOptions | None = None
    leash_s: float | None = None
    reread: Callable[[], Examined] | None = None
    settings_file: str = ""


async def serve(orders: Orders, clock: Clock, filesystem: Path = Path("/")) -> None:
    """Serve until SIGTERM or SIGINT; the board's files are below `filesystem`. Raises DaemonError when it cannot."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="files"))
    stop = _asked_by(signal.SIGTERM, signal.SIGINT)
    with ExitStack() as cleanup:
        if orders.simulation and not orders.config.roots:
            directory = cleanup.enter_context(tempfile.TemporaryDirectory(prefix="profagentd-"))
            orders = replace(orders, config=replace(orders.config, roots=(directory,)))
        cleanup.enter_context(claimed(_state_directory(orders), orders.config.listen))
        notifier = cleanup.enter_context(closing(Notifier(clock)))
        await _Daemon(orders, clock, notifier, filesystem).run(stop)


class _Daemon:
    """The parts, and what they do together."""

    def __init__(self, orders: Orders, clock: Clock, notifier: Notifier, filesystem: Path) -> None:
        config, is_simulated = orders.config, orders.simulation is not None
        self._orders = orders
        self._clock = clock
        self._notifier = notifier
        self._board = Board(clock, config.quiet_after_s)
        roots = Roots(real_roots(config.roots))
        self._watch = Watch(roots, config.depth, clock, self._board, scan=config.scan, acl_json=config.acl_json)
        state = _state_directory(orders)
        self._losses, self._deleted = KeptLosses(state), Deleted(state)
        kept = self._losses, self._deleted, KeptDeliveries(state)
        self._custody = Custody(config.policy, roots, clock, self._board, *kept, has_npu=not is_simulated)
        gate = Gate(Revocations(config.tls_revoked) if config.tls_revoked else None, insecure=config.is_open)
        identity = identify(config.identity, filesystem)
        certificates = (config.tls_cert, config.tls_ca)
        examiner = Examiner(self._board, self._watch, clock, certificates, orders.settings_file, filesystem)
        self._servicer = Servicer(
            self._board, self._watch, clock, self._custody, identity, gate, examiner, simulated=is_simulated
        )
        self._server = Server(self._servicer, gate, _credentials(config))

    @property
    def status(self) -> str:
        """A line of what goes on."""
        jobs = self._board.jobs
        open_jobs = sum(job.state is JobState.OPEN for job in jobs)
        clients, losses = self._servicer.streams, len(self._losses.since(0))
        return f"clients: {clients}, JOBs: {len(jobs)} ({open_jobs} open), losses kept: {losses}"

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until told to stop."""
        config = self._orders.config
        await self._losses.load()
        await self._deleted.load()
        address = await self._server.start(config.listen)
        works = self._works(stop)
        if config.is_open:
            _LOGGER.warning(
                "%s is open: no TLS, no certificates, whoever reaches it may do anything (--insecure)", address
            )
        print(f"profagentd {__version__} serving {address}", flush=True)  # noqa: T201 - the line that callers wait for
        self._notifier.ready(self.status)
        try:
            await until_first(*works)
        finally:
            await self._server.stop()

    def _works(self, stop: asyncio.Event) -> list[Coroutine[Any, Any, None]]:
        """What is done at once; JOBs are watched until clients were said goodbye."""
        works = [self._watch.run(), self._board.keep_states(), *self._custody.works(), self._until_stopped(stop)]
        works.append(report(self._notifier, self._clock, lambda: self.status))
        if self._orders.leash_s is not None:
            works.append(_stop_when_let_go(self._orders.leash_s, self._clock, stop))
        if self._orders.reread:
            reloading = Reloading(self._orders.config, self._orders.reread, self._watch, self._custody, self._servicer)
            works.append(reloading.run(_asked_by(signal.SIGHUP), self._notifier, lambda: self.status))
        if self._orders.simulation:
            works.append(
                _simulate(replace(self._orders.simulation, root=Path(self._orders.config.roots[0])), self._clock)
            )
        return works

    async def _until_stopped(self, stop: asyncio.Event) -> None:
        await stop.wait()
        _LOGGER.info("stopping")
        self._notifier.stopping(f"stopping; {self.status}")
        await until_first(self._server.drain(), self._clock.sleep(DRAIN_S))
        await self._server.stop()
        await self._custody.settle()


def _asked_by(*signals: signal.Signals) -> asyncio.Event:
    """What is set when one of these signals comes."""
    asked = asyncio.Event()
    for each in signals:
        asyncio.get_running_loop().add_signal_handler(each, asked.set)
    return asked


def _credentials(config: DaemonConfig) -> grpc.ServerCredentials | None:
    return server_credentials(config.tls_files) if config.has_tls else None


def _state_directory(orders: Orders) -> Path | None:
    """Where losses, deletions and deliveries are kept; those of a simulated board are of no interest after it."""
    return Path(orders.config.state) if orders.config.state else None if orders.simulation else STATE_DIRECTORY


async def _stop_when_let_go(leash_s: float, clock: Clock, stop: asyncio.Event) -> None:
    await held(leash_s, clock)
    stop.set()
    await asyncio.Event().wait()


async def _simulate(options: SimulationOptions, clock: Clock) -> None:
    """Simulate, then serve on."""
    _LOGGER.info("simulated board: %s", await simulate(options, clock))
    await asyncio.Event().wait()
