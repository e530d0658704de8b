"""Checks of this host, and of the way to a board: workspace, certificates, names, link, identity and clock."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from profagent import __version__
from profagent.doctor.board import given
from profagent.doctor.finding import bad, good, unknown
from profagent.formats.countermap import told as told_tally
from profagent.link.messages import EARLIEST, PROTOCOL, board_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from profagent.doctor.finding import Finding
    from profagent.formats.countermap import Tally
    from profagent.link.credentials import Certificate
    from profagent.link.messages import Board
    from profagent.link.translate import DaemonFacts

# Boards are joined, and certificates valid, by their clocks; programs of one board need none.
MOST_OFFSET_US = 1_000_000
# So long before its end a certificate should be renewed.
RENEW_BEFORE = timedelta(days=14)
_DAY = "%Y-%m-%d"


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
    told = f"{whose} certificate ({certificate.name or 'no name'}) is valid {dates}"
    for clock, now in (("this host's", host_time), ("the board's", board_time)):
        if now is not None and not certificate.since <= now <= certificate.until:
            why = f"{told}; by {clock} clock it is {now:{_DAY}}"
            return bad(check, why, f"set that clock if it is wrong; else {renew}")
    left = certificate.until - host_time
    told = f"{told}: {left.days} days are left"
    return bad(check, told, renew) if left < RENEW_BEFORE else good(check, told)


def daemon_version(board: Board) -> Finding:
    """Daemon and host should be of one version; another minor version works."""
    spoken, own = (".".join(map(str, each)) for each in (board.protocol, PROTOCOL))
    told = (
        f"profagentd {board.daemon_version} speaks protocol {spoken}; this is profagent {__version__}, protocol {own}"
    )
    if board.protocol[0] != PROTOCOL[0]:
        return bad("daemon", told, "install the same version on both sides")
    if board.daemon_version != __version__:
        return unknown("daemon", f"{told}: they were not tried together", "install the same on both sides")
    return good("daemon", told)


def listener(board: Board, daemon: DaemonFacts | None) -> Finding:
    """Nobody who is not known may do anything on the board."""
    if not board.insecure:
        return good("listener", "not open to others: it has TLS, or is not reached from outside")
    settings = given(
        daemon, "name these files in place of insecure", "these files in place of --insecure", needs_restart=True
    )
    return bad(
        "listener",
        "the daemon is insecure: whoever reaches it may do anything",
        f"profagent keys issue board NAME --address ADDRESS (docs/reference/security.md); {settings}",
    )


def clock(offset_us: int | None, uncertainty_us: int, board_us: int) -> Finding:
    """The board's clock is `offset_us` ahead, known to ± `uncertainty_us`; None where no exchange told."""
    if offset_us is None:
        return unknown("clock", "the clock was set while it was compared", "run doctor again")
    board = board_time(board_us)
    told = f"the board's clock is {offset_us / 1e6:+,.6f} s ± {uncertainty_us / 1e6:.6f} s from this host's"
    if board < EARLIEST or abs(offset_us) - uncertainty_us > MOST_OFFSET_US:
        never = ", it was never set" if board < EARLIEST else ""
        remedy = "on the board, with this host's seconds: date -u -s @$(date +%s); for good: an NTP client"
        return bad("clock", f"{told}: it shows {board.isoformat(' ', 'seconds')}{never}", remedy)
    if abs(offset_us) + uncertainty_us > MOST_OFFSET_US:
        return unknown("clock", f"{told}: the link is too slow to tell more", "run doctor again when the link is idle")
    return good("clock", told)


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


def counter_findings(tallies: Mapping[str, Tally], looked: str, peak_bytes_per_s: float) -> Iterator[Finding]:
    """A finding for each check that a counter cannot fail; `looked` says at what."""
    for name, tally in tallies.items():
        if tally.implausible:
            remedy = "learn another map with profagent calibrate, and have profagent redecode exchange this one"
            yield bad(name, f"{told_tally(name, tally, peak_bytes_per_s)}; {looked}", remedy)
        else:
            yield good(name, f"in all of {tally.rows:,} records; {looked}")
    if not tallies:
        yield unknown("counters", f"no records; {looked}")
