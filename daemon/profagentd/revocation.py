"""The list of certificates that are no longer trusted: a fingerprint a line, what follows `#` is a remark."""

from __future__ import annotations

import logging
import os
import re
from typing import TYPE_CHECKING

from profagentd.errors import DaemonError

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOGGER = logging.getLogger(__name__)

_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


class Revocations:
    """The file's fingerprints. It is read again when it has changed; one without sense revokes no less than before."""

    def __init__(self, path: str) -> None:
        """Read the file. Raises DaemonError when it cannot be read, is empty, or has a line that is none."""
        self._path = path
        self._fingerprints: frozenset[str] = frozenset()
        self._seen = _state(path)
        try:
            self._read()
        except (OSError, ValueError) as error:
            raise DaemonError(
                f"the revocation list {path}: {_why(error)}",
                hint="tls_revoked names the revoked.txt of `profagent keys`; one that revokes nobody has a line with #",
            ) from error

    def has(self, fingerprint: str) -> bool:
        """Whether a certificate was revoked, by the file as it is now."""
        state = _state(self._path)
        if state != self._seen:
            self._seen = state
            self._read_again()
        return fingerprint in self._fingerprints

    def _read_again(self) -> None:
        try:
            self._read()
        except (OSError, ValueError) as error:
            _LOGGER.error("%s: %s; what was revoked stays so", self._path, _why(error))  # noqa: TRY400 - says it all
        else:
            _LOGGER.info("%s was read again: %d certificates are revoked", self._path, len(self._fingerprints))

    def _read(self) -> None:
        with open(self._path, encoding="utf-8") as file:
            text = file.read()
        if not text.strip():
            raise ValueError("it is empty, without even its first line")
        wrong = [line for line, entry in _entries(text) if not _FINGERPRINT.fullmatch(entry)]
        found = {entry for _, entry in _entries(text)}
        self._fingerprints = frozenset(found | self._fingerprints if wrong else found)
        if wrong:
            raise ValueError(f"line {wrong[0]} is no SHA-256 fingerprint")


def _entries(text: str) -> Iterator[tuple[int, str]]:
    """Line number and fingerprint, in lower case and without colons, of each line that is not empty."""
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.partition("#")[0].strip().replace(":", "").lower()
        if entry:
            yield number, entry


def _state(path: str) -> tuple[int, int, int] | None:
    """What is another when the file is; None when there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _why(error: OSError | ValueError) -> str:
    return str(error.strerror) if isinstance(error, OSError) else str(error)
