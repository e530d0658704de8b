"""Command line of `profagent bundle`."""

from __future__ import annotations

import asyncio
import hashlib
import platform
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from profagent import __version__
from profagent.boards.daemon_tree import LAUNCHER, own_packages, pack, wheel_files
from profagent.boards.wheels import fetch_wheels
from profagent.cli import options
from profagent.cli.documents import print_document
from profagent.cli.progress import BYTES, progress
from profagent.cli.running import run_to_the_end, tell
from profagent.deploy.bundle.assembling import MACHINES, bundle_tree, can_compile, find_runtime
from profagent.deploy.bundle.by_hand import MODULES
from profagent.deploy.units import SERVICE_FILES
from profagent.errors import ProfagentError
from profagent.files import write_atomically
from profagent.limits import DOWNLOAD_S, FILE_PIECE_BYTES, TRIAL_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from profagent.boards.daemon_tree import DaemonTree
    from profagent.cli.progress import Progress


_KINDS = (".tar.gz", ".tgz", ".tar.xz")


def standalone_link(machine: str) -> tuple[str, str]:
    """Return the address and SHA-256 of the newest standalone CPython of this Python's minor version.

    The same minor version has the same bytecode, so this host can compile for it. Raises ProfagentError.
    """
    # The list of versions takes 0.1 s to load, so it is imported only where it is needed.
    from pbs_installer import get_download_link  # noqa: PLC0415

    wanted = "{}.{}".format(*sys.version_info[:2])
    _, (address, digest) = get_download_link(wanted, machine, "linux")
    if digest is None or not address.endswith(_KINDS):
        raise ProfagentError(
            f"the list of standalone Pythons has none of {wanted} for {machine} with a digest",
            hint="update pbs-installer, or name an archive of your own with --from",
        )
    return address, digest


def fetch_standalone(
    address: str, digest: str, target: Path, shown: Callable[[int, int], None] = lambda _done, _total: None
) -> None:
    """Download an archive; `shown` receives the bytes so far and their total (0: not known).

    Raises ProfagentError if the archive cannot be fetched or has another SHA-256.
    """
    hashed = hashlib.sha256()
    try:
        with urllib.request.urlopen(address, timeout=DOWNLOAD_S) as answer, target.open("wb") as file:  # noqa: S310 - of the list
            while piece := answer.read(FILE_PIECE_BYTES):
                hashed.update(piece)
                file.write(piece)
                shown(file.tell(), int(answer.headers.get("Content-Length") or 0))
    except OSError as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        raise ProfagentError(
            f"cannot fetch {address}: {error}",
            hint="download it on a host with internet access, and name the file with --from; or a directory of Debian's"
            " packages",
        ) from error
    if hashed.hexdigest() != digest:
        raise ProfagentError(
            f"{address} gave a file whose SHA-256 is {hashed.hexdigest()} and not {digest}",
            hint="check whether a proxy changes downloads, and try again",
        )


def unpack_archive(archive: Path, directory: Path) -> None:
    """Unpack an archive. Raises ProfagentError if it is damaged or no archive."""
    try:
        with tarfile.open(archive) as opened:
            opened.extractall(directory, filter="data")
    except (OSError, EOFError, tarfile.TarError) as error:
        hint = "fetch it again; of python-build-standalone the file whose name ends in -install_only_stripped.tar.gz"
        raise ProfagentError(f"{archive}: {error}", hint=hint) from error


# Steps of the progress display: the wheels, the tree with its bytecode, the trial, the packing.
STEPS = 4


@dataclass(frozen=True, slots=True)
class Bundled:
    """Description of a bundle that was made.

    `start_s` is the time of `--version` in seconds; None if this host cannot run the bundle.
    """

    file: str
    name: str
    machine: str
    python: str
    size_bytes: int
    file_bytes: int
    is_compiled: bool
    start_s: float | None


async def bundle(
    machine: str, output: Path, source: Path | None, wheelhouse: Path | None, libraries: Path | None
) -> Bundled:
    """Make a bundle, and start it once if this host can run it; without a `source` a Python is downloaded.

    Raises ProfagentError.
    """
    with tempfile.TemporaryDirectory(prefix="profagent-bundle-") as folder:
        scratch = Path(folder)
        with progress("download", BYTES) as shown:
            unpacked = await asyncio.to_thread(_unpacked, machine, source, scratch, shown)
        with progress("bundle", "steps") as shown:
            shown(0, STEPS)
            runtime = await asyncio.to_thread(find_runtime, machine, unpacked, libraries)
            wheels = await fetch_wheels(runtime.wheels_for, wheelhouse)
            shown(1, STEPS)
            library = {**own_packages(), **wheel_files(wheels)}
            tree = await asyncio.to_thread(bundle_tree, __version__, runtime, library, installer_files())
            shown(2, STEPS)
            start_s = await asyncio.to_thread(_tried, tree, scratch) if machine == platform.machine() else None
            shown(3, STEPS)
            packed = await asyncio.to_thread(pack, tree)
    await asyncio.to_thread(write_atomically, output, [packed])
    is_compiled = can_compile(runtime.version)
    sizes = (tree.size_bytes, len(packed))
    return Bundled(str(output), tree.name, machine, runtime.name, *sizes, is_compiled, start_s)


