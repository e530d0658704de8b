"""The list of certificates that are no longer trusted: a fingerprint (SHA-256, hex) a line, `#` begins a remark."""

from __future__ import annotations

import re

from profagent.errors import UsageError

_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


def plain_fingerprint(text: str) -> str:
    """A fingerprint in lower case and without colons."""
    return text.strip().replace(":", "").lower()


def revoked_fingerprints(text: str, source: object) -> frozenset[str]:
    """The fingerprints of a list. Raises UsageError, which names `source`, for a line that is none, or an empty list.

    A list that revokes nobody has a remark, so that one that was cut to nothing frees nobody.
    """
    if not text.strip():
        raise UsageError(
            f"{source} is empty, without even its first line",
            hint="copy it anew from the CA, or from a board; one that revokes nobody has a line with #",
        )
    found = set()
    for number, line in enumerate(text.splitlines(), 1):
        entry = plain_fingerprint(line.partition("#")[0])
        if entry and not _FINGERPRINT.fullmatch(entry):
            raise UsageError(
                f"{source}: line {number} is no SHA-256 fingerprint",
                hint="write 64 hexadecimal digits, then # a remark",
            )
        if entry:
            found.add(entry)
    return frozenset(found)
