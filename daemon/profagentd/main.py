"""The start of the command `profagentd`: what all others import is imported here first, without OpenSSL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from profagentd.openssl import without_openssl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagentd.clock import Clock

with without_openssl():
    import asyncio  # noqa: F401
    import hashlib  # noqa: F401


def main(arguments: Sequence[str] | None = None, clock: Clock | None = None, filesystem: Path = Path("/")) -> int:
    """Serve until SIGTERM or SIGINT, by this machine's clocks and files unless others are given; the exit code."""
    from profagentd.command import run  # noqa: PLC0415 - imports both: see above

    return run(arguments, clock, filesystem)
