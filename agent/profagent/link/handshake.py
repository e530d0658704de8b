"""First handshake with a board: both sides prove who they are, and a failure is explained in terms of certificates."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cryptography import x509

from profagent.errors import RefusedError, UnknownHostError, UnreachableError
from profagent.limits import HANDSHAKE_ATTEMPTS, HANDSHAKE_TIMEOUT_S
from profagent.link.addresses import host_of
from profagent.link.credentials import CERT, REVOKED, Certificate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from profagent.link.addresses import KnownBoard
    from profagent.link.credentials import Credentials


_TIME = "%Y-%m-%d %H:%M UTC"


def board_distrusted(
    board: KnownBoard, shown: Certificate, credentials: Credentials, now: datetime, verdict: str
) -> RefusedError:
    """Return the error for a board's certificate that is not accepted; `verdict` is OpenSSL's message."""
    called = "have one of these as its address in boards.toml" if board.tls_name else "name one of these with --board"
    clock = f"by this host's clock it is {now:{_TIME}}"
    cases = (
        (
            not shown.is_issued_by(credentials.authority),
            f"was issued by {shown.issuer or 'nobody'}, not by the CA of {credentials.folder}",
            "name the keys of the CA that issued it with --keys, or issue the board one of this CA",
        ),
        (
            now > shown.until,
            f"has expired on {shown.until:{_TIME}}; {clock}",
            "set this host's clock if it is wrong; else `profagent keys issue board`, and copy it to the board",
        ),
        (
            now < shown.since,
            f"is valid from {shown.since:{_TIME}} on; {clock}",
            "set this host's clock if it is wrong; else issue one anew: those of profagent are valid since 1970",
        ),
        (
            shown.kind != "board",
            f"is no board's: it is of the kind {shown.kind}",
            "give the daemon board.pem and board.key of `profagent keys issue board`",
        ),
        (
            "mismatch" in verdict.lower() or "not valid for" in verdict.lower(),
            (
                f"is not for {board.tls_name or host_of(board.address)}:"
                f" it is for {', '.join(shown.addresses) or 'no address'}"
            ),
            f"{called}, or issue the board one with --address for each that it is called by",
        ),
        (True, f"is not accepted: {verdict}", "issue the board another certificate"),
    )
    what, hint = next((what, hint) for is_so, what, hint in cases if is_so)
    whose = f"the certificate of the board at {board.place} ({shown.name or 'without a name'})"
    return RefusedError(f"{whose} {what}", hint=hint)


def board_revoked(address: str, shown: Certificate, credentials: Credentials) -> RefusedError:
    """Return the error for a board's certificate that is in this host's revocation list."""
    return RefusedError(
        f"the certificate of the board at {address} ({shown.name}) is revoked: it is in {credentials.folder / REVOKED}",
        hint="whoever has its key may answer there; issue the board another certificate",
    )


def host_distrusted(address: str, credentials: Credentials, now: datetime) -> RefusedError:
    """Return the error for a board that closes the connection after it has seen this host's certificate.

    TLS gives no reason, so the likely one is found in the certificate itself.
    """
    own = credentials.own
    mine = f"{credentials.folder / CERT} ({own.name})"
    text = f"the board at {address} does not take this host's certificate"
    if now > own.until:
        return RefusedError(
            f"{text}: {mine} has expired on {own.until:{_TIME}}; by this host's clock it is {now:{_TIME}}",
            hint="have one issued anew: `profagent keys issue host`",
        )
    if own.kind != "host":
        return RefusedError(
            f"{text}: {mine} is no host's: it is of the kind {own.kind}",
            hint="take host.pem and host.key of `profagent keys issue host`",
        )
    if not own.is_issued_by(credentials.authority):
        return RefusedError(
            f"{text}: {mine} was not issued by the CA of the board's, {credentials.authority.name}",
            hint="have one issued by the CA whose ca.pem stands beside it: `profagent keys issue host`",
        )
    return RefusedError(
        f"{text}: {mine} is valid until {own.until:{_TIME}}, so either the board's clock is wrong (past that day), or"
        " its tls_ca is not this CA's",
        hint="on the board: `date`, and `sha256sum` of its tls_ca against that of"
        f" {credentials.folder / 'ca.pem'}; put right what differs, and start profagentd again",
    )


def no_tls(address: str) -> RefusedError:
    """Return the error for an address that does not speak TLS."""
    return RefusedError(
        f"what answers at {address} does not speak TLS",
        hint="start profagentd with --tls-cert, --tls-key and --tls-ca (docs/reference/security.md), or leave"
        " --keys out for a tunnel; --insecure speaks plain text",
    )


# OpenSSL's reasons for an answer that is not TLS.
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"})


def system_time() -> datetime:
    """Return the time of this host's clock."""
    return datetime.now(UTC)


