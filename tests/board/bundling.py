"""Making bundles by the command."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.integration.host import COMMAND, ENVIRONMENT, Ended

# Wheels are fetched, and a bundle is 50 MB.
BUNDLE_S = 600.0


def bundled(machine: str, source: Path, file: Path, folder: Path, *more: str | Path, **variables: str) -> Ended:
    """Run `profagent bundle`; the folder keeps the wheels."""
    ran = subprocess.run(
        [*COMMAND, "bundle", "--arch", machine, "--from", source, "-o", file, *more],
        env={**ENVIRONMENT, "XDG_CACHE_HOME": str(folder / "cache"), **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BUNDLE_S,
        check=False,
    )
    return Ended(ran.returncode, ran.stdout, ran.stderr)
