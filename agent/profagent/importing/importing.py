"""Import of a JOB directory as if its board sent it: into the database in its own folder, or into a workspace."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from profagent.cli.progress import progress
from profagent.errors import FormatError, ProfagentError, UsageError
from profagent.formats.board_files import parse_done
from profagent.formats.counter_maps import BUILT_IN, CounterMaps
from profagent.formats.names import display_text, parse_log_name
from profagent.importing.descriptions import description_of
from profagent.importing.in_place import WorkspaceInPlace
from profagent.ingest.feed import Arrival
from profagent.ingest.local import LocalStream, list_collection
from profagent.ingest.source import decoder_of, source_named
from profagent.limits import LARGEST_BATCH_BYTES, LARGEST_CHUNK_BYTES, LOGS_PER_PAGE, PARTS_PER_BATCH
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
from profagent.record.options import RecordingOptions
from profagent.record.recording import Recording
from profagent.store.job_folder import alone_in_job, job_database, new_database
from profagent.store.sessions import NO_BOARD
from profagent.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from profagent.cli.progress import Progress
    from profagent.importing.sources import Job
    from profagent.ingest.local import JobListing
    from profagent.link.messages import Acknowledgement
    from profagent.record.recording import Step
    from profagent.store.workspace import Workspace

T = TypeVar("T")
# Identities that profagentd accepts, and the form that `record` gives to a board without one.
_IDENTITY = re.compile(r"[A-Za-z0-9_-]{1,64}|address \S{1,255}")
# Figures of a session's summary that grow whenever an import adds something.
_AMOUNTS = ("bytes", "records", "events", "jobs")


@dataclass(frozen=True, slots=True)
class Origin:
    """Board that imported files come from: its identity, and the version of its SDK, empty if it is unknown.

    `profiling` is what the JOB's program was to record, None if that is unknown.
    """

    identity: str = NO_BOARD
    sdk: str = ""
    profiling: Profiling | None = None


class Import:
    """Import of one collection's directory, recorded as if a board with nothing else sent it."""

    def __init__(self, directory: Path, listing: JobListing, recording: Recording, *, is_shared: bool) -> None:
        """Take the listing of the directory. `is_shared` is True if the database may have other JOBs of the board."""
        self.recording, self._listing, self._is_shared = recording, listing, is_shared
        # A collection is known by the name of its directory, as the board would name it.
        self._job = directory.name
        self._stream = LocalStream(directory, listing)

    async def begin(self, origin: Origin, address: str) -> None:
        """Begin a session, or continue the one that has the collection. Raises what Recording.begin raises."""
        await self.recording.begin(_board_of(origin, self._listing), address)
        status = JobStatus(1, self._job, address, OPEN, caught_up=False, profiling=origin.profiling)
        self.recording.know_job(replace(status, source=self._listing.source))

    async def run(self, stop: asyncio.Event) -> None:
        """Record everything of the files that the database lacks, and end the session.

        Raises StoreError, UnsupportedBoardError, and ProfagentError at `stop`.
        """
        with progress("import", "files") as shown:
            await self._copy(stop, shown)
        # A refused JOB keeps its open state, and its error is raised when the session has ended in good order.
        refused = self.recording.refused.get(self._job)
        if refused is None:
            state = "finished" if await self._has_ended() else "quiet"
            await self.recording.change_state(self._job, state, caught_up=True)
        await self.recording.end()
        if refused is not None:
            raise refused

    async def _copy(self, stop: asyncio.Event, shown: Progress) -> None:
        stream, files = self._stream, len(self._listing.files)
        await self.recording.take([Received(self._job, None, loss) for loss in stream.odd()], _ignore_acknowledgements)
        for readings in in_batches(self._listing.readings, lambda reading: len(reading.paths), LOGS_PER_PAGE):
            page = [(reading, [stream.log(path) for path in reading.paths]) for reading in readings]
            found = await self.recording.holdings([log for _, logs in page for log in logs])
            missing = stream.missing(page, {holding.handle: holding for holding in found})
            # A batch is one transaction: its bytes and parts bound the memory, and what an interruption can undo.
            batches = in_batches(missing, _bytes, LARGEST_BATCH_BYTES, PARTS_PER_BATCH)
            while batch := await asyncio.to_thread(next, batches, None):
                read = [each for each in batch if isinstance(each, Arrival)]
                others = [each for each in batch if isinstance(each, Received)]
                await self.recording.take_read(read, others, _ignore_acknowledgements)
                shown(_handle(batch[-1]), files)
                # The batch before is committed, so a stop loses nothing.
                if stop.is_set():
                    raise ProfagentError(
                        "the import was interrupted", hint="run it again: it continues where it stopped"
                    )

    async def _has_ended(self) -> bool:
        """Return True if nothing more will be written: a JOB has the end of each log, another source its end file."""
        if self._listing.source != JOB_SOURCE:
            return decoder_of(self._listing.source).end_file in self._listing.files
        session = self.recording.session
        # In a shared database the board's own rule applies, by which an empty log needs no end.
        return await session.has_finished(self._job) if self._is_shared else not await session.unsettled_logs(self._job)


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
    """Copy a JOB into the workspace's mirror and database, and return the session's summary.

    `board` is the identity of the board that the JOB was copied from, `profiling` what its program was to record.
    Bytes that are there already are compared and not written again; a JOB with nothing new is in `earlier`. An
    interrupted import is continued; a copy that would remove something is refused. `reached` is called after each
    step of the commit rule. `found` describes a JOB that was found by a caller who holds the workspace's lock.
    Raises UsageError, UnsupportedBoardError, StoreError, and ProfagentError at `stop`.
    """
    require_identity(board)
    directory = await asyncio.to_thread(_collection_at, directory, workspace)
    # The database holds UTF-8 text, and a path may have other bytes.
    address = display_text(str(directory if found is None else found.address))
    listing, options = await asyncio.to_thread(_listing_and_options, directory, maps)
    first = None if found is None else found.first
    mirrored = workspace.board_mirror(board) / directory.name
    await asyncio.to_thread(_require_no_loss, directory, listing, mirrored, address, first)
    # The lock is not reentrant: a caller that found the JOB holds it already.
    with workspace.locked() if found is None else nullcontext():
        async with Store(workspace.database) as store:
            recording = Recording(workspace, store, options, reached=reached)
            importing = Import(directory, listing, recording, is_shared=True)
            await importing.begin(Origin(board, profiling=profiling), address)
            before = await recording.session.summary()
            if found is not None and found.beside is not None:
                recording.note(directory.name, found.beside)
            await importing.run(stop)
            summary = await recording.session.summary()
            inferences = await recording.session.final_inferences(directory.name)
    # A session that existed before and did not grow had everything that the directory has.
    if before["bytes"] and all(before[name] == summary[name] for name in _AMOUNTS):
        known = {"job": directory.name, "session": summary["session"], "inferences": inferences}
        summary["earlier"] = [*summary["earlier"], known]
    return {**summary, "database": display_text(str(workspace.database)), "mirror": display_text(str(recording.mirror))}


