"""JOB directory on this machine, sent as its board would send it: first what the host has, then the rest.

A JOB that was copied here so becomes what a live capture of it would have been, by the same way. Everything here
blocks.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from profagent import ledger
from profagent.errors import FormatError, UnsupportedBoardError, UsageError
from profagent.files import content, required
from profagent.formats.board_files import is_whole_done, looks_like_hi3519, parse_info_json
from profagent.formats.names import (
    DEVICE_INFO,
    DONE_SUFFIX,
    SIMULATED_MARKER,
    LogKind,
    LogName,
    is_job_name,
    parse_log_name,
)
from profagent.formats.records import AICORE_DTYPE, view_records
from profagent.ingest.changes import SegmentRecords
from profagent.ingest.decode import Joins
from profagent.ingest.decoder import small_file
from profagent.ingest.feed import Arrival, WholeFile, group_of, reading_order
from profagent.ingest.logs import DataLog, done_of
from profagent.ingest.mirror import DIGEST_BYTES, digest_of
from profagent.ingest.read_ahead import AheadReader
from profagent.ingest.source import decoder_of, is_job, source_named
from profagent.limits import (
    LARGEST_CHUNK_BYTES,
    LARGEST_LOCAL_DONE_BYTES,
    LARGEST_PLAIN_BYTES,
    READ_TOGETHER_BYTES,
)
from profagent.link.messages import JOB_SOURCE, Chunk, Completed, FollowedLog, Holding, Loss, Received, Started

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from io import FileIO
    from pathlib import Path

    from profagent.formats.join import LayerJoin
    from profagent.formats.records import Records
    from profagent.ingest.feed import Reading
    from profagent.link.messages import LogEvent


@dataclass(frozen=True, slots=True)
class InferenceRecords:
    """Inference of a local JOB: its records of AICORE_DTYPE in the order they ran, and each one's layer or None."""

    log: LogName
    records: Records
    layer_names: tuple[str | None, ...]


class LocalJobFiles:
    """Files of a JOB directory. Raises UsageError, UnsupportedBoardError if it is no JOB of an SS928."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        listing = list_job(directory)
        # Only listed paths are ever opened: a name in a damaged table cannot lead elsewhere.
        self._files = frozenset(listing.files)
        named = ((path, parse_log_name(path)) for path in listing.files)
        # Keyed by the fields that an inference's logs share: their spellings may differ.
        self._cpu_logs = {
            name.inference: path for path, name in named if name and name.kind is LogKind.AICPU and name.is_data
        }
        self._joins = Joins(self)
        self.is_simulated = listing.is_simulated

    def read(self, path: str, size: int | None = None, *, start: int = 0) -> bytes | None:
        """Return at most `size` bytes of a file from `start` on; None if it is missing or unreadable."""
        if path not in self._files:
            return None
        try:
            with (self._directory / path).open("rb") as file:
                file.seek(start)
                return file.read() if size is None else file.read(size)
        except OSError:
            return None

    @property
    def paths(self) -> list[str]:
        """Paths of all files."""
        return sorted(self._files)

    def names(self) -> list[str]:
        """Return no paths: tables of layers are read when they are needed."""
        return []

    @property
    def frequency_mhz(self) -> int | None:
        """NPU clock in MHz; None where the JOB has none."""
        data = small_file(self, DEVICE_INFO)
        try:
            return None if data is None else parse_info_json(data, DEVICE_INFO)
        except FormatError:
            return None

    @property
    def inferences(self) -> list[tuple[str, LogName]]:
        """Paths and names of aicore logs."""
        named = ((path, parse_log_name(path)) for path in sorted(self._files))
        return [(path, name) for path, name in named if name and name.kind is LogKind.AICORE and name.is_data]

    def join(self, name: LogName) -> LayerJoin | None:
        """Return the layers of a log's model; None where its tables cannot be read."""
        return self._joins.of(name)

    def cpu_log(self, path: str) -> str | None:
        """Return the path of the aicpu log of an aicore log's inference; None where there is none."""
        name = parse_log_name(path)
        return None if name is None else self._cpu_logs.get(name.inference)

    def of(self, path: str, name: LogName) -> Iterator[InferenceRecords]:
        """Yield the inferences of one log: more than one where the model was loaded again."""
        data, log = self.read(path) or b"", DataLog(path, name)
        log.done = done_of(self, path)
        found = log.append(data, self._joins.of(name), None)
        if not isinstance(found, SegmentRecords):
            return
        records, runs = view_records(data, AICORE_DTYPE), self._joins.runs(name)
        layers = [
            runs[index].name if index >= 0 and runs else None for index in found.unit.columns["layer_index"].tolist()
        ]
        loads = found.unit.seg_load[found.unit.segment]
        for number in np.unique(loads).tolist():
            chosen = np.flatnonzero(loads == number)
            yield InferenceRecords(name, records[chosen], tuple(layers[each] for each in chosen.tolist()))


