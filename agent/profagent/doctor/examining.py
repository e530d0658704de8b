"""`doctor`: facts of this host, of a board and of a JOB, gathered for the checks, which give the verdicts."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import socket
import sqlite3
import tempfile
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from profagent.boards.tunnel import reached
from profagent.doctor import host
from profagent.doctor.acl_json import LARGEST_BYTES, acl_json_section
from profagent.doctor.board import npu_checks, roots_checks
from profagent.doctor.facts import job_facts
from profagent.doctor.finding import Section, bad, good, unknown
from profagent.doctor.job import job_checks
from profagent.errors import ProfagentError, StoreError, UnreachableError, UsageError
from profagent.formats.countermap import CounterRows, Tally, checked, first_place, merged
from profagent.formats.names import display_text
from profagent.formats.records import AICORE_DTYPE, view_records
from profagent.ingest.local import JobRecords
from profagent.link.boards_file import BoardsFile
from profagent.link.channel import clock_difference, connected
from profagent.link.credentials import CERT, Certificate, Credentials, default_keys, full_address, host_of
from profagent.link.messages import PROTOCOL, board_time
from profagent.link.translate import Examination
from profagent.store.counter_maps import BUILT_IN, CounterMaps
from profagent.store.database import fetched_one, made_anew, reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from profagent.boards.tunnel import OverSsh
    from profagent.doctor.finding import Finding
    from profagent.link.boards_file import BoardEntry
    from profagent.link.channel import Channel
    from profagent.link.credentials import Access
    from profagent.link.messages import Board
    from profagent.store.workspace import Workspace

# Inferences whose counters are looked at, evenly spread, and how much of each.
INFERENCES = 200
MOST_RECORDS = 65_536
# As the daemon looks for it: beside the JOB, and one level above.
USUAL_NAMES = ("acl.json", "src/acl.json")
RESOLVE_S = 10.0
# How long another board is waited for, of which no more is asked than who it is.
ASK_S = 10.0
# An hour of a large model at 15 inferences a second, its rows included, takes some gigabytes; this is its beginning.
LEAST_FREE_BYTES = 1_000_000_000
# A large database is not looked at to its end.
LONGEST_CHECK_S = 10.0
STEPS_BETWEEN_LOOKS = 10_000
_RENEW_HOST = "have another one issued: profagent keys revoke NAME; profagent keys issue host NAME"
_RENEW_BOARD = (
    "issue another one, and copy its folder to the board: profagent keys revoke NAME;"
    " profagent keys issue board NAME --address ADDRESS"
)
_RENEW_CA = "make a CA anew: profagent keys init --keys DIR, and issue every board and host a certificate"


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """What to look at: a board, a JOB, an acl.json; this host where a board or nothing is named."""

    workspace: Workspace
    access: Access
    board: str | None = None
    over: OverSsh | None = None
    job: Path | None = None
    acl_json: Path | None = None
    maps: CounterMaps = BUILT_IN


async def examine(options: DoctorOptions, tell: Callable[[str], None], stop: asyncio.Event) -> list[Section]:
    """What is found, in sections. Raises UsageError for what cannot be a JOB, a file or a way to a board."""
    sections: list[Section] = []
    answered = ""
    if options.board is not None:
        sections, answered = await _board_sections(options, options.board, tell, stop)
    if options.board is not None or (options.job is None and options.acl_json is None):
        sections.insert(0, await _host_section(options, answered))
    if options.job is not None:
        sections += await asyncio.to_thread(job_sections, options.job, options.maps)
    if options.acl_json is not None and str(options.acl_json.resolve()) not in {each.about for each in sections}:
        sections.append(acl_json_file(options.acl_json))
    return sections


def job_sections(directory: Path, maps: CounterMaps) -> list[Section]:
    """What is found in a JOB, in each acl.json in a usual place, of facts and of counters. UsageError for no JOB."""
    job = JobRecords(directory)
    files: dict[str, int] = {}
    for path in job.paths:
        with suppress(OSError):  # it may just have gone: the JOB may be at work
            files[path] = (directory / path).stat().st_size
    mark = " [simulated]" if job.is_simulated else ""
    found = Section(f"{display_text(str(directory))}{mark}", tuple(job_checks(job, files)))
    above = directory.resolve().parent
    usual = [folder / name for folder in (above, above.parent) for name in USUAL_NAMES if (folder / name).is_file()]
    return [found, *map(acl_json_file, usual), job_facts(directory), _counters(job, display_text(str(directory)), maps)]


def acl_json_file(path: Path) -> Section:
    """What is found in an acl.json of this machine. Raises UsageError."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        hint = "name an acl.json that is on this host"
        raise UsageError(f"cannot read {path}: {error.strerror}", hint=hint) from error
    return acl_json_section(display_text(str(path)), data)


