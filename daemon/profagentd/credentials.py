"""The TLS that gRPC makes of the daemon's certificate and key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

from profagentd.tls_files import unreadable

if TYPE_CHECKING:
    from profagentd.tls_files import TlsFiles


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Mutual TLS: a client without a certificate of the authority gets no connection.

    The files were checked. Raises DaemonError when they are gone meanwhile.
    """
    cert, key, ca = (_read(path) for path in (files.cert, files.key, files.ca))
    return grpc.ssl_server_credentials([(key, cert)], root_certificates=ca, require_client_auth=True)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise unreadable(path, error) from error