async def proven_certificate(
    board: KnownBoard, credentials: Credentials, clock: Callable[[], datetime] = system_time
) -> bytes:
    """Return the board's certificate as PEM, once both sides have accepted each other.

    The certificate is issued by the CA and not revoked. gRPC says little about a handshake that fails and does not
    check revocation. This handshake comes first, and gRPC then accepts only the certificate that was proven here.
    Raises RefusedError, UnreachableError and UsageError.
    """
    context = await asyncio.to_thread(credentials.context)
    address = board.place
    try:
        async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
            # In TLS 1.3 a refusal of this host's certificate shows only as an end after the handshake. An end may have
            # another cause, so one alone is no proof.
            for _ in range(HANDSHAKE_ATTEMPTS):
                async with _connection(board, context) as (reader, shown):
                    certificate = _read(address, shown)
                    if certificate.fingerprint in credentials.revoked:
                        raise board_revoked(address, certificate, credentials)
                    if await reader.read(1):  # the daemon's gRPC sends first, once it has accepted this certificate
                        return ssl.DER_cert_to_PEM_cert(shown).encode()
            raise host_distrusted(address, credentials, clock())
    except ssl.SSLCertVerificationError as error:
        raise await _explained(board, credentials, clock(), error) from error
    except ssl.SSLError as error:
        if error.reason in _NO_TLS:
            raise no_tls(address) from error
        raise UnreachableError.at(address, f"TLS fails: {error.reason or error}") from error
    except (ValueError, OverflowError) as error:
        raise UnreachableError.at(address, f"that is no address: {error}") from error
    except TimeoutError as error:
        raise UnreachableError.at(address, f"no answer for {HANDSHAKE_TIMEOUT_S:.0f} s") from error
    except OSError as error:
        raise _not_connected(address, error) from error


def _not_connected(address: str, error: OSError) -> UnreachableError:
    if isinstance(error, socket.gaierror):
        return UnknownHostError(address)
    # The text of asyncio's error names the address and not the reason.
    why = os.strerror(error.errno) if error.errno else error.strerror or str(error)
    return UnreachableError.at(address, why[:1].lower() + why[1:])


async def _explained(
    board: KnownBoard, credentials: Credentials, now: datetime, error: ssl.SSLCertVerificationError
) -> RefusedError | UnreachableError:
    """Return why the board's certificate was not accepted; an unchecked second connection reads it."""
    address = board.place
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Without checks, because the certificate was refused before and is only read here; nothing is sent.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(HANDSHAKE_TIMEOUT_S), _connection(board, context) as (_, shown):
            certificate = _read(address, shown)
    except (OSError, TimeoutError) as failed:
        return UnreachableError.at(address, f"{error.verify_message}, and then {failed}")
    return board_distrusted(board, certificate, credentials, now, error.verify_message)


def _read(address: str, der: bytes) -> Certificate:
    try:
        return Certificate.of(x509.load_der_x509_certificate(der))
    except ValueError as error:
        raise RefusedError(
            f"the certificate of the board at {address} cannot be read: {error}",
            hint="issue the board another certificate",
        ) from error


@asynccontextmanager
async def _connection(board: KnownBoard, context: ssl.SSLContext) -> AsyncIterator[tuple[asyncio.StreamReader, bytes]]:
    if board.address.startswith("unix:"):
        path = board.address.removeprefix("unix:")
        opening = asyncio.open_unix_connection(path, ssl=context, server_hostname=board.tls_name)
    else:
        host, port = host_of(board.address), int(board.address.rpartition(":")[2])
        opening = asyncio.open_connection(host, port, ssl=context, server_hostname=host)
    reader, writer = await opening
    try:
        yield reader, writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.transport.abort()
