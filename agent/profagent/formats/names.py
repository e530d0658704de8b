"""Meaning of a file in a JOB directory, from its name alone (the-format.md 2.1)."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from profagent.limits import REMEMBERED_NAMES

JOB_NAME = re.compile(r"JOB[A-Z]{29}")
COLLECTION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
# The only device that the runtime records.
DEVICE_INFO = "info.json.0"
# The simulated board puts this file into the JOBs that it makes; the runtime never does.
SIMULATED_MARKER = "simulated"
DONE_SUFFIX = ".done"
U16_MAX = 2**16 - 1
U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1
U64_DIGITS = 20
# Code points by which os.fsdecode represents the bytes 0x80 to 0xFF that are not UTF-8.
ESCAPED_BYTES = range(0xDC80, 0xDD00)

_N = r"(?P<{}>0|[1-9][0-9]*)".format
_MODEL = r"(?P<model>[^/\0]*{})".format
_PICTURES = rf"{_N('model_id')}\.{_N('batch_num')}\.{_N('input_pic_num')}\.{_N('current_pic_count')}"
# The model's name takes as little as it can, so of five trailing numbers the first is the stream.
_OF_INFERENCE = rf"{_N('device')}\.{_MODEL('?')}(?:\.{_N('stream')})?\.{_PICTURES}"
_OF_MODEL = rf"{_N('device')}\.{_MODEL('')}\.{_N('model_id')}"


def model_text(name: str, model_id: int) -> str:
    """Return a model as `yolov5s.0`, or the name alone for operators that were called without a model."""
    return name if model_id == U32_MAX else f"{name}.{model_id}"


class LogKind(StrEnum):
    """Content of a log; a `.done` has the kind of the data that it completes."""

    AICORE = "aicore"
    AICPU = "aicpu"
    ACL_API = "acl_api"
    CONT = "cont"
    NET_INFO = "net_info"
    LAYER_INFO = "layer_info"
    INFO_JSON = "info_json"


class InferenceKey(NamedTuple):
    """Fields that the logs of one inference share; `stream` is None where the names carry none."""

    device: int
    model: str
    model_id: int
    stream: int | None
    batch_num: int
    input_pic_num: int
    current_pic_count: int


_UNIT = re.compile(r"data/(a[ai](?:core|cpu))(?=\.)", re.IGNORECASE)
_FIELD_MAX = {"stream": U16_MAX, "current_pic_count": U64_MAX}
_PATTERNS = tuple(
    (re.compile(pattern, re.ASCII), kind)
    for pattern, kind in (
        (rf"data/(?i:a[ai]core)\.{_OF_INFERENCE}", LogKind.AICORE),
        (rf"data/(?i:a[ai]cpu)\.{_OF_INFERENCE}", LogKind.AICPU),
        (rf"data/(?i:acl_api|aclmodule)\.{_OF_MODEL}", LogKind.ACL_API),
        (rf"data/(?i:cont)\.{_N('device')}\.{_MODEL('')}\.{_PICTURES}", LogKind.CONT),
        (rf"data/{_MODEL('')}\.{_N('model_id')}\.net\.info", LogKind.NET_INFO),
        (rf"data/{_MODEL('')}\.{_N('model_id')}\.layer\.info", LogKind.LAYER_INFO),
        (rf"(?i:info\.json)\.{_N('device')}", LogKind.INFO_JSON),
    )
)


_DATA = frozenset({LogKind.AICORE, LogKind.AICPU, LogKind.ACL_API})


class LogName(Struct, frozen=True):
    """Fields of a log's name; None where its kind has no such field. An empty model name is legal.

    `is_data`: the log holds records, and only grows.
    """

    kind: LogKind
    is_done: bool = False
    device: int | None = None
    model: str | None = None
    model_id: int | None = None
    stream: int | None = None
    batch_num: int | None = None
    input_pic_num: int | None = None
    current_pic_count: int | None = None
    is_data: bool = False

    @property
    def inference(self) -> InferenceKey | None:
        """Inference to which the log belongs; None for logs of a model or of the whole JOB."""
        return _inference_of(self)


# Cached, because it is needed many times while a log comes.
@lru_cache(REMEMBERED_NAMES)
def _inference_of(name: LogName) -> InferenceKey | None:
    if name.device is None or name.model is None or name.model_id is None:
        return None
    if name.batch_num is None or name.input_pic_num is None or name.current_pic_count is None:
        return None
    pictures = (name.batch_num, name.input_pic_num, name.current_pic_count)
    return InferenceKey(name.device, name.model, name.model_id, name.stream, *pictures)


def is_collection_name(name: str) -> bool:
    """Return True if a board may give a directory of logs this name: it becomes one in the mirror."""
    return COLLECTION_NAME.fullmatch(name) is not None


def is_job_name(name: str) -> bool:
    """Return True if a directory's name is that of a JOB (the-format.md 1)."""
    return JOB_NAME.fullmatch(name) is not None


@lru_cache(REMEMBERED_NAMES)
def parse_log_name(path: str) -> LogName | None:
    """Return the fields of a path relative to its JOB, as `os.fsdecode` gives it; None for a foreign file.

    Both generations of names are read, the prefix in any case, with or without <stream>. A model's name that ends in a
    number before four trailing numbers cannot be told from a stream: five trailing numbers hold a stream.
    """
    if path.endswith(DONE_SUFFIX):
        data = parse_log_name(path.removesuffix(DONE_SUFFIX))
        return replace(data, is_done=True, is_data=False) if data is not None and data.is_data else None
    for pattern, kind in _PATTERNS:
        if match := pattern.fullmatch(path):
            return _read(kind, match.groupdict())
    return None


@lru_cache(REMEMBERED_NAMES)
def split_unit(path: str) -> tuple[str, str]:
    """Return the spelling of the unit in an inference's log path, and the rest, which both units share.

    A JOB may mix spellings: only the kind of a log determines its unit.
    """
    found = _UNIT.match(path)
    assert found is not None, "it is a log of an inference"
    return found[1], path[found.end() :]


@lru_cache(REMEMBERED_NAMES)
def joined_unit(spelling: str, rest: str) -> str:
    """Return the path that `split_unit` split."""
    return f"data/{spelling}{rest}"


def display_text(name: str) -> str:
    r"""Return a name for people and text files: valid UTF-8, with `\xff` for stray bytes and control characters."""
    return name if name.isprintable() else "".join(map(_displayed, name))


def _displayed(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    if code in ESCAPED_BYTES:
        return f"\\x{code - ESCAPED_BYTES.start + 0x80:02x}"
    return character.encode("unicode_escape").decode("ascii")


def _read(kind: LogKind, fields: dict[str, str | None]) -> LogName | None:
    model = fields.pop("model", None)
    numbers: dict[str, int] = {}
    for field, digits in fields.items():
        if digits is not None:
            # Long runs of digits are not converted: they are beyond any bound.
            numbers[field] = number = int(digits) if len(digits) <= U64_DIGITS else U64_MAX + 1
            if number > _FIELD_MAX.get(field, U32_MAX):
                return None
    return LogName(kind, is_done=False, model=model, is_data=kind in _DATA, **numbers)
