"""Fetching the wheels of a board's Python with pip, once for each kind of board."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from profagent.deploy.wheels import download_arguments, filling
from profagent.errors import ProfagentError
from profagent.files import make_directory

if TYPE_CHECKING:
    from profagent.deploy.wheels import BoardPython

_ONLINE = "check this host's internet or pip's settings"


def cache_folder() -> Path:
    """Where fetched wheels are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "profagent" / "wheels"


async def fetch_wheels(python: BoardPython, wheelhouse: Path | None = None) -> list[Path]:
    """The wheels; those of a wheelhouse are not kept apart from it. Raises ProfagentError."""
    kept = cache_folder() / python.key
    if wheelhouse is None and (wheels := _wheels(kept)):
        return wheels
    make_directory(kept.parent)
    folder = Path(tempfile.mkdtemp(prefix=f".{python.key}-", dir=kept.parent))
    try:
        hint = f"on a machine with internet: {filling(python, wheelhouse)}" if wheelhouse else _ONLINE
        await _pip(download_arguments(python, folder, wheelhouse), hint)
        if wheelhouse is not None:
            return [wheelhouse / wheel.name for wheel in _wheels(folder)]
        return _keep(folder, kept)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _keep(folder: Path, kept: Path) -> list[Path]:
    # Another command may have been faster: what it has brought is the same.
    with suppress(OSError):
        folder.rename(kept)
    return _wheels(kept)


def _wheels(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.whl"))


async def _pip(arguments: list[str], hint: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pip", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, complaint = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        lines = complaint.decode("utf-8", "replace").strip().splitlines() or ["pip failed"]
        raise ProfagentError(f"the board's libraries cannot be fetched: {lines[-1]}", hint=hint)
