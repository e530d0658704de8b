"""Checks of this host and of the way to a board: workspace, certificates, names, link, identity and clock."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sqlite3
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from profagent import __version__
from profagent.doctor.board import daemon_remedy
from profagent.doctor.checks import CHECKS
from profagent.doctor.finding import bad, good, unknown
from profagent.errors import StoreError, UnreachableError, UsageError
from profagent.limits import ASK_S, LONGEST_CHECK_S, MOST_OFFSET_US
from profagent.link.addresses import default_keys, full_address
from profagent.link.boards_file import BoardsFile
from profagent.link.channel import connected
from profagent.link.credentials import CERT, Certificate, Credentials
from profagent.link.messages import EARLIEST, PROTOCOL
from profagent.link.messages import board_time as time_of
from profagent.store.database import fetched_one, made_anew, reading

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from profagent.doctor.finding import Finding
    from profagent.link.boards_file import BoardEntry
    from profagent.link.credentials import Access
    from profagent.link.messages import Board
    from profagent.link.translate import Examination
    from profagent.store.workspace import Workspace

# A certificate that ends within this time is reported.
RENEW_BEFORE = timedelta(days=14)
_DAY = "%Y-%m-%d"


# Free bytes below which the disk is reported. An hour of a large model at 15 inferences a second takes some gigabytes
# with its rows, so this is enough for the first minutes.
LEAST_FREE_BYTES = 1_000_000_000
# SQLite's virtual machine steps between two looks at the time limit of the check.
STEPS_BETWEEN_LOOKS = 10_000
_RENEW_HOST = "have another one issued: profagent keys revoke NAME; profagent keys issue host NAME"
_RENEW_BOARD = (
    "issue another one, and copy its folder to the board: profagent keys revoke NAME;"
    " profagent keys issue board NAME --address ADDRESS"
)
_RENEW_CA = "make a new CA: profagent keys init --keys DIR, and issue a certificate to every board and host"


class KnownIdentities(NamedTuple):
    """Board of boards.toml, or one named on the command line, with its two identities.

    `written` is the identity in boards.toml, `answered` that of the daemon at the address; both may be empty.
    """

    name: str
    address: str
    written: str = ""
    answered: str = ""


def certificate_dates(
    whose: str, certificate: Certificate, host_time: datetime, board_time: datetime | None, renew: str
) -> Finding:
    """Return a finding about a certificate's validity by both clocks.

    `renew` is the remedy that replaces it. `board_time` is None if the board's clock is not known.
    """
    check = "certificate"
    dates = f"{certificate.since:{_DAY}} to {certificate.until:{_DAY}}"
    seen = f"{whose} certificate ({certificate.name or 'no name'}) is valid {dates}"
    for clock, now in (("this host's", host_time), ("the board's", board_time)):
        if now is not None and not certificate.since <= now <= certificate.until:
            why = f"{seen}; by {clock} clock it is {now:{_DAY}}"
            return bad(check, why, f"set that clock if it is wrong; else {renew}")
    left = certificate.until - host_time
    seen = f"{seen}: {left.days} days are left"
    return bad(check, seen, renew) if left < RENEW_BEFORE else good(check, seen)


def daemon_version(board: Board) -> Finding:
    """Return a finding about the versions of daemon and host; only another major protocol version is bad."""
    spoken, own = (".".join(map(str, each)) for each in (board.protocol, PROTOCOL))
    seen = (
        f"profagentd {board.daemon_version} speaks protocol {spoken}; this is profagent {__version__}, protocol {own}"
    )
    if board.protocol[0] != PROTOCOL[0]:
        return bad("daemon", seen)
    if board.daemon_version != __version__:
        return unknown("daemon", f"{seen}: these versions were not tested together", CHECKS["daemon"].remedy)
    return good("daemon", seen)


def listener(board: Board) -> Finding:
    """Return bad if the daemon accepts calls from anyone."""
    if not board.insecure:
        return good("listener", "the daemon has TLS, or cannot be reached from other machines")
    settings = daemon_remedy("name these files in place of insecure", "these files in place of --insecure")
    return bad(
        "listener",
        "the daemon runs with --insecure: anyone who reaches it may do anything",
        f"profagent keys issue board NAME --address ADDRESS (docs/reference/security.md); {settings}",
    )


def clock(offset_us: int | None, uncertainty_us: int, board_us: int) -> Finding:
    """Return a finding about the board's clock, which is `offset_us` ± `uncertainty_us` ahead of the host's.

    `offset_us` is None if the comparison gave no result.
    """
    if offset_us is None:
        return unknown("clock", "the clock was set while it was compared", "run doctor again")
    board = time_of(board_us)
    seen = f"the board's clock is {offset_us / 1e6:+,.6f} s ± {uncertainty_us / 1e6:.6f} s from this host's"
    # Bad only if the offset is too large even at the favourable end of its uncertainty.
    if board < EARLIEST or abs(offset_us) - uncertainty_us > MOST_OFFSET_US:
        never = ", it was never set" if board < EARLIEST else ""
        return bad("clock", f"{seen}: it shows {board.isoformat(' ', 'seconds')}{never}")
    if abs(offset_us) + uncertainty_us > MOST_OFFSET_US:
        return unknown(
            "clock",
            f"{seen}: the link is too slow for a more exact comparison",
            "run doctor again when the link is idle",
        )
    return good("clock", seen)


def identities(boards: Sequence[KnownIdentities]) -> Iterator[Finding]:
    """Yield bad for boards that share an identity, as copies of one image do, or answer with an unexpected one."""
    holders: dict[str, dict[str, str]] = defaultdict(dict)
    for board in boards:
        if identity := board.answered or board.written:
            # By address: two names of one address are one board.
            holders[identity].setdefault(board.address, board.name)
        else:
            yield unknown("identity", f"{board.name}: neither boards.toml nor the board has an identity")
        if board.written and board.answered and board.written != board.answered:
            yield bad(
                "identity",
                f"{board.name} is {board.written} in boards.toml, and {board.answered} answers at {board.address}",
                "find out which board has the address now, and correct ~/.config/profagent/boards.toml",
            )
    doubles = {identity: names.values() for identity, names in holders.items() if len(names) > 1}
    for identity, names in doubles.items():
        yield bad(
            "identity",
            f"{' and '.join(names)} have the same identity: {identity}",
            "if they are two boards, on one of them: cat /proc/sys/kernel/random/uuid > /etc/profagent/board-id, and"
            " restart profagentd; if they are one: profagent boards remove NAME",
        )
    if holders and not doubles:
        yield good("identity", f"boards with their own identity: {len(holders)}")


def workspace_checks(workspace: Workspace) -> Iterator[Finding]:
    """Yield the findings about the workspace: writable, database intact, free space. Nothing in it is changed."""
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
    seen = f"{usage.free / 1e9:,.1f} of {usage.total / 1e9:,.1f} GB are free for {root}"
    if usage.free < LEAST_FREE_BYTES:
        yield bad("host-space", seen, f"make room, {elsewhere}")
    else:
        yield good("host-space", seen)


def _why_not_writable(directory: Path) -> str:
    """Return why no file can be made in the directory, or an empty string.

    The check creates a file without a name, so it covers quotas and read-only file systems, and leaves nothing behind.
    """
    try:
        with tempfile.TemporaryFile(dir=directory):
            return ""
    except OSError as error:
        return f"{directory}: {os.strerror(error.errno or 0)}"


async def _database(database: Path) -> Finding:
    until = time.monotonic() + LONGEST_CHECK_S
    try:
        async with reading(database) as connection:
            # A large database takes long to check: SQLite calls this handler, and True interrupts the statement.
            await connection.set_progress_handler(lambda: time.monotonic() > until, STEPS_BETWEEN_LOOKS)
            (checked,) = await fetched_one(connection, "PRAGMA quick_check(1)")
            found: str = checked.splitlines()[-1]
    except StoreError as error:
        code = getattr(error.__cause__, "sqlite_errorcode", 0)
        # The progress handler interrupted the check: the time was too short, which is no fault of the database.
        if code == sqlite3.SQLITE_INTERRUPT:
            seen = f"{database} can be read; it is too large to be checked to the end"
            return unknown("database", seen)
        if code not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return bad("database", str(error), error.hint)
        found = str(error.__cause__)
    if found != "ok":
        return bad("database", f"{database} is damaged: {found}", made_anew(database))
    return good("database", f"{database} can be read, and its pages are consistent")


def own_certificates(access: Access) -> Iterator[Finding]:
    """Yield the findings about the certificates of this host and of its CA, if it has any."""
    keys = access.keys or default_keys()
    if access.keys is None and not (keys / CERT).exists():
        return
    try:
        credentials = Credentials.read(keys)
    except UsageError as error:
        yield bad("certificate", str(error), error.hint)
        return
    now = datetime.now(UTC)
    yield certificate_dates("this host's", credentials.own, now, None, _RENEW_HOST)
    yield certificate_dates("the CA's", credentials.authority, now, None, _RENEW_CA)


async def known_boards(access: Access, named: str | None, answered: str) -> list[KnownIdentities]:
    """Return the boards of boards.toml and the one named, each with the identity that answers at its address."""
    entries = BoardsFile().entries().values()
    boards = list(await asyncio.gather(*(_known_board(access, entry) for entry in entries if entry.name != named)))
    if named is not None:
        entry = access.named(named)
        boards.append(KnownIdentities(named, entry.address, entry.uuid, answered))
    return boards


async def _known_board(access: Access, board: BoardEntry) -> KnownIdentities:
    address = full_address(board.address)
    if board.is_behind_ssh:
        return KnownIdentities(board.name, f"{address} of {board.ssh}", board.uuid)
    # Without the known boards any identity is accepted: the check asks who answers, and compares afterwards.
    anybody = replace(access, known={})
    try:
        async with asyncio.timeout(ASK_S), connected(address, anybody) as channel:
            answered = (await channel.describe()).identity
    except (UnreachableError, TimeoutError):
        answered = ""
    return KnownIdentities(board.name, address, board.uuid, answered)


def board_certificates(examination: Examination, offset_us: int | None) -> Iterator[Finding]:
    """Yield the findings about the certificates of the daemon and of its CA, by both clocks."""
    now = datetime.now(UTC)
    shown = None if offset_us is None else time_of(int(now.timestamp() * 1e6) + offset_us)
    if why := examination.why_unknown("certificates"):
        yield unknown("certificate", f"the board's: {why}")
    for whose, pem, renew in (
        ("the board's", examination.tls_cert, _RENEW_BOARD),
        ("the board's authority's", examination.tls_ca, _RENEW_CA),
    ):
        if pem:
            try:
                yield certificate_dates(whose, Certificate.read(pem, whose), now, shown, renew)
            except UsageError as error:
                yield bad("certificate", str(error), error.hint)
