"""Access control: the files of TLS, the roles of callers, and revoked certificates."""

from __future__ import annotations

import asyncio
import base64
import enum
import hashlib
import json
import logging
import os
import re
import stat
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, NoReturn

import grpc
import grpc.aio

from profagentd.errors import DaemonError, Fault, Refusal
from profagentd.front import peer_of
from profagentd.limits import WARNED_CONNECTIONS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
    from ssl import SSLContext

    from profagentd.config import DaemonConfig

    _Handler = grpc.RpcMethodHandler[Any, Any]


# URI among the alternative names of an operator's certificate. A certificate without it is a viewer's.
OPERATOR_URI = b"profagent:role:operator"


class Role(enum.Enum):
    """Role of a client; the numbers are the wire's."""

    VIEWER = 1
    OPERATOR = 2


@dataclass(frozen=True)
class Caller:
    """Client of a call: its certificate's common name, fingerprint (SHA-256 of the DER, in hex) and role."""

    name: str
    fingerprint: str
    role: Role

    def __str__(self) -> str:
        return f"{self.name} ({self.fingerprint[:16]}…)" if self.fingerprint else "a client without a certificate"


def caller_of(context: Any) -> Caller:
    """Return the caller of a gRPC context. Where no certificate is demanded, one without is an operator."""
    auth: Mapping[str, Sequence[bytes]] = context.auth_context()
    certificates = auth.get("x509_pem_cert")
    if not certificates:
        return Caller("", "", Role.OPERATOR)
    name = b"".join(auth.get("x509_common_name", ())).decode("utf-8", "backslashreplace")
    # The name goes into the log, where no part of it may look like a line of its own.
    name = "".join(letter if letter.isprintable() else "\ufffd" for letter in name)
    role = Role.OPERATOR if OPERATOR_URI in auth.get("peer_uri", ()) else Role.VIEWER
    return Caller(name, fingerprint_of(certificates[0]), role)


def fingerprint_of(pem: bytes) -> str:
    """Return the SHA-256 of a certificate's DER, in hex."""
    _, _, after = pem.partition(b"-----BEGIN CERTIFICATE-----")
    body, _, _ = after.partition(b"-----END CERTIFICATE-----")
    return hashlib.sha256(base64.b64decode(body)).hexdigest()


_LOGGER = logging.getLogger(__name__)

_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


