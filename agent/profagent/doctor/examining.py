"""`doctor`: facts of this host, of a board and of a JOB, gathered for the checks, which give the verdicts."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sqlite3
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from profagent import __version__
from profagent.boards.tunnel import reached
from profagent.doctor import network
from profagent.doctor.acl_json import acl_json_section
from profagent.doctor.checks import (
    CheckedCounters,
    WorkspaceFacts,
    certificate_dates,
    clock,
    counters_section,
    workspace_checks,
)
from profagent.doctor.finding import Section, bad, unknown
from profagent.doctor.job_examining import acl_json_file, job_facts, job_sections
from profagent.doctor.network import Resolved
from profagent.doctor.npu import npu_checks
from profagent.doctor.roots import roots_checks
from profagent.errors import ProfagentError, StoreError, UnreachableError, UsageError
from profagent.formats.countermap import CounterRows, Tally, checked, first_place, merged
from profagent.formats.names import display_text
from profagent.formats.records import AICORE_DTYPE, view_records
from profagent.ingest.job_records import JobRecords
from profagent.link.board_clock import board_time, clock_difference
from profagent.link.boards_file import BoardsFile
from profagent.link.certificate import Certificate
from profagent.link.channel import connected
from profagent.link.credentials import CERT, Credentials, default_keys, full_address, host_of
from profagent.link.examination import Examination
from profagent.link.messages import PROTOCOL
from profagent.store.counter_maps import BUILT_IN, CounterMaps
from profagent.store.database import made_anew
from profagent.store.queries import open_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from profagent.boards.tunnel import OverSsh
    from profagent.doctor.finding import Finding
    from profagent.formats.countermap import CounterMap
    from profagent.link.boards_file import BoardEntry
    from profagent.link.channel import Channel
    from profagent.link.credentials import Access
    from profagent.link.messages import Board
    from profagent.store.counter_maps import CounterMaps
    from profagent.store.workspace import Workspace


# Inferences that are looked at, evenly spread, and how much of each.
INFERENCES = 200
MOST_RECORDS = 65_536


def job_counters(directory: Path, maps: CounterMaps) -> Section:
    """A finding for each check, with its numbers. Raises UsageError for no JOB."""
    job, about = JobRecords(directory), display_text(str(directory))
    counter_map = maps.of(simulated=job.is_simulated)
    if counter_map is None:
        return counters_section(about, None)
    logs = job.inferences
    chosen = logs[:: max(1, -(-len(logs) // INFERENCES))]
    tallies: dict[str, Tally] = {}
    for path, _ in chosen:
        for name, found in _checked(job, path, counter_map, maps.peak_bytes_per_s).items():
            tallies[name] = merged(tallies.get(name, Tally()), found)
    name = display_text(counter_map.name)
    return counters_section(about, CheckedCounters(name, tallies, len(chosen), len(logs), maps.peak_bytes_per_s))


def _checked(job: JobRecords, path: str, counter_map: CounterMap, peak: float) -> Mapping[str, Tally]:
    data = job.read(path, MOST_RECORDS * AICORE_DTYPE.itemsize) or b""
    records = view_records(data, AICORE_DTYPE)
    if not len(records):
        return {}
    rows = CounterRows(first_place(path, 0), records["ticks"].astype("i8"), counter_map.apply(records))
    return checked([rows], job.frequency_mhz, peak)


RESOLVE_S = 10.0
# A large database is not looked at to its end.
LONGEST_CHECK_S = 10.0
STEPS_BETWEEN_LOOKS = 10_000
MOST_ERRORS = 10
DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


async def resolved(address: str) -> Resolved:
    """What the host of `HOST:PORT` leads to."""
    host = host_of(address)
    look_up = asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    try:
        async with asyncio.timeout(RESOLVE_S):
            found = await look_up
    except TimeoutError:
        return Resolved(host, error=f"no answer from the name server for {RESOLVE_S:.0f} s")
    except (OSError, UnicodeError) as error:
        return Resolved(host, error=getattr(error, "strerror", None) or str(error))
    return Resolved(host, tuple(dict.fromkeys(str(each[4][0]) for each in found)))


def workspace_facts(workspace: Workspace) -> WorkspaceFacts:
    """The workspace as it is; nothing in it is changed."""
    root = workspace.root.absolute()
    stands = next(above for above in (root, *root.parents) if above.exists())
    usage = shutil.disk_usage(stands)
    database_error, is_checked = _database_error(workspace.database)
    return WorkspaceFacts(
        root=str(root),
        exists=stands == root,
        error=_why_not_writable(stands),
        database=str(workspace.database) if workspace.database.exists() else "",
        database_error=str(database_error or ""),
        database_hint=database_error.hint if database_error else "",
        is_checked=is_checked,
        free_bytes=usage.free,
        total_bytes=usage.total,
    )


def host_credentials(access: Access) -> Credentials | None:
    """The keys of this host: those that are named, else the usual ones if they are there. Raises UsageError."""
    if access.keys is not None:
        return Credentials.read(access.keys)
    return Credentials.read(default_keys()) if (default_keys() / CERT).exists() else None


def _why_not_writable(directory: Path) -> str:
    """By making a file that has no name, which asks quotas and read-only file systems as well."""
    if not directory.is_dir():
        return f"{directory} is no directory"
    try:
        with tempfile.TemporaryFile(dir=directory):
            return ""
    except OSError as error:
        return f"{directory}: {os.strerror(error.errno or 0)}"


def _database_error(database: Path) -> tuple[StoreError | None, bool]:
    """What is wrong with a database, and whether all of it was looked at."""
    if not database.exists():
        return None, True
    until = time.monotonic() + LONGEST_CHECK_S
    try:
        with open_reader(database) as connection:
            connection.set_progress_handler(lambda: time.monotonic() > until, STEPS_BETWEEN_LOOKS)
            found = connection.execute(f"PRAGMA quick_check({MOST_ERRORS})").fetchone()[0]
    except StoreError as error:
        code = getattr(error.__cause__, "sqlite_errorcode", 0)
        if code == sqlite3.SQLITE_INTERRUPT:
            return None, False
        return (_damaged(database, str(error.__cause__)) if code in DAMAGED else error), True
    return (None if found == "ok" else _damaged(database, found.splitlines()[-1])), True


def _damaged(database: Path, why: str) -> StoreError:
    return StoreError(f"{database} is damaged: {why}", hint=made_anew(database))


# How long another board is waited for, of which no more is asked than who it is.
ASK_S = 10.0
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

    @property
    def with_host(self) -> bool:
        """Whether this host is looked at."""
        return self.board is not None or (self.job is None and self.acl_json is None)


async def examine(options: DoctorOptions, tell: Callable[[str], None], stop: asyncio.Event) -> list[Section]:
    """What is found, in sections. Raises UsageError for what cannot be a JOB, a file or a way to a board."""
    sections: list[Section] = []
    answered = ""
    if options.board is not None:
        board_sections, answered = await _board_sections(options, options.board, tell, stop)
        sections += board_sections
    if options.with_host:
        sections.insert(0, await _host_section(options, answered))
    if options.job is not None:
        sections += await asyncio.to_thread(job_sections, options.job)
        sections.append(await asyncio.to_thread(job_facts, options.job))
        sections.append(await asyncio.to_thread(job_counters, options.job, options.maps))
    if options.acl_json is not None and str(options.acl_json.resolve()) not in {each.about for each in sections}:
        sections.append(acl_json_file(options.acl_json))
    return sections


async def _host_section(options: DoctorOptions, answered: str) -> Section:
    findings = list(workspace_checks(await asyncio.to_thread(workspace_facts, options.workspace)))
    findings += _own_certificates(options.access)
    boards = await _known_boards(options, answered)
    findings += network.identities(boards) if boards else ()
    return Section("this host", tuple(findings))


def _own_certificates(access: Access) -> Iterator[Finding]:
    try:
        credentials = host_credentials(access)
    except UsageError as error:
        yield bad("certificate", str(error), error.hint)
        return
    if credentials is not None:
        now = datetime.now(UTC)
        yield from certificate_dates("this host's", credentials.own, now, None, _RENEW_HOST)
        yield from certificate_dates("the CA's", credentials.authority, now, None, _RENEW_CA)


async def _known_boards(options: DoctorOptions, answered: str) -> list[network.Known]:
    """The boards of boards.toml with who answers for them, and the one that was named."""
    entries = BoardsFile().entries().values()
    asked = [_known_board(options.access, entry) for entry in entries if entry.name != options.board]
    boards = list(await asyncio.gather(*asked))
    if options.board is not None:
        named = options.access.named(options.board)
        boards.append(network.Known(options.board, named.address, named.uuid, answered))
    return boards


async def _known_board(access: Access, board: BoardEntry) -> network.Known:
    address = full_address(board.address)
    if board.is_behind_ssh:
        return network.Known(board.name, f"{address} of {board.ssh}", board.uuid)
    # By its address: who answers there is wanted, whoever should.
    anybody = replace(access, known={})
    try:
        async with asyncio.timeout(ASK_S), connected(address, anybody) as channel:
            answered = (await channel.describe()).identity
    except (UnreachableError, TimeoutError):
        answered = ""
    return network.Known(board.name, address, board.uuid, answered)


async def _board_sections(
    options: DoctorOptions, board: str, tell: Callable[[str], None], stop: asyncio.Event
) -> tuple[list[Section], str]:
    """What is found of a board, and the identity of the one that answers; empty when none does."""
    address = options.access.named(board).address
    about = f"board {board}" if board == address else f"board {board} at {address}"
    findings: list[Finding] = []
    is_direct = options.over is None and not BoardsFile().behind_ssh([board])
    if is_direct and not address.startswith("unix:"):
        findings.append(network.name_resolution(await resolved(address)))
    try:
        async with AsyncExitStack() as stack:
            access = await stack.enter_async_context(reached([board], options.access, options.over, tell, stop))
            channel = await stack.enter_async_context(connected(board, access))
            description = await channel.describe()
            findings.append(network.link(address, "", ""))
            more, examination = await _asked(channel, description)
    except UsageError:
        raise
    except ProfagentError as error:
        findings.append(network.link(address, str(error), error.hint))
        return [Section(about, tuple(findings))], ""
    roots = description.roots
    files = [
        acl_json_section(
            f"{file.path} on {board}",
            file.data,
            size=file.size,
            output=file.output,
            roots=roots,
            daemon=examination.daemon,
        )
        for file in examination.acl_json
    ]
    mark = " [simulated]" if description.simulated else ""
    return [Section(f"{about}{mark}", (*findings, *more)), *files], description.identity


async def _asked(channel: Channel, board: Board) -> tuple[list[Finding], Examination]:
    has_more = board.protocol[0] == PROTOCOL[0]
    examination = await channel.examine() if has_more else Examination()
    findings = [network.daemon_version(board, __version__), network.listener(board, examination.daemon)]
    difference = await clock_difference(channel, lambda: time.time_ns() // 1000)
    offset_us = difference.offset_us if difference else None
    findings.append(clock(offset_us, difference.round_trip_us // 2 if difference else 0, board.clocks.wall_us))
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
        if not pem:
            continue
        try:
            yield from certificate_dates(whose, Certificate.read(pem, whose), now, shown, renew)
        except UsageError as error:
            yield bad("certificate", str(error), error.hint)
