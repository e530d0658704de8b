"""The source of JOB directories: names and meaning of the runtime's files (the-format.md 1 and 2)."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from profagentd.limits import REMEMBERED_NAMES
from profagentd.sources.files import Gone, NotAFile, OpenCollection, Unreadable
from profagentd.sources.source import DATA, SNAPSHOT, LogMode, LogPart, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA_DIRECTORY = b"data"
DONE_SUFFIX = b".done"

_JOB_NAME = re.compile(rb"JOB[A-Z]{29}")
_DATA_NAME = re.compile(rb"(aicore|aacore|aicpu|aacpu|acl_api|aclmodule)\.\d+\..*\d", re.IGNORECASE | re.DOTALL)
_NET_INFO_NAME = re.compile(rb"(.*\.\d+)\.net\.info", re.DOTALL)
_DONE_LINE = re.compile(rb"^([a-z_]+):[ \t]*(-?[0-9]+)[ \t\r]*$", re.MULTILINE)
# Small files: the mark of the simulated board, the clock's file, and the layers and nets of a model.
_TABLE = re.compile(rb"simulated|info\.json\.\d+|data/.*\.\d+\.(net|layer)\.info", re.DOTALL)
_UNIT_NAME = re.compile(rb"((?:.*/)?(?:ai|aa))(core|cpu)(\..*)", re.IGNORECASE | re.DOTALL)
_FIRST_UNIT = (b"core", b"CORE")
_CALLS = (b"acl_api", b"aclmodule")
_OTHER_UNIT = {b"core": b"cpu", b"cpu": b"core", b"CORE": b"CPU", b"CPU": b"CORE"}
_CONTINUATION = re.compile(rb"cont\.\d+\..*\d", re.DOTALL)
_API_NAME = re.compile(rb"(?:acl_api|aclmodule)\.\d+\.(.*\.\d+)", re.IGNORECASE | re.DOTALL)
_DIGITS = 20
_EVERY_DONE = frozenset((b"file_len", b"start_time", b"end_time"))
_UNIT_DONE = _EVERY_DONE | {b"cache_hit", b"cache_mis"}
_CALLS_DONE = _EVERY_DONE | {b"pid", b"tid"}
_DONE_KEYS = {
    b"aicore": _UNIT_DONE,
    b"aacore": _UNIT_DONE,
    b"aicpu": _EVERY_DONE,
    b"aacpu": _EVERY_DONE,
    b"acl_api": _CALLS_DONE,
    b"aclmodule": _CALLS_DONE,
}


def _in_data(name: bytes) -> bytes:
    return DATA_DIRECTORY + b"/" + name


def _base_name(path: bytes) -> bytes:
    return path.rpartition(b"/")[2]


@lru_cache(REMEMBERED_NAMES)
def kind_of(path: bytes) -> LogMode:
    """Return the kind of the log at `path` inside a JOB. A file that is not known to grow is a snapshot."""
    return DATA if _DATA_NAME.fullmatch(_base_name(path)) else SNAPSHOT


def done_of(path: bytes) -> bytes:
    """Return the path of the `.done` that ends the data log at `path`."""
    return path + DONE_SUFFIX


def ended_by(path: bytes) -> bytes | None:
    """Return the data log whose `.done` the file at `path` is, or None."""
    if not path.endswith(DONE_SUFFIX):
        return None
    data = path[: -len(DONE_SUFFIX)]
    return data if kind_of(data) is DATA else None


@lru_cache(REMEMBERED_NAMES)
def group_of(path: bytes) -> tuple[bytes, ...]:
    """Return the files of one inference, or of one log, that include `path`: data of both units, then their `.done`s.

    Not all of them need to exist. A file that is neither data nor `.done` forms a group alone.
    """
    data = ended_by(path) or path
    if kind_of(data) is not DATA:
        return (path,)
    match = _UNIT_NAME.fullmatch(data)
    other = match and _OTHER_UNIT.get(match[2])
    if not match or not other:
        return data, done_of(data)
    sibling = match[1] + other + match[3]
    both = (sibling, data) if other in _FIRST_UNIT else (data, sibling)
    return *both, *map(done_of, both)


def is_table(path: bytes) -> bool:
    """Return True if the file is one of the small ones that are needed to read data logs."""
    return _TABLE.fullmatch(path) is not None


def tables_of(path: bytes) -> tuple[bytes, ...]:
    """Return the small files that are needed to read the data log at `path`; not all need to exist."""
    is_of_calls = path.partition(b".")[0].lower().endswith(_CALLS)
    # The last three numbers belong to the inference; the part before them is the same for all of a model.
    head = path if is_of_calls else path.rsplit(b".", 3)[0]
    _, device, model = (*head.split(b".", 2), b"", b"")[:3]
    # After the name follow the stream, which some boards omit, and the model's id (the-format.md 2.1).
    name, *stream, model_id = model.rsplit(b".", 2) if b"." in model else (model, b"")
    if stream and stream[0].isdigit() and not is_of_calls:
        model = name + b"." + model_id
    own = _in_data(model)
    return b"simulated", b"info.json." + device, own + b".net.info", own + b".layer.info"


@lru_cache(REMEMBERED_NAMES)
def done_length(data_path: bytes, text: bytes) -> int | None:
    """Return the `file_len` of a complete `.done` of the data log at `data_path`, else None.

    A complete one has all expected keys, each with an integer. Other lines are ignored: aicore may end in
    `online_batch_num:4,2`. The length may be larger than the file, and negative (the-format.md 1).
    """
    prefix = _base_name(data_path).partition(b".")[0].lower()
    found = dict(_DONE_LINE.findall(text))
    # Digits beyond these only make a number larger than any file, and Python limits the digits that `int` accepts.
    return int(found[b"file_len"][:_DIGITS]) if found.keys() >= _DONE_KEYS[prefix] else None


def api_model(path: bytes) -> bytes | None:
    """Return `<name>.<model id>` of an acl_api data log, else None."""
    match = _API_NAME.fullmatch(_base_name(path))
    return match.group(1) if match else None


def _profiled_model(path: bytes) -> bytes | None:
    """Return `<name>.<model id>` of a `.net.info`, which only models built for profiling have; else None."""
    match = _NET_INFO_NAME.fullmatch(_base_name(path))
    return match.group(1) if match else None


class JobSource(Source):
    """Source of JOB directories."""

    name = "job"
    directories = (b"", DATA_DIRECTORY)
    inference_logs = 4  # the data of two units, and their `.done`s

    def is_collection(self, name: bytes) -> bool:
        """Return True for `JOB` and 29 letters."""
        return _JOB_NAME.fullmatch(name) is not None

    def kind(self, path: bytes) -> LogMode:
        """Return DATA for records, SNAPSHOT for every other file."""
        return kind_of(path)

    def is_early(self, path: bytes) -> bool:
        """Return True for the tables, and for unknown files."""
        return not path.endswith(DONE_SUFFIX) and kind_of(path) is SNAPSHOT

    def end_of(self, path: bytes) -> bytes | None:
        """Return the path of its `.done`."""
        return done_of(path)

    def ended_by(self, path: bytes) -> bytes | None:
        """Return the data log whose `.done` this is."""
        return ended_by(path)

    def end_length(self, path: bytes, text: bytes) -> int | None:
        """Return the `file_len` of a complete `.done`."""
        return done_length(path, text)

    def part(self, path: bytes) -> LogPart | None:
        """Return the part by name and directory; None for a file that the runtime does not write."""
        directory, _, name = path.rpartition(b"/")
        if is_table(path):
            return LogPart.TABLE
        if directory != DATA_DIRECTORY:
            return None
        data = ended_by(name) or name
        if kind_of(data) is DATA:
            return LogPart.WORK if api_model(data) is None else LogPart.CALLS
        return LogPart.WORK if _CONTINUATION.fullmatch(name) else None

    def announced_before(self, path: bytes) -> tuple[bytes, ...]:
        """Return the tables of a data log."""
        return tables_of(path) if kind_of(path) is DATA else ()

    def announced_together(self, path: bytes) -> tuple[bytes, ...]:
        """Return the logs of the inference."""
        return group_of(path)

    def has_ended(self, files: OpenCollection) -> Iterator[bool | None]:
        """Yield None for each name, then True if the JOB has ended, or False as soon as a log has no valid `.done`.

        At least one model's acl_api must have its `.done`. Logs that are waited for are the acl_api of each model built
        for profiling, and every log that has data: empty files are not waited for.
        """
        profiled = set()
        interfaces = []
        for name in _names(files):
            profiled.add(_profiled_model(name))
            if api_model(name) is not None:
                interfaces.append(name)
            yield None
        # All names are known now: a model's tables may have come after its acl_api.
        ended = [name for name in interfaces if files.announced_length(self, _in_data(name)) is not None]
        if not ended or any(api_model(name) in profiled for name in set(interfaces) - set(ended)):
            yield False
        for name in _names(files):
            yield False if kind_of(name) is DATA and self._is_waited_for(files, _in_data(name)) else None
        yield True

    def _is_waited_for(self, files: OpenCollection, path: bytes) -> bool:
        try:
            return files.announced_length(self, path) is None and files.status(path).st_size > 0
        except (Gone, NotAFile, Unreadable):
            return False


def _names(files: OpenCollection) -> Iterator[bytes]:
    with os.scandir(files.directory(DATA_DIRECTORY)) as entries:
        for entry in entries:
            yield os.fsencode(entry.name)
