"""What the command `profagentd` does by its arguments and settings."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from functools import partial
from typing import TYPE_CHECKING

from profagentd.allocator import give_back, keep_little
from profagentd.arguments import parse
from profagentd.clock import SystemClock
from profagentd.config import DaemonConfig, configure, examine, need_root
from profagentd.errors import DaemonError
from profagentd.journal import complain, log_to_stderr
from profagentd.simulate import SimulationOptions, load_network, options_from
from profagentd.tls_files import check

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from profagentd.clock import Clock

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
    keep_little()
    from profagentd.daemon import Orders, serve  # noqa: PLC0415 - imports gRPC: see above

    give_back()
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
    print("fine")  # noqa: T201 - the command's own output
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
