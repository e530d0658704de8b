"""A turn for each of several logs, up to the size of one message. Runs in a worker thread."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from profagentd.following import CHUNK_BYTES, Step, advance, removed
from profagentd.opening import OpenJob

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagentd.clock import Moment
    from profagentd.log import Log
    from profagentd.opening import DirectoryId, Place


class Turn(NamedTuple):
    """A log that is to be looked at; `check` as for `advance`, `directory` is its JOB's.

    Once the JOB `is_removed`, what stands in its place is another's.
    """

    log: Log
    place: Place
    check: bool
    directory: DirectoryId | None = None
    is_removed: bool = False


def take_turns(turns: Sequence[Turn], now: Moment, limit: int = CHUNK_BYTES) -> list[Step]:
    """Steps of the first turns, in order, until there are `limit` bytes or more; the others were not taken."""
    steps: list[Step] = []
    size = 0
    with ExitStack() as opened:
        jobs: dict[Place, OpenJob] = {}
        for log, place, check, directory, is_removed in turns:
            if size >= limit:
                break
            if is_removed:
                steps.append(removed(log))
                continue
            files = jobs.get(place)
            if files is None:
                files = jobs[place] = opened.enter_context(OpenJob(place, directory))
            step = advance(log, files, now, check=check, limit=limit)
            size += step.sent_bytes
            steps.append(step)
    return steps
