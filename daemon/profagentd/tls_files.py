"""The files that TLS needs, and a look at them by a process of its own: what OpenSSL takes, 8 MB, goes with it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial

from profagentd.child import answer_of
from profagentd.errors import DaemonError


@dataclass(frozen=True)
class TlsFiles:
    """Paths of PEM files: own certificate and key, and the authority that issued the clients' certificates."""

    cert: str
    key: str
    ca: str


def check(files: TlsFiles) -> str | None:
    """Why hosts will not accept the daemon's own certificate, if so. Raises DaemonError for files that will not do.

    For a process that has no threads yet.
    """
    fault, hint, doubt = json.loads(answer_of(partial(_findings, files)))
    if fault:
        raise DaemonError(fault, hint=hint)
    return None if doubt is None else str(doubt)


def unreadable(path: str, error: OSError) -> DaemonError:
    """What to say of a file that cannot be read."""
    return DaemonError(
        f"cannot read {path}: {error.strerror}", hint="copy what `profagent keys issue board` has made to the board"
    )


def _findings(files: TlsFiles) -> str:
    from profagentd.tls import doubt_of, faults_of  # noqa: PLC0415 - loads OpenSSL

    for _, fault in faults_of(files):
        return json.dumps([str(fault), fault.hint, None])
    return json.dumps([None, None, doubt_of(files)])
