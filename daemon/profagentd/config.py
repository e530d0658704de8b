"""What the daemon is told to do: by a TOML file, and by its arguments, which win."""

from __future__ import annotations

import ipaddress
import math
import os
import re
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Callable

from profagentd.errors import DaemonError
from profagentd.filesystems import is_remote
from profagentd.retention import Policy, Retain

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_DEPTH = 16
MAX_CONSUMERS = 16
POLICIES = tuple(policy.name.lower() for policy in Retain)
LOG_LEVELS = ("debug", "info", "warning", "error")
_ADDRESS = re.compile(r"(?P<host>\[[^\]]+\]|[^:\[\]]+):(?P<port>\d{1,5})")
_MAX_PORT = 65535
_TLS_FILES = ("tls_cert", "tls_key", "tls_ca")
_TLS_HINT = (
    "name what `profagent keys issue board` has made: --tls-cert, --tls-key, --tls-ca; or listen on 127.0.0.1 and use a"
    " tunnel: ssh -L 50151:127.0.0.1:50151 BOARD; --insecure lets anybody in"
)
_CONSUMER = re.compile(r"[A-Za-z0-9._-]{1,64}")
_SIZE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)(%|[kMGT]?B)")
_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_RETENTION_KEYS = {
    Retain.KEEP: frozenset[str](),
    Retain.DELIVERED: frozenset(("retain_for",)),
    Retain.MIN_FREE: frozenset(("retain_for", "min_free", "delete_undelivered")),
}
_HINTS = {
    "retain_for": "retain = delivered",
    "min_free": "retain = min_free",
    "delete_undelivered": "retain = min_free",
}


@dataclass(frozen=True)
class DaemonConfig:
    """A daemon's settings; the names are the keys of the TOML file."""

    roots: tuple[str, ...] = ()
    listen: str = "127.0.0.1:50151"
    quiet_after_s: float = 60.0
    depth: int = 4
    scan: bool = False
    log_level: str = "info"
    acl_json: tuple[str, ...] = ()
    identity: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_ca: str = ""
    tls_revoked: str = ""
    insecure: bool = False
    retain: str = "keep"
    retain_for: tuple[str, ...] = ()
    min_free: str = ""
    delete_undelivered: bool = False
    state: str = ""

    @property
    def has_tls(self) -> bool:
        """Whether the listener is one of mutual TLS."""
        return bool(self.tls_cert)

    @property
    def is_open(self) -> bool:
        """Whether others can reach the listener, and it demands no certificate of them."""
        return not self.has_tls and not _is_local(self.listen)


def configure(path: Path | None, arguments: Mapping[str, Any]) -> DaemonConfig:
    """The settings of the file at `path`, if any, and over them those arguments that are not None. DaemonError."""
    config = read_file(path) if path else DaemonConfig()
    given = {key: value for key, value in arguments.items() if value is not None}
    config = replace(config, **_checked(given, "the arguments"))
    _check_listener(config)
    policy_of(config)
    return config


def policy_of(config: DaemonConfig) -> Policy:
    """What is deleted, and when. DaemonError for settings that contradict each other."""
    retain = Retain[config.retain.upper()]
    given = [key for key in ("retain_for", "min_free", "delete_undelivered") if getattr(config, key)]
    unused = [key for key in given if key not in _RETENTION_KEYS[retain]]
    if unused:
        raise DaemonError(
            f"{unused[0]} is of no use with retain = {config.retain}",
            hint=f"leave it out, or choose {_HINTS[unused[0]]}",
        )
    if retain is Retain.MIN_FREE and not config.min_free:
        raise DaemonError("retain = min_free without min_free", hint="say how much, e.g. min_free = '200MB' or '10%'")
    if retain is not Retain.KEEP and not (config.retain_for or config.delete_undelivered):
        raise DaemonError(
            f"retain = {config.retain} without retain_for: nothing would ever be delivered",
            hint="name the consumers that must have a log before it goes, e.g. retain_for = ['record-HOSTNAME']",
        )
    size_bytes, share = _size(config.min_free) if config.min_free else (0, 0.0)
    return Policy(retain, config.retain_for, size_bytes, share, config.delete_undelivered)


