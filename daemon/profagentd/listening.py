"""Whether an address can be listened on, asked of the kernel: gRPC does not say why it cannot."""

from __future__ import annotations

import errno
import os
import socket
import stat
from contextlib import closing

from profagentd.errors import DaemonError

_OTHER = "choose another address with --listen"
_HINTS = {
    errno.EADDRINUSE: "another program has it, maybe another profagentd: end that one, or choose another port with"
    " --listen",
    errno.EADDRNOTAVAIL: "it is no address of this machine: `ip address` shows those that are; 0.0.0.0 is all of them",
    errno.EACCES: "ports below 1024 are root's: choose another one with --listen",
}
_PATH_HINTS = {
    errno.EADDRINUSE: _HINTS[errno.EADDRINUSE],
    errno.EEXIST: "something that is no socket stands there: take it away, or choose another path with --listen",
}
_PROBE_S = 1.0


def check_address(address: str) -> None:
    """Raises DaemonError, with the kernel's reason, where `HOST:PORT` or `unix:PATH` cannot be listened on."""
    try:
        if address.startswith("unix:"):
            _check_path(address[len("unix:") :])
        else:
            _check_port(*address.rsplit(":", 1))
    except socket.gaierror as error:
        raise DaemonError(
            f"cannot listen on {address}: {error.strerror}", hint="name an address of this machine with --listen"
        ) from error
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise DaemonError(f"cannot listen on {address}: {reason}", hint=_hint(address, error)) from error


def _hint(address: str, error: OSError) -> str:
    if address.startswith("unix:"):
        return _PATH_HINTS.get(error.errno or 0, "name a path in a directory that is there and may be written")
    return _HINTS.get(error.errno or 0, _OTHER)


def _check_port(host: str, port: str) -> None:
    """A name may have several addresses, of which one is enough unless somebody else has another."""
    found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    failed: list[OSError] = []
    for family, kind, protocol, _, where in found:
        try:
            with closing(socket.socket(family, kind, protocol)) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(where)
        except OSError as error:
            failed.append(error)
    in_use = [error for error in failed if error.errno == errno.EADDRINUSE]
    if in_use or len(failed) == len(found):
        raise (in_use or failed)[0]


def _check_path(path: str) -> None:
    """A socket that nobody serves is replaced."""
    directory = os.path.dirname(path) or "."
    os.stat(directory)
    if not os.access(directory, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if os.path.lexists(path) and not _is_socket(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    with closing(socket.socket(socket.AF_UNIX)) as probe:
        probe.settimeout(_PROBE_S)
        if probe.connect_ex(path) == 0:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _is_socket(path: str) -> bool:
    return os.path.exists(path) and stat.S_ISSOCK(os.stat(path).st_mode)
