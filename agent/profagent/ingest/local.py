"""A JOB directory on this machine, read as if its logs had come over a link."""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagent.errors import UnsupportedBoardError, UsageError
from profagent.files import content, required
from profagent.formats.board_files import looks_like_hi3519
from profagent.formats.names import LogKind, is_job_name, parse_log_name
from profagent.ingest import reasons
from profagent.ingest.changes import Entry, LinkLedger
from profagent.ingest.decode import SIMULATED_MARKER, JobDecoder
from profagent.ingest.mirror import DIGEST_BYTES, LARGEST_CONTENT_BYTES
from profagent.ingest.states import DONE_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from profagent.formats.countermap import CounterMap
    from profagent.ingest.changes import Change

# Folders that the vendor's commands, and ours, make inside a JOB.
OUTPUT_FOLDERS = frozenset({"sqlite", "timeline", "summary", "log"})
# A multiple of every record's size.
READ_BYTES = 4 << 20
GENERATION = 1
_FIRST_KINDS = (LogKind.INFO_JSON, LogKind.NET_INFO, LogKind.LAYER_INFO)


@dataclass(frozen=True, slots=True)
class JobListing:
    """What stands in a JOB directory: paths of regular files in the order to read them, and what is no file."""

    files: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def is_simulated(self) -> bool:
        """Whether the simulated board's marker is there."""
        return SIMULATED_MARKER in self.files


def require_job(directory: Path) -> None:
    """Raise UsageError for what is no JOB directory; one that has its name may be empty."""
    with _readable(directory):
        top = dict(_entries(directory, ""))
        has_data = stat.S_ISDIR(top.get("data", 0)) and any(_entries(directory / "data", ""))
    if not has_data and not any(map(_is_info, top.items())) and not is_job_name(directory.resolve().name):
        raise UsageError(
            f"{directory} is no JOB directory: it has neither files in data/ nor info.json.0",
            hint="name the JOB… directory itself, which holds data/ and info.json.0",
        )


def list_job(directory: Path) -> JobListing:
    """Look into a JOB directory. Raises UsageError when it is none, UnsupportedBoardError for another SoC's."""
    require_job(directory)
    with _readable(directory):
        top = list(_entries(directory, ""))
        has_data = any(path == "data" and stat.S_ISDIR(mode) for path, mode in top)
        data = list(_entries(directory / "data", "data/")) if has_data else []
    files = [path for path, mode in top + data if stat.S_ISREG(mode)]
    if looks_like_hi3519(files):
        raise UnsupportedBoardError(
            f"{directory} was written by a Hi3519DV500: its records look alike and are not the same",
            hint="profagent reads JOBs of SS928 and SS927",
        )
    others = [path for path, mode in top + data if not stat.S_ISREG(mode) and not _is_expected(path, mode)]
    return JobListing(tuple(sorted(files, key=_reading_order)), tuple(sorted(others)))


class LocalJob:
    """The files of a JOB directory, for decoding. Only regular files that its listing has are read."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._decoder = JobDecoder(self)
        self._files: frozenset[str] = frozenset()
        self._to_come = ""

    def read(self, path: str, size: int | None = None, *, start: int = 0) -> bytes | None:
        """At most `size` bytes of a file from `start` on; None when there is none, or its turn has not come."""
        if path not in self._files or path == self._to_come:
            return None
        return content(f"{self.directory}/{path}", size, start)

    def names(self) -> list[str]:
        """Nothing: tables of layers are read before any data."""
        return []

    def changes(self, listing: JobListing, counter_map: CounterMap | None) -> Iterator[list[Change]]:
        """What the JOB's files mean, a list for each file. Raises UnsupportedBoardError."""
        self._files = frozenset(listing.files)
        self._decoder = JobDecoder(self, counter_map)
        for path in listing.files:
            if not path.endswith(DONE_SUFFIX) or path.removesuffix(DONE_SUFFIX) not in self._files:
                yield list(self._file(path))
        yield [LinkLedger(None, not_a_file(path)) for path in listing.others]

    def end(self, unsettled: list[str], orphans: list[str]) -> list[Change]:
        """What is left to say when all files are read; the arguments come from the store."""
        return list(self._decoder.end(unsettled, orphans))

    def _file(self, path: str) -> Iterator[Change]:
        name = parse_log_name(path)
        try:
            if name is not None and name.is_data:
                yield from self._data(path)
            else:
                yield from self._snapshot(path)
        except OSError as error:
            yield LinkLedger(path, reasons.entry(reasons.UNREADABLE, f"cannot be read: {error.strerror}"))

    def _data(self, path: str) -> Iterator[Change]:
        """A data log, then its `.done`: what the file says in the end is decoded once."""
        decoder, digest, size = self._decoder, hashlib.blake2b(digest_size=DIGEST_BYTES), 0
        self._to_come = path + DONE_SUFFIX
        yield from decoder.begin(path, GENERATION, 0)
        for data in self._blocks(path, READ_BYTES):
            digest.update(data)
            yield from decoder.append(path, GENERATION, size, data)
            size += len(data)
        self._to_come = ""
        if path + DONE_SUFFIX in self._files:
            yield from self._snapshot(path + DONE_SUFFIX)
        if decoder.has_done(path):
            yield from decoder.complete(path, GENERATION, size, digest.digest())

    def _snapshot(self, path: str) -> Iterator[Change]:
        digest, beginning, size = hashlib.blake2b(digest_size=DIGEST_BYTES), b"", 0
        for data in self._blocks(path, LARGEST_CONTENT_BYTES):
            digest.update(data)
            beginning, size = beginning or data, size + len(data)
        yield from self._decoder.snapshot(path, GENERATION, beginning, digest.digest(), size=size)

    def _blocks(self, path: str, size: int) -> Iterator[bytes]:
        with open(required(f"{self.directory}/{path}"), "rb") as file:  # noqa: PTH123 - a descriptor
            while data := file.read(size):
                yield data


def not_a_file(path: str) -> Entry:
    """The note about something in a JOB that is no regular file."""
    return reasons.entry(reasons.NOT_A_FILE, f"{path} is no regular file")


@contextmanager
def _readable(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"cannot read the JOB directory {directory}: {error.strerror}", hint="name a JOB… directory with -dir"
        ) from error


def _is_info(entry: tuple[str, int]) -> bool:
    path, mode = entry
    return path.startswith("info.json") and stat.S_ISREG(mode)


def _entries(directory: Path, prefix: str) -> Iterator[tuple[str, int]]:
    with os.scandir(directory) as entries:
        for entry in entries:
            yield prefix + entry.name, entry.stat(follow_symlinks=False).st_mode


def _is_expected(path: str, mode: int) -> bool:
    return stat.S_ISDIR(mode) and (path == "data" or path in OUTPUT_FOLDERS)


def _reading_order(path: str) -> tuple[int, str]:
    """What names and times the records comes before them."""
    name = parse_log_name(path)
    is_first = path == SIMULATED_MARKER or (name is not None and name.kind in _FIRST_KINDS)
    return (0 if is_first else 1, path)
