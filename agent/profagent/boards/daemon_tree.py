"""What a version directory holds on a board: launcher, the daemon's own packages, its libraries, a manifest."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import json
import shlex
import tarfile
import zipfile
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from profagent import __version__
from profagent.boards.survey import unfit
from profagent.boards.wheels import fetch_wheels
from profagent.errors import ProfagentError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from profagent.boards.survey import BoardFacts


PYTHONS = ("auto", "system", "bundled")
_BUNDLE = (
    "bring one: `profagent bundle --arch {} --libraries DIR -o FILE.tar.gz`, with Debian's libc6, libgcc-s1, libstdc++6"
    " and zlib1g unpacked in DIR, then `--bundle FILE.tar.gz`"
)
_DIGITS = 8
# `deploy/setup.py`, which runs on the board without this package, has the same names.
MANIFEST = "manifest.json"
LAUNCHER, LIBRARY = "bin/profagentd", "lib"
# Neither side imports the other: the daemon's files are found, not loaded.
PACKAGES = ("profagentd", "profagent_app", "profagent_wire")
_LEVEL = 6
_LAUNCHER = """#!/bin/sh
# Runs the daemon of this tree, wherever the tree stands.
case $0 in */*) here=${{0%/*}} ;; *) here=. ;; esac
here=$(cd "$here/.." && pwd -P) || exit 1
# Isolated (-I): nothing of the user's environment or directory is loaded in place of the tree's.
exec {python} -I -B -c 'import sys
sys.path.insert(0, sys.argv.pop(1))
from profagentd.main import main
sys.exit(main())' "$here/lib" "$@"
"""


@dataclass(frozen=True)
class DaemonTree:
    """A version directory: content and mode by path; `version` is the daemon's, `about` what else the manifest says."""

    version: str
    files: Mapping[str, tuple[bytes, int]]
    about: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        version: str,
        start: str,
        library: Mapping[str, bytes],
        more: Mapping[str, tuple[bytes, int]] | None = None,
        **about: str,
    ) -> DaemonTree:
        """The tree with this launcher, these files below lib/, and more of them elsewhere."""
        files = {LAUNCHER: (start.encode(), 0o755), **(more or {})}
        files.update({f"{LIBRARY}/{path}": (data, 0o644) for path, data in sorted(library.items())})
        digests = {path: hashlib.sha256(data).hexdigest() for path, (data, _) in files.items()}
        manifest = json.dumps({"version": version, **about, "files": digests}, indent=1).encode()
        return cls(version, {**files, MANIFEST: (manifest, 0o644)}, about)

    @property
    def name(self) -> str:
        """VERSION-DIGEST8: what the version directory is called."""
        return f"{self.version}-{hashlib.sha256(self.files[MANIFEST][0]).hexdigest()[:_DIGITS]}"

    @property
    def size_bytes(self) -> int:
        """The sum of the files."""
        return sum(len(data) for data, _ in self.files.values())

    def tar(self, below: str = "") -> io.BytesIO:
        """An uncompressed tar of it; directories come before what is in them.

        `below`, `DIRECTORY/`, is what each name begins with.
        """
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for path in self._directories(below):
                entry = tarfile.TarInfo(path)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(entry)
            for path, (data, mode) in self.files.items():
                entry = tarfile.TarInfo(f"{below}{path}")
                entry.size, entry.mode = len(data), mode
                archive.addfile(entry, io.BytesIO(data))
        stream.seek(0)
        return stream

    def _directories(self, below: str) -> list[str]:
        parents = {str(parent) for path in self.files for parent in Path(f"{below}{path}").parents}
        return sorted(parents - {"."})


def pack(tree: DaemonTree) -> bytes:
    """A tar.gz with one directory, called as the tree is."""
    return gzip.compress(tree.tar(below=f"{tree.name}/").getbuffer(), _LEVEL, mtime=0)


def unpack(path: Path) -> DaemonTree:
    """The tree of a bundle. Raises ProfagentError for a file that is none, or is cut off."""
    try:
        with tarfile.open(path, "r:gz") as archive:
            files = {
                member.name.partition("/")[2]: (file.read(), member.mode)
                for member in archive
                if (file := archive.extractfile(member)) is not None
            }
        manifest = json.loads(files[MANIFEST][0])
        version = manifest["version"]
        about = {key: value for key, value in manifest.items() if key not in ("files", "version")}
    except (OSError, EOFError, tarfile.TarError, KeyError, ValueError, TypeError) as error:
        raise ProfagentError(f"{path} is no bundle: {error}", hint="make it anew with `profagent bundle`") from error
    return DaemonTree(version, files, about)


def launcher(python: str) -> str:
    """bin/profagentd for a Python at this path of the board, or, if it is relative, of the tree."""
    start = shlex.quote(python) if python.startswith("/") else f'"$here"/{shlex.quote(python)}'
    return _LAUNCHER.format(python=start)


def own_packages() -> dict[str, bytes]:
    """The daemon's and the wire's files by their path below lib/. Raises ProfagentError where they are missing."""
    files: dict[str, bytes] = {}
    for name in PACKAGES:
        spec = find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise ProfagentError(f"{name} is not installed here", hint="install profagent whole: `pip install .`")
        root = Path(spec.submodule_search_locations[0])
        paths = (path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        files.update({f"{name}/{path.relative_to(root).as_posix()}": path.read_bytes() for path in paths})
    return files


def wheel_files(wheels: Iterable[Path]) -> dict[str, bytes]:
    """What wheels install, by the path below lib/, without their metadata. Raises ProfagentError for a damaged one."""
    files: dict[str, bytes] = {}
    for wheel in wheels:
        try:
            with zipfile.ZipFile(wheel) as archive:
                names = (name for name in archive.namelist() if not name.endswith("/"))
                files.update({name: archive.read(name) for name in names if ".dist-info/" not in name})
        except (OSError, zipfile.BadZipFile) as error:
            raise ProfagentError(f"{wheel}: {error}", hint="remove it, and have it fetched again") from error
    return files


async def chosen_version(facts: BoardFacts, wish: str, bundle: Path | None, wheelhouse: Path | None) -> DaemonTree:
    """The version directory for a board: of a bundle, or for its own Python. Raises ProfagentError, UsageError.

    `wish` is one of PYTHONS.
    """
    why, python = unfit(facts), facts.python
    hint = _BUNDLE.format(facts.machine)
    if wish == "bundled" and bundle is None:
        raise UsageError("--python bundled needs --bundle FILE", hint=hint)
    if wish == "system" and bundle is not None:
        raise UsageError("--bundle goes with --python bundled, or auto", hint="leave one of them out")
    if bundle is not None and (why or wish == "bundled"):
        tree = await asyncio.to_thread(unpack, bundle)
        if (machine := tree.about["machine"]) != facts.machine:
            raise ProfagentError(f"the bundle is for {machine}, and {facts.hostname} is {facts.machine}", hint=hint)
        return tree
    if why or python is None:
        raise ProfagentError(f"{facts.hostname} {why}", hint=hint)
    wheels = await fetch_wheels(python, wheelhouse)
    return await asyncio.to_thread(
        lambda: DaemonTree.of(__version__, launcher(python.path), {**own_packages(), **wheel_files(wheels)})
    )
