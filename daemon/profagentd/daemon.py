"""The daemon's parts put together, run, and brought to an end."""

from __future__ import annotations

import asyncio
import logging
import signal
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from profagentd import __version__
from profagentd.board import Board
from profagentd.claim import claimed
from profagentd.config import DaemonConfig, policy_of, real_roots
from profagentd.custody import Custody
from profagentd.deleted import Deleted
from profagentd.describe import identify
from profagentd.examine import Examiner
from profagentd.gate import Gate
from profagentd.losses import KeptLosses
from profagentd.revocation import Revocations
from profagentd.server import Server
from profagentd.servicer import Servicer
from profagentd.simulate import SimulationOptions, simulate
from profagentd.supervisor import until_first
from profagentd.tls import TlsFiles, doubt_of, server_credentials
from profagentd.watch import Watch

if TYPE_CHECKING:
    import grpc

    from profagentd.clock import Clock

_LOGGER = logging.getLogger(__name__)

# Threads for reading files and directories.
THREADS = 4
# Where the daemon keeps what it must not forget.
STATE_DIRECTORY = Path("/var/lib/profagentd")


async def serve(
    config: DaemonConfig, simulation: SimulationOptions | None, clock: Clock, filesystem: Path = Path("/")
) -> None:
    """Serve until SIGTERM or SIGINT; the board's files are below `filesystem`. Raises DaemonError when it cannot."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="files"))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    with ExitStack() as cleanup:
        if simulation and not config.roots:
            directory = cleanup.enter_context(tempfile.TemporaryDirectory(prefix="profagentd-"))
            config = replace(config, roots=(directory,))
        cleanup.enter_context(claimed(_state_directory(config, simulation), config.listen))
        await _run(config, simulation, clock, filesystem, stop)


async def _run(
    config: DaemonConfig, simulation: SimulationOptions | None, clock: Clock, filesystem: Path, stop: asyncio.Event
) -> None:
    board = Board(clock, config.quiet_after_s)
    watch = Watch(real_roots(config.roots), config.depth, clock, board, scan=config.scan, acl_json=config.acl_json)
    state = _state_directory(config, simulation)
    losses, deleted = KeptLosses(state), Deleted(state)
    await losses.load()
    await deleted.load()
    custody = Custody(policy_of(config), watch.roots, clock, board, losses, deleted, has_npu=simulation is None)
    gate = Gate(Revocations(config.tls_revoked) if config.tls_revoked else None, insecure=config.is_open)
    identity = identify(config.identity, filesystem)
    examiner = Examiner(board, watch, clock, (config.tls_cert, config.tls_ca), filesystem)
    servicer = Servicer(board, watch, clock, custody, identity, gate, examiner, simulated=simulation is not None)
    server = Server(servicer, gate, _credentials(config))
    address = await server.start(config.listen)
    if config.is_open:
        _LOGGER.warning("%s is open: no TLS, no certificates, whoever reaches it may do anything (--insecure)", address)
    print(f"profagentd {__version__} serving {address}", flush=True)  # noqa: T201 - the line that callers wait for
    works = [watch.run(), board.keep_states(), *custody.works(), _until_stopped(stop, server)]
    if simulation:
        works.append(_simulate(replace(simulation, root=Path(config.roots[0])), clock))
    try:
        await until_first(*works)
    finally:
        await server.stop()


def _credentials(config: DaemonConfig) -> grpc.ServerCredentials | None:
    if not config.has_tls:
        return None
    files = TlsFiles(config.tls_cert, config.tls_key, config.tls_ca)
    credentials = server_credentials(files)
    doubt = doubt_of(files)
    if doubt:
        _LOGGER.warning("%s", doubt)
    return credentials


def _state_directory(config: DaemonConfig, simulation: SimulationOptions | None) -> Path | None:
    """Where losses and deletions are kept; those of a simulated board are of no interest after it."""
    return Path(config.state) if config.state else None if simulation else STATE_DIRECTORY


async def _until_stopped(stop: asyncio.Event, server: Server) -> None:
    """Serve until told to stop; JOBs are watched until clients were said goodbye."""
    await stop.wait()
    _LOGGER.info("stopping")
    await server.stop()


async def _simulate(options: SimulationOptions, clock: Clock) -> None:
    """Simulate, then serve on."""
    _LOGGER.info("simulated board: %s", await simulate(options, clock))
    await asyncio.Event().wait()
