"""The daemon's parts put together, run, and brought to an end."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
import socket
import stat
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

import grpc

from profagentd import __version__
from profagentd.access import AccessControl, Revocations
from profagentd.errors import DaemonError
from profagentd.examine import Examiner, identify
from profagentd.follow.registry import JobRegistry
from profagentd.follow.server import Server, Servicer
from profagentd.follow.watcher import Watch
from profagentd.loop import until_first
from profagentd.retention.acks import KeptAcks
from profagentd.retention.losses import KeptLosses
from profagentd.retention.retention import Retention
from profagentd.roots import Roots, lie_together, real_roots
from profagentd.simulate import SimulationOptions, simulate
from profagentd.sources.state import JobState
from profagentd.tls_files import unreadable

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Mapping

    from profagentd.config import DaemonConfig, Examined
    from profagentd.loop import Clock
    from profagentd.tls_files import TlsFiles


_LOGGER = logging.getLogger(__name__)
_US_PER_S = 1_000_000


class Notifier:
    """Tells how the daemon is. A datagram that cannot be sent is of no consequence: systemd is gone, or behind."""

    def __init__(self, clock: Clock, environment: Mapping[str, str] = os.environ) -> None:
        self._clock = clock
        self._address = environment.get("NOTIFY_SOCKET", "")
        self.watchdog_s = _watchdog_s(environment)  # None when nobody watches over this process
        self._socket: socket.socket | None = None
        if self._address.startswith(("/", "@")):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)

    @property
    def is_heard(self) -> bool:
        """Whether there is somebody to tell."""
        return self._socket is not None

    def close(self) -> None:
        """Tell nothing more."""
        if self._socket:
            self._socket.close()
            self._socket = None

    def ready(self, status: str) -> None:
        """It serves, or goes on serving with other settings."""
        self._send("READY=1", f"STATUS={status}")

    def status(self, status: str) -> None:
        """A line for `systemctl status`."""
        self._send(f"STATUS={status}")

    def alive(self) -> None:
        """It works: the next such word is due within `watchdog_s`."""
        self._send("WATCHDOG=1")

    def reloading(self) -> None:
        """Settings are read anew; `ready` follows."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={int(self._clock.monotonic() * _US_PER_S)}")

    def stopping(self, status: str) -> None:
        """It is about to end."""
        self._send("STOPPING=1", f"STATUS={status}")

    def _send(self, *lines: str) -> None:
        if not self._socket:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            self._socket.sendto("\n".join(lines).encode(), address)
        except OSError as error:
            _LOGGER.debug("systemd was not told %s: %s", lines[0], error.strerror)


def _watchdog_s(environment: Mapping[str, str]) -> float | None:
    """How long systemd waits for a sign of life; None when it does not, or does for another process."""
    text, process = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", str(os.getpid()))
    if not text.isdigit() or process != str(os.getpid()):
        return None
    return int(text) / _US_PER_S or None


_RETENTION = frozenset(("retain", "retain_for", "min_free", "delete_undelivered"))
_LIVE = frozenset(("roots", "roots_d", "acl_json", "log_level")) | _RETENTION


