"""The first handshake with a board: each side proves who it is, and what is wrong with a certificate is found out."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cryptography import x509

from profagent.errors import RefusedError, UnreachableError
from profagent.link import distrust
from profagent.link.certificate import Certificate
from profagent.link.credentials import host_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from profagent.link.credentials import Credentials
    from profagent.link.known import KnownBoard

TIMEOUT_S = 10.0
# A board that ends a connection for another reason does so once; one that does not take a certificate, each time.
ATTEMPTS = 2
# What OpenSSL calls an answer that is no TLS.
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"})


def system_time() -> datetime:
    """The time by this host's clock."""
    return datetime.now(UTC)


async def proven_certificate(
    board: KnownBoard, credentials: Credentials, clock: Callable[[], datetime] = system_time
) -> bytes:
    """The certificate of the board at its address, as PEM. It is the workshop's, not revoked, and the board takes ours.

    gRPC says little about a handshake that fails, and asks nobody whether a certificate is revoked. So this one comes
    first, and gRPC is given the certificate that was proven here as the only one to accept. Raises RefusedError,
    UnreachableError and UsageError.
    """
    context = await asyncio.to_thread(credentials.context)
    address = board.place
    try:
        async with asyncio.timeout(TIMEOUT_S):
            for _ in range(ATTEMPTS):
                async with _connection(board, context) as (reader, shown):
                    certificate = _read(address, shown)
                    if certificate.fingerprint in credentials.revoked:
                        raise distrust.board_revoked(address, certificate, credentials)
                    if await reader.read(1):  # gRPC speaks first, once it has taken our certificate
                        return ssl.DER_cert_to_PEM_cert(shown).encode()
            raise distrust.host_distrusted(address, credentials, clock())
    except ssl.SSLCertVerificationError as error:
        raise await _explained(board, credentials, clock(), error) from error
    except ssl.SSLError as error:
        if error.reason in _NO_TLS:
            raise distrust.no_tls(address) from error
        raise UnreachableError.at(address, f"TLS fails: {error.reason or error}") from error
    except (ValueError, OverflowError) as error:
        raise UnreachableError.at(address, f"that is no address: {error}") from error
    except TimeoutError as error:
        raise UnreachableError.at(address, f"no answer for {TIMEOUT_S:.0f} s") from error
    except OSError as error:
        raise _not_connected(address, error) from error


def _not_connected(address: str, error: OSError) -> UnreachableError:
    if isinstance(error, socket.gaierror):
        return UnreachableError.unresolved(address)
    # asyncio puts the address in place of the reason.
    why = os.strerror(error.errno) if error.errno else error.strerror or str(error)
    return UnreachableError.at(address, why[:1].lower() + why[1:])


async def _explained(
    board: KnownBoard, credentials: Credentials, now: datetime, error: ssl.SSLCertVerificationError
) -> RefusedError | UnreachableError:
    """Why the board's certificate was not taken: looked at in a connection that takes any, and says nothing."""
    address = board.place
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(TIMEOUT_S), _connection(board, context) as (_, shown):
            certificate = _read(address, shown)
    except (OSError, TimeoutError) as failed:
        return UnreachableError.at(address, f"{error.verify_message}, and then {failed}")
    return distrust.board_distrusted(board, certificate, credentials, now, error.verify_message)


def _read(address: str, der: bytes) -> Certificate:
    try:
        return Certificate.of(x509.load_der_x509_certificate(der))
    except ValueError as error:
        raise RefusedError(
            f"the certificate of the board at {address} cannot be read: {error}", hint="issue the board another one"
        ) from error


@asynccontextmanager
async def _connection(board: KnownBoard, context: ssl.SSLContext) -> AsyncIterator[tuple[asyncio.StreamReader, bytes]]:
    """A TLS connection, and the certificate (DER) that was shown; it is dropped at the end, without a farewell."""
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
