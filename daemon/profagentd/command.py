"""What the command `profagentd` does by its arguments and settings."""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from profagentd import __version__
from profagentd.config import LOG_LEVELS, POLICIES, DaemonConfig, configure, examine, need_root
from profagentd.errors import DaemonError
from profagentd.loop import SystemClock
from profagentd.simulate import SimulationOptions, add_simulation_arguments, load_network, options_from
from profagentd.tls_files import check

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from profagentd.loop import Clock


_EXAMPLE = "example: profagentd --root /opt/app/output --listen 127.0.0.1:50151"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The arguments, named as the settings are; None is what was not given."""
    parser = argparse.ArgumentParser(
        prog="profagentd", description="Sends what grows in JOB directories to those who follow it.", epilog=_EXAMPLE
    )
    parser.add_argument("--version", action="version", version=f"profagentd {__version__}")
    parser.add_argument("--config", metavar="FILE", type=Path, help="settings as TOML; arguments win over them")
    parser.add_argument("--check-config", action="store_true", help="name every mistake in the settings, and end")
    _add_settings(parser)
    _add_tls(parser)
    parser.add_argument(
        "--leash", metavar="SECONDS", type=_seconds, help="end when standard input is closed, or silent for so long"
    )
    parser.add_argument("--simulate", action="store_true", help="write a JOB as a board would, and serve it")
    add_simulation_arguments(parser)
    return parser.parse_args(arguments)


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--root", dest="roots", metavar="DIR", action="append", help="look for JOBs below this directory (repeatable)"
    )
    parser.add_argument(
        "--roots-d", metavar="DIR", type=os.path.abspath, help="more roots: its files *.conf name one a line"
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="loopback address, unix:PATH, or with TLS any address (127.0.0.1:50151); port 0: any free one",
    )
    parser.add_argument(
        "--quiet-after",
        dest="quiet_after_s",
        metavar="SECONDS",
        type=float,
        help="a JOB without a change for so long is quiet (60)",
    )
    parser.add_argument("--depth", metavar="N", type=int, help="levels below a root on which a JOB may be (4)")
    parser.add_argument("--scan", action="store_true", default=None, help="look at directories instead of inotify")
    parser.add_argument(
        "--acl-json", metavar="FILE", action="append", help="acl.json of programs, or a pattern (repeatable)"
    )
    parser.add_argument("--identity", metavar="UUID", help="this board's identity (/etc/profagent/board-id)")
    parser.add_argument(
        "--retain",
        choices=POLICIES,
        help="what may be deleted: nothing (keep), what consumers have, or that when room is short (keep)",
    )
    parser.add_argument(
        "--retain-for", metavar="CONSUMER", action="append", help="who must have a log before it goes (repeatable)"
    )
    parser.add_argument("--min-free", metavar="SIZE", help="with --retain min_free: 200MB, or 10%% of the file system")
    parser.add_argument(
        "--delete-undelivered",
        action="store_true",
        default=None,
        help="with --retain min_free: also delete logs that nobody has",
    )
    parser.add_argument("--state", metavar="DIR", help="absolute path, for losses over restarts (/var/lib/profagentd)")
    parser.add_argument("--log-level", choices=LOG_LEVELS, help="what is told on stderr (info)")


def _add_tls(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tls-cert", metavar="FILE", help="this board's certificate; with it TLS is demanded")
    parser.add_argument("--tls-key", metavar="FILE", help="its key, mode 0600")
    parser.add_argument("--tls-ca", metavar="FILE", help="who must have issued the hosts' certificates")
    parser.add_argument("--tls-revoked", metavar="FILE", help="fingerprints that are refused all the same")
    parser.add_argument("--insecure", action="store_true", default=None, help="let anybody in, from anywhere")


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < math.inf:
        raise ValueError(text)
    return seconds


_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_DEBUG = 7


def is_journal(descriptor: int, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a descriptor leads to the journal, as systemd has said: JOURNAL_STREAM is its device and inode."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return False
    return environment.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def log_to_stderr(level: str) -> None:
    """Begin the log."""
    handler = logging.StreamHandler(sys.stderr)
    if is_journal(sys.stderr.fileno()):
        handler.setFormatter(JournalFormatter("%(name)s: %(message)s"))
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])


def complain(text: str) -> None:
    """Tell on stderr why the daemon cannot go on."""
    marked_text = marked(text, logging.ERROR) if is_journal(sys.stderr.fileno()) else text
    print(marked_text, file=sys.stderr)  # noqa: T201 - the command's own output


class JournalFormatter(logging.Formatter):
    """Each line with its priority; the journal knows the time."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's lines."""
        return marked(super().format(record), record.levelno)


