"""Importing a JOB directory: into the database in its own `sqlite/` folder, or into a workspace."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from profagent.cli.progress import progress
from profagent.errors import FormatError, ProfagentError, UsageError
from profagent.formats.board_files import parse_done
from profagent.formats.counter_maps import BUILT_IN, CounterMaps
from profagent.formats.names import display_text, parse_log_name
from profagent.formats.sampling import interval_of
from profagent.importing.descriptions import described
from profagent.ingest.changes import JobChanges, ProfilingKnown
from profagent.ingest.decoder import decoder_of, source_named
from profagent.ingest.local import LocalJob, LocalStream, in_batches, list_collection
from profagent.limits import LARGEST_BATCH_BYTES, LARGEST_BATCH_EVENTS, LARGEST_CHUNK_BYTES, LOGS_PER_PAGE
from profagent.link.messages import (
    JOB_SOURCE,
    OPEN,
    PROTOCOL,
    Board,
    Chunk,
    Clocks,
    JobStatus,
    Profiling,
    Received,
    Started,
)
from profagent.store.job_folder import alone_in_job, job_database, new_database
from profagent.store.sessions import NO_BOARD, MapUsed, SessionStart
from profagent.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from profagent.cli.progress import Progress
    from profagent.formats.countermap import CounterMap
    from profagent.importing.sources import Job
    from profagent.ingest.local import JobListing
    from profagent.link.messages import Acknowledgement
    from profagent.record.recording import Recording, Step
    from profagent.store.workspace import Workspace

# What profagentd takes as an identity, and what `record` calls a board that has none.
_IDENTITY = re.compile(r"[A-Za-z0-9_-]{1,64}|address \S{1,255}")
# What of a summary grows when something comes.
_AMOUNTS = ("bytes", "records", "events", "jobs")


async def import_into(
    directory: Path,
    workspace: Workspace,
    stop: asyncio.Event,
    *,
    board: str = NO_BOARD,
    maps: CounterMaps = BUILT_IN,
    profiling: Profiling | None = None,
    reached: Callable[[Step], None] | None = None,
    found: Job | None = None,
) -> dict[str, Any]:
    """Copy a JOB into the workspace's mirror and database; returns the session's summary.

    `board` is the identity of the board that it was copied from, `profiling` what its program was to record.
    What is there already is compared and not written again: a JOB of which nothing is new is in `earlier`. One that was
    interrupted goes on; a copy that would take something away is refused. `reached` is called after each step of the
    commit rule. `found` tells more of a JOB that was found by somebody who holds the workspace's lock. Raises
    UsageError, UnsupportedBoardError, StoreError, and ProfagentError at `stop`.
    """
    from profagent.record.options import RecordingOptions  # noqa: PLC0415 - verbs that only read start faster
    from profagent.record.recording import Recording  # noqa: PLC0415 - verbs that only read start faster

    require_identity(board)
    directory = await asyncio.to_thread(_collection_at, directory, workspace)
    # The database holds text; a path need not be any.
    address = display_text(str(directory if found is None else found.address))
    listing, about = await asyncio.to_thread(lambda: (list_collection(directory), described(directory.parent)))
    first = None if found is None else found.first
    mirrored = workspace.board_mirror(board) / directory.name
    await asyncio.to_thread(_require_no_loss, directory, listing, mirrored, address, first)
    with workspace.locked() if found is None else nullcontext():
        async with Store(workspace.database) as store:
            chosen = RecordingOptions(
                lambda: time.time_ns() // 1000,
                source="import",
                maps=maps,
                labels=about.labels,
                job=directory.name,
            )
            recording = Recording(workspace, store, chosen, reached=reached)
            await recording.begin(_board_of(board, listing), address)
            before = await recording.session.summary()
            status = JobStatus(1, directory.name, address, OPEN, caught_up=False, profiling=profiling)
            recording.know_job(replace(status, source=listing.source))
            if found is not None and found.beside is not None:
                recording.note(directory.name, found.beside)
            with progress("import", "files") as shown:
                await _copy(recording, LocalStream(directory, listing), listing, stop, shown)
            await _finish(recording, directory.name, is_ended=_is_ended(listing))
            summary = await recording.session.summary()
            inferences = await recording.session.final_inferences(directory.name)
    if before["bytes"] and all(before[name] == summary[name] for name in _AMOUNTS):
        known = {"job": directory.name, "session": summary["session"], "inferences": inferences}
        summary["earlier"] = [*summary["earlier"], known]
    return {**summary, "database": display_text(str(workspace.database)), "mirror": display_text(str(recording.mirror))}


def _collection_at(directory: Path, workspace: Workspace) -> Path:
    """The collection's own path. Raises UsageError for what is none, or is the workspace's."""
    directory = directory.resolve()
    if not source_named(directory.name):
        raise UsageError(
            f"{directory.name} is no JOB's name",
            hint="name a directory that is called JOB and 29 letters, or OPS-…, MARKS-… or METRICS-…",
        )
    if directory.is_relative_to(workspace.root.resolve() / "mirror"):
        # Each file would be replaced while it is read.
        raise UsageError(f"{directory} is in the workspace's own mirror", hint="name another one with --workspace DIR")
    return directory


def require_identity(board: str) -> None:
    """Raise UsageError for what is no board's identity."""
    if not _IDENTITY.fullmatch(board):
        raise UsageError(
            f"{board!r} is no board's identity",
            hint="write 1 to 64 of A-Z a-z 0-9 _ -, as `profagent sessions` shows it",
        )


