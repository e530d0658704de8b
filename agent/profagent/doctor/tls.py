"""Checks of certificates: whose dates hold, by this host's clock and by the board's."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from profagent.doctor.finding import bad, good

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagent.doctor.finding import Finding
    from profagent.link.certificate import Certificate

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