class Revocations:
    """Fingerprints of the revocation list, which is read again when the file changes.

    A file with a mistake revokes no less than before: a slip of an editor must let nobody in.
    """

    def __init__(self, path: str) -> None:
        """Read the file. Raises DaemonError when it cannot be read, is empty, or has a line that is no fingerprint."""
        self._path = path
        self._fingerprints: frozenset[str] = frozenset()  # in hex, lower case
        # The state comes before the read: a write in between is seen as a change at the next call.
        self._seen_state = self._file_state()  # file state at the last read
        try:
            self._read()
        except (OSError, ValueError) as error:
            raise DaemonError(
                f"the revocation list {path}: {_why(error)}",
                hint="tls_revoked names the revoked.txt of `profagent keys`; one that revokes nobody has a line with #",
            ) from error

    def has(self, fingerprint: str) -> bool:
        """Return True if the certificate is revoked by the file as it is now."""
        state = self._file_state()
        if state != self._seen_state:
            self._seen_state = state
            try:
                self._read()
                _LOGGER.info("reloaded %s: %d certificates are revoked", self._path, len(self._fingerprints))
            except (OSError, ValueError) as error:
                why = _why(error)
                _LOGGER.error("%s: %s; the earlier list of revocations stays in force", self._path, why)  # noqa: TRY400
        return fingerprint in self._fingerprints

    def _read(self) -> None:
        with open(self._path, encoding="utf-8") as file:
            text = file.read()
        if not text.strip():
            raise ValueError("it is empty, without even its first line")
        # Upper case and colons are accepted, as `openssl x509 -fingerprint` prints them.
        entries = {line.partition("#")[0].strip().replace(":", "").lower() for line in text.splitlines()} - {""}
        wrong = {entry for entry in entries if not _FINGERPRINT.fullmatch(entry)}
        self._fingerprints = frozenset(entries | self._fingerprints if wrong else entries)
        if wrong:
            raise ValueError(f"{min(wrong)!r} is not a SHA-256 fingerprint")

    def _file_state(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def _why(error: OSError | ValueError) -> str:
    return str(error.strerror) if isinstance(error, OSError) else str(error)


# Interval at which a stream checks whether its client's certificate has been revoked.
LOOK_S = 2.0


class AccessControl(grpc.aio.ServerInterceptor):
    """Check of each call's certificate. `insecure`: the listener is open to others and demands no certificate."""

    def __init__(self, revocations: Revocations | None, *, insecure: bool) -> None:
        self.insecure = insecure
        self._revocations = revocations
        self._warned: set[str] = set()  # connections that the log has warned of; bounded by WARNED_CONNECTIONS

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler | None:
        """Return the method's handler behind the check. gRPC calls this for each call of each service."""
        handler = await continuation(handler_call_details)
        return handler and _behind(self._admit, handler)  # gRPC itself answers calls of unknown methods

    def check(self, caller: Caller) -> None:
        """Raise Refusal when the caller's certificate is revoked."""
        if self._revocations and self._revocations.has(caller.fingerprint):
            raise Refusal(
                Fault.UNTRUSTED,
                f"the certificate of {caller.name}, fingerprint {caller.fingerprint}, is revoked on this board",
            )

    async def watch_over(self, caller: Caller) -> None:
        """Raise Refusal as soon as the caller's certificate is revoked. Runs until cancelled."""
        while self._revocations:
            self.check(caller)
            await asyncio.sleep(LOOK_S)
        await asyncio.Event().wait()

    async def _admit(self, context: Any) -> None:
        caller = caller_of(context)
        if self.insecure and not caller.fingerprint:
            self._warn(peer_of(context))
        try:
            self.check(caller)
        except Refusal as refusal:
            _LOGGER.warning("refused a call of %s: %s", peer_of(context), refusal)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(refusal))

    def _warn(self, peer: str) -> None:
        if peer not in self._warned:
            _LOGGER.warning(
                "%s is served without TLS because of --insecure: it is not authenticated and may do anything", peer
            )
        # Forgetting all costs a few repeated warnings; strangers must not make the set grow.
        if len(self._warned) >= WARNED_CONNECTIONS:
            self._warned.clear()
        self._warned.add(peer)


def _behind(admit: Callable[[Any], Awaitable[None]], handler: Any) -> _Handler:
    codecs = (handler.request_deserializer, handler.response_serializer)
    if handler.response_streaming and not handler.request_streaming:

        async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
            await admit(context)
            async for response in handler.unary_stream(request, context):
                yield response

        return grpc.unary_stream_rpc_method_handler(stream, *codecs)
    inner = handler.stream_stream or handler.unary_unary

    async def call(request: Any, context: Any) -> Any:
        await admit(context)
        return await inner(request, context)

    make = grpc.stream_stream_rpc_method_handler if handler.stream_stream else grpc.unary_unary_rpc_method_handler
    return make(call, *codecs)


# The files of TLS

# Mode bits of a key file that let others than its owner use it.
OTHERS = 0o077
# OpenSSL's reasons for a key that belongs to another certificate.
_MISMATCHES = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH")
_HINTS = {
    "tls_cert": "tls_cert is the board.pem of `profagent keys issue board`",
    "tls_key": "copy board.pem and board.key from one directory of `profagent keys issue board`",
    "tls_ca": "tls_ca is the ca.pem of `profagent keys`",
}


def server_credentials(config: DaemonConfig) -> grpc.ServerCredentials | None:
    """Return credentials for mutual TLS, or None without TLS. Raises DaemonError for unreadable files.

    A client without a certificate of the authority gets no connection.
    """
    if not config.has_tls:
        return None
    contents = []
    for path in (config.tls_key, config.tls_cert, config.tls_ca):
        try:
            with open(path, "rb") as file:
                contents.append(file.read())
        except OSError as error:
            raise _unreadable(path, error) from error
    key, cert, ca = contents
    return grpc.ssl_server_credentials([(key, cert)], root_certificates=ca, require_client_auth=True)


