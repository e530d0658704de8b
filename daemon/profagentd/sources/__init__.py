"""What is a collection, what is a log of it, and when it is complete: one file for each source, listed here."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from profagentd.limits import REMEMBERED_COLLECTIONS
from profagentd.sources.job import JobSource
from profagentd.sources.spools import SpoolSource

if TYPE_CHECKING:
    from profagentd.sources.source import Source

SPOOLS = tuple(map(SpoolSource, ("ops", "marks", "metrics")))
SOURCES: list[Source] = [JobSource(), *SPOOLS]


@lru_cache(REMEMBERED_COLLECTIONS)
def source_of(name: bytes) -> Source | None:
    """The source whose collection a directory of this name is."""
    return next((source for source in SOURCES if source.is_collection(name)), None)
