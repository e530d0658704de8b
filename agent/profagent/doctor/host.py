"""Checks of this host, and of the way to a board: workspace, certificates, names, link, identity and clock."""

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
from profagent.doctor.board import given
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

# So long before its end a certificate should be renewed.
RENEW_BEFORE = timedelta(days=14)
_DAY = "%Y-%m-%d"


# An hour of a large model at 15 inferences a second, its rows included, takes some gigabytes; this is its beginning.
LEAST_FREE_BYTES = 1_000_000_000
STEPS_BETWEEN_LOOKS = 10_000
_RENEW_HOST = "have another one issued: profagent keys revoke NAME; profagent keys issue host NAME"
_RENEW_BOARD = (
    "issue another one, and copy its folder to the board: profagent keys revoke NAME;"
    " profagent keys issue board NAME --address ADDRESS"
)
_RENEW_CA = "make a CA anew: profagent keys init --keys DIR, and issue every board and host a certificate"


class Known(NamedTuple):
    """A board of boards.toml, or one that was named: what identity it has there, and which one answers, if any."""

    name: str
    address: str
    written: str = ""
    answered: str = ""


def certificate_dates(
    whose: str, certificate: Certificate, host_time: datetime, board_time: datetime | None, renew: str
) -> Finding:
    """A certificate must hold by both clocks; `renew` is how to get another."""
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
    """Daemon and host should be of one version; another minor version works."""
    spoken, own = (".".join(map(str, each)) for each in (board.protocol, PROTOCOL))
    seen = (
        f"profagentd {board.daemon_version} speaks protocol {spoken}; this is profagent {__version__}, protocol {own}"
    )
    if board.protocol[0] != PROTOCOL[0]:
        return bad("daemon", seen, "install the same version on both sides")
    if board.daemon_version != __version__:
        return unknown("daemon", f"{seen}: they were not tried together", "install the same on both sides")
    return good("daemon", seen)


def listener(board: Board) -> Finding:
    """Nobody who is not known may do anything on the board."""
    if not board.insecure:
        return good("listener", "not open to others: it has TLS, or is not reached from outside")
    settings = given("name these files in place of insecure", "these files in place of --insecure")
    return bad(
        "listener",
        "the daemon is insecure: whoever reaches it may do anything",
        f"profagent keys issue board NAME --address ADDRESS (docs/reference/security.md); {settings}",
    )


def clock(offset_us: int | None, uncertainty_us: int, board_us: int) -> Finding:
    """The board's clock is `offset_us` ahead, known to ± `uncertainty_us`; None where no exchange told."""
    if offset_us is None:
        return unknown("clock", "the clock was set while it was compared", "run doctor again")
    board = time_of(board_us)
    seen = f"the board's clock is {offset_us / 1e6:+,.6f} s ± {uncertainty_us / 1e6:.6f} s from this host's"
    if board < EARLIEST or abs(offset_us) - uncertainty_us > MOST_OFFSET_US:
        never = ", it was never set" if board < EARLIEST else ""
        remedy = "on the board, with this host's seconds: date -u -s @$(date +%s); for good: an NTP client"
        return bad("clock", f"{seen}: it shows {board.isoformat(' ', 'seconds')}{never}", remedy)
    if abs(offset_us) + uncertainty_us > MOST_OFFSET_US:
        return unknown("clock", f"{seen}: the link is too slow to tell more", "run doctor again when the link is idle")
    return good("clock", seen)


def identities(boards: Sequence[Known]) -> Iterator[Finding]:
    """Boards that were made from one image have one identity, and cannot be told apart."""
    holders: dict[str, dict[str, str]] = defaultdict(dict)
    for board in boards:
        if identity := board.answered or board.written:
            holders[identity].setdefault(board.address, board.name)
        else:
            yield unknown("identity", f"{board.name}: neither boards.toml nor the board tells an identity")
        if board.written and board.answered and board.written != board.answered:
            yield bad(
                "identity",
                f"{board.name} is {board.written} in boards.toml, and {board.answered} answers at {board.address}",
                "see which board has the address now, and put it right in ~/.config/profagent/boards.toml",
            )
    doubles = {identity: names.values() for identity, names in holders.items() if len(names) > 1}
    for identity, names in doubles.items():
        yield bad(
            "identity",
            f"{' and '.join(names)} have one identity: {identity}",
            "if they are two boards, on one of them: cat /proc/sys/kernel/random/uuid > /etc/profagent/board-id, and"
            " restart profagentd; if they are one: profagent boards remove NAME",
        )
    if holders and not doubles:
        yield good("identity", f"boards with an identity of their own: {len(holders)}")


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
    seen = f"{usage.free / 1e9:,.1f} of {usage.total / 1e9:,.1f} GB are free for {root}"
    if usage.free < LEAST_FREE_BYTES:
        yield bad("host-space", seen, f"make room, {elsewhere}")
    else:
        yield good("host-space", seen)


def _why_not_writable(directory: Path) -> str:
    """By making a file that has no name, which asks quotas and read-only file systems as well."""
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
            seen = f"{database} can be read; it is large, and was not checked to the end"
            return unknown("database", seen)
        if code not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return bad("database", str(error), error.hint)
        found = str(error.__cause__)
    if found != "ok":
        return bad("database", f"{database} is damaged: {found}", made_anew(database))
    return good("database", f"{database} can be read, and its pages fit each other")


def own_certificates(access: Access) -> Iterator[Finding]:
    """Those of this host and of its authority, where it has any."""
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


async def known_boards(access: Access, named: str | None, answered: str) -> list[Known]:
    """The boards of boards.toml with who answers for them, and the one that was named."""
    entries = BoardsFile().entries().values()
    boards = list(await asyncio.gather(*(_known_board(access, entry) for entry in entries if entry.name != named)))
    if named is not None:
        entry = access.named(named)
        boards.append(Known(named, entry.address, entry.uuid, answered))
    return boards


async def _known_board(access: Access, board: BoardEntry) -> Known:
    address = full_address(board.address)
    if board.is_behind_ssh:
        return Known(board.name, f"{address} of {board.ssh}", board.uuid)
    # By its address: who answers there is wanted, whoever should.
    anybody = replace(access, known={})
    try:
        async with asyncio.timeout(ASK_S), connected(address, anybody) as channel:
            answered = (await channel.describe()).identity
    except (UnreachableError, TimeoutError):
        answered = ""
    return Known(board.name, address, board.uuid, answered)


def board_certificates(examination: Examination, offset_us: int | None) -> Iterator[Finding]:
    """The daemon's and its authority's, by both clocks."""
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