def _listing_and_options(directory: Path, maps: CounterMaps) -> tuple[JobListing, RecordingOptions]:
    listing = list_collection(directory)
    labels = description_of(directory.parent).labels
    options = RecordingOptions(_now_us, source="import", maps=maps, labels=labels, job=directory.name, reads=True)
    return listing, options


def _now_us() -> int:
    return time.time_ns() // 1000


def _collection_at(directory: Path, workspace: Workspace) -> Path:
    """Return the resolved path of a collection. Raises UsageError if it is none, or is in the workspace's mirror."""
    directory = directory.resolve()
    if not source_named(directory.name):
        raise UsageError(
            f"{directory.name} is not the name of a JOB",
            hint="name a directory that is called JOB and 29 letters, or OPS-…, MARKS-… or METRICS-…",
        )
    if directory.is_relative_to(workspace.root.resolve() / "mirror"):
        # The import would replace each file while it reads it.
        raise UsageError(
            f"{directory} is inside the workspace's own mirror", hint="name another one with --workspace DIR"
        )
    return directory


def require_identity(board: str) -> None:
    """Raise UsageError if the text cannot be the identity of a board."""
    if not _IDENTITY.fullmatch(board):
        raise UsageError(
            f"{board!r} is not a board's identity",
            hint="write 1 to 64 of A-Z a-z 0-9 _ -, as `profagent sessions` shows it",
        )