def marked(text: str, level: int) -> str:
    """Each line of a text begun with the priority of its level: the journal takes a line for an entry."""
    priority = next((each for lowest, each in _PRIORITIES if level >= lowest), _DEBUG)
    return "\n".join(f"<{priority}>{line}" for line in text.splitlines())


_LOGGER = logging.getLogger(__name__)

TLS_1_2_SUITES = "ECDHE-PSK-AES128-CBC-SHA"


def run(arguments: Sequence[str] | None, clock: Clock | None, filesystem: Path) -> int:
    """Serve until SIGTERM or SIGINT, by this machine's clocks and files unless others are given; the exit code."""
    try:
        args = parse(arguments)
        simulation = _simulation(args)
        # gRPC knows no minimum version of TLS, and reads its environment once, when it is imported. It asks for a list
        # of suites up to TLS 1.2; those with pre-shared keys serve no certificate of any kind, so 1.3 is what remains.
        os.environ["GRPC_SSL_CIPHER_SUITES"] = TLS_1_2_SUITES
        if args.check_config:
            return _check(args)
        _serve(args, simulation, clock or SystemClock(), filesystem)
    except DaemonError as error:
        complain(f"profagentd: {error}\n  {error.hint}")
        return error.exit_code
    return 0


def _serve(args: argparse.Namespace, simulation: SimulationOptions | None, clock: Clock, filesystem: Path) -> None:
    settings = _settings(args)
    can_change = args.config or args.roots_d
    if can_change:
        # Until it serves, what SIGHUP asks for is done anyway.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    config = configure(args.config, settings)
    if not simulation:
        need_root(config)
    log_to_stderr(config.log_level)
    _check_tls(config)
    from profagentd.service import Orders, serve  # noqa: PLC0415 - imports gRPC: see above

    reread = partial(examine, args.config, settings) if can_change else None
    settings_file = os.path.abspath(args.config) if args.config else ""
    asyncio.run(serve(Orders(config, simulation, args.leash, reread, settings_file), clock, filesystem))


def _check_tls(config: DaemonConfig) -> None:
    doubt = check(config.tls_files) if config.has_tls else None
    if doubt:
        _LOGGER.warning("%s", doubt)


def _check(args: argparse.Namespace) -> int:
    """Name every mistake; the exit code."""
    from profagentd.checking import mistakes_in  # noqa: PLC0415 - imports gRPC: see above

    mistakes = mistakes_in(examine(args.config, _settings(args)), needs_root=not args.simulate)
    for mistake in mistakes:
        complain(f"{mistake}\n  {mistake.hint}")
    if mistakes:
        return DaemonError.exit_code
    print("ok")  # noqa: T201 - the command's own output
    return 0


def _settings(args: argparse.Namespace) -> dict[str, object]:
    return {key: getattr(args, key) for key in DaemonConfig.__dataclass_fields__}


def _simulation(args: argparse.Namespace) -> SimulationOptions | None:
    """What to simulate; its root is set when it runs. DaemonError without a network, or for options of its alone."""
    options = options_from(args)
    if args.simulate:
        load_network(options.model)
        return options
    if options != SimulationOptions():
        raise DaemonError("options of the simulated board without --simulate", hint="add --simulate, or leave them out")
    return None