def _counters(job: JobRecords, about: str, maps: CounterMaps) -> Section:
    """A finding for each check that counters cannot fail, with its numbers."""
    counter_map = maps.of(simulated=job.is_simulated)
    if counter_map is None:
        why = "no counter map alone fits: PMU columns are N/A, and there is nothing to check"
        return Section(f"{about}: counters", (unknown("counters", why, "name one with --counter-map FILE"),))
    logs = job.inferences
    chosen = logs[:: max(1, -(-len(logs) // INFERENCES))]
    tallies: dict[str, Tally] = {}
    for path, _ in chosen:
        records = view_records(job.read(path, MOST_RECORDS * AICORE_DTYPE.itemsize) or b"", AICORE_DTYPE)
        rows = CounterRows(first_place(path, 0), records["ticks"].astype("i8"), counter_map.apply(records))
        for name, found in checked([rows], job.frequency_mhz, maps.peak_bytes_per_s).items() if len(records) else ():
            tallies[name] = merged(tallies.get(name, Tally()), found)
    looked = f"{len(chosen)} of {len(logs)} inferences looked at"
    findings = tuple(host.counter_findings(tallies, looked, maps.peak_bytes_per_s))
    return Section(f"{about}: counters by the map {display_text(counter_map.name)}", findings)


async def _host_section(options: DoctorOptions, answered: str) -> Section:
    findings = await asyncio.to_thread(lambda: list(workspace_checks(options.workspace)))
    findings += _own_certificates(options.access)
    findings += host.identities(await _known_boards(options, answered))
    return Section("this host", tuple(findings))


def workspace_checks(workspace: Workspace) -> Iterator[Finding]:
    """It can be written, its database is of this version and whole, and there is room; nothing in it is changed."""
    root, database = workspace.root.absolute(), workspace.database
    stands = next(above for above in (root, *root.parents) if above.exists())
    elsewhere = "or name another one: --workspace DIR"
    if why := _why_not_writable(stands):
        yield bad("workspace", f"{root}: {why}", f"ls -ld {shlex.quote(str(root))}; {elsewhere}")
        return
    yield good("workspace", f"{root} can be {'written' if stands == root else 'made'}")
    if database.exists():
        yield asyncio.run(_database(database))
    usage = shutil.disk_usage(stands)
    told = f"{usage.free / 1e9:,.1f} of {usage.total / 1e9:,.1f} GB are free for {root}"
    if usage.free < LEAST_FREE_BYTES:
        yield bad("host-space", told, f"make room, {elsewhere}")
    else:
        yield good("host-space", told)


def _why_not_writable(directory: Path) -> str:
    """By making a file that has no name, which asks quotas and read-only file systems as well."""
    if not directory.is_dir():
        return f"{directory} is no directory"
    try:
        with tempfile.TemporaryFile(dir=directory):
            return ""
    except OSError as error:
        return f"{directory}: {os.strerror(error.errno or 0)}"


async def _database(database: Path) -> Finding:
    until = time.monotonic() + LONGEST_CHECK_S
    try:
        async with reading(database) as connection:
            await connection.set_progress_handler(lambda: time.monotonic() > until, STEPS_BETWEEN_LOOKS)
            (checked,) = await fetched_one(connection, "PRAGMA quick_check(1)")
            found: str = checked.splitlines()[-1]
    except StoreError as error:
        code = getattr(error.__cause__, "sqlite_errorcode", 0)
        if code == sqlite3.SQLITE_INTERRUPT:
            told = f"{database} can be read; it is large, and was not checked to the end"
            return unknown("database", told)
        if code not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return bad("database", str(error), error.hint)
        found = str(error.__cause__)
    if found != "ok":
        return bad("database", f"{database} is damaged: {found}", made_anew(database))
    return good("database", f"{database} can be read, and its pages fit each other")


def _own_certificates(access: Access) -> Iterator[Finding]:
    keys = access.keys or default_keys()
    if access.keys is None and not (keys / CERT).exists():
        return
    try:
        credentials = Credentials.read(keys)
    except UsageError as error:
        yield bad("certificate", str(error), error.hint)
        return
    now = datetime.now(UTC)
    yield host.certificate_dates("this host's", credentials.own, now, None, _RENEW_HOST)
    yield host.certificate_dates("the CA's", credentials.authority, now, None, _RENEW_CA)


async def _known_boards(options: DoctorOptions, answered: str) -> list[host.Known]:
    """The boards of boards.toml with who answers for them, and the one that was named."""
    entries = BoardsFile().entries().values()
    asked = [_known_board(options.access, entry) for entry in entries if entry.name != options.board]
    boards = list(await asyncio.gather(*asked))
    if options.board is not None:
        named = options.access.named(options.board)
        boards.append(host.Known(options.board, named.address, named.uuid, answered))
    return boards


async def _known_board(access: Access, board: BoardEntry) -> host.Known:
    address = full_address(board.address)
    if board.is_behind_ssh:
        return host.Known(board.name, f"{address} of {board.ssh}", board.uuid)
    # By its address: who answers there is wanted, whoever should.
    anybody = replace(access, known={})
    try:
        async with asyncio.timeout(ASK_S), connected(address, anybody) as channel:
            answered = (await channel.describe()).identity
    except (UnreachableError, TimeoutError):
        answered = ""
    return host.Known(board.name, address, board.uuid, answered)


async def _board_sections(
    options: DoctorOptions, board: str, tell: Callable[[str], None], stop: asyncio.Event
) -> tuple[list[Section], str]:
    """What is found of a board, and the identity of the one that answers; empty when none does."""
    address = options.access.named(board).address
    about = f"board {board}" if board == address else f"board {board} at {address}"
    findings: list[Finding] = []
    if options.over is None and not BoardsFile().behind_ssh([board]) and not address.startswith("unix:"):
        findings.append(await _name_resolution(host_of(address)))
    try:
        async with AsyncExitStack() as stack:
            access = await stack.enter_async_context(reached([board], options.access, options.over, tell, stop))
            channel = await stack.enter_async_context(connected(board, access))
            description = await channel.describe()
            findings.append(good("link", f"profagentd answers at {address}"))
            more, examination = await _asked(channel, description)
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
            daemon=examination.daemon,
        )
        for file in examination.acl_json
    ]
    mark = " [simulated]" if description.simulated else ""
    return [Section(f"{about}{mark}", (*findings, *more)), *files], description.identity


async def _name_resolution(name: str) -> Finding:
    """The board's name must lead to an address."""
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


async def _asked(channel: Channel, board: Board) -> tuple[list[Finding], Examination]:
    has_more = board.protocol[0] == PROTOCOL[0]
    examination = await channel.examine() if has_more else Examination()
    findings = [host.daemon_version(board), host.listener(board, examination.daemon)]
    difference = await clock_difference(channel, lambda: time.time_ns() // 1000)
    offset_us = difference.offset_us if difference else None
    findings.append(host.clock(offset_us, difference.round_trip_us // 2 if difference else 0, board.clocks.wall_us))
    if not has_more:
        return findings, examination
    findings += npu_checks(examination, simulated=board.simulated)
    findings += roots_checks(examination, board.roots)
    findings += [
        unknown("acl-json", f"{source}: {why}") for source, why in examination.unknown if source.startswith("acl-json")
    ]
    findings += _board_certificates(examination, offset_us)
    return findings, examination


def _board_certificates(examination: Examination, offset_us: int | None) -> Iterator[Finding]:
    now = datetime.now(UTC)
    shown = None if offset_us is None else board_time(int(now.timestamp() * 1e6) + offset_us)
    if why := examination.why_unknown("certificates"):
        yield unknown("certificate", f"the board's: {why}")
    for whose, pem, renew in (
        ("the board's", examination.tls_cert, _RENEW_BOARD),
        ("the board's authority's", examination.tls_ca, _RENEW_CA),
    ):
        if pem:
            try:
                yield host.certificate_dates(whose, Certificate.read(pem, whose), now, shown, renew)
            except UsageError as error:
                yield bad("certificate", str(error), error.hint)