# Folders that the vendor's commands and profagent's make inside a JOB.
OUTPUT_FOLDERS = frozenset({"sqlite", "timeline", "summary", "trace", "log", "parquet", "exports"})
# Names that the board's daemon takes for growing logs, by their last component; any other file is a snapshot.
_GROWING = re.compile(rb"(?i:(aicore|aacore|aicpu|aacpu|acl_api|aclmodule)\.[0-9]+\..*[0-9])", re.DOTALL)
_KINDS = {
    b"aicore": LogKind.AICORE,
    b"aacore": LogKind.AICORE,
    b"aicpu": LogKind.AICPU,
    b"aacpu": LogKind.AICPU,
    b"acl_api": LogKind.ACL_API,
    b"aclmodule": LogKind.ACL_API,
}


@dataclass(frozen=True, slots=True)
class JobListing:
    """Regular files in a JOB directory, and other entries.

    `readings` has the files in reading order, in sets that belong together.
    """

    readings: tuple[Reading, ...]
    others: tuple[str, ...]
    source: str = JOB_SOURCE

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of all files in reading order."""
        return tuple(path for reading in self.readings for path in reading.paths)

    def grows(self, path: str) -> bool:
        """Return True if a file is a growing log."""
        return growing_kind(path) is not None if self.source == JOB_SOURCE else decoder_of(self.source).growing(path)

    @property
    def is_simulated(self) -> bool:
        """True if the simulated board's marker is there."""
        return SIMULATED_MARKER in self.files


def list_collection(directory: Path) -> JobListing:
    """List a directory of any source, which its name determines; an unknown name is a JOB. Raises as `list_job`."""
    name = directory.resolve().name
    if is_job(name):
        require_job(directory)
    with _readable(directory):
        found = list(_entries(directory, ""))
        if is_job(name) and ("data", _FOLDER) in found:
            found += _entries(directory / "data", "data/")
    files = [path for path, kind in found if kind == _FILE]
    if is_job(name) and looks_like_hi3519(files):
        raise UnsupportedBoardError(
            f"{directory} was written by a Hi3519DV500: its records look like those of an SS928 but differ",
            hint="profagent reads JOBs of SS928 and SS927",
        )
    others = [path for path, kind in found if kind != _FILE and not _is_expected(path, kind)]
    source = source_named(name) or JOB_SOURCE
    return JobListing(tuple(reading_order(files)), tuple(sorted(others)), source)


def require_job(directory: Path) -> None:
    """Raise UsageError for a directory that is no JOB; one with a JOB's name may be empty."""
    if not is_job(directory.resolve().name):
        raise UsageError(
            f"{directory} is not a JOB directory: it holds subscribed operators, marks or metrics",
            hint=f"`profagent show -dir {directory}` tells what it has, `profagent import -dir` what is lost",
        )
    with _readable(directory):
        top = dict(_entries(directory, ""))
        has_data = top.get("data") == _FOLDER and any(_entries(directory / "data", ""))
    if not has_data and not any(map(_is_info, top.items())) and not is_job_name(directory.resolve().name):
        raise UsageError(
            f"{directory} is not a JOB directory: it has neither files in data/ nor info.json.0",
            hint="name the JOB… directory itself, which holds data/ and info.json.0",
        )


def is_job_directory(directory: Path) -> bool:
    """Return True if a directory is a JOB."""
    try:
        require_job(directory)
    except UsageError:
        return False
    return True


def list_job(directory: Path) -> JobListing:
    """List a JOB directory. Raises UsageError if it is none, UnsupportedBoardError for another SoC's."""
    require_job(directory)
    return list_collection(directory)


