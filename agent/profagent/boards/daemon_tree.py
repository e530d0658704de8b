"""Contents of a version directory on a board: launcher, the daemon's packages, its libraries, and a manifest."""

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
# `deploy/setup.py` repeats these names, because it runs on the board without this package.
MANIFEST = "manifest.json"
LAUNCHER, LIBRARY = "bin/profagentd", "lib"
# The agent does not import the daemon: the files of these packages are located and copied, not loaded.
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
    """Version directory: content and mode of its files by path.

    `version` is the daemon's; `about` holds the manifest's other keys.
    """

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
        """Return a tree with a launcher, `library` below lib/, and the files of `more` at their own paths."""
        files = {LAUNCHER: (start.encode(), 0o755), **(more or {})}
        files.update({f"{LIBRARY}/{path}": (data, 0o644) for path, data in sorted(library.items())})
        digests = {path: hashlib.sha256(data).hexdigest() for path, (data, _) in files.items()}
        # The manifest has the digests of all other files, so its own digest, in `name`, identifies the whole tree.
        manifest = json.dumps({"version": version, **about, "files": digests}, indent=1).encode()
        return cls(version, {**files, MANIFEST: (manifest, 0o644)}, about)

    @property
    def name(self) -> str:
        """Name of the version directory: VERSION-DIGEST8."""
        return f"{self.version}-{hashlib.sha256(self.files[MANIFEST][0]).hexdigest()[:_DIGITS]}"

    @property
    def size_bytes(self) -> int:
        """Sum of the sizes of all files."""
        return sum(len(data) for data, _ in self.files.values())

    def tar(self, below: str = "") -> io.BytesIO:
        """Return an uncompressed tar of the tree, with directories before their contents.

        `below`, in the form DIRECTORY/, is put in front of each name.
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
    """Return the tree as a tar.gz with one directory that has the tree's name.

    The time stamp is fixed, so equal trees give equal bytes.
    """
    return gzip.compress(tree.tar(below=f"{tree.name}/").getbuffer(), _LEVEL, mtime=0)


def unpack(path: Path) -> DaemonTree:
    """Return the tree in a bundle. Raises ProfagentError for a truncated file or one that is no bundle."""
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
        raise ProfagentError(
            f"{path} is not a bundle: {error}", hint="build it again with `profagent bundle`"
        ) from error
    return DaemonTree(version, files, about)


def launcher(python: str) -> str:
    """Return the text of bin/profagentd.

    An absolute `python` is a path of the board, a relative one a path inside the tree.
    """
    start = shlex.quote(python) if python.startswith("/") else f'"$here"/{shlex.quote(python)}'
    return _LAUNCHER.format(python=start)


def own_packages() -> dict[str, bytes]:
    """Return the files of the daemon and of the wire format, by path below lib/.

    Raises ProfagentError if a package is not installed.
    """
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
    """Return the files that the wheels install, by path below lib/, without metadata.

    Raises ProfagentError for a damaged wheel.
    """
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
    """Return the version directory for a board: from a bundle, or made for the board's Python.

    `wish` is a member of PYTHONS. Raises ProfagentError, UsageError.
    """
    why, python = unfit(facts), facts.python
    hint = _BUNDLE.format(facts.machine)
    if wish == "bundled" and bundle is None:
        raise UsageError("--python bundled needs --bundle FILE", hint=hint)
    if wish == "system" and bundle is not None:
        raise UsageError("--bundle goes with --python bundled, or auto", hint="give only one of them")
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
