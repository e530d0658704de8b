"""One trace of all that sessions have, of several boards on one clock."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from profagent import __version__
from profagent.cli.progress import progress
from profagent.errors import UsageError
from profagent.export.clocks import clock_line
from profagent.export.session_trace import SessionTrace, Wanted
from profagent.export.slices import LARGEST_PART_BYTES, Clock, PartedFile, Tracks
from profagent.files import make_directory
from profagent.store.database import fetched, reading
from profagent.store.queries import find_session, ledger_of, not_final
from profagent.store.sessions import require_records

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from profagent.export.clocks import ClockLine

EVERYTHING = Wanted()
EVENTS_PER_LOOK = 1_000
_CLOCKS = "SELECT host_us, offset_us, round_trip_us FROM clock_sample WHERE session = ? ORDER BY host_us"


class Operand(NamedTuple):
    """A session of a database; None is the newest."""

    database: Path
    session: int | None = None


class Merged(NamedTuple):
    """What was written. `unplaced` counts records whose place in time is not known."""

    files: list[Path]
    events: int
    unplaced: int
    metadata: dict[str, Any]


class _Source(NamedTuple):
    trace: SessionTrace
    line: ClockLine | None
    earliest_us: float | None
    told: dict[str, Any]


async def export_trace(
    operands: Sequence[Operand], file: Path, wanted: Wanted = EVERYTHING, largest_bytes: int = LARGEST_PART_BYTES
) -> Merged:
    """Write one trace of all sessions. Raises UsageError, StoreError, and ProfagentError where a file cannot be."""
    make_directory(file.parent)
    async with AsyncExitStack() as stack:
        sources = [await _source(stack, operand, wanted) for operand in operands]
        boards = {source.trace.session.board for source in sources}
        # One board has one clock: nothing is moved.
        lines = [source.line if len(boards) > 1 else None for source in sources]
        begins = [
            source.earliest_us - (line.offset_at(source.earliest_us) if line else 0.0)
            for source, line in zip(sources, lines, strict=True)
            if source.earliest_us is not None
        ]
        if not begins:
            raise UsageError("there is nothing in that time", hint="leave out --from, --to and --last")
        origin_us = min(begins)
        tracks, events = Tracks(), 0
        total = sum(source.trace.rows for source in sources)
        with PartedFile(file, tracks, largest_bytes) as parts, progress("export", "rows") as shown:
            parts.metadata = {
                "profagent": __version__,
                "origin_us": int(origin_us),
                "clock": "host" if len(boards) > 1 else "board",
                "sessions": [source.told for source in sources],
            }
            for source, line in zip(sources, lines, strict=True):
                clock = Clock(origin_us, line.offset_at if line else None)
                async for event in source.trace.events(clock, tracks):
                    parts.write(event)
                    events += 1
                    if events % EVENTS_PER_LOOK == 0:
                        shown(sum(source.trace.rows_done for source in sources), total)
            unplaced = parts.metadata["unplaced"] = sum(source.trace.unplaced for source in sources)
            parts.end()
        return Merged(parts.files, events, unplaced, parts.metadata)


async def _source(stack: AsyncExitStack, operand: Operand, wanted: Wanted) -> _Source:
    connection = await stack.enter_async_context(reading(operand.database))
    session = await find_session(connection, operand.session)
    await require_records(connection, session.session)
    title = f"{session.hostname or session.board[:8]} session {session.session}"
    trace = SessionTrace(connection, session, title, wanted)
    line = clock_line(await fetched(connection, _CLOCKS, (session.session,)))
    told = {
        "session": session.session,
        "board": session.board,
        "hostname": session.hostname,
        "simulated": session.simulated,
        "clock_offset_us": None if line is None else line._asdict(),
        "ledger": await ledger_of(connection, session.session),
        "not_final": await not_final(connection, session.session),
    }
    return _Source(trace, line, await trace.plan(), told)
