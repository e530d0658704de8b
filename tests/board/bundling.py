"""Commands that take long: making bundles, and what is done on a board that is emulated."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from tests.integration.host import COMMAND, ENVIRONMENT, Ended

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE_S = 600.0


def patiently(*arguments: str | Path, **variables: str) -> Ended:
    """Run `profagent` to its end."""
    ran = subprocess.run(
        [*COMMAND, *arguments],
        env={**ENVIRONMENT, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return Ended(ran.returncode, ran.stdout, ran.stderr)


def bundled(machine: str, source: Path, file: Path, folder: Path, *more: str | Path, **variables: str) -> Ended:
    """Run `profagent bundle`; the folder keeps the wheels."""
    given = ("--arch", machine, "--from", source, "-o", file, *more)
    return patiently("bundle", *given, **{"XDG_CACHE_HOME": str(folder / "cache"), **variables})
