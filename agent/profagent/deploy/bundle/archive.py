"""A version directory as one file, VERSION-DIGEST8-MACHINE.tar.gz say: the same tree gives the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from typing import TYPE_CHECKING

from profagent.deploy.daemon_tree import MANIFEST, DaemonTree
from profagent.errors import ProfagentError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["pack", "unpack"]

_LEVEL = 6
_HINT = "make it anew with `profagent bundle`"


def pack(tree: DaemonTree) -> bytes:
    """A tar.gz with one directory, called as the tree is."""
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=packed, mtime=0) as stream:
        for piece in tree.tar(below=f"{tree.name}/"):
            stream.write(piece)
    return packed.getvalue()


def unpack(path: Path) -> DaemonTree:
    """The tree of a bundle. Raises ProfagentError for a file that is none, or is damaged."""
    try:
        with tarfile.open(path, "r:gz") as archive:
            files = {
                member.name.partition("/")[2]: (file.read(), member.mode)
                for member in archive
                if (file := archive.extractfile(member)) is not None
            }
        manifest = json.loads(files[MANIFEST][0])
        digests, version = manifest["files"], manifest["version"]
        about = {key: value for key, value in manifest.items() if key not in ("files", "version")}
    except (OSError, EOFError, tarfile.TarError, KeyError, ValueError, TypeError) as error:
        raise ProfagentError(f"{path} is no bundle: {error}", hint=_HINT) from error
    found = {name: hashlib.sha256(data).hexdigest() for name, (data, _) in files.items() if name != MANIFEST}
    if found != digests:
        wrong = sorted(name for name in {*found, *digests} if found.get(name) != digests.get(name))
        raise ProfagentError(f"{path} is damaged: {', '.join(wrong[:3])}", hint=_HINT)
    return DaemonTree(version, files, about)
