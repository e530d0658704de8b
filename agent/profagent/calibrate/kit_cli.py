"""`profagent kit`."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from profagent.calibrate.kit_making import gather
from profagent.cli.table import Column, printable, table_lines
from profagent.errors import ProfagentError, UsageError
from profagent.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagent.calibrate.kit import Manifest
    from profagent.calibrate.kit_making import Kit

NOT_SAID = "unknown"
_FILES = tuple(map(Column, ("name in the archive", "bytes", "what it is for")))
_LEFT_OUT = tuple(map(Column, ("left out", "files", "bytes", "why")))


@click.command("kit")
@click.argument("job", metavar="JOB", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The archive to write, a .tar.gz.",
)
@click.option(
    "--vendor-summary",
    "tables",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="CSV",
    help="An op_summary that the vendor's tool made of this JOB; may be repeated.",
)
@click.option("--anonymous", is_flag=True, help="Replace the names of models and layers, each by the same throughout.")
@click.option("--sdk", default=NOT_SAID, metavar="VERSION", help="The SDK whose runtime wrote the JOB.")
@click.option("--yes", is_flag=True, help="Do not ask; needed where there is no terminal.")
def command(*, job: Path, output: Path, tables: tuple[Path, ...], anonymous: bool, sdk: str, yes: bool) -> None:
    """Pack evidence from a JOB for the developers: show the files, ask, and write an archive.

    Example: profagent kit -o evidence.tar.gz JOB… --anonymous --sdk SDK_VERSION
    """
    kit = gather(job, tables, sdk=sdk, is_anonymous=anonymous)
    for line in _kit_lines(kit):
        click.echo(line)
    if not yes and not sys.stdin.isatty():
        raise UsageError("nothing was written: nobody is here to agree", hint="look at the list, then add --yes")
    if not yes and not click.confirm(f"Write these {len(kit.files)} files to {printable(str(output))}?"):
        raise ProfagentError("nothing was written", hint="look at the list again, or add --anonymous")
    data = kit.archive()
    write_atomically(output, [data])
    click.echo(f"wrote {printable(str(output))}: {len(data)} bytes, SHA-256 {hashlib.sha256(data).hexdigest()}")
    click.echo(f"what it settles: tar -xzf {printable(str(output))}, then profagent doctor evidence/job")


def _kit_lines(kit: Kit) -> Iterator[str]:
    yield from _manifest_lines(kit.manifest)
    yield ""
    yield from table_lines(_FILES, [(each.name, each.bytes, each.why) for each in kit.manifest.files])
    yield ""
    for remark in kit.remarks:
        yield printable(remark)


def _manifest_lines(manifest: Manifest) -> Iterator[str]:
    mark = " [simulated: it proves nothing about hardware]" if manifest.simulated else ""
    size = sum(each.bytes for each in manifest.files)
    yield printable(f"{len(manifest.files)} files, {size} bytes, of {manifest.job or 'a JOB'}{mark}")
    yield printable(f"made by {manifest.tool}; SDK {manifest.sdk}")
    if not manifest.replaced:
        yield "names of models and layers are as they were"
    for replaced in manifest.replaced:
        yield printable(f"replaced: {replaced}")
    if manifest.left_out:
        yield ""
        rows = [(each.what, each.files, each.bytes, each.why) for each in manifest.left_out]
        yield from table_lines(_LEFT_OUT, rows)
