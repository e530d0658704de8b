"""What a JOB's data files are called (format page 8): as the libraries write them, or as the manual says."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from profagent.hypotheses.fact import Alternative, Fact, cannot_tell, settled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from profagent.hypotheses.fact import Answer

__all__ = ["FILE_PREFIX", "check_prefixes"]

FILE_PREFIX = Fact(
    "file-prefix",
    (
        Alternative("library", "files are called aicore., aicpu., acl_api."),
        Alternative("manual", "files are called AAcore., AAcpu., AclModule."),
    ),
)
_WRITERS = {
    "aicore": "library",
    "aicpu": "library",
    "acl_api": "library",
    "aacore": "manual",
    "aacpu": "manual",
    "aclmodule": "manual",
}
# A JOB may have hundreds of thousands of them: their beginnings are enough.
_BEGINNING = re.compile(rf"data/({'|'.join(_WRITERS)})\.\d+\.", re.IGNORECASE | re.ASCII)


def check_prefixes(paths: Iterable[str]) -> Answer:
    """What the paths in a JOB tell."""
    prefixes = Counter(found[1] for path in paths if (found := _BEGINNING.match(path)))
    if not prefixes:
        return cannot_tell(FILE_PREFIX, "no data file")
    votes = [{_WRITERS[prefix.lower()]} for prefix in prefixes.elements()]
    seen = ", ".join(f"{count} files {prefix}." for prefix, count in sorted(prefixes.items()))
    return settled(FILE_PREFIX, votes, votes, seen)
