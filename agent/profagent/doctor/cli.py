"""Command line of `profagent doctor`."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from profagent.boards.cli import via
from profagent.boards.tunnel import access_to
from profagent.cli import options
from profagent.cli.documents import print_document
from profagent.cli.lakes import require_lake
from profagent.cli.running import run_to_the_end, tell
from profagent.doctor import host
from profagent.doctor.acl_json import acl_json_section
from profagent.doctor.board import metrics_checks, npu_checks, roots_checks
from profagent.doctor.finding import FindingMark, Section, bad, good, section_fields, section_lines, unknown
from profagent.doctor.job import job_checks, job_facts
from profagent.errors import ProfagentError, UsageError
from profagent.files import content
from profagent.formats.names import display_text
from profagent.ingest.local import LocalJobFiles
from profagent.limits import RESOLVE_S
from profagent.link.addresses import host_of
from profagent.link.boards_file import BoardsFile
from profagent.link.channel import connected
from profagent.link.clock_difference import clock_difference
from profagent.link.messages import PROTOCOL
from profagent.link.translate import Examination
from profagent.store.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from profagent.boards.tunnel import OverSsh
    from profagent.doctor.finding import Finding
    from profagent.link.channel import Channel
    from profagent.link.credentials import Access
    from profagent.link.messages import Board

# The daemon looks for an acl.json in the same places: beside the JOB, and one level above.
USUAL_NAMES = ("acl.json", "src/acl.json")
_MEANING = {FindingMark.GOOD: "ok", FindingMark.BAD: "to mend", FindingMark.UNKNOWN: "not known"}


@click.command("doctor")
@click.argument("job", required=False, type=options.FOLDER_THERE)
@click.option(
    "--board",
    metavar="BOARD",
    help=f"Check this board, too. {options.BOARD_HELP}",
    shell_complete=options.completed("boards"),
)
@options.access
@via
@options.workspace
@click.option("--lake", metavar="URL", help="Check that the folder or the store of this lake can do what a lake needs.")
@options.as_json
def command(
    *,
    job: Path | None,
    board: str | None,
    access: Access,
    over: OverSsh | None,
    workspace: Path | None,
    lake: str | None,
    as_json: bool,
) -> int:
    """Check this host, a board, a JOB and the acl.json beside it, or a lake, and say how to correct each fault.

    Each check prints one line with its evidence: ✓ good, ✗ bad, ? not known. A second line has the remedy. The
    command changes nothing. Exit code 1: at least one check is bad.

    Example: profagent doctor --board 192.168.1.20
    Example: profagent doctor JOBABCDEFGHIJKLMNOPQRSTUVWXYZABC
    """
    if over is not None and board is None:
        raise UsageError("--via goes with --board", hint="name the board: --board USER@HOST")
    sections: list[Section] = []
    if board is not None or (job is None and lake is None):
        sections += run_to_the_end(lambda: host_and_board(Workspace.at(workspace), access, board, over))
    if job is not None:
        sections += job_sections(job)
    if lake is not None:
        require_lake(lake)
        # `lake` is a layer above `doctor`, and its libraries take long to import: they are loaded for this check alone.
        sections.append(import_module("profagent.lake.checks").lake_section(lake))
    is_good = all(each.is_good for each in sections)
    if as_json:
        print_document("doctor", {"good": is_good, "sections": [section_fields(each) for each in sections]})
    else:
        click.echo("\n".join(_lines(sections)))
    return 0 if is_good else 1


def job_sections(directory: Path) -> list[Section]:
    """Return the findings about a JOB, about each acl.json in a usual place, and about undecided facts.

    Raises UsageError if the directory is no JOB.
    """
    job, about = LocalJobFiles(directory), display_text(str(directory))
    files: dict[str, int] = {}
    for path in job.paths:
        with suppress(OSError):  # a program may still write the JOB, and the board delete from it
            files[path] = (directory / path).stat().st_size
    found = Section(f"{about}{' [simulated]' if job.is_simulated else ''}", tuple(job_checks(job, files)))
    above = directory.resolve().parent
    usual = [str(folder / name) for folder in (above, above.parent) for name in USUAL_NAMES]
    beside = [acl_json_section(display_text(path), data) for path in usual if (data := content(path, None)) is not None]
    return [found, *beside, job_facts(job, about)]


async def host_and_board(
    workspace: Workspace, access: Access, board: str | None = None, over: OverSsh | None = None
) -> list[Section]:
    """Return the findings about this host, and about the board if one is named.

    Raises UsageError for options that cannot lead to a board.
    """
    about_board, answered = ([], "") if board is None else await _board_sections(board, access, over)
    findings = await asyncio.to_thread(lambda: list(host.workspace_checks(workspace)))
    findings += host.own_certificates(access)
    findings += host.identities(await host.known_boards(access, board, answered))
    return [Section("this host", tuple(findings)), *about_board]


async def _board_sections(board: str, access: Access, over: OverSsh | None) -> tuple[list[Section], str]:
    """Return the findings about a board, and its identity; the identity is empty if no daemon answers."""
    address = access.named(board).address
    about = f"board {board}" if board == address else f"board {board} at {address}"
    findings: list[Finding] = []
    # Behind a tunnel or a socket no name is resolved on this host.
    if over is None and not BoardsFile().behind_ssh([board]) and not address.startswith("unix:"):
        findings.append(await _name_resolution(host_of(address)))
    try:
        async with AsyncExitStack() as stack:
            reachable = await stack.enter_async_context(access_to([board], access, over, tell, asyncio.Event()))
            channel = await stack.enter_async_context(connected(board, reachable))
            description = await channel.describe()
            findings.append(good("link", f"profagentd answers at {address}"))
            more, examination = await _board_findings(channel, description)
    except UsageError:
        raise
    except ProfagentError as error:
        return [Section(about, (*findings, bad("link", str(error), error.hint)))], ""
    files = [
        acl_json_section(
            f"{file.path} on {board}",
            file.data,
            size=file.size,
            output=file.output,
            roots=description.roots,
        )
        for file in examination.acl_json
    ]
    mark = " [simulated]" if description.simulated else ""
    return [Section(f"{about}{mark}", (*findings, *more)), *files], description.identity


async def _name_resolution(name: str) -> Finding:
    remedy = f"getent hosts {name}; or name the board by its IP address: profagent boards add NAME ADDRESS"
    try:
        async with asyncio.timeout(RESOLVE_S):
            found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except TimeoutError:
        return bad("name", f"{name}: no answer from the name server for {RESOLVE_S:.0f} s", remedy)
    except (OSError, UnicodeError) as error:
        return bad("name", f"{name}: {getattr(error, 'strerror', None) or error}", remedy)
    addresses = ", ".join(dict.fromkeys(str(each[4][0]) for each in found))
    return good("name", f"{name} is {addresses}" if addresses != name else f"{name} is an address")


async def _board_findings(channel: Channel, board: Board) -> tuple[list[Finding], Examination]:
    # A daemon of another major version is only described: what its other answers mean is not known.
    is_same_major = board.protocol[0] == PROTOCOL[0]
    examination = await channel.examine() if is_same_major else Examination()
    findings = [host.daemon_version(board), host.listener(board)]
    difference = await clock_difference(channel, lambda: time.time_ns() // 1000)
    offset_us = difference.offset_us if difference else None
    # The answer was under way for an unknown part of the round trip, so half of it is the offset's uncertainty.
    findings.append(host.clock(offset_us, difference.round_trip_us // 2 if difference else 0, board.clocks.wall_us))
    if not is_same_major:
        return findings, examination
    findings += npu_checks(examination, simulated=board.simulated)
    findings += roots_checks(examination, board.roots)
    findings += metrics_checks(examination)
    findings += [
        unknown("acl-json", f"{source}: {why}") for source, why in examination.unknown if source.startswith("acl-json")
    ]
    findings += host.board_certificates(examination, offset_us)
    return findings, examination


def _lines(sections: Sequence[Section]) -> Iterator[str]:
    for section in sections:
        yield from section_lines(section)
        yield ""
    counts = Counter(finding.mark for section in sections for finding in section.findings)
    yield ", ".join(f"{counts[mark]} {meaning}" for mark, meaning in _MEANING.items())
