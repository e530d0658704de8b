"""One trace of all that sessions have, of several boards on one clock, in the format of a writer."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np

from profagent import __version__
from profagent.cli.progress import progress
from profagent.errors import UsageError
from profagent.export.blocks import Clock, Slices
from profagent.export.json_trace import JsonTrace
from profagent.export.session_trace import SessionTrace, Wanted
from profagent.export.told import title_of, told_of
from profagent.export.tracks import Tracks
from profagent.files import make_directory
from profagent.store.database import fetched
from profagent.store.inference_pages import PageReader
from profagent.store.queries import find_session
from profagent.store.sessions import require_records

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from profagent.export.blocks import Block

EVERYTHING = Wanted()
_CLOCKS = "SELECT host_us, offset_us, round_trip_us FROM clock_sample WHERE session = ? ORDER BY host_us"
# Of samples that are closer together, a drift would be the noise of their round trips.
LEAST_SPREAD_US = 30_000_000


class SessionOperand(NamedTuple):
    """A session of a database; None is the newest."""

    database: Path
    session: int | None = None


class Merged(NamedTuple):
    """What was written. `unplaced` counts records whose place in time is not known."""

    files: list[Path]
    events: int
    unplaced: int
    metadata: dict[str, Any]


class Writer(Protocol):
    """Writes a trace; use it as a context manager, with `end` as the last call in it."""

    files: list[Path]

    def __enter__(self) -> Self:
        """Begin the file."""

    def __exit__(self, *error: object) -> None:
        """On an error, nothing of what is being written stays."""

    def write(self, block: Block) -> int:
        """Write some events; how many."""

    def end(self, metadata: dict[str, Any]) -> None:
        """Write what is known in the end."""


class ClockLine(NamedTuple):
    """How far a board's clock is from the host's, in µs, and how sure that is.

    It is `offset_us` at the board's time `at_us`, and grows by `drift` for each µs of it.
    """

    at_us: float
    offset_us: float
    drift: float
    uncertainty_us: float
    samples: int

    def offset_at(self, board_us: float) -> float:
        """How much the board's clock is ahead of the host's."""
        return self.offset_us + self.drift * (board_us - self.at_us)


class _Source(NamedTuple):
    trace: SessionTrace
    line: ClockLine | None
    earliest_us: float | None
    told: dict[str, Any]


async def export_trace(
    operands: Sequence[SessionOperand],
    file: Path,
    wanted: Wanted = EVERYTHING,
    writer: Callable[[Path, Tracks, dict[str, Any]], Writer] = JsonTrace,
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
        if not begins and wanted == EVERYTHING:
            why = "nothing in it has a known start, so that there is no trace of it"
            raise UsageError(why, hint="`profagent stats` has its durations, `profagent ledger` says what has no start")
        if not begins:
            raise UsageError("there is nothing in that time", hint="leave out --from, --to and --last")
        origin_us = int(min(begins))
        metadata: dict[str, Any] = {
            "profagent": __version__,
            "origin_us": origin_us,
            "clock": "host" if len(boards) > 1 else "board",
            "sessions": [source.told for source in sources],
        }
        tracks, events = Tracks(), 0
        total = sum(source.trace.rows for source in sources)
        with writer(file, tracks, metadata) as out, progress("export", "rows") as shown:
            for number, (source, line) in enumerate(zip(sources, lines, strict=True)):
                clock = Clock(origin_us, line.offset_at if line else None)
                async for block in source.trace.blocks(clock, tracks):
                    events += out.write(_numbered(block, number))
                    shown(sum(each.trace.rows_done for each in sources), total)
            metadata["unplaced"] = sum(source.trace.unplaced for source in sources)
            out.end(metadata)
        return Merged(out.files, events, metadata["unplaced"], metadata)


def _numbered(block: Block, source: int) -> Block:
    """Arrows of each source with numbers of their own: every database counts its inferences from 1."""
    if not source or not isinstance(block, Slices):
        return block
    return block._replace(flows=tuple(flow._replace(number=(source << 40) + flow.number) for flow in block.flows))


async def _source(stack: AsyncExitStack, operand: SessionOperand, wanted: Wanted) -> _Source:
    reader = await stack.enter_async_context(PageReader.of(operand.database))
    connection = reader.connection
    session = await find_session(connection, operand.session)
    await require_records(connection, session.session)
    line = clock_line(await fetched(connection, _CLOCKS, (session.session,)))
    told = {**await told_of(connection, session), "clock_offset_us": None if line is None else line._asdict()}
    trace = SessionTrace(reader, session, title_of(told), wanted)
    return _Source(trace, line, await trace.plan(), told)


def clock_line(samples: Sequence[tuple[int, int, int]]) -> ClockLine | None:
    """The line through samples of host time, offset and round trip; None without any.

    The half with the shorter round trips counts. The uncertainty is the farthest of these from the line, and half of
    their longest round trip, within which nobody knows when the board looked at its clock.
    """
    if not samples:
        return None
    host_us, offset_us, round_trip_us = np.array(samples, np.float64).T
    best = round_trip_us <= np.median(round_trip_us)
    board_us, offset_us = (host_us + offset_us)[best], offset_us[best]
    at_us, middle = float(board_us.mean()), float(offset_us.mean())
    away = board_us - at_us
    is_wide = float(np.ptp(away)) >= LEAST_SPREAD_US
    drift = float((away * (offset_us - middle)).sum() / (away**2).sum()) if is_wide else 0.0
    residual = float(np.abs(offset_us - middle - drift * away).max())
    return ClockLine(at_us, middle, drift, residual + float(round_trip_us[best].max()) / 2, len(samples))
