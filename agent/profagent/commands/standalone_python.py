"""A CPython of python-build-standalone: found through pbs-installer's list, fetched, unpacked."""

from __future__ import annotations

import hashlib
import sys
import tarfile
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

from profagent.errors import ProfagentError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["fetch_standalone", "standalone_link", "unpack_archive"]

PATIENCE_S = 60.0
_READ_BYTES = 1 << 20
_KINDS = (".tar.gz", ".tgz", ".tar.xz")


def standalone_link(machine: str) -> tuple[str, str]:
    """Address and SHA-256 of the newest archive of this Python's version, whose bytecode is then ours."""
    # Its list of versions takes 0.1 s to load: only who asks pays for it.
    from pbs_installer import get_download_link  # noqa: PLC0415

    wanted = "{}.{}".format(*sys.version_info[:2])
    _, (address, digest) = get_download_link(wanted, machine, "linux")
    if digest is None or not address.endswith(_KINDS):
        raise ProfagentError(
            f"the list of standalone Pythons has none of {wanted} for {machine} with a digest",
            hint="update pbs-installer, or name an archive of your own with --from",
        )
    return address, digest


def fetch_standalone(address: str, digest: str, target: Path) -> None:
    """Download an archive. Raises ProfagentError when it cannot be had, or is not the one with that SHA-256."""
    hashed = hashlib.sha256()
    try:
        with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer, target.open("wb") as file:  # noqa: S310 - of the list
            while piece := answer.read(_READ_BYTES):
                hashed.update(piece)
                file.write(piece)
    except OSError as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise ProfagentError(
            f"{address} cannot be fetched: {error}",
            hint="fetch it where there is internet, and name the file with --from; or a directory of Debian's packages",
        ) from error
    if hashed.hexdigest() != digest:
        raise ProfagentError(
            f"{address} gave a file whose SHA-256 is {hashed.hexdigest()} and not {digest}",
            hint="see whether a proxy stands between, and try again",
        )


def unpack_archive(archive: Path, directory: Path) -> None:
    """Unpack it. Raises ProfagentError for what is none."""
    if not archive.name.endswith(_KINDS):
        raise ProfagentError(
            f"{archive} is no {', '.join(_KINDS)}",
            hint="of python-build-standalone take the file whose name ends in -install_only_stripped.tar.gz",
        )
    try:
        with tarfile.open(archive) as opened:
            opened.extractall(directory, filter="data")
    except (OSError, EOFError, tarfile.TarError) as error:
        raise ProfagentError(f"{archive}: {error}", hint="fetch it again: it is damaged, or cut off") from error
