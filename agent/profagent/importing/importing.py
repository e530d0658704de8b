"""`import`: a JOB directory into the database in its own `sqlite/` folder, made anew each time."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagent.importing.job_folder import alone_in_job, job_database, new_database
from profagent.ingest.changes import ApiRecords, JobChanges, SegmentRecords
from profagent.ingest.local import LocalJob, list_job
from profagent.record.told import profiling_known
from profagent.store.counter_maps import BUILT_IN, CounterMaps
from profagent.store.sessions import MapUsed, SessionStart
from profagent.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from profagent.formats.countermap import CounterMap
    from profagent.ingest.changes import Change
    from profagent.ingest.local import JobListing
    from profagent.link.messages import Profiling

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
        listing = await asyncio.to_thread(list_job, directory)
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
        await session.apply([JobChanges(directory.name, str(directory), (profiling_known(told),))])
    job = LocalJob(directory)
    for changes in _batches(job.changes(listing, counter_map)):
        await session.apply([JobChanges(directory.name, str(directory), changes)])
    unsettled, orphans = await session.unsettled_logs(directory.name), await session.orphan_dones(directory.name)
    state = "quiet" if unsettled else "finished"
    await session.apply(
        [JobChanges(directory.name, str(directory), job.end(unsettled, orphans), state, caught_up=True)]
    )
    await session.end(time.time_ns() // 1000)


def _batches(files: Iterator[list[Change]]) -> Iterator[list[Change]]:
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
