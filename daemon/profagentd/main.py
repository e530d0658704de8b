"""The command `profagentd`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from profagentd import __version__
from profagentd.allocator import keep_little
from profagentd.clock import SystemClock
from profagentd.config import LOG_LEVELS, POLICIES, DaemonConfig, configure
from profagentd.errors import DaemonError
from profagentd.simulate import SimulationOptions, add_simulation_arguments, options_from

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagentd.clock import Clock

TLS_1_2_SUITES = "ECDHE-PSK-AES128-CBC-SHA"
_EXAMPLE = "example: profagentd --root /opt/app/output --listen 127.0.0.1:50151"


def main(arguments: Sequence[str] | None = None, clock: Clock | None = None, filesystem: Path = Path("/")) -> int:
    """Serve until SIGTERM or SIGINT, by this machine's clocks and files unless others are given; the exit code."""
    try:
        args = _parse(arguments)
        config = configure(args.config, {key: getattr(args, key) for key in DaemonConfig.__dataclass_fields__})
        simulation = _simulation(args)
        logging.basicConfig(
            level=config.log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
        )
        keep_little()
        _run(config, simulation, clock or SystemClock(), filesystem)
    except DaemonError as error:
        print(f"profagentd: {error}\n  {error.hint}", file=sys.stderr)  # noqa: T201 - the command's own output
        return error.exit_code
    return 0


def _run(config: DaemonConfig, simulation: SimulationOptions | None, clock: Clock, filesystem: Path) -> None:
    # gRPC knows no minimum version of TLS, and reads its environment once, when it is imported. It asks for a list of
    # suites up to TLS 1.2; those with pre-shared keys serve no certificate of any kind, so 1.3 is what remains.
    os.environ["GRPC_SSL_CIPHER_SUITES"] = TLS_1_2_SUITES
    from profagentd.daemon import serve  # noqa: PLC0415 - see above

    asyncio.run(serve(config, simulation, clock, filesystem))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="profagentd", description="Sends what grows in JOB directories to those who follow it.", epilog=_EXAMPLE
    )
    parser.add_argument("--version", action="version", version=f"profagentd {__version__}")
    parser.add_argument("--config", metavar="FILE", type=Path, help="settings as TOML; arguments win over them")
    parser.add_argument("--root", dest="roots", metavar="DIR", action="append", help="look for JOBs below (repeatable)")
    parser.add_argument("--listen", metavar="HOST:PORT", help="loopback address, or unix:PATH; port 0: any free one")
    parser.add_argument(
        "--quiet-after", dest="quiet_after_s", metavar="SECONDS", type=float, help="a JOB without change is quiet (60)"
    )
    parser.add_argument("--depth", metavar="N", type=int, help="levels below a root on which a JOB may be (4)")
    parser.add_argument("--scan", action="store_true", default=None, help="look at directories instead of inotify")
    parser.add_argument(
        "--acl-json", metavar="FILE", action="append", help="acl.json of programs, or a pattern (repeatable)"
    )
    parser.add_argument("--identity", metavar="UUID", help="this board's identity (/etc/profagent/board-id)")
    parser.add_argument(
        "--retain", choices=POLICIES, help="what is deleted: nothing (keep), what is delivered, or that"
    )
    parser.add_argument(
        "--retain-for", metavar="CONSUMER", action="append", help="who must have a log before it goes (repeatable)"
    )
    parser.add_argument("--min-free", metavar="SIZE", help="with --retain min_free: 200MB, or 10%% of the file system")
    parser.add_argument(
        "--delete-undelivered", action="store_true", default=None, help="with --retain min_free: others go, too"
    )
    parser.add_argument("--state", metavar="DIR", help="absolute path, for losses over restarts (/var/lib/profagentd)")
    parser.add_argument("--log-level", choices=LOG_LEVELS, help="what is told on stderr (info)")
    parser.add_argument("--tls-cert", metavar="FILE", help="this board's certificate; with it TLS is demanded")
    parser.add_argument("--tls-key", metavar="FILE", help="its key, mode 0600")
    parser.add_argument("--tls-ca", metavar="FILE", help="who must have issued the hosts' certificates")
    parser.add_argument("--tls-revoked", metavar="FILE", help="fingerprints that are refused all the same")
    parser.add_argument("--insecure", action="store_true", default=None, help="let anybody in, from anywhere")
    parser.add_argument("--simulate", action="store_true", help="write a JOB as a board would, and serve it")
    add_simulation_arguments(parser)
    return parser.parse_args(arguments)


def _simulation(args: argparse.Namespace) -> SimulationOptions | None:
    """What to simulate; its root is set when it runs. DaemonError for such options without --simulate."""
    options = options_from(args)
    if args.simulate:
        return options
    if options != SimulationOptions():
        raise DaemonError("options of the simulated board without --simulate", hint="add --simulate, or leave them out")
    return None
