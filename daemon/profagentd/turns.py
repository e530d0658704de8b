"""A turn for each of several logs, up to the size of one message. Runs in a worker thread."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from profagentd.events import Chunk
from profagentd.following import CHUNK_BYTES, Step, advance
from profagentd.opening import OpenJob, Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagentd.clock import Moment
    from profagentd.log import Log


def take_turns(logs: Sequence[tuple[Log, Place]], now: Moment, *, check: bool) -> list[Step]:
    """Steps of the first logs, in order, until there is a message full of bytes; the rest had no turn."""
    steps: list[Step] = []
    size = 0
    with ExitStack() as opened:
        jobs: dict[Place, OpenJob] = {}
        for log, place in logs:
            if size >= CHUNK_BYTES:
                break
            if place not in jobs:
                jobs[place] = opened.enter_context(OpenJob(place))
            step = advance(log, jobs[place], now, check=check)
            size += sum(len(event.data) for event in step.events if isinstance(event, Chunk))
            steps.append(step)
    return steps
