"""The daemon's parts put together, run and ended: systemd, signals, reload of settings."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
import socket
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from profagentd import __version__
from profagentd.access import AccessControl, Revocations, server_credentials
from profagentd.config import do_overlap, real_root
from profagentd.errors import DaemonError
from profagentd.examine import Examiner, identify
from profagentd.follow.registry import JobRegistry
from profagentd.follow.server import Server, Servicer
from profagentd.follow.watcher import LogDiscovery
from profagentd.limits import DRAIN_S, FILE_THREADS
from profagentd.loop import US_PER_S, Roots, until_first
from profagentd.retention.losses import LossLedger
from profagentd.retention.reaper import RetentionKeeper
from profagentd.simulate.board import SimulatedBoard
from profagentd.simulate.run import SimulationOptions, simulate
from profagentd.sources.state import JobState
from profagentd.spools.keeper import SpoolKeeper

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from profagentd.config import DaemonConfig, ExaminedConfig
    from profagentd.loop import DaemonClock


_LOGGER = logging.getLogger(__name__)

# Interval of sending a changed status to systemd. A watchdog message goes twice in the time that systemd waits.
STATUS_S = 3.0

_RETENTION = frozenset(("retain", "retain_for", "min_free", "delete_undelivered"))
_LIVE = frozenset(("roots", "roots_d", "acl_json", "log_level")) | _RETENTION
_LOCK = "lock"
_SOME_BYTES = 4096


class Notifier:
    """Client of systemd's notification socket. A datagram that cannot be sent is dropped: the daemon works without."""

    def __init__(self) -> None:
        self._address = os.environ.get("NOTIFY_SOCKET", "")
        # Not blocking: systemd may be slow, and the daemon must not wait for it.
        self._socket: socket.socket | None = None
        if self._address.startswith(("/", "@")):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)

    def close(self) -> None:
        """Close the socket; later notifications do nothing."""
        if self._socket:
            self._socket.close()
            self._socket = None

    def notify(self, *lines: str) -> None:
        """Send lines such as `READY=1`; do nothing where nobody listens."""
        if not self._socket:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            self._socket.sendto("\n".join(lines).encode(), address)
        except OSError as error:
            _LOGGER.debug("systemd was not told %s: %s", lines[0], error.strerror)

    async def keep_notifying(self, clock: DaemonClock, status: Callable[[], str]) -> None:
        """Send the status and the watchdog message until cancelled."""
        alive_s = int(os.environ.get("WATCHDOG_USEC") or 30 * US_PER_S) / US_PER_S / 2
        sent, due_s = "", 0.0
        while self._socket:
            now_s, line = clock.monotonic(), status()
            if line != sent or now_s >= due_s:
                # Any work: a daemon whose threads all hang is not alive, though its loop runs.
                await asyncio.to_thread(os.getpid)
                self.notify("WATCHDOG=1", f"STATUS={line}")
                sent, due_s = line, now_s + alive_s - STATUS_S
            await clock.sleep(min(STATUS_S, alive_s))
        await asyncio.Event().wait()


def lock_state(directory: Path, listen: str, cleanup: ExitStack) -> None:
    """Lock the state directory until the cleanup. Raises DaemonError when another daemon has it.

    A directory that cannot be written, or has no locks, is not locked: nothing is kept there that two daemons could
    spoil.
    """
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        # The file stays: removing a lock file would let two daemons hold different files of one name.
        descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError:
        return
    cleanup.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, _SOME_BYTES, 0).decode("utf-8", "replace")
        raise DaemonError(
            f"{directory} is in use by another profagentd: {holder or 'it does not say which'}",
            hint="end that one, or give each daemon a --state of its own",
        ) from error
    except OSError:
        return
    # The holder's name is for the message of a second daemon.
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"process {os.getpid()}, for {listen}".encode(), 0)


