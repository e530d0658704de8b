"""What a key of the configuration may be, each for itself."""

from __future__ import annotations

import math
import os
import re
from typing import TYPE_CHECKING, Any, Callable

from profagentd.mistakes import Mistake
from profagentd.retention import Retain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagentd.settings import Settings

MAX_DEPTH = 16
MAX_CONSUMERS = 16
POLICIES = tuple(policy.name.lower() for policy in Retain)
LOG_LEVELS = ("debug", "info", "warning", "error")
ADDRESS = re.compile(r"(?P<host>\[[^\]]+\]|[^:\[\]]+):(?P<port>\d{1,5})")
_MAX_PORT = 65535
_UNIX = "unix:"
# The kernel's sun_path, without the zero at its end.
_PATH_BYTES = 107
_CONSUMER = re.compile(r"[A-Za-z0-9._-]{1,64}")
_SIZE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)(%|[kMGT]?B)")
_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def mistakes_of(settings: Settings) -> Iterator[tuple[str, Mistake]]:
    """Keys that are not known, or have a value that makes no sense, each with what is wrong."""
    for key, value in settings.values.items():
        if key not in _RULES:
            yield key, Mistake(settings.places[key], f"unknown key '{key}'", f"the keys are {', '.join(_RULES)}")
        elif _has_nul(value) or not _RULES[key][0](value):
            yield key, Mistake(settings.places[key], f"{key} = {value!r}", f"{key} is {_RULES[key][1]}")


def size_of(text: str) -> tuple[int, float]:
    """Bytes of `200MB`, or the share of `10%`."""
    match = _SIZE.fullmatch(text)
    assert match is not None, "the rule for `min_free` was checked"
    number, unit = float(match.group(1)), match.group(2)
    return (0, number / 100) if unit == "%" else (int(number * _UNITS[unit]), 0.0)


def texts_of(value: Any) -> tuple[str, ...]:
    """What may be a path of a value that should be a list of such."""
    texts = value if isinstance(value, list) else ()
    return tuple(each for each in texts if isinstance(each, str) and each and not _has_nul(each))


def _has_nul(value: Any) -> bool:
    texts = value if isinstance(value, (list, tuple)) else (value,)
    return any(isinstance(each, str) and "\0" in each for each in texts)


def _is_address(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    if value.startswith(_UNIX):
        return 0 < len(os.fsencode(value[len(_UNIX) :])) <= _PATH_BYTES
    match = ADDRESS.fullmatch(value)
    return match is not None and int(match.group("port")) <= _MAX_PORT


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_identity(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,64}", value) is not None


def _is_directory(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("/")


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool)


def _is_texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(each, str) and each for each in value)


def _is_seconds(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf


def _is_depth(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_DEPTH


def _is_consumers(value: Any) -> bool:
    if not isinstance(value, (list, tuple)) or len(value) > MAX_CONSUMERS:
        return False
    return all(isinstance(each, str) and _CONSUMER.fullmatch(each) for each in value) and len(set(value)) == len(value)


def _is_size(value: Any) -> bool:
    if not isinstance(value, str) or not _SIZE.fullmatch(value):
        return False
    size_bytes, share = size_of(value)
    return size_bytes > 0 or 0 < share < 1


_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "roots": (_is_texts, "a list of directories"),
    "roots_d": (_is_directory, "an absolute path of a directory with files *.conf"),
    "listen": (_is_address, f"HOST:PORT, or unix:PATH with a PATH of at most {_PATH_BYTES} bytes"),
    "quiet_after_s": (_is_seconds, "a number of seconds above 0"),
    "depth": (_is_depth, f"a number of levels from 1 to {MAX_DEPTH}"),
    "scan": (_is_truth, "true or false"),
    "acl_json": (_is_texts, "a list of files, or of patterns of files"),
    "retain": (lambda value: value in POLICIES, f"one of {', '.join(POLICIES)}"),
    "retain_for": (
        _is_consumers,
        f"a list of at most {MAX_CONSUMERS} different names, each 1 to 64 of A-Z a-z 0-9 . _ -",
    ),
    "min_free": (_is_size, "a text like '200MB', '1.5GB' or '10%'"),
    "delete_undelivered": (_is_truth, "true or false"),
    "state": (_is_directory, "an absolute path of a directory"),
    "log_level": (lambda value: value in LOG_LEVELS, f"one of {', '.join(LOG_LEVELS)}"),
    "identity": (_is_identity, "1 to 64 letters, digits, `-` and `_`, e.g. a UUID"),
    "tls_cert": (_is_text, "a PEM file: this board's certificate"),
    "tls_key": (_is_text, "a PEM file: the certificate's key"),
    "tls_ca": (_is_text, "a PEM file: the authority that issued the hosts' certificates"),
    "tls_revoked": (_is_text, "a file with the fingerprint of a revoked certificate a line"),
    "insecure": (_is_truth, "true or false"),
}