def _require_no_loss(copy: Path, listing: JobListing, mirrored: Path, address: str, first: Path | None) -> None:
    """Raise UsageError where a file of a copy is shorter than what is there of it, which would be replaced.

    A copy beside the `first` of one import is refused for any difference: it only goes on from there.
    """
    hint = "import it by itself into another workspace: --workspace DIR"
    for path in listing.files:
        file, there = copy / path, mirrored / path
        if not there.is_file():
            continue
        size, held = file.stat().st_size, there.stat().st_size
        if first is not None and (size < held or not _begin_alike(file, there, held)):
            what = f"{address} is another copy of the JOB in {first}: {display_text(path)} is not the same"
            raise UsageError(what, hint=hint)
        if size < held and not _is_whole_done(path, file):
            what = f"{address} has less than what is there of this JOB: {size:,} of {held:,} bytes"
            raise UsageError(f"{what} of {display_text(path)}", hint=hint)


def _is_whole_done(path: str, file: Path) -> bool:
    """Return True for a `.done` that can be read: that of a later load of the model may be shorter."""
    name = parse_log_name(path)
    if name is None or not name.is_done:
        return False
    try:
        parse_done(file.read_bytes(), name.kind, path)
    except FormatError:
        return False
    return True


def _begin_alike(one: Path, other: Path, size: int) -> bool:
    with one.open("rb") as first, other.open("rb") as second:
        pieces = (min(LARGEST_CHUNK_BYTES, size - start) for start in range(0, size, LARGEST_CHUNK_BYTES))
        return all(first.read(piece) == second.read(piece) for piece in pieces)


async def _copy(
    recording: Recording, stream: LocalStream, listing: JobListing, stop: asyncio.Event, shown: Progress
) -> None:
    files = len(listing.files)
    await recording.take([Received(stream.job, None, loss) for loss in stream.odd()], _unheard)
    for readings in in_batches(listing.readings, lambda reading: len(reading.paths), LOGS_PER_PAGE, LOGS_PER_PAGE):
        logs = [stream.log(path) for reading in readings for path in reading.paths]
        holdings = {holding.handle: holding for holding in await recording.holdings(logs)}
        events = (together for reading in readings for together in stream.together(reading, holdings))
        # What comes together has at most the four files of an inference.
        batches = in_batches(events, _bytes, LARGEST_BATCH_BYTES, max(LARGEST_BATCH_EVENTS // 4, 1))
        while batch := await asyncio.to_thread(next, batches, None):
            received = [each for together in batch for each in together]
            await recording.take(received, _unheard)
            if (log := received[-1].log) is not None:
                shown(log.handle, files)
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


def _bytes(together: Sequence[Received]) -> int:
    return sum(len(each.event.data) for each in together if isinstance(each.event, Started | Chunk))


async def _unheard(_: Sequence[Acknowledgement]) -> None:
    """There is no board to acknowledge to."""


def _board_of(identity: str, listing: JobListing) -> Board:
    return Board(
        identity=identity,
        hostname="",
        model="",
        daemon_version="",
        protocol=PROTOCOL,
        simulated=listing.is_simulated,
        sdk_version="",
        roots=(),
        clocks=Clocks(0, 0),
    )


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
    profiling: Profiling | None = None,
    sdk: str = "",
    tell: Callable[[str], None] = lambda _: None,
) -> Imported:
    """Import a JOB directory. Raises UsageError, UnsupportedBoardError, StoreError.

    `profiling` is what the JOB's program was to record, `sdk` what the board's SDK is, empty where that is not known.
    Another import of the JOB is waited for.
    """
    async with alone_in_job(directory, tell):
        return await import_alone(directory, maps, profiling=profiling, sdk=sdk)


async def import_alone(
    directory: Path, maps: CounterMaps = BUILT_IN, *, profiling: Profiling | None = None, sdk: str = ""
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
            await _fill(store, directory, listing, counter_map, maps.peak_bytes_per_s, profiling)
    return Imported(job_database(directory), len(listing.files), listing.is_simulated, time.monotonic() - started)


async def _fill(
    store: Store,
    directory: Path,
    listing: JobListing,
    counter_map: CounterMap | None,
    peak_bytes_per_s: float,
    profiling: Profiling | None,
) -> None:
    address = display_text(str(directory))
    about = await asyncio.to_thread(described, directory.parent)
    session = await store.begin(
        SessionStart(
            identity=NO_BOARD,
            hostname="",
            board_model="",
            source="import",
            address=address,
            started_us=time.time_ns() // 1000,
            simulated=listing.is_simulated,
            decoded_with=MapUsed.of(counter_map),
            peak_bytes_per_s=peak_bytes_per_s,
            labels=about.labels,
        )
    )
    if profiling is not None:
        known = ProfilingKnown(interval_of(profiling.interval), display_text(profiling.path))
        await session.apply([JobChanges(directory.name, address, (known,))])
    job = LocalJob(directory, listing, counter_map)
    with progress("import", "files") as shown:
        done, files = 0, len(listing.files)
        for changes, read in job.batches():
            await session.apply([JobChanges(directory.name, address, changes)])
            done += read
            shown(done, files)
    unsettled, orphans = await session.unsettled_logs(directory.name), await session.orphan_dones(directory.name)
    is_over = _is_ended(listing) if listing.source != JOB_SOURCE else not unsettled
    state = "finished" if is_over else "quiet"
    await session.apply([JobChanges(directory.name, address, job.end(unsettled, orphans), state, caught_up=True)])
    await session.end(time.time_ns() // 1000)
