"""Ways that inferences which came whole can take to their rows: the common one, and others that give the same."""

from __future__ import annotations

from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING

import pytest

from profagent.ingest import feed
from profagent.store.writer import JobRows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagent.ingest.changes import PlainLogs


class Way(Enum):
    """How inferences that came whole are decoded and written."""

    TOGETHER = "together"  # as the product does it
    ONE_BY_ONE = "one by one"  # every log is taken for odd: none is small enough for a group
    AS_CHANGES = "as changes"  # decoded together, written as the changes of one log after the other


@contextmanager
def going(way: Way) -> Iterator[list[int]]:
    """Let all inferences go one way. Returns how many were decoded together, by batch."""
    written: list[int] = []
    add_plain = JobRows.add_plain

    def noted(rows: JobRows, plain: PlainLogs) -> None:
        written.append(len(plain.groups))
        if way is Way.AS_CHANGES:
            rows.apply([*plain.as_changes()])
        else:
            add_plain(rows, plain)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JobRows, "add_plain", noted)
        if way is Way.ONE_BY_ONE:
            patch.setattr(feed, "LARGEST_PLAIN_BYTES", 0)
        yield written
        assert not (way is Way.ONE_BY_ONE and written), "a log was not taken for odd"