class Reloading:
    """Reads the settings anew when it is asked to."""

    def __init__(
        self,
        config: DaemonConfig,
        reread: Callable[[], Examined],
        watch: Watch,
        retention: Retention,
        servicer: Servicer,
    ) -> None:
        self._config = config  # as it was at the start: what takes a restart is told until there was one
        self._reread = reread
        self._watch = watch
        self._retention = retention
        self._servicer = servicer

    async def run(self, asked: asyncio.Event, notifier: Notifier, status: Callable[[], str]) -> None:
        """Read them whenever that is asked for, until cancelled."""
        while True:
            await asked.wait()
            asked.clear()
            notifier.reloading()
            await self.reload()
            notifier.ready(status())

    async def reload(self) -> None:
        """Read them now; with a mistake in them everything stays as it was."""
        examined = await asyncio.to_thread(self._reread)
        for mistake in examined.mistakes:
            _LOGGER.error("%s; %s", mistake, mistake.hint)
        if examined.mistakes:
            _LOGGER.error("the settings stay as they were")
            return
        roots = await asyncio.to_thread(real_roots, examined.config.roots)
        self._apply(examined.config, roots)
        _LOGGER.info("the settings were read again")

    def _apply(self, config: DaemonConfig, roots: list[bytes]) -> None:
        logging.getLogger().setLevel(config.log_level.upper())
        self._watch.acl_json = config.acl_json
        if config.policy != self._retention.policy:
            self._retention.change_policy(config.policy)
            # Clients come back, and tell anew what they have.
            self._servicer.close("another retention holds from now on")
        self._change_roots(roots)
        for key in (field.name for field in fields(config) if field.name not in _LIVE):
            if getattr(config, key) != getattr(self._config, key):
                _LOGGER.warning("another %s takes a restart", key)

    def _change_roots(self, roots: list[bytes]) -> None:
        served = list(self._watch.roots)
        for root in served:
            if root not in roots:
                _LOGGER.warning("%s is a root still: to leave it out takes a restart", os.fsdecode(root))
        for root in roots:
            if root in served:
                continue
            if any(lie_together(root, other) for other in served):
                _LOGGER.warning("%s lies together with a root: to change this takes a restart", os.fsdecode(root))
            else:
                self._watch.roots.add(root)
                _LOGGER.info("%s is a root from now on", os.fsdecode(root))


FILE_NAME = "lock"
_SHOWN_BYTES = 200


@contextmanager
def state_lock(directory: Path | None, listen: str) -> Iterator[None]:
    """Have the directory to oneself. Raises DaemonError when another daemon has it, or its lock is no regular file.

    One that cannot be written, or knows no locks, is nobody's: nothing is kept there that could be lost.
    """
    descriptor = None if directory is None else _opened(directory)
    try:
        if descriptor is not None:
            _lock(descriptor, f"{directory}")
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()}, for {listen}\n".encode(), 0)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _opened(directory: Path) -> int | None:
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        path = directory / FILE_NAME
        if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
            raise DaemonError(f"{path} is no regular file", hint="take it away: the daemon makes its own")
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError:
        return None


