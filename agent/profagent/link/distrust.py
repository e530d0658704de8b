"""Why a board and a host do not trust each other, and what to do about it: from certificates and the time, no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.errors import RefusedError
from profagent.link.credentials import CERT, REVOKED, host_of

if TYPE_CHECKING:
    from datetime import datetime

    from profagent.link.certificate import Certificate
    from profagent.link.credentials import Credentials
    from profagent.link.known import KnownBoard

_TIME = "%Y-%m-%d %H:%M UTC"


def board_distrusted(
    board: KnownBoard, shown: Certificate, credentials: Credentials, now: datetime, verdict: str
) -> RefusedError:
    """Why the certificate that a board shows is not taken; `verdict` is what TLS itself said."""
    whose = f"the certificate of the board at {board.place} ({shown.name or 'without a name'})"
    if not shown.is_issued_by(credentials.authority):
        return RefusedError(
            f"{whose} was issued by {shown.issuer or 'nobody'}, not by the workshop of {credentials.folder}",
            hint="name the keys of the workshop that issued it with --keys, or issue the board one of this workshop",
        )
    if now > shown.until:
        return RefusedError(
            f"{whose} has expired on {shown.until:{_TIME}}; by this host's clock it is {now:{_TIME}}",
            hint="set this host's clock if it is wrong; else `profagent keys issue board`, and copy it to the board",
        )
    if now < shown.since:
        return RefusedError(
            f"{whose} is valid from {shown.since:{_TIME}} on; by this host's clock it is {now:{_TIME}}",
            hint="set this host's clock if it is wrong; else issue one anew: those of profagent are valid since 1970",
        )
    if shown.kind != "board":
        return RefusedError(
            f"{whose} is no board's: it is of the kind {shown.kind}",
            hint="give the daemon board.pem and board.key of `profagent keys issue board`",
        )
    if "mismatch" in verdict.lower() or "not valid for" in verdict.lower():
        return _for_another(board, whose, shown)
    return RefusedError(f"{whose} is not accepted: {verdict}", hint="issue the board another one")


def _for_another(board: KnownBoard, whose: str, shown: Certificate) -> RefusedError:
    """The certificate is not for the host that it should be for."""
    called = "have one of these as its address in boards.toml" if board.tls_name else "name one of these with --board"
    return RefusedError(
        f"{whose} is not for {board.tls_name or host_of(board.address)}:"
        f" it is for {', '.join(shown.addresses) or 'no address'}",
        hint=f"{called}, or issue the board one with --address for each that it is called by",
    )


def board_revoked(address: str, shown: Certificate, credentials: Credentials) -> RefusedError:
    """The board's certificate is on this host's list."""
    return RefusedError(
        f"the certificate of the board at {address} ({shown.name}) is revoked: it is in {credentials.folder / REVOKED}",
        hint="who answers there may be anybody who has its key; issue the board another one",
    )


def host_distrusted(address: str, credentials: Credentials, now: datetime) -> RefusedError:
    """The board ends the connection when it has seen this host's certificate. It does not say why."""
    own = credentials.own
    mine = f"{credentials.folder / CERT} ({own.name})"
    told = f"the board at {address} does not take this host's certificate"
    if now > own.until:
        return RefusedError(
            f"{told}: {mine} has expired on {own.until:{_TIME}}; by this host's clock it is {now:{_TIME}}",
            hint="have one issued anew: `profagent keys issue host`",
        )
    if own.kind != "host":
        return RefusedError(
            f"{told}: {mine} is no host's: it is of the kind {own.kind}",
            hint="take host.pem and host.key of `profagent keys issue host`",
        )
    if not own.is_issued_by(credentials.authority):
        return RefusedError(
            f"{told}: {mine} was not issued by the workshop of the board's, {credentials.authority.name}",
            hint="have one issued by the workshop whose ca.pem stands beside it: `profagent keys issue host`",
        )
    return RefusedError(
        f"{told}: {mine} is valid until {own.until:{_TIME}}, so either the board's clock is wrong (past that day), or"
        " its tls_ca is not this workshop's",
        hint="on the board: `date`, and `sha256sum` of its tls_ca against that of"
        f" {credentials.folder / 'ca.pem'}; put right what differs, and start profagentd again",
    )


def no_tls(address: str) -> RefusedError:
    """What answers there does not speak TLS."""
    return RefusedError(
        f"what answers at {address} does not speak TLS",
        hint="start profagentd with --tls-cert, --tls-key and --tls-ca (docs/security.md), or leave --keys out for a"
        " tunnel; --insecure speaks plain text",
    )