async def stop_with_stdin(timeout_s: float, stop: asyncio.Event) -> None:
    """Stop when standard input is closed, or silent for `timeout_s`. Raises DaemonError where it cannot be watched."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    try:
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    except ValueError as error:
        hint = "keep a pipe, a socket or a terminal open there, e.g. through ssh"
        raise DaemonError("--stdin-timeout: standard input is nothing that somebody holds", hint=hint) from error
    try:
        while await asyncio.wait_for(reader.read(_SOME_BYTES), timeout_s):
            pass
        _LOGGER.info("standard input was closed: stopping")
    except asyncio.TimeoutError:
        _LOGGER.warning("no message came on standard input for %g s: stopping", timeout_s)
    finally:
        transport.close()
    stop.set()
    await asyncio.Event().wait()  # its return would cancel the drain that `stop` begins


@dataclass(frozen=True)
class ServiceOptions:
    """Options of the service: settings, their re-reading, the simulation, and the longest silence on stdin."""

    config: DaemonConfig
    simulation: SimulationOptions | None = None
    stdin_timeout_s: float | None = None
    reread: Callable[[], ExaminedConfig] | None = None


async def serve(options: ServiceOptions, clock: DaemonClock, filesystem: Path = Path("/")) -> None:
    """Serve until SIGTERM or SIGINT; the board's files are below `filesystem`. Raises DaemonError where that fails."""
    # The default pool has more threads than a small board should spend. Roots have threads of their own (loop.py).
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(FILE_THREADS, thread_name_prefix="files"))
    stop = _event_of(signal.SIGTERM, signal.SIGINT)
    with ExitStack() as cleanup:
        if options.simulation:
            directory = cleanup.enter_context(tempfile.TemporaryDirectory(prefix="profagentd-"))
            options = _simulated(options, options.simulation, Path(directory))
        # Locked before anything is read from the directory, and until everything is closed.
        lock_state(Path(options.config.state_directory), options.config.listen, cleanup)
        notifier = cleanup.enter_context(closing(Notifier()))
        await _Daemon(options, clock, notifier, filesystem).run(stop)


def _simulated(options: ServiceOptions, simulation: SimulationOptions, own: Path) -> ServiceOptions:
    config = options.config
    jobs = own / "jobs"
    jobs.mkdir()
    config = replace(
        config,
        roots=config.roots or (str(jobs),),
        state=config.state or str(own / "state"),
        run=config.run or str(own / "run"),
    )
    board = SimulatedBoard(own / "board", simulation.seed)
    simulation = replace(simulation, root=Path(config.roots[0]), run=Path(config.run), board=board)
    return replace(options, config=config, simulation=simulation)


