"""The profiling settings of a JOB's program: the `profiler` object of its acl.json (the-format.md 5)."""

from __future__ import annotations

import glob
import itertools
import json
import logging
import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from profagentd.limits import LARGEST_ACL_JSON_BYTES, MOST_ACL_JSON
from profagentd.sources.files import FolderPlace, open_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_LOGGER = logging.getLogger(__name__)

# Searched below the directory that holds the JOB, and below the one above it.
USUAL_NAMES = (b"acl.json", b"src/acl.json")
# The program reads the file and makes its JOB at once. A JOB that is found so soon was made with the present content.
FRESH_US = 10_000_000
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# The runtime accepts a comma before a closing bracket. Strings are matched first, so that commas in them stay.
_STRING_OR_LAST_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)
# JSON can express these, but a path cannot contain a NUL, nor a text half a surrogate pair.
_NO_TEXT = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True)
class AclConfig:
    """Values of a `profiler` object that is switched on; empty where a key is absent."""

    output: str
    interval: str = ""
    aicpu: str = ""
    acl_api: str = ""
    aic_metrics: str = ""

    def leads_to(self, directory: bytes, starts: list[bytes]) -> bool:
        """Return True if `output` is the directory that holds a JOB.

        A relative `output` begins where the program was started, which no file records: any of `starts` will do.
        """
        output = os.fsencode(self.output)
        return any(os.path.realpath(os.path.join(start, output)) == directory for start in starts)


@dataclass(frozen=True)
class Profiling:
    """Profiling settings of a JOB's program, and the file that they were read from."""

    path: bytes
    config: AclConfig


class CandidateFile(NamedTuple):
    """File as it was read, at most LARGEST_ACL_JSON_BYTES of it; `changed_us` by the wall clock."""

    path: bytes
    data: bytes
    changed_us: int


class NotUsable(Exception):  # noqa: N818 - a property of a foreign file, no fault
    """The runtime could not have begun a JOB with this file; the text says why."""


def find_profiling(job: FolderPlace, made_us: int, now_us: int, patterns: Sequence[str] = ()) -> Profiling | None:
    """Return the acl.json that a JOB was made with, or None where it is not certain.

    Of the `candidates` it is the one whose `output` is the directory that holds the JOB, and which was not changed
    after the JOB was made. Several that differ are no answer.
    """
    directory = os.path.dirname(job.directory)
    # Either sign: when the board's clock is set, the JOB's time may lie in the future.
    is_fresh = abs(now_us - made_us) <= FRESH_US
    found: dict[AclConfig, Profiling] = {}
    for file in candidates([job], patterns):
        try:
            config = parse_acl_config(file.data)
        except NotUsable as error:
            _LOGGER.info("ignored %s: %s", os.fsdecode(file.path), error)
            continue
        directory_of_file = os.path.dirname(file.path)
        if not config.leads_to(directory, [directory_of_file, os.path.dirname(directory_of_file)]):
            continue
        if is_fresh or file.changed_us <= made_us:
            found.setdefault(config, Profiling(file.path, config))
        else:
            _LOGGER.info("ignored %s: it was changed after the JOB was made", os.fsdecode(file.path))
    # Files with equal settings are one entry; only settings that differ leave it open which file was used.
    if len(found) > 1:
        paths = ", ".join(os.fsdecode(each.path) for each in found.values())
        _LOGGER.warning("%s: several acl.json name this directory and differ: %s", os.fsdecode(directory), paths)
    return next(iter(found.values())) if len(found) == 1 else None


def candidates(places: Sequence[FolderPlace], patterns: Sequence[str] = ()) -> Iterator[CandidateFile]:
    """Yield files that may be a program's acl.json: those that `patterns` name, else those in the usual places.

    `places` are present or possible JOBs. Only files below their roots are read.
    """
    if not patterns:
        yield from itertools.chain.from_iterable(map(_usual_files, places))
    named = itertools.chain.from_iterable(glob.iglob(pattern) for pattern in patterns)
    for path in itertools.islice(named, MOST_ACL_JSON):
        yield from _read(os.fsencode(path), path)


def _usual_files(job: FolderPlace) -> Iterator[CandidateFile]:
    holder = os.path.dirname(job.path)
    for directory in dict.fromkeys((holder, os.path.dirname(holder))):
        for name in USUAL_NAMES:
            place = FolderPlace(job.root, os.path.join(directory, os.path.dirname(name)).strip(b"/"))
            try:
                opened = open_directory(place)
            except OSError:
                continue
            try:
                yield from _read(os.path.join(place.directory, b"acl.json"), "acl.json", opened)
            finally:
                os.close(opened)


def _read(path: bytes, name: str, directory: int | None = None) -> Iterator[CandidateFile]:
    try:
        descriptor = os.open(name, _FILE, dir_fd=directory)
    except FileNotFoundError:
        return
    except OSError as error:
        _LOGGER.info("ignored %s: %s", os.fsdecode(path), error.strerror)
        return
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST_ACL_JSON_BYTES:
            yield CandidateFile(path, file.read(LARGEST_ACL_JSON_BYTES), status.st_mtime_ns // 1000)
        else:
            _LOGGER.info("ignored %s: it is not a file of at most %d bytes", os.fsdecode(path), LARGEST_ACL_JSON_BYTES)


def parse_acl_config(data: bytes) -> AclConfig:
    """Parse an acl.json as the runtime does. Raises NotUsable.

    Both spellings of a key are read; the runtime's own spelling wins.
    """
    try:
        loaded = load_json(data)
        is_usable = _has_only_strings(loaded)
    except (ValueError, RecursionError) as error:
        raise NotUsable(f"it is no JSON: {error}") from error
    if not is_usable:
        raise NotUsable("a value in it is no string")
    profiler = loaded.get("profiler") if isinstance(loaded, dict) else None
    if not isinstance(profiler, dict):
        raise NotUsable("it has no profiler object")
    if _text(profiler, "switch") != "on":
        raise NotUsable("its switch is not on")
    config = AclConfig(
        output=_text(profiler, "output"),
        interval=_text(profiler, "interval"),
        aicpu=_text(profiler, "aicpu", "aacpu"),
        acl_api=_text(profiler, "acl_api"),
        aic_metrics=_text(profiler, "aic_metrics", "aac_metrics"),
    )
    if not config.output:
        raise NotUsable("it has no output")
    if not all(map(is_text, vars(config).values())):
        raise NotUsable("a value in it has a character that no text has")
    return config


def load_json(data: bytes) -> Any:
    """Return the content of the file, with the trailing commas that the runtime accepts.

    Raises ValueError, RecursionError.
    """
    return json.loads(_STRING_OR_LAST_COMMA.sub(lambda match: match.group(1) or "", data.decode("utf-8")))


def is_text(value: str) -> bool:
    """Return True if the value can be a path and can be shown."""
    return _NO_TEXT.search(value) is None


def _text(profiler: dict[str, Any], *keys: str) -> str:
    return next((profiler[key] for key in keys if isinstance(profiler.get(key), str)), "")


def _has_only_strings(value: Any) -> bool:
    """Return True if there is no number, boolean or null, on which the runtime's parser fails."""
    if isinstance(value, dict):
        return all(map(_has_only_strings, value.values()))
    return all(map(_has_only_strings, value)) if isinstance(value, list) else isinstance(value, str)
