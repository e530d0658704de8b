"""`profagent bundle`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click
import msgspec

from profagent.cli import options
from profagent.cli.running import run_to_the_end, tell
from profagent.deploy.bundle.assembling import MACHINES
from profagent.deploy.bundle.bundling import Bundled, BundleOptions, bundle

FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command("bundle")
@click.option(
    "--arch", "machine", type=click.Choice(sorted(MACHINES.values())), required=True, help="The board's `uname -m`."
)
@click.option(
    "--from",
    "source",
    type=click.Path(exists=True, path_type=Path),
    metavar="ARCHIVE|DIR",
    help="A standalone CPython, or a directory of Debian's packages unpacked; fetched from the internet unless given.",
)
@click.option(
    "-o", "output", type=click.Path(dir_okay=False, path_type=Path), required=True, metavar="FILE.tar.gz", help="Made."
)
@click.option("--wheelhouse", type=FOLDER, metavar="DIR", help="Wheels of grpcio and protobuf; else pip fetches them.")
@click.option(
    "--libraries",
    type=FOLDER,
    metavar="DIR",
    help="Debian's libc6, libgcc-s1, libstdc++6, zlib1g unpacked: what a standalone CPython lacks.",
)
@options.as_json
def command(
    *, machine: str, source: Path | None, output: Path, wheelhouse: Path | None, libraries: Path | None, as_json: bool
) -> None:
    """Make a daemon that needs nothing of a board but its kernel: with a Python, a loader and libraries of its own.

    Example: profagent bundle --arch aarch64 --from debian-arm64 -o profagentd-aarch64.tar.gz
    """
    made = run_to_the_end(lambda: bundle(BundleOptions(machine, output, source, wheelhouse, libraries), tell))
    if as_json:
        click.echo(msgspec.json.encode({**dataclasses.asdict(made), "file": str(made.file)}))
        return
    _show(made)


def _show(made: Bundled) -> None:
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
        f"  or, on a board without SSH: tar -xzf {made.file.name} && sh {made.name}/install.sh --root DIR --keys DIR"
    )
