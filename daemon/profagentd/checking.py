"""Every mistake in the settings that can be found without serving, those in the files that they name as well."""

from __future__ import annotations

import os
import ssl
import stat
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from profagentd.config import NO_ROOT, Examined
from profagentd.errors import ARGUMENTS, DaemonError, Mistake
from profagentd.roots import file_mistakes
from profagentd.tls_files import unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

    from profagentd.config import DaemonConfig
    from profagentd.tls_files import TlsFiles


# Bits of a key file's mode with which others than its owner could use it.
OTHERS = 0o077
# A handshake takes two turns of each side.
_TURNS = 4
# What OpenSSL calls a key that is of another certificate.
_MISMATCHES = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH")
_CERT_HINT = "tls_cert is the board.pem of `profagent keys issue board`"
_KEY_HINT = "copy board.pem and board.key from one directory of `profagent keys issue board`"
_CA_HINT = "tls_ca is the ca.pem of `profagent keys`"


def faults_of(files: TlsFiles) -> Iterator[tuple[str, DaemonError]]:
    """What is wrong with each of the files that are named, with the setting that names it."""
    certificates: list[str] = []
    for setting, path, hint in (("tls_cert", files.cert, _CERT_HINT), ("tls_ca", files.ca, _CA_HINT)):
        if not path:
            continue
        try:
            _load_certificates(_client_context(), path, hint)
        except DaemonError as error:
            yield setting, error
        else:
            certificates.append(path)
    if not files.key:
        return
    try:
        _check_mode(files.key)
        # A key is looked at beside a certificate only; one that is not its own will do where that one is none.
        if certificates:
            _check_key(files.key, certificates[0], is_own=certificates[0] == files.cert)
    except DaemonError as error:
        yield "tls_key", error


def doubt_of(files: TlsFiles) -> str | None:
    """Why hosts will not accept the daemon's own certificate, as far as the board can tell by its own clock."""
    client, server = _client_context(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_certificates(client, files.ca, _CA_HINT)
    server.load_cert_chain(files.cert, files.key)
    verdict = _verdict(server, client)
    if verdict is None:
        return None
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M")
    return (
        f"{files.cert}: {verdict} (it is {now} UTC by this board's clock, {files.ca} is its authority):"
        " it and its hosts will not trust each other; set the clock if it is wrong, else issue the certificate anew"
    )


def _verdict(server: ssl.SSLContext, client: ssl.SSLContext) -> str | None:
    """What a client says to the certificate: both sides of a handshake, in memory."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True))
    for side in sides * _TURNS:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
    return None


def _client_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    return context


def _load_certificates(context: ssl.SSLContext, path: str, hint: str) -> None:
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise DaemonError(f"{path} holds no certificate: {error.reason or error}", hint=hint) from error
    except OSError as error:
        raise unreadable(path, error) from error


def _check_key(key: str, certificate: str, *, is_own: bool) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password=lambda: _refuse_password(key))
    except ssl.SSLError as error:
        if error.reason not in _MISMATCHES:
            raise DaemonError(f"{key} holds no key: {error.reason or error}", hint=_KEY_HINT) from error
        if is_own:
            raise DaemonError(f"{key} is not the key of {certificate}", hint=_KEY_HINT) from error
    except OSError as error:
        raise unreadable(key, error) from error


def _check_mode(key: str) -> None:
    try:
        mode = os.stat(key).st_mode
    except OSError as error:
        raise unreadable(key, error) from error
    if stat.S_IMODE(mode) & OTHERS:
        raise DaemonError(f"{key}: others than its owner may use this key", hint=f"chmod 600 {key}")


def _refuse_password(key: str) -> NoReturn:
    raise DaemonError(f"{key} is encrypted", hint="the daemon has nobody to ask: use a key without a passphrase")


def mistakes_in(examined: Examined, *, needs_root: bool = True) -> list[Mistake]:
    """What is wrong: in the settings themselves, then in what is there of the paths that sound ones name."""
    no_root = _no_root(examined) if needs_root else ()
    return [*examined.mistakes, *no_root, *file_mistakes(examined.root_places), *_mistakes_in_files(examined)]


def _no_root(examined: Examined) -> Iterator[Mistake]:
    """Nothing where it is not known what names roots."""
    if examined.config.is_rootless and examined.wrong.isdisjoint(("roots", "roots_d")):
        text, hint = NO_ROOT
        yield Mistake(examined.places.get("roots", ARGUMENTS), f"roots: {text}", hint)


def _mistakes_in_files(examined: Examined) -> Iterator[Mistake]:
    for key, error in _faults(examined.config):
        yield Mistake(examined.places[key], f"{key}: {error}", error.hint)


def _faults(config: DaemonConfig) -> Iterator[tuple[str, DaemonError]]:
    """What serving would stumble over in the files that are named, with the key."""
    yield from faults_of(config.tls_files)
    if config.tls_revoked:
        from profagentd.access import Revocations  # noqa: PLC0415 - imports gRPC, which a look at the files needs not

        try:
            Revocations(config.tls_revoked)
        except DaemonError as error:
            yield "tls_revoked", error
