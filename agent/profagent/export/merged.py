"""One trace of several sessions, with several boards on one clock, in the format of any writer."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np

from profagent import __version__
from profagent.cli.progress import progress
from profagent.errors import UsageError
from profagent.export.blocks import Slices, TraceClock
from profagent.export.json_trace import JsonTrace
from profagent.export.session_metadata import metadata_of, title_of
from profagent.export.session_trace import SessionTrace, TraceSelection
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

EVERYTHING = TraceSelection()
_CLOCKS = "SELECT host_us, offset_us, round_trip_us FROM clock_sample WHERE session = ? ORDER BY host_us"
# Samples within a shorter time give no drift: it would be the noise of their round trips.
LEAST_SPREAD_US = 30_000_000


class SessionOperand(NamedTuple):
    """Session of a database; None is the newest one."""

    database: Path
    session: int | None = None


class MergedTrace(NamedTuple):
    """Result of an export: its files, its number of events, and `unplaced`, the records without a known time."""

    files: list[Path]
    events: int
    unplaced: int
    metadata: dict[str, Any]


class Writer(Protocol):
    """Writer of a trace. Use it as a context manager, with `end` as the last call in it."""

    files: list[Path]

    def __enter__(self) -> Self:
        """Open the first file."""

    def __exit__(self, *error: object) -> None:
        """Close the file; on an error, remove everything that was written."""

    def write(self, block: Block) -> int:
        """Write the events of a block, and return their number."""

    def end(self, metadata: dict[str, Any]) -> None:
        """Write the final metadata, and end the file."""


class ClockLine(NamedTuple):
    """Distance of a board's clock from the host's in µs, with its uncertainty.

    The distance is `offset_us` at the board's time `at_us`, and grows by `drift` for each µs of it.
    """

    at_us: float
    offset_us: float
    drift: float
    uncertainty_us: float
    samples: int

    def offset_at(self, board_us: float) -> float:
        """Return the µs by which the board's clock is ahead of the host's at a time of the board."""
        return self.offset_us + self.drift * (board_us - self.at_us)


class _MergedSession(NamedTuple):
    trace: SessionTrace
    line: ClockLine | None
    earliest_us: float | None
    metadata: dict[str, Any]


async def export_trace(
    operands: Sequence[SessionOperand],
    file: Path,
    selection: TraceSelection = EVERYTHING,
    writer: Callable[[Path, Tracks, dict[str, Any]], Writer] = JsonTrace,
) -> MergedTrace:
    """Write one trace of all sessions. Raises UsageError, StoreError, and ProfagentError if a file cannot be made."""
    make_directory(file.parent)
    async with AsyncExitStack() as stack:
        sources = [await _merged_session(stack, operand, selection) for operand in operands]
        boards = {source.trace.session.board for source in sources}
        # Sessions of one board share its clock, so their times stay as they are.
        lines = [source.line if len(boards) > 1 else None for source in sources]
        begins = [
            source.earliest_us - (line.offset_at(source.earliest_us) if line else 0.0)
            for source, line in zip(sources, lines, strict=True)
            if source.earliest_us is not None
        ]
        if not begins and selection == EVERYTHING:
            why = "nothing in it has a known start, so that there is no trace of it"
            raise UsageError(why, hint="`profagent stats` has its durations, `profagent ledger` says what has no start")
        if not begins:
            raise UsageError("the chosen time has no events", hint="leave out --from, --to and --last")
        origin_us = int(min(begins))
        metadata: dict[str, Any] = {
            "profagent": __version__,
            "origin_us": origin_us,
            "clock": "host" if len(boards) > 1 else "board",
            "sessions": [source.metadata for source in sources],
        }
        tracks, events = Tracks(), 0
        total = sum(source.trace.rows for source in sources)
        # Tracks gain names while the sources are read, and the writer reads these names from the same object.
        with writer(file, tracks, metadata) as out, progress("export", "rows") as shown:
            for number, (source, line) in enumerate(zip(sources, lines, strict=True)):
                clock = TraceClock(origin_us, line.offset_at if line else None)
                async for block in source.trace.blocks(clock, tracks):
                    events += out.write(_with_own_flow_numbers(block, number))
                    shown(sum(each.trace.rows_done for each in sources), total)
            metadata["unplaced"] = sum(source.trace.unplaced for source in sources)
            out.end(metadata)
        return MergedTrace(out.files, events, metadata["unplaced"], metadata)


def _with_own_flow_numbers(block: Block, source: int) -> Block:
    # Every database counts its inferences from 1, so the arrows of each session need a range of numbers of their own.
    if not source or not isinstance(block, Slices):
        return block
    return block._replace(flows=tuple(flow._replace(number=(source << 40) + flow.number) for flow in block.flows))


async def _merged_session(stack: AsyncExitStack, operand: SessionOperand, selection: TraceSelection) -> _MergedSession:
    reader = await stack.enter_async_context(PageReader.of(operand.database))
    connection = reader.connection
    session = await find_session(connection, operand.session)
    await require_records(connection, session.session)
    line = clock_line(await fetched(connection, _CLOCKS, (session.session,)))
    metadata = {**await metadata_of(connection, session), "clock_offset_us": None if line is None else line._asdict()}
    trace = SessionTrace(reader, session, title_of(metadata), selection)
    return _MergedSession(trace, line, await trace.plan(), metadata)


def clock_line(samples: Sequence[tuple[int, int, int]]) -> ClockLine | None:
    """Return the line through samples of host time, offset and round trip, or None without samples.

    Only the half with the shorter round trips counts. The uncertainty is the largest distance of these from the
    line, plus half of their longest round trip: the board read its clock at an unknown time within it.
    """
    if not samples:
        return None
    host_us, offset_us, round_trip_us = np.array(samples, np.float64).T
    # A short round trip leaves little time in which the board may have read its clock.
    best = round_trip_us <= np.median(round_trip_us)
    board_us, offset_us = (host_us + offset_us)[best], offset_us[best]
    at_us, middle = float(board_us.mean()), float(offset_us.mean())
    away = board_us - at_us
    is_wide = float(np.ptp(away)) >= LEAST_SPREAD_US
    drift = float((away * (offset_us - middle)).sum() / (away**2).sum()) if is_wide else 0.0
    residual = float(np.abs(offset_us - middle - drift * away).max())
    return ClockLine(at_us, middle, drift, residual + float(round_trip_us[best].max()) / 2, len(samples))