def _lock(descriptor: int, directory: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, _SHOWN_BYTES, 0).decode("utf-8", "replace").strip()
        raise DaemonError(
            f"{directory} is in use by another profagentd: {holder or 'it does not say which'}",
            hint="end that one, or give each daemon a --state of its own",
        ) from error
    except OSError:
        return


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Mutual TLS: a client without a certificate of the authority gets no connection.

    The files were checked. Raises DaemonError when they are gone meanwhile.
    """
    cert, key, ca = (_read(path) for path in (files.cert, files.key, files.ca))
    return grpc.ssl_server_credentials([(key, cert)], root_certificates=ca, require_client_auth=True)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise unreadable(path, error) from error


_SOME_BYTES = 4096


async def held(leash_s: float, clock: Clock) -> None:
    """Return when standard input is closed, or silent for `leash_s`. Raises DaemonError when nobody can hold it."""
    heard = asyncio.Event()
    reader = asyncio.StreamReader()
    if not _can_be_held(sys.stdin.fileno()):
        hint = "keep a pipe, a socket or a terminal open there, e.g. through ssh"
        raise DaemonError("--leash: standard input is nothing that somebody holds", hint=hint)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        await until_first(_hear(reader, heard), _mind_silence(heard, leash_s, clock))
    finally:
        transport.close()


async def _hear(reader: asyncio.StreamReader, heard: asyncio.Event) -> None:
    while await reader.read(_SOME_BYTES):
        heard.set()
    _LOGGER.info("standard input was closed")


async def _mind_silence(heard: asyncio.Event, leash_s: float, clock: Clock) -> None:
    while True:
        heard.clear()
        await clock.sleep(leash_s)
        if not heard.is_set():
            _LOGGER.warning("nothing came on standard input for %g s", leash_s)
            return


def _can_be_held(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


# How often the status is told when it has changed.
STATUS_S = 2.0


async def report(notifier: Notifier, clock: Clock, status: Callable[[], str]) -> None:
    """Tell of both until cancelled; nothing where nobody listens."""
    if not notifier.is_heard:
        await asyncio.Event().wait()
    await until_first(_tell_status(notifier, clock, status), _prove_life(notifier, clock))


async def _tell_status(notifier: Notifier, clock: Clock, status: Callable[[], str]) -> None:
    told = ""
    while True:
        if status() != told:
            told = status()
            notifier.status(told)
        await clock.sleep(STATUS_S)


async def _prove_life(notifier: Notifier, clock: Clock) -> None:
    """A sign of life is one of the loop, which comes here, and of the threads, which take work and give it back."""
    if notifier.watchdog_s is None:
        await asyncio.Event().wait()
        return
    while True:
        await asyncio.to_thread(_nothing)
        notifier.alive()
        await clock.sleep(notifier.watchdog_s / 2)


def _nothing() -> None:
    """Work for a thread."""


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
        cleanup.enter_context(state_lock(_state_directory(orders), orders.config.listen))
        notifier = cleanup.enter_context(closing(Notifier(clock)))
        await _Daemon(orders, clock, notifier, filesystem).run(stop)


class _Daemon:
    """The parts, and what they do together."""

    def __init__(self, orders: Orders, clock: Clock, notifier: Notifier, filesystem: Path) -> None:
        config, is_simulated = orders.config, orders.simulation is not None
        self._orders = orders
        self._clock = clock
        self._notifier = notifier
        self._board = JobRegistry(clock, config.quiet_after_s)
        roots = Roots(real_roots(config.roots))
        self._watch = Watch(roots, config.depth, clock, self._board, scan=config.scan, acl_json=config.acl_json)
        state = _state_directory(orders)
        self._losses = KeptLosses(state)
        kept = self._losses, KeptAcks(state)
        self._retention = Retention(config.policy, roots, clock, self._board, *kept, has_npu=not is_simulated)
        access = AccessControl(Revocations(config.tls_revoked) if config.tls_revoked else None, insecure=config.is_open)
        identity = identify(config.identity, filesystem)
        certificates = (config.tls_cert, config.tls_ca)
        examiner = Examiner(self._board, self._watch, clock, certificates, orders.settings_file, filesystem)
        self._servicer = Servicer(
            self._board, self._watch, clock, self._retention, identity, access, examiner, simulated=is_simulated
        )
        self._server = Server(self._servicer, access, _credentials(config))

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
        works = [self._watch.run(), self._board.keep_states(), *self._retention.works(), self._until_stopped(stop)]
        works.append(report(self._notifier, self._clock, lambda: self.status))
        if self._orders.leash_s is not None:
            works.append(_stop_when_let_go(self._orders.leash_s, self._clock, stop))
        if self._orders.reread:
            reloading = Reloading(
                self._orders.config, self._orders.reread, self._watch, self._retention, self._servicer
            )
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
        await self._retention.settle()


def _asked_by(*signals: signal.Signals) -> asyncio.Event:
    """What is set when one of these signals comes."""
    asked = asyncio.Event()
    for each in signals:
        asyncio.get_running_loop().add_signal_handler(each, asked.set)
    return asked


def _credentials(config: DaemonConfig) -> grpc.ServerCredentials | None:
    return server_credentials(config.tls_files) if config.has_tls else None


def _state_directory(orders: Orders) -> Path | None:
    """Where losses and deliveries are kept; those of a simulated board are of no interest after it."""
    return Path(orders.config.state) if orders.config.state else None if orders.simulation else STATE_DIRECTORY


async def _stop_when_let_go(leash_s: float, clock: Clock, stop: asyncio.Event) -> None:
    await held(leash_s, clock)
    stop.set()
    await asyncio.Event().wait()


async def _simulate(options: SimulationOptions, clock: Clock) -> None:
    """Simulate, then serve on."""
    _LOGGER.info("simulated board: %s", await simulate(options, clock))
    await asyncio.Event().wait()
