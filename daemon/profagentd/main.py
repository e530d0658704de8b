"""The command `profagentd`. It imports the common modules first, without OpenSSL (8 MB)."""

from __future__ import annotations

import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from profagentd.loop import DaemonClock


# Python's modules for OpenSSL. asyncio and hashlib work without them, as on Pythons that were built without OpenSSL.
_MODULES = ("_ssl", "_hashlib")


@contextmanager
def without_openssl() -> Iterator[None]:
    """Hide OpenSSL from imports inside this context; later imports find it."""
    absent = [name for name in _MODULES if name not in sys.modules]
    for name in absent:
        sys.modules[name] = None  # type: ignore[assignment]  # None makes an import fail
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


with without_openssl():
    import asyncio
    import hashlib  # noqa: F401

import argparse
import ctypes
import logging
import math
import os
import signal
from functools import partial
from pathlib import Path

from profagentd import __version__
from profagentd.config import LOG_LEVELS, POLICIES, DaemonConfig, examine
from profagentd.errors import DaemonError
from profagentd.limits import MOST_FREE_BYTES
from profagentd.loop import SystemClock
from profagentd.simulate.network import load_network
from profagentd.simulate.run import SimulationOptions, add_simulation_arguments, options_from

_EXAMPLE = "example: profagentd --root /opt/app/output --listen 127.0.0.1:50151"
# gRPC has no option for a minimum version of TLS, only a list of suites up to TLS 1.2. A suite with pre-shared keys
# fits no certificate, so that only TLS 1.3 remains.
_TLS_1_2_SUITES = "ECDHE-PSK-AES128-CBC-SHA"
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


def main(arguments: Sequence[str] | None = None, clock: DaemonClock | None = None, filesystem: Path = Path("/")) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code. Tests pass a clock and a directory for the board's files."""
    try:
        args = make_parser().parse_args(arguments)
        simulation = _simulation(args)
        # gRPC reads these once, when it is imported. Its own log is off: a peer that speaks no TLS could fill it.
        os.environ["GRPC_SSL_CIPHER_SUITES"] = _TLS_1_2_SUITES
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        if args.check_config:
            return _check(args)
        _serve(args, simulation, clock or SystemClock(), filesystem)
    except DaemonError as error:
        _complain(error)
        return error.exit_code
    return 0


def _serve(
    args: argparse.Namespace, simulation: SimulationOptions | None, clock: DaemonClock, filesystem: Path
) -> None:
    settings = _settings(args)
    is_reloadable = args.config or args.roots_d
    if is_reloadable:
        # The settings are about to be read: a SIGHUP before the service handles it must not kill the process.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    examined = examine(args.config, settings, needs_root=not simulation)
    for mistake in examined.mistakes:
        raise mistake
    _log_to_stderr(examined.config.log_level)
    from profagentd import access, service  # noqa: PLC0415 - imports gRPC

    access.check_tls(examined.config)
    reread = partial(examine, args.config, settings) if is_reloadable else None
    _keep_freed_memory()
    options = service.ServiceOptions(examined.config, simulation, args.stdin_timeout, reread)
    asyncio.run(service.serve(options, clock, filesystem))


def _keep_freed_memory() -> None:
    """Let glibc keep the memory of one message for the next: giving it back takes a tenth of the daemon's time."""
    libc = ctypes.CDLL(None)
    with suppress(AttributeError):  # musl has no such setting
        # Setting either also turns off glibc's dynamic adjustment of both.
        for parameter in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD):
            libc.mallopt(parameter, MOST_FREE_BYTES)


def _check(args: argparse.Namespace) -> int:
    from profagentd import access  # noqa: PLC0415 - imports gRPC

    examined = examine(args.config, _settings(args), needs_root=not args.simulate)
    mistakes = [*examined.mistakes, *access.tls_faults(examined.config, examined.places)]
    for mistake in mistakes:
        _complain(mistake, "")
    if mistakes:
        return DaemonError.exit_code
    print("ok")  # noqa: T201 - the command's own output
    return 0


def _settings(args: argparse.Namespace) -> dict[str, object]:
    return {key: getattr(args, key) for key in DaemonConfig.__dataclass_fields__}


def _simulation(args: argparse.Namespace) -> SimulationOptions | None:
    """Return the simulation's options, or None. Raises DaemonError for a bad network, or options without --simulate."""
    options = options_from(args)
    if args.simulate:
        load_network(options.model)
        if options.contend:
            load_network(options.contend.partition("@")[0])
        return options
    if options != SimulationOptions():
        raise DaemonError("options of the simulated board without --simulate", hint="add --simulate, or leave them out")
    return None


# The log

_PRIORITIES = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}


def is_journal(descriptor: int) -> bool:
    """Return True if a descriptor leads to the journal. systemd sets JOURNAL_STREAM to its device and inode."""
    found = os.fstat(descriptor)
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


class LineFormatter(logging.Formatter):
    """Formatter that keeps a message on one line, whatever a file's name holds. Only a traceback has more."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - its name in the library
        """Return the line, with control characters escaped so that none can steer a terminal."""
        line = super().formatMessage(record)
        return "".join(each if each.isprintable() else repr(each)[1:-1] for each in line)


class JournalFormatter(LineFormatter):
    """Formatter for the journal, which takes each line for an entry and adds the time: it prefixes the priority."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's lines, each with its priority."""
        return _marked(super().format(record), record.levelname)