def _require_no_loss(copy: Path, listing: JobListing, mirrored: Path, shown_path: str, taken: Path | None) -> None:
    """Raise UsageError if a file of the copy is shorter than the mirrored one, which it would replace.

    `taken` is a copy of the same JOB that this import has taken already. Beside it, another copy is refused unless it
    only has more bytes at the end. `shown_path` is the copy's path for messages.
    """
    hint = "import it by itself into another workspace: --workspace DIR"
    if not mirrored.is_dir():
        return
    for path in listing.files:
        file, there = copy / path, mirrored / path
        if not there.is_file():
            continue
        size, held = file.stat().st_size, there.stat().st_size
        if taken is not None and (size < held or not _begin_alike(file, there, held)):
            what = f"{shown_path} is another copy of the JOB in {taken}: {display_text(path)} is not the same"
            raise UsageError(what, hint=hint)
        if size < held and not _is_readable_done(path, file):
            what = f"{shown_path} has less than what is there of this JOB: {size:,} of {held:,} bytes"
            raise UsageError(f"{what} of {display_text(path)}", hint=hint)


def _is_readable_done(path: str, file: Path) -> bool:
    """Return True for a readable `.done`; only a `.done` may shrink, when the model is loaded again."""
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


def _bytes(missing: Arrival | Received) -> int:
    events = missing.received if isinstance(missing, Arrival) else (missing,)
    return sum(len(each.event.data) for each in events if isinstance(each.event, Started | Chunk))


def _handle(missing: Arrival | Received) -> int:
    last = missing.received[-1] if isinstance(missing, Arrival) else missing
    return last.event.handle


def in_batches(
    items: Iterable[T], size_of: Callable[[T], int], most: int, most_items: int | None = None
) -> Iterator[list[T]]:
    """Yield the items in lists of at least `most` size, or of `most_items` items; the last list has the rest."""
    batch: list[T] = []
    size = 0
    for item in items:
        batch.append(item)
        size += size_of(item)
        if size >= most or len(batch) == most_items:
            yield batch
            batch, size = [], 0
    yield batch


async def _ignore_acknowledgements(_: Sequence[Acknowledgement]) -> None:
    """Do nothing: an import has no board that waits for acknowledgements."""


def _board_of(origin: Origin, listing: JobListing) -> Board:
    return Board(
        identity=origin.identity,
        hostname="",
        model="",
        daemon_version="",
        protocol=PROTOCOL,
        simulated=listing.is_simulated,
        sdk_version=origin.sdk,
        roots=(),
        clocks=Clocks(0, 0),
    )


@dataclass(frozen=True, slots=True)
class Imported:
    """Result of an import into a JOB's own database."""

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
    """Import a JOB directory into its own database. Raises UsageError, UnsupportedBoardError, StoreError.

    `profiling` is what the JOB's program was to record, `sdk` the version of the board's SDK, empty if it is
    unknown. Waits for another import of the same JOB to end.
    """
    async with alone_in_job(directory, tell):
        return await import_alone(directory, maps, profiling=profiling, sdk=sdk)


async def import_alone(
    directory: Path, maps: CounterMaps = BUILT_IN, *, profiling: Profiling | None = None, sdk: str = ""
) -> Imported:
    """Import a JOB directory as `import_job` does, for a caller that is alone in the JOB.

    The database appears under its name when it is complete, so no reader sees a partial one.
    """
    started = time.monotonic()
    directory = await asyncio.to_thread(directory.resolve)
    async with new_database(directory) as draft:
        listing, options = await asyncio.to_thread(_listing_and_options, directory, maps)
        async with Store(draft, durable=False) as store:
            recording = Recording(WorkspaceInPlace(directory), store, options)
            importing = Import(directory, listing, recording, is_shared=False)
            await importing.begin(Origin(sdk=sdk, profiling=profiling), display_text(str(directory)))
            await importing.run(asyncio.Event())
    return Imported(job_database(directory), len(listing.files), listing.is_simulated, time.monotonic() - started)
