"""Libraries that the daemon needs on a board: pinned versions, fetched on the host, and checked by their digests."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from profagent.errors import ProfagentError
from profagent.files import make_directory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagent.boards.survey import BoardPython


# `make pins` writes pins/pythonX.Y.txt, for that Python and later ones up to the next file's version.
_FIRST_PYTHONS = ((3, 10), (3, 9))
_HAS_TOMLLIB = (3, 11)
_DIGITS = 8
_PIN = re.compile(r"^([a-z-]+)==(\S+)((?: \\\n +--hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Pin:
    """Library at one version, with the SHA-256 of each of its files."""

    name: str
    version: str
    digests: frozenset[str]

    @property
    def requirement(self) -> str:
        """Requirement for pip: NAME==VERSION."""
        return f"{self.name}=={self.version}"


def pins(version: tuple[int, int]) -> tuple[Pin, ...]:
    """Return the libraries for a board's Python; tomli is left out if the Python has tomllib."""
    first = next(each for each in _FIRST_PYTHONS if each <= version)
    text = files("profagent.boards").joinpath("pins", "python{}.{}.txt".format(*first)).read_text("ascii")
    return tuple(
        Pin(name, pinned, frozenset(re.findall("[0-9a-f]{64}", digests)))
        for name, pinned, digests in _PIN.findall(text)
        if name != "tomli" or version < _HAS_TOMLLIB
    )


def wheels_key(python: BoardPython) -> str:
    """Return the name of the cache directory for a board's wheels: its Python, and a digest of the pins."""
    libc = "musl" if python.glibc is None else "glibc{}.{}".format(*python.glibc)
    required = "\n".join(f"{pin.requirement} {sorted(pin.digests)}" for pin in pins(python.version))
    digest = hashlib.sha256(required.encode()).hexdigest()[:_DIGITS]
    return f"cp{python.version[0]}{python.version[1]}-{python.machine}-{libc}-{digest}"


def download_arguments(python: BoardPython, folder: Path, wheelhouse: Path | None = None) -> list[str]:
    """Return the arguments of `pip` that download the wheels: from a wheelhouse, or as pip is configured."""
    where = ["--no-index", "--find-links", str(wheelhouse)] if wheelhouse else []
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input")
    return ["download", *quiet, *_kind(python, python.platforms, folder), *where, *_required(python)]


def _kind(python: BoardPython, platforms: list[str], folder: Path) -> list[str]:
    chosen = [argument for tag in platforms for argument in ("--platform", tag)]
    version = ["--implementation", "cp", "--python-version", python.shown]
    return ["--no-deps", "--only-binary", ":all:", *version, *chosen, "--dest", str(folder)]


def _required(python: BoardPython) -> list[str]:
    return [pin.requirement for pin in pins(python.version)]


async def fetch_wheels(python: BoardPython, wheelhouse: Path | None = None) -> list[Path]:
    """Return the wheels, each with a pinned digest; those of a wheelhouse stay there, others are cached.

    Raises ProfagentError if wheels cannot be fetched, or differ from the pinned files.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cached = cache / "profagent" / "wheels" / wheels_key(python)
    # Cached wheels are checked again: the cache is an ordinary directory that other programs may write.
    if wheelhouse is None and (wheels := _wheels(cached)):
        return await _checked(wheels, python)
    make_directory(cached.parent)
    # Downloads go to a sibling of the cache directory, so the rename is atomic and the cache is never incomplete.
    folder = Path(tempfile.mkdtemp(prefix=f".{cached.name}-", dir=cached.parent))
    try:
        hint = "check this host's internet or pip's settings"
        if wheelhouse:
            filling = ["pip", "download", *_kind(python, python.platforms[-2:], wheelhouse), *_required(python)]
            hint = f"on a machine with internet: {shlex.join(filling)}"
        await _pip(download_arguments(python, folder, wheelhouse), hint)
        wheels = await _checked(_wheels(folder), python)
        if wheelhouse is not None:
            return [wheelhouse / wheel.name for wheel in wheels]
        # The rename fails if another command has filled the cache meanwhile, with the same files.
        with suppress(OSError):
            await asyncio.to_thread(folder.rename, cached)
        return _wheels(cached)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wheels(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.whl"))


async def _checked(wheels: Sequence[Path], python: BoardPython) -> list[Path]:
    pinned = pins(python.version)
    digests = frozenset[str]().union(*(pin.digests for pin in pinned))
    for wheel in wheels:
        found = hashlib.sha256(await asyncio.to_thread(wheel.read_bytes)).hexdigest()
        if found not in digests:
            raise ProfagentError(
                f"{wheel.name} is not the file that this profagent pins: its SHA-256 is {found}",
                hint=f"remove {wheel} where it is still there, or look at pip's index or the wheelhouse: a board gets"
                f" {', '.join(pin.requirement for pin in pinned)} as published, and nothing else",
            )
    return list(wheels)


async def _pip(arguments: list[str], hint: str) -> None:
    command = [sys.executable, "-m", "pip", *arguments]
    ended = await asyncio.to_thread(subprocess.run, command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if ended.returncode != 0:
        lines = ended.stderr.decode("utf-8", "replace").strip().splitlines() or ["pip failed"]
        raise ProfagentError(f"the board's libraries cannot be fetched: {lines[-1]}", hint=hint)
