"""Which file of a JOB directory is which log, by its name, and when a `.done` is whole (format page 2.1, 2.2)."""

from __future__ import annotations

import enum
import re
from functools import lru_cache

DATA_DIRECTORY = b"data"
DONE_SUFFIX = b".done"

_DATA_NAME = re.compile(rb"(aicore|aacore|aicpu|aacpu|acl_api|aclmodule)\.\d+\..*\d", re.IGNORECASE | re.DOTALL)
_NET_INFO_NAME = re.compile(rb"(.*\.\d+)\.net\.info", re.DOTALL)
_DONE_LINE = re.compile(rb"^([a-z_]+):[ \t]*(-?[0-9]+)[ \t\r]*$", re.MULTILINE)
# The clock's file, the mark of the simulated board, and what a model is made of.
_TABLE = re.compile(rb"simulated|info\.json\.\d+|data/.*\.\d+\.(net|layer)\.info", re.DOTALL)
_UNIT_NAME = re.compile(rb"((?:.*/)?(?:ai|aa))(core|cpu)(\..*)", re.IGNORECASE | re.DOTALL)
_FIRST_UNIT = (b"core", b"CORE")
_CALLS = (b"acl_api", b"aclmodule")
_OTHER_UNIT = {b"core": b"cpu", b"cpu": b"core", b"CORE": b"CPU", b"CPU": b"CORE"}
_API_NAME = re.compile(rb"(?:acl_api|aclmodule)\.\d+\.(.*\.\d+)", re.IGNORECASE | re.DOTALL)

# Each name is asked about several times within a moment.
_REMEMBERED = 512

_DIGITS = 20
_EVERY_DONE = frozenset((b"file_len", b"start_time", b"end_time"))
_DONE_KEYS = {
    b"aicore": _EVERY_DONE | {b"cache_hit", b"cache_mis"},
    b"aacore": _EVERY_DONE | {b"cache_hit", b"cache_mis"},
    b"aicpu": _EVERY_DONE,
    b"aacpu": _EVERY_DONE,
    b"acl_api": _EVERY_DONE | {b"pid", b"tid"},
    b"aclmodule": _EVERY_DONE | {b"pid", b"tid"},
}


class LogKind(enum.IntEnum):
    """How a log is written; the numbers are the wire's."""

    DATA = 1  # it grows at its end
    SNAPSHOT = 2  # it is rewritten whole


# Looking up an enum's member takes ten times as long as a name, which shows where it is done for every file.
DATA, SNAPSHOT = LogKind


@lru_cache(_REMEMBERED)
def kind_of(path: bytes) -> LogKind:
    """The kind of the log at `path` inside a JOB directory; what is not known to grow is a snapshot."""
    return DATA if _DATA_NAME.fullmatch(base_name(path)) else SNAPSHOT


def base_name(path: bytes) -> bytes:
    """The last component of `path`."""
    return path.rpartition(b"/")[2]


def done_of(path: bytes) -> bytes:
    """The path of the `.done` that ends the data log at `path`."""
    return path + DONE_SUFFIX


@lru_cache(_REMEMBERED)
def ended_by(path: bytes) -> bytes | None:
    """The data log that the file at `path` is the `.done` of, or None when it is something else."""
    if not path.endswith(DONE_SUFFIX):
        return None
    data = path[: -len(DONE_SUFFIX)]
    return data if kind_of(data) is DATA else None


@lru_cache(_REMEMBERED)
def group_of(path: bytes) -> tuple[bytes, ...]:
    """The files of one inference, or of one log, that at `path` among them: data of both units, then their `.done`s.

    Not all of them need to stand. What is no data and no `.done` is alone.
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
    """Whether it is one of the small files with which data are read."""
    return _TABLE.fullmatch(path) is not None


def tables_of(path: bytes) -> tuple[bytes, ...]:
    """The small files with which the data log at `path` is read; not all of them need to stand."""
    is_of_calls = path.partition(b".")[0].lower().endswith(_CALLS)
    # The last three numbers are an inference's own: what is before them comes again with each.
    return _tables(path if is_of_calls else path.rsplit(b".", 3)[0], is_of_calls)


@lru_cache(_REMEMBERED)
def _tables(head: bytes, is_of_calls: bool) -> tuple[bytes, ...]:
    _, device, model = (*head.split(b".", 2), b"", b"")[:3]
    # After the name come the stream, which not all boards have, and the model's id (format page 2.1).
    name, *stream, model_id = model.rsplit(b".", 2) if b"." in model else (model, b"")
    if stream and stream[0].isdigit() and not is_of_calls:
        model = name + b"." + model_id
    own = DATA_DIRECTORY + b"/" + model
    return b"simulated", b"info.json." + device, own + b".net.info", own + b".layer.info"


@lru_cache(_REMEMBERED)
def done_length(data_path: bytes, text: bytes) -> int | None:
    """The bytes that a whole `.done` of the data log at `data_path` tells of: all expected keys, each with an integer.

    None for another text. A line that is not `key:integer` is passed over: aicore may end in `online_batch_num:4,2`.
    The figure may be larger than the file, and negative (format page 1).
    """
    prefix = base_name(data_path).partition(b".")[0].lower()
    found = dict(_DONE_LINE.findall(text))
    # A number of more digits is larger than any file, and may be too large for `int`.
    return int(found[b"file_len"][:_DIGITS]) if found.keys() >= _DONE_KEYS[prefix] else None


def api_model(path: bytes) -> bytes | None:
    """`<name>.<model id>` of an acl_api data log, else None."""
    match = _API_NAME.fullmatch(base_name(path))
    return match.group(1) if match else None


def profiled_model(path: bytes) -> bytes | None:
    """`<name>.<model id>` of a `.net.info`, which only models built for profiling have; else None."""
    match = _NET_INFO_NAME.fullmatch(base_name(path))
    return match.group(1) if match else None
