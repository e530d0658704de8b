"""Sources of data: the kinds of collections, their logs and when these are complete. One file for each source."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from profagentd.limits import REMEMBERED_COLLECTIONS
from profagentd.sources.job import JobSource
from profagentd.sources.spools import SpoolSource

if TYPE_CHECKING:
    from profagentd.sources.source import Source

# The order is that of the search for a collection's source; the patterns of names do not overlap.
SPOOLS = tuple(map(SpoolSource, ("ops", "marks", "metrics")))
SOURCES: list[Source] = [JobSource(), *SPOOLS]


@lru_cache(REMEMBERED_COLLECTIONS)
def source_of(name: bytes) -> Source | None:
    """Return the source that a directory of this name is a collection of, or None."""
    return next((source for source in SOURCES if source.is_collection(name)), None)
