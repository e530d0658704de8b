"""`import`: a JOB directory into the database in its own `sqlite/` folder, made anew each time."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from profagent.errors import ProfagentError, UsageError
from profagent.formats.names import display_text
from profagent.formats.sampling import interval_of
from profagent.importing.job_folder import alone_in_job, job_database, new_database
from profagent.ingest.changes import ApiRecords, JobChanges, ProfilingKnown, SegmentRecords
from profagent.ingest.decoder import decoder_of, source_named
from profagent.ingest.local import LocalJob, LocalStream, list_collection
from profagent.link.messages import JOB_SOURCE, OPEN, PROTOCOL, Board, Chunk, Clocks, Happened, JobStatus
from profagent.store.counter_maps import BUILT_IN, CounterMaps
from profagent.store.sessions import MapUsed, SessionStart
from profagent.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from profagent.formats.countermap import CounterMap
    from profagent.ingest.changes import Change, Step
    from profagent.ingest.local import JobListing
    from profagent.link.messages import Acknowledgement, FollowedLog, Holding, Profiling
    from profagent.record.recording import Recording
    from profagent.store.workspace import Workspace


NO_BOARD = "import"
# What profagentd takes as an identity, and what `record` calls a board that has none.
_IDENTITY = re.compile(r"[A-Za-z0-9_-]{1,64}|address \S{1,255}")
LOGS_PER_PAGE = 1_000
BATCH_BYTES = 4 << 20
BATCH_EVENTS = 5_000


@dataclass(frozen=True, slots=True)
class WorkspaceImport:
    """What to import, and as whose. `board` is the identity of the board that the JOB was copied from.

    `told` is what the JOB's program was told to record.
    """

    directory: Path
    workspace: Workspace
    board: str = NO_BOARD
    maps: CounterMaps = BUILT_IN
    told: Profiling | None = None


async def import_into(
    options: WorkspaceImport, stop: asyncio.Event, *, reached: Callable[[Step], None] | None = None
) -> dict[str, Any]:
    """Copy a JOB into the workspace's mirror and database; returns the session's summary.

    What is there already is compared and not written again; one that was interrupted goes on. `reached` is called after
    each step of the commit rule. Raises UsageError, UnsupportedBoardError, StoreError, and ProfagentError at `stop`.
    """
    from profagent.record.recording import Recording, RecordingOptions  # noqa: PLC0415 - verbs that only read start faster

    if not _IDENTITY.fullmatch(options.board):
        raise UsageError(
            f"{options.board!r} is no board's identity",
            hint="write 1 to 64 of A-Z a-z 0-9 _ -, as `profagent sessions` shows it",
        )
    directory = options.directory.resolve()
    if not source_named(directory.name):
        raise UsageError(
            f"{directory.name} is no JOB's name",
            hint="name a directory that is called JOB and 29 letters, or OPS-…, MARKS-… or METRICS-…",
        )
    if directory.is_relative_to(options.workspace.root.resolve() / "mirror"):
        # Each file would be replaced while it is read.
        raise UsageError(f"{directory} is in the workspace's own mirror", hint="name another one with --workspace DIR")
    listing = await asyncio.to_thread(list_collection, directory)
    with options.workspace.locked():
        async with Store(options.workspace.database) as store:
            chosen = RecordingOptions(
                lambda: time.time_ns() // 1000, source="import", maps=options.maps, job=directory.name
            )
            recording = Recording(options.workspace, store, chosen, reached=reached)
            await recording.begin(_board(options.board, listing), str(directory))
            recording.know_job(
                JobStatus(
                    *(1, directory.name, str(directory), OPEN),
                    caught_up=False,
                    profiling=options.told,
                    source=listing.source,
                )
            )
            await _copy(recording, LocalStream(directory, listing), stop)
            await _finish(recording, directory.name, is_ended=_is_ended(listing))
            summary = await recording.session.summary()
    return {**summary, "database": str(options.workspace.database), "mirror": str(recording.mirror)}


async def _copy(recording: Recording, stream: LocalStream, stop: asyncio.Event) -> None:
    await recording.take([Happened(stream.job, None, loss) for loss in stream.odd()], _unheard)
    for start in range(0, len(stream.logs), LOGS_PER_PAGE):
        logs = {log.handle: log for log in stream.logs[start : start + LOGS_PER_PAGE]}
        batches = _batches(stream, logs, await recording.holdings([*logs.values()]))
        while batch := await asyncio.to_thread(next, batches, None):
            await recording.take(batch, _unheard)
            if stop.is_set():
                raise ProfagentError("the import was stopped", hint="run it again: it goes on where it was")


async def _finish(recording: Recording, job: str, *, is_ended: bool) -> None:
    refused = recording.refused.get(job)
    if refused is None:
        state = "finished" if is_ended or await recording.session.has_finished(job) else "quiet"
        await recording.change_state(job, state, caught_up=True)
    await recording.end()
    if refused is not None:
        raise refused


def _is_ended(listing: JobListing) -> bool:
    """Whether a file tells that nothing more is written; of a JOB none does."""
    return decoder_of(listing.source).end_file in listing.files


def _batches(
    stream: LocalStream, logs: dict[int, FollowedLog], holdings: Sequence[Holding]
) -> Iterator[list[Happened]]:
    """Events of several logs together, of none that is not wanted."""
    batch: list[Happened] = []
    size = 0
    for holding in holdings:
        for happened in () if holding.skip else stream.events(logs[holding.handle], holding):
            batch.append(happened)
            size += len(happened.event.data) if isinstance(happened.event, Chunk) else 0
            if size >= BATCH_BYTES or len(batch) >= BATCH_EVENTS:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


async def _unheard(_: Sequence[Acknowledgement]) -> None:
    """There is no board to acknowledge to."""


def _board(identity: str, listing: JobListing) -> Board:
    return Board(
        identity=identity,
        hostname="",
        boot_id="",
        model="",
        daemon_version="",
        protocol=PROTOCOL,
        simulated=listing.is_simulated,
        sdk_version="",
        roots=(),
        quiet_after_us=0,
        clocks=Clocks(0, 0),
    )


RECORDS_PER_BATCH = 20_000
FILES_PER_BATCH = 1_000


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import made."""

    database: Path
    files: int
    simulated: bool
    elapsed_s: float


