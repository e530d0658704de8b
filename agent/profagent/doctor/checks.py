"""Checks of clock, counters and certificates, and of the workspace of this host."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from profagent.doctor.finding import Finding, Section, bad, good, unknown
from profagent.formats.countermap import told
from profagent.link.board_clock import EARLIEST, board_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from profagent.doctor.finding import Finding
    from profagent.formats.countermap import Tally
    from profagent.link.certificate import Certificate


# Boards are joined, and certificates valid, by their clocks; programs of one board need none.
MOST_OFFSET_US = 1_000_000
_REMEDY = "on the board, with this host's seconds: date -u -s @$(date +%s); for good: an NTP client"


def clock(offset_us: int | None, uncertainty_us: int, board_us: int) -> Finding:
    """The board's clock is `offset_us` ahead, known to ± `uncertainty_us`; None where no exchange told."""
    if offset_us is None:
        return unknown("clock", "the clock was set while it was compared", "run doctor again")
    board = board_time(board_us)
    shown = board.isoformat(" ", "seconds")
    told = f"the board's clock is {offset_us / 1e6:+,.6f} s ± {uncertainty_us / 1e6:.6f} s from this host's"
    if board < EARLIEST:
        return bad("clock", f"{told}: it shows {shown}, it was never set", _REMEDY)
    if abs(offset_us) - uncertainty_us > MOST_OFFSET_US:
        return bad("clock", f"{told}: it shows {shown}", _REMEDY)
    if abs(offset_us) + uncertainty_us > MOST_OFFSET_US:
        return unknown("clock", f"{told}: the link is too slow to tell more", "run doctor again when the link is idle")
    return good("clock", told)


_COUNTERS_REMEDY = "learn another map with profagent calibrate, and have profagent redecode exchange this one"


@dataclass(frozen=True, slots=True)
class CheckedCounters:
    """What was counted by a map, in `looked` of a JOB's `inferences`; `peak_bytes_per_s` is the memory's."""

    counter_map: str
    tallies: Mapping[str, Tally]
    looked: int
    inferences: int
    peak_bytes_per_s: float


def counters_section(job: str, found: CheckedCounters | None) -> Section:
    """A finding for each check; None: no map is known."""
    if found is None:
        why = "no counter map alone fits: PMU columns are N/A, and there is nothing to check"
        return Section(f"{job}: counters", (unknown("counters", why, "name one with --counter-map FILE"),))
    findings = tuple(_findings(found)) or (unknown("counters", f"no records; {_looked(found)}"),)
    return Section(f"{job}: counters by the map {found.counter_map}", findings)


def _findings(found: CheckedCounters) -> Iterator[Finding]:
    for name, tally in found.tallies.items():
        if tally.implausible:
            yield bad(name, f"{told(name, tally, found.peak_bytes_per_s)}; {_looked(found)}", _COUNTERS_REMEDY)
        else:
            yield good(name, f"in all of {tally.rows:,} records; {_looked(found)}")


def _looked(found: CheckedCounters) -> str:
    return f"{found.looked} of {found.inferences} inferences looked at"


# So long before its end a certificate should be renewed.
RENEW_BEFORE = timedelta(days=14)
_DAY = "%Y-%m-%d"


def certificate_dates(
    whose: str, certificate: Certificate, host_time: datetime, board_time: datetime | None, renew: str
) -> Iterator[Finding]:
    """A certificate must hold by both clocks; `renew` is how to get another."""
    check = "certificate"
    dates = f"{certificate.since:{_DAY}} to {certificate.until:{_DAY}}"
    told = f"{whose} certificate ({certificate.name or 'no name'}) is valid {dates}"
    for clock, now in (("this host's", host_time), ("the board's", board_time)):
        if now is None:
            continue
        if not certificate.since <= now <= certificate.until:
            yield bad(
                check, f"{told}; by {clock} clock it is {now:{_DAY}}", f"set that clock if it is wrong; else {renew}"
            )
            return
    left = certificate.until - host_time
    if left < RENEW_BEFORE:
        yield bad(check, f"{told}: {left.days} days are left", renew)
    else:
        yield good(check, f"{told}: {left.days} days are left")


# An hour of a large model at 15 inferences a second, its rows included, takes some gigabytes; this is its beginning.
LEAST_FREE_BYTES = 1_000_000_000


@dataclass(frozen=True, slots=True)
class WorkspaceFacts:
    """A workspace: why it, or its database, cannot be used, empty when they can; `database` is empty without one.

    `is_checked`: the database was looked at to its end.
    """

    root: str
    exists: bool
    error: str
    database: str
    database_error: str
    database_hint: str
    free_bytes: int
    total_bytes: int
    is_checked: bool = True


def workspace_checks(facts: WorkspaceFacts) -> Iterator[Finding]:
    """It can be written, its database is of this version, and there is room."""
    if facts.error:
        yield bad(
            "workspace",
            f"{facts.root}: {facts.error}",
            f"ls -ld {shlex.quote(facts.root)}; or name another one: --workspace DIR",
        )
        return
    yield good("workspace", f"{facts.root} can be written" if facts.exists else f"{facts.root} can be made")
    if facts.database_error:
        yield bad("database", facts.database_error, facts.database_hint)
    elif facts.database and not facts.is_checked:
        yield unknown("database", f"{facts.database} can be read; it is large, and was not checked to the end")
    elif facts.database:
        yield good("database", f"{facts.database} can be read, and its pages fit each other")
    told = f"{facts.free_bytes / 1e9:,.1f} of {facts.total_bytes / 1e9:,.1f} GB are free for {facts.root}"
    if facts.free_bytes < LEAST_FREE_BYTES:
        yield bad("host-space", told, "make room, or name another one: --workspace DIR")
    else:
        yield good("host-space", told)