def _unpacked(machine: str, source: Path | None, scratch: Path, shown: Progress) -> Path:
    if source is not None and source.is_dir():
        return source
    if source is None:
        address, digest = standalone_link(machine)
        source = scratch / address.rpartition("/")[2]
        tell(f"fetching {address}")
        fetch_standalone(address, digest, source, shown)
    unpack_archive(source, scratch / "source")
    return scratch / "source"


def installer_files() -> dict[str, bytes]:
    """Return the files of this package that install.sh needs, by path."""
    package: Any = files("profagent")
    paths = [f"{name}.py" for name in MODULES] + [f"deploy/systemd/{name}" for name in SERVICE_FILES]
    return {f"profagent/{path}": package.joinpath(*path.split("/")).read_bytes() for path in paths}


def _tried(tree: DaemonTree, scratch: Path) -> float:
    """Return the seconds that the daemon takes to print its version.

    The second run counts: the first one also reads the files from the disk.
    """
    with tarfile.open(fileobj=tree.tar()) as archive:
        archive.extractall(scratch / "tree", filter="data")
    taken_s = 0.0
    for _ in range(2):
        begin = time.monotonic()
        ran = subprocess.run(  # noqa: S603 - what was made just now
            [scratch / "tree" / LAUNCHER, "--version"], capture_output=True, timeout=TRIAL_S, check=False
        )
        taken_s = time.monotonic() - begin
        if ran.returncode != 0:
            hint = "check that all packages come from one Debian release, and that none is missing"
            raise ProfagentError(
                f"the bundle does not start: {ran.stderr.decode('utf-8', 'replace').strip()}", hint=hint
            )
    return taken_s


@click.command("bundle")
@click.option(
    "--arch",
    "machine",
    type=click.Choice(sorted(MACHINES.values())),
    required=True,
    help="The board's machine, as `uname -m` prints it.",
)
@click.option(
    "--from",
    "source",
    type=click.Path(exists=True, path_type=Path),
    metavar="ARCHIVE|DIR",
    help="A standalone CPython, or a directory with unpacked Debian packages; without it a CPython is downloaded.",
)
@click.option(
    "-o", "output", type=options.OUTPUT_FILE, required=True, metavar="FILE.tar.gz", help="The bundle to write."
)
@click.option(
    "--wheelhouse",
    type=options.FOLDER_THERE,
    metavar="DIR",
    help="A folder with the wheels of the pinned libraries; without it pip downloads them.",
)
@click.option(
    "--libraries",
    type=options.FOLDER_THERE,
    metavar="DIR",
    help="Unpacked libc6, libgcc-s1, libstdc++6 and zlib1g of Debian, which a standalone CPython lacks.",
)
@options.as_json
@options.quiet
def command(
    *, machine: str, source: Path | None, output: Path, wheelhouse: Path | None, libraries: Path | None, as_json: bool
) -> None:
    """Pack the daemon with its own Python, loader and libraries, for a board that has none of them.

    Example: profagent bundle --arch aarch64 --from debian-arm64 -o profagentd-aarch64.tar.gz
    Example: profagent bundle --arch aarch64 -o profagentd-aarch64.tar.gz
    """
    made = run_to_the_end(lambda: bundle(machine, output, source, wheelhouse, libraries))
    if as_json:
        print_document("bundle", made)
        return
    click.echo(f"{made.file}: {made.name} for {made.machine}, {made.python}, {made.file_bytes / 1e6:.1f} MB")
    click.echo(f"  on the board  {made.size_bytes / 1e6:.1f} MB")
    if made.start_s is None:
        click.echo(f"  start         not tried: this machine cannot run programs for {made.machine}")
    else:
        click.echo(f"  start         {made.start_s:.2f} s here")
    if not made.is_compiled:
        click.echo(f"  bytecode      none: each start compiles anew, as this host's Python is not {made.python}")
    click.echo(f"next: profagent deploy root@BOARD --root DIR --python bundled --bundle {made.file}")
    click.echo(
        f"  or, on a board without SSH: tar -xzf {output.name} && sh {made.name}/install.sh --root DIR --keys DIR"
    )