async def import_job(
    directory: Path,
    maps: CounterMaps = BUILT_IN,
    *,
    told: Profiling | None = None,
    sdk: str = "",
    tell: Callable[[str], None] = lambda _: None,
) -> Imported:
    """Import a JOB directory. Raises UsageError, UnsupportedBoardError, StoreError.

    `told` is what the JOB's program was told to record, `sdk` what the board's SDK is, empty where that is not known.
    Another import of the JOB is waited for.
    """
    async with alone_in_job(directory, tell):
        return await import_alone(directory, maps, told=told, sdk=sdk)


async def import_alone(
    directory: Path, maps: CounterMaps = BUILT_IN, *, told: Profiling | None = None, sdk: str = ""
) -> Imported:
    """The same, for whoever is alone in the JOB.

    The database appears under its name when it is whole, so a reader never sees half of one.
    """
    started = time.monotonic()
    directory = await asyncio.to_thread(directory.resolve)
    async with new_database(directory) as draft:
        listing = await asyncio.to_thread(list_collection, directory)
        counter_map = await asyncio.to_thread(lambda: maps.of(simulated=listing.is_simulated, sdk=sdk))
        async with Store(draft, durable=False) as store:
            await _fill(store, directory, listing, counter_map, maps.peak_bytes_per_s, told)
    return Imported(job_database(directory), len(listing.files), listing.is_simulated, time.monotonic() - started)


async def _fill(
    store: Store,
    directory: Path,
    listing: JobListing,
    counter_map: CounterMap | None,
    peak_bytes_per_s: float,
    told: Profiling | None,
) -> None:
    session = await store.begin(
        SessionStart(
            identity="import",
            hostname="",
            board_model="",
            source="import",
            address=str(directory),
            started_us=time.time_ns() // 1000,
            simulated=listing.is_simulated,
            decoded_with=MapUsed.of(counter_map),
            peak_bytes_per_s=peak_bytes_per_s,
        )
    )
    if told is not None:
        await session.apply(
            [
                JobChanges(
                    directory.name,
                    str(directory),
                    (ProfilingKnown(interval_of(told.interval), display_text(told.path)),),
                )
            ]
        )
    job = LocalJob(directory, listing, counter_map)
    for changes in _batches_importing(job.changes()):
        await session.apply([JobChanges(directory.name, str(directory), changes)])
    unsettled, orphans = await session.unsettled_logs(directory.name), await session.orphan_dones(directory.name)
    is_over = _is_ended(listing) if listing.source != JOB_SOURCE else not unsettled
    state = "finished" if is_over else "quiet"
    await session.apply(
        [JobChanges(directory.name, str(directory), job.end(unsettled, orphans), state, caught_up=True)]
    )
    await session.end(time.time_ns() // 1000)


def _batches_importing(files: Iterator[list[Change]]) -> Iterator[list[Change]]:
    """Changes of several files together."""
    batch: list[Change] = []
    records = count = 0
    for changes in files:
        batch += changes
        count += 1
        records += sum(_records(change) for change in changes)
        if records >= RECORDS_PER_BATCH or count >= FILES_PER_BATCH:
            yield batch
            batch, records, count = [], 0, 0
    yield batch


def _records(change: Change) -> int:
    match change:
        case SegmentRecords():
            return len(change.sequence)
        case ApiRecords():
            return len(change.number)
    return 0