def check_tls(config: DaemonConfig) -> None:
    """Raise DaemonError for the first file of TLS that is not usable.

    A child process checks them, since loading OpenSSL takes 8 MB that go with the child. This process must have no
    threads yet: a fork copies only the calling one, and locks that others hold stay locked.
    """
    if config.has_tls:
        faults = in_child(lambda: json.dumps([(str(fault), fault.hint) for fault in tls_faults(config, {})]))
        for text, hint in json.loads(faults):
            raise DaemonError(text, hint=hint)


def in_child(work: Callable[[], str]) -> str:
    """Return the result of `work`, run in a forked copy of this process. Raises RuntimeError when it fails."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with open(writing, "w", encoding="utf-8") as pipe:
                pipe.write(work())
            # Without cleanup: the child has copies of the parent's objects, and must not remove its files.
            os._exit(0)
        except BaseException:  # noqa: BLE001 - the parent's own way ends here
            traceback.print_exc()
        os._exit(1)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError("a process that was to look at something failed; what it said stands above")
    return answer


def tls_faults(config: DaemonConfig, places: Mapping[str, str]) -> Iterator[DaemonError]:
    """Yield the faults of the files of TLS in the settings, with the place of each setting."""
    looks = {"tls_cert": _check_certificate, "tls_ca": _check_certificate, "tls_key": _check_key}
    for setting, look in looks.items():
        try:
            if getattr(config, setting):
                look(config, setting)
        except DaemonError as error:
            yield DaemonError(f"{places[setting]}: {setting}: {error}" if places else str(error), hint=error.hint)
    try:
        if config.tls_revoked:
            Revocations(config.tls_revoked)
    except DaemonError as error:
        yield DaemonError(f"{places['tls_revoked']}: {error}" if places else str(error), hint=error.hint)


def _check_certificate(config: DaemonConfig, setting: str) -> None:
    path = getattr(config, setting)
    try:
        _context().load_verify_locations(path)
    except OSError as error:  # ssl.SSLError is one, too
        reason = getattr(error, "reason", None)
        if isinstance(error, (FileNotFoundError, PermissionError)):
            raise _unreadable(path, error) from error
        raise DaemonError(f"{path} holds no certificate: {reason or error}", hint=_HINTS[setting]) from error


def _check_key(config: DaemonConfig, setting: str) -> None:
    key = config.tls_key
    try:
        mode = os.stat(key).st_mode
    except OSError as error:
        raise _unreadable(key, error) from error
    if stat.S_IMODE(mode) & OTHERS:
        raise DaemonError(f"{key}: others than its owner may use this key", hint=f"chmod 600 {key}")
    try:
        _check_certificate(config, "tls_cert")
    except DaemonError:
        return  # the check of tls_cert reports it
    try:
        _context().load_cert_chain(config.tls_cert, key, password=lambda: _refuse_password(key))
    except OSError as error:
        reason = getattr(error, "reason", None)
        if reason in _MISMATCHES:
            raise DaemonError(f"{key} is not the key of {config.tls_cert}", hint=_HINTS[setting]) from error
        raise DaemonError(f"{key} holds no key: {reason or error}", hint=_HINTS[setting]) from error


def _context() -> SSLContext:
    from ssl import PROTOCOL_TLS_SERVER, SSLContext  # noqa: PLC0415 - loads OpenSSL

    return SSLContext(PROTOCOL_TLS_SERVER)


def _refuse_password(key: str) -> NoReturn:
    raise DaemonError(f"{key} is encrypted", hint="the daemon has nobody to ask: use a key without a passphrase")


def _unreadable(path: str, error: OSError) -> DaemonError:
    hint = "copy what `profagent keys issue board` has made to the board"
    return DaemonError(f"cannot read {path}: {error.strerror}", hint=hint)