def _marked(text: str, level: str) -> str:
    return "\n".join(f"<{_PRIORITIES[level]}>{line}" for line in text.splitlines())


def _log_to_stderr(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    if is_journal(sys.stderr.fileno()):
        handler.setFormatter(JournalFormatter("%(name)s: %(message)s"))
    else:
        handler.setFormatter(LineFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])


def _complain(error: DaemonError, who: str = "profagentd: ") -> None:
    text = f"{who}{error}\n  {error.hint}"
    print(_marked(text, "ERROR") if is_journal(sys.stderr.fileno()) else text, file=sys.stderr)  # noqa: T201


# The arguments


def make_parser() -> argparse.ArgumentParser:
    """Return the parser. Arguments have the names of settings; None stands for an absent one."""
    parser = argparse.ArgumentParser(
        prog="profagentd", description="Sends what grows in JOB directories to those who follow it.", epilog=_EXAMPLE
    )
    parser.add_argument("--version", action="version", version=f"profagentd {__version__}")
    parser.add_argument("--config", metavar="FILE", type=Path, help="settings as TOML; arguments win over them")
    parser.add_argument("--check-config", action="store_true", help="name the mistakes in the settings, and end")
    for option, details in _SETTINGS.items():
        parser.add_argument(option, **details)
    parser.add_argument(
        "--stdin-timeout",
        metavar="SECONDS",
        type=_seconds,
        help="end when standard input is closed, or silent for so long",
    )
    parser.add_argument("--simulate", action="store_true", help="write a JOB as a board would, and serve it")
    add_simulation_arguments(parser)
    return parser


def _list(dest: str, metavar: str, text: str) -> dict[str, Any]:
    return {"dest": dest, "metavar": metavar, "action": "append", "help": text}


def _flag(text: str) -> dict[str, Any]:
    return {"action": "store_true", "default": None, "help": text}


_SETTINGS: dict[str, dict[str, Any]] = {
    "--root": _list("roots", "DIR", "look for JOBs below this directory (repeatable)"),
    "--roots-d": {
        "metavar": "DIR",
        "type": os.path.abspath,
        "help": "more roots: files *.conf in it that name one a line",
    },
    "--listen": {
        "metavar": "HOST:PORT",
        "help": "loopback address, unix:PATH, or with TLS any address (127.0.0.1:50151); port 0: a free one",
    },
    "--quiet-after": {
        "dest": "quiet_after_s",
        "metavar": "SECONDS",
        "type": float,
        "help": "a JOB without a change for so long is quiet (60)",
    },
    "--depth": {"metavar": "N", "type": int, "help": "levels below a root on which a JOB may be (4)"},
    "--scan": _flag("scan the directories again and again, in place of inotify"),
    "--acl-json": _list("acl_json", "FILE", "acl.json of programs, or a pattern (repeatable)"),
    "--identity": {"metavar": "UUID", "help": "this board's identity (/etc/profagent/board-id)"},
    "--retain": {
        "choices": POLICIES,
        "help": "delete nothing; what consumers have; or that only when room is short (keep)",
    },
    "--retain-for": _list("retain_for", "CONSUMER", "consumer that must have a log before it is deleted (repeatable)"),
    "--min-free": {"metavar": "SIZE", "help": "with --retain min_free: 200MB, or 10%% of the file system"},
    "--delete-undelivered": _flag("with --retain min_free: also delete logs that nobody has"),
    "--state": {
        "metavar": "DIR",
        "help": "absolute path of what outlives a restart, such as losses (/var/lib/profagentd)",
    },
    "--spools": {
        "metavar": "KIND,…",
        "type": lambda text: [each for each in text.split(",") if each],
        "help": "kinds that the daemon keeps, of ops,marks,metrics; empty for none (all)",
    },
    "--spool-dir": {"metavar": "DIR", "help": "absolute path of the spools (spool in the directory of --state)"},
    "--spool-cap": {
        "metavar": "SIZE",
        "help": "size of metrics, marks or operators above which their oldest is deleted (64MB)",
    },
    "--run": {"metavar": "DIR", "help": "absolute path of the FIFOs that programs write to (/run/profagent)"},
    "--subscription": _list("subscriptions", "NAME", "make a FIFO ops.NAME for descriptors (program; repeatable)"),
    "--metrics-hz": {"metavar": "HZ", "type": float, "help": "samples of each metric a second, at most 20 (1)"},
    "--log-level": {"choices": LOG_LEVELS, "help": "least level of the lines on stderr (info)"},
    "--tls-cert": {"metavar": "FILE", "help": "this board's certificate; with it clients must use TLS"},
    "--tls-key": {"metavar": "FILE", "help": "key of the certificate, mode 0600"},
    "--tls-ca": {"metavar": "FILE", "help": "authority that must have issued the hosts' certificates"},
    "--tls-revoked": {"metavar": "FILE", "help": "fingerprints of certificates that are refused all the same"},
    "--insecure": _flag("let anybody in, from anywhere"),
}


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < math.inf:
        raise ValueError(text)
    return seconds