class LocalStream:
    """Logs of one JOB directory, as a stream. Links are not followed, and only listed files are read."""

    def __init__(self, directory: Path, listing: JobListing) -> None:
        self._directory = directory
        self.job = directory.name
        self._listing = listing
        files = listing.files
        # Place of each file in reading order, which is also what the read-ahead goes by.
        self._places = {path: place for place, path in enumerate(files)}
        self._reader = AheadReader(directory, files)

    def log(self, path: str) -> FollowedLog:
        """Return the log of a file; its handle is the file's place in reading order, from 1 on."""
        handle, grows = self._places[path] + 1, self._listing.grows(path)
        return FollowedLog(handle, self.job, os.fsencode(path), snapshot=not grows)

    def missing(
        self, page: Iterable[tuple[Reading, Sequence[FollowedLog]]], holdings: Mapping[int, Holding]
    ) -> Iterator[Arrival | Received]:
        """Yield what the host lacks of files, given with their logs; new inferences come complete.

        `holdings` are by handle, including those to be skipped.
        """
        for reading, logs in page:
            held = [holdings[log.handle] for log in logs]
            is_new = reading.name is not None and not any(each.generation or each.skip for each in held)
            arrival = self._arrival(reading, logs) if is_new else None
            if arrival is not None:
                yield arrival
                continue
            for log, holding in zip(logs, held, strict=True):
                if not holding.skip:
                    yield from self.events(log, holding)

    def _arrival(self, reading: Reading, logs: Sequence[FollowedLog]) -> Arrival | None:
        assert reading.name is not None, "all files of an inference"
        files: list[WholeFile] = []
        for path in reading.paths:
            try:
                data = self._reader.read(self._places[path], LARGEST_PLAIN_BYTES)
            except OSError:
                return None
            if data is None:
                return None
            files.append(WholeFile(path, 1, data, digest_of(data)))
        group = group_of(reading.name, files)
        if group is None:
            return None
        received = [
            Received(self.job, log, Started(log.handle, 1, 0, "new", file.data, file.digest))
            for log, file in zip(logs, files, strict=True)
        ]
        return Arrival(group, tuple(received))

    def odd(self) -> Iterator[Loss]:
        """Yield a loss for each entry that is not a regular file."""
        for path in self._listing.others:
            entry = self._directory / path
            what = "a directory" if entry.is_dir() and not entry.is_symlink() else "no regular file"
            yield Loss(0, 1, ledger.NOT_A_FILE, f"{path} is {what}", 0)

    def events(self, log: FollowedLog, holding: Holding) -> Iterator[Received]:
        """Yield the events for what the host lacks of a log."""
        path = os.fsdecode(log.path)
        try:
            handle, _ = required(f"{self._directory}/{path}")
            with open(handle, "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
                for event in self._of_file(log, path, holding, file):
                    yield Received(self.job, log, event)
        except OSError as error:
            loss = Loss(log.handle, 1, "unreadable", f"{path}: {error.strerror}", 0)
            yield Received(self.job, log, loss)

    def _of_file(self, log: FollowedLog, path: str, holding: Holding, file: FileIO) -> Iterator[LogEvent]:
        digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        generation, offset = max(holding.generation, 1), holding.offset
        if _goes_on(file, log, holding, digest):
            yield Started(log.handle, generation, offset, "same" if holding.generation else "new")
        else:
            generation, offset = holding.generation + 1, 0
            digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
            file.seek(0)
            yield Started(log.handle, generation, 0, "different")
        while data := file.read(READ_TOGETHER_BYTES):
            digest.update(data)
            yield Chunk(log.handle, generation, offset, data)
            offset += len(data)
        if log.snapshot or self._has_done(path):
            yield Completed(log.handle, generation, offset, digest.digest())

    def _has_done(self, path: str) -> bool:
        if self._listing.source != JOB_SOURCE:
            return path + DONE_SUFFIX in self._listing.files
        kind = growing_kind(path)
        try:
            text = content(f"{self._directory}/{path}{DONE_SUFFIX}", LARGEST_LOCAL_DONE_BYTES)
        except OSError:
            return False
        return kind is not None and text is not None and is_whole_done(text, kind)


def growing_kind(path: str) -> LogKind | None:
    """Return the kind of a growing log, by the rule of the board's daemon; None for a snapshot."""
    # Most snapshots are recognized by their suffix; the expression would search for it at each letter.
    match = None if path.endswith(DONE_SUFFIX) else _GROWING.fullmatch(os.fsencode(path.rpartition("/")[2]))
    return None if match is None else _KINDS[match[1].lower()]


def _goes_on(file: FileIO, log: FollowedLog, holding: Holding, digest: hashlib.blake2b) -> bool:
    """Return True if a file begins with the bytes that the host has; a snapshot must have no others.

    Updates `digest` with these bytes.
    """
    size = os.fstat(file.fileno()).st_size
    if size < holding.offset or (log.snapshot and holding.generation > 0 and size != holding.offset):
        return False
    left = holding.offset
    while left and (data := file.read(min(left, LARGEST_CHUNK_BYTES))):
        digest.update(data)
        left -= len(data)
    return left == 0 and (holding.offset == 0 or digest.digest() == holding.prefix_digest)


@contextmanager
def _readable(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"cannot read the JOB directory {directory}: {error.strerror}", hint="name a JOB… directory with -dir"
        ) from error


def _is_info(entry: tuple[str, str]) -> bool:
    path, kind = entry
    return path.startswith("info.json") and kind == _FILE


# Kinds of directory entries; a link is neither file nor folder.
_FILE, _FOLDER, _OTHER = "file", "folder", "other"


def _entries(directory: Path, prefix: str) -> Iterator[tuple[str, str]]:
    # scandir has the kinds from the directory: a system call for each entry would take half of the listing's time.
    with os.scandir(directory) as entries:
        for entry in entries:
            is_file, is_folder = entry.is_file(follow_symlinks=False), entry.is_dir(follow_symlinks=False)
            yield prefix + entry.name, _FILE if is_file else _FOLDER if is_folder else _OTHER


def _is_expected(path: str, kind: str) -> bool:
    return kind == _FOLDER and (path == "data" or path in OUTPUT_FOLDERS)
