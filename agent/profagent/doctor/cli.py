"""`profagent doctor`."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from profagent.boards.cli import via
from profagent.cli import options
from profagent.cli.running import run_to_the_end, tell
from profagent.doctor.examining import DoctorOptions, examine
from profagent.doctor.finding import Mark, section_fields, section_lines
from profagent.errors import UsageError
from profagent.store.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from profagent.boards.tunnel import OverSsh
    from profagent.doctor.finding import Section
    from profagent.link.credentials import Access
    from profagent.store.counter_maps import CounterMaps

_MEANING = {Mark.GOOD: "ok", Mark.BAD: "to mend", Mark.UNKNOWN: "not known"}


@click.command("doctor")
@click.argument("job", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--board", metavar="BOARD", help=f"{options.BOARD_HELP} Look at it, too.")
@click.option(
    "--acl-json",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Look at this acl.json: would the runtime record anything with it?",
)
@options.access
@via
@options.workspace
@options.counter_map
@options.as_json
def command(
    *,
    job: Path | None,
    board: str | None,
    acl_json: Path | None,
    access: Access,
    over: OverSsh | None,
    workspace: Path | None,
    maps: CounterMaps,
    as_json: bool,
) -> int:
    """Find what is not as it should be: on this host, on a board, in a JOB directory, in an acl.json.

    A line a check: ✓ ok, ✗ to mend, ? cannot be known; what it stands on, and the command that mends it. Nothing is
    changed. Exit code: 1 if anything is to mend, else 0.

    Example: profagent doctor --board 192.168.1.20; profagent doctor JOBABCDEFGHIJKLMNOPQRSTUVWXYZABC
    """
    if over is not None and board is None:
        raise UsageError("--via goes with --board", hint="name the board: --board USER@HOST")
    if maps.named is not None and job is None:
        raise UsageError("--counter-map goes with a JOB directory", hint="name the JOB whose counters it is to read")
    wanted = DoctorOptions(Workspace.at(workspace), access, board, over, job, acl_json, maps)
    sections = run_to_the_end(lambda: examine(wanted, tell, asyncio.Event()))
    if as_json:
        told = [section_fields(each) for each in sections]
        click.echo(msgspec.json.encode({"good": all(each.is_good for each in sections), "sections": told}))
    else:
        click.echo("\n".join(_lines(sections)))
    return 0 if all(each.is_good for each in sections) else 1


def _lines(sections: Sequence[Section]) -> Iterator[str]:
    for section in sections:
        yield from section_lines(section)
        yield ""
    counts = Counter(finding.mark for section in sections for finding in section.findings)
    yield ", ".join(f"{counts[mark]} {meaning}" for mark, meaning in _MEANING.items())
