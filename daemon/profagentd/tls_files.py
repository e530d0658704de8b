"""The files that TLS needs, and a look at them by a process of its own: what OpenSSL takes, 8 MB, goes with it."""

from __future__ import annotations

import json
import os
import traceback
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Callable, NoReturn

from profagentd.errors import DaemonError

if TYPE_CHECKING:
    from io import FileIO


def answer_of(work: Callable[[], str]) -> str:
    """What `work` gives, done by a copy of this process, which must have no threads. RuntimeError when it fails."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _be_child(work, open(writing, "wb", buffering=0))  # noqa: SIM115 - it ends with the process
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError("a process that was to look at something failed; what it said stands above")
    return answer


def _be_child(work: Callable[[], str], pipe: FileIO) -> NoReturn:
    """Nothing that the parent is in the middle of is gone on with, or cleaned up, here."""
    try:
        pipe.write(work().encode())
    except BaseException:  # noqa: BLE001 - the parent's own way ends here
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


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
    from profagentd.checking import doubt_of, faults_of  # noqa: PLC0415 - loads OpenSSL

    for _, fault in faults_of(files):
        return json.dumps([str(fault), fault.hint, None])
    return json.dumps([None, None, doubt_of(files)])
