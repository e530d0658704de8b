"""The arguments of the command `profagentd`."""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

from profagentd import __version__
from profagentd.rules import LOG_LEVELS, POLICIES
from profagentd.simulate import add_simulation_arguments

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    parser.add_argument("--root", dest="roots", metavar="DIR", action="append", help="look for JOBs below (repeatable)")
    parser.add_argument(
        "--roots-d", metavar="DIR", type=os.path.abspath, help="look also below what its files *.conf name, a line each"
    )
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