def read_file(path: Path) -> DaemonConfig:
    """The settings in a TOML file. DaemonError names the file and the key."""
    try:
        settings = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise DaemonError(f"{path}: {error.strerror}", hint="name a file that can be read with --config") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DaemonError(f"{path}: {error}", hint="write it as TOML, e.g. roots = ['/opt/app']") from error
    return DaemonConfig(**_checked(settings, str(path)))


def real_roots(roots: tuple[str, ...]) -> list[bytes]:
    """The roots as absolute paths without links; they need not exist yet. DaemonError when one lies in another."""
    if not roots:
        raise DaemonError("no root is given", hint="name the directories that hold JOBs: --root DIR")
    found = [_real(os.fsencode(os.path.abspath(root))) for root in roots]
    for root, upper in ((root, upper) for root in found for upper in found if root is not upper):
        if root == upper or root.startswith(os.path.join(upper, b"")):
            raise DaemonError(
                f"root {os.fsdecode(root)} lies in root {os.fsdecode(upper)}",
                hint="name only the upper one, and look deeper with --depth",
            )
    return found


def _real(root: bytes) -> bytes:
    """The path without links; a network's file system is not asked, it may not answer."""
    return root if is_remote(root) else os.path.realpath(root)


def _checked(settings: Mapping[str, Any], source: str) -> dict[str, Any]:
    for key, value in settings.items():
        if key not in _RULES:
            raise DaemonError(f"{source}: unknown key '{key}'", hint=f"the keys are {', '.join(_RULES)}")
        is_right, rule = _RULES[key]
        if not is_right(value):
            raise DaemonError(f"{source}: {key} = {value!r}", hint=f"{key} is {rule}")
    return {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}


def _check_listener(config: DaemonConfig) -> None:
    missing = [key for key in _TLS_FILES if not getattr(config, key)]
    if missing and (len(missing) < len(_TLS_FILES) or config.tls_revoked):
        raise DaemonError(
            f"TLS without {' and '.join(missing)}",
            hint="TLS needs tls_cert, tls_key and tls_ca; tls_revoked is optional",
        )
    if config.has_tls and config.insecure:
        raise DaemonError("TLS and --insecure exclude each other", hint="leave one of them out")
    if config.has_tls and config.listen.startswith("unix:"):
        raise DaemonError("a Unix socket has no TLS", hint="its file's mode says who may connect; leave tls_… out")
    if config.is_open and not config.insecure:
        raise DaemonError(f"{config.listen} can be reached from outside, which needs TLS", hint=_TLS_HINT)


def _is_local(listen: str) -> bool:
    if listen.startswith("unix:"):
        return True
    match = _ADDRESS.fullmatch(listen)
    assert match is not None, "the rule for `listen` was checked"
    host = match.group("host").strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_address(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    match = _ADDRESS.fullmatch(value)
    return value.startswith("unix:") or (match is not None and int(match.group("port")) <= _MAX_PORT)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_identity(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,64}", value) is not None


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
    size_bytes, share = _size(value)
    return size_bytes > 0 or 0 < share < 1


def _size(text: str) -> tuple[int, float]:
    """Bytes of `200MB`, or the share of `10%`."""
    match = _SIZE.fullmatch(text)
    assert match is not None, "the rule for `min_free` was checked"
    number, unit = float(match.group(1)), match.group(2)
    return (0, number / 100) if unit == "%" else (int(number * _UNITS[unit]), 0.0)


_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "roots": (_is_texts, "a list of directories"),
    "listen": (_is_address, "HOST:PORT, or unix:PATH"),
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
    "state": (lambda value: isinstance(value, str) and value.startswith("/"), "an absolute path of a directory"),
    "log_level": (lambda value: value in LOG_LEVELS, f"one of {', '.join(LOG_LEVELS)}"),
    "identity": (_is_identity, "1 to 64 letters, digits, `-` and `_`, e.g. a UUID"),
    "tls_cert": (_is_text, "a PEM file: this board's certificate"),
    "tls_key": (_is_text, "a PEM file: the certificate's key"),
    "tls_ca": (_is_text, "a PEM file: the authority that issued the hosts' certificates"),
    "tls_revoked": (_is_text, "a file with the fingerprint of a revoked certificate a line"),
    "insecure": (_is_truth, "true or false"),
}