class _Daemon:
    def __init__(self, options: ServiceOptions, clock: DaemonClock, notifier: Notifier, filesystem: Path) -> None:
        config, is_simulated = options.config, options.simulation is not None
        self._options = options
        self._clock = clock
        self._notifier = notifier
        self._registry = JobRegistry(clock, config.quiet_after_s)
        roots = Roots(map(real_root, config.roots))
        state = Path(config.state_directory)
        # The parts in the order of their needs: each gets those before it, and none knows the service.
        self._losses = LossLedger(state)
        self._retention = RetentionKeeper(
            config.policy, roots, clock, self._registry, self._losses, state, has_npu=not is_simulated
        )
        board = options.simulation and options.simulation.board
        self._spools = SpoolKeeper(
            config, clock, roots, self._retention.spools.note_dropped, board=board.directory if board else filesystem,
            made_by="made up by profagentd --simulate\n" if board else "",
        )  # fmt: skip
        self._spool_root = real_root(config.spool_directory)
        # Spools are served like a root's JOBs. A spool directory inside a root is found there.
        if self._spools.prepare() and not any(do_overlap(self._spool_root, root) for root in roots):
            roots.add(self._spool_root)
        self._discovery = LogDiscovery(
            roots, config.depth, clock, self._registry, scan=config.scan, acl_json=config.acl_json
        )
        access = AccessControl(Revocations(config.tls_revoked) if config.tls_revoked else None, insecure=config.is_open)
        certificates = (config.tls_cert, config.tls_ca)
        examiner = Examiner(
            self._registry, self._discovery, clock, certificates, filesystem,
            lacking=lambda: self._spools.lacking,
        )  # fmt: skip
        identity = identify(config.identity, filesystem)
        self._servicer = Servicer(
            self._registry, self._discovery, clock, self._retention, identity, access, examiner, simulated=is_simulated
        )
        self._server = Server(self._servicer, access, server_credentials(config))

    @property
    def status(self) -> str:
        jobs = [job for job in self._registry.jobs if job.place.root != self._spool_root]
        open_jobs = sum(job.state is JobState.OPEN for job in jobs)
        clients, losses = self._servicer.streams, len(self._losses.since(0))
        return f"clients: {clients}, JOBs: {len(jobs)} ({open_jobs} open), recorded losses: {losses}"

    async def run(self, stop: asyncio.Event) -> None:
        config = self._options.config
        # Before the first client, as each stream sends the recorded losses at its start.
        await self._losses.load()
        address = await self._server.start(config.listen)
        tasks = self._tasks(stop)
        if config.is_open:
            _LOGGER.warning(
                "%s is open: no TLS, no certificates, anyone who reaches it may do anything (--insecure)", address
            )
        print(f"profagentd {__version__} serving {address}", flush=True)  # noqa: T201 - the line that callers wait for
        self._notifier.notify("READY=1", f"STATUS={self.status}")
        try:
            await until_first(*tasks)
        finally:
            await self._server.stop()

    def _tasks(self, stop: asyncio.Event) -> list[Coroutine[Any, Any, None]]:
        """Return the tasks that run side by side. JOBs are watched until each client had its Goodbye."""
        tasks = [
            self._discovery.run(),
            self._registry.update_states(),
            *self._retention.tasks(),
            self._until_stopped(stop),
        ]
        tasks.append(self._spools.run())
        tasks.append(self._notifier.keep_notifying(self._clock, lambda: self.status))
        if self._options.stdin_timeout_s is not None:
            tasks.append(stop_with_stdin(self._options.stdin_timeout_s, stop))
        if self._options.reread:
            tasks.append(self._reload_when(_event_of(signal.SIGHUP), self._options.reread))
        if self._options.simulation:
            tasks.append(_simulate(self._options.simulation, self._clock, self._spools))
        return tasks

    async def _until_stopped(self, stop: asyncio.Event) -> None:
        await stop.wait()
        _LOGGER.info("stopping")
        self._notifier.notify("STOPPING=1", f"STATUS=stopping; {self.status}")
        # The order matters: the last records are in the spools before clients are drained, and every client has left
        # before retention saves the last deliveries.
        await self._spools.end()
        # A client that does not read must not delay the end for ever.
        await until_first(self._server.drain(), self._clock.sleep(DRAIN_S))
        await self._server.stop()
        await self._retention.save_deliveries()

    # Settings that change

    async def _reload_when(self, requested: asyncio.Event, reread: Callable[[], ExaminedConfig]) -> None:
        while True:
            await requested.wait()
            requested.clear()
            self._notifier.notify("RELOADING=1", f"MONOTONIC_USEC={int(self._clock.monotonic() * US_PER_S)}")
            await self._reload(reread)
            self._notifier.notify("READY=1", f"STATUS={self.status}")

    async def _reload(self, reread: Callable[[], ExaminedConfig]) -> None:
        """Read the settings again. With a mistake in them everything stays as it was."""
        examined = await asyncio.to_thread(reread)
        for mistake in examined.mistakes:
            _LOGGER.error("%s; %s", mistake, mistake.hint)
        if examined.mistakes:
            _LOGGER.error("the new settings have an error: the earlier ones stay in force")
            return
        config = examined.config
        logging.getLogger().setLevel(config.log_level.upper())
        self._discovery.acl_json = config.acl_json
        if config.policy != self._retention.policy:
            self._retention.change_policy(config.policy)
            # Clients come back, and acknowledge again what they have, as earlier deliveries do not count any more.
            self._servicer.close("another retention holds from now on")
        self._change_roots([await asyncio.to_thread(real_root, root) for root in config.roots])
        # Compared with the settings of the start, which are still in force.
        for key in (field.name for field in fields(config) if field.name not in _LIVE):
            if getattr(config, key) != getattr(self._options.config, key):
                _LOGGER.warning("a new value of %s needs a restart of profagentd", key)
        _LOGGER.info("reloaded the settings")

    def _change_roots(self, roots: list[bytes]) -> None:
        served = list(self._discovery.roots)
        for root in served:
            if root not in (*roots, self._spool_root):
                _LOGGER.warning("%s remains a root: its removal needs a restart of profagentd", os.fsdecode(root))
        for root in roots:
            if root in served:
                continue
            if any(do_overlap(root, other) for other in served):
                _LOGGER.warning("%s overlaps a root: this change needs a restart of profagentd", os.fsdecode(root))
            else:
                self._discovery.roots.add(root)
                _LOGGER.info("added the root %s", os.fsdecode(root))


def _event_of(*signals: signal.Signals) -> asyncio.Event:
    requested = asyncio.Event()
    for each in signals:
        asyncio.get_running_loop().add_signal_handler(each, requested.set)
    return requested


async def _simulate(options: SimulationOptions, clock: DaemonClock, spools: SpoolKeeper) -> None:
    await spools.offered.wait()
    _LOGGER.info("simulated board: %s", await simulate(options, clock))
    await spools.end()
    await asyncio.Event().wait()
