"""The daemon's settings: from a TOML file, from files that name roots, and from the arguments, which win."""

from __future__ import annotations

import ipaddress
import itertools
import math
import os
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from profagentd.errors import DaemonError
from profagentd.limits import MAX_CONSUMERS, MAX_DEPTH, MAX_HZ, MAX_SUBSCRIPTIONS
from profagentd.retention.policy import Policy, Retain
from profagentd.sources.files import is_remote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


ARGUMENTS = "the arguments"
POLICIES = tuple(policy.name.lower() for policy in Retain)
LOG_LEVELS = ("debug", "info", "warning", "error")
# Kinds of spools, which the daemon writes itself.
SPOOLS = ("ops", "marks", "metrics")
LEAST_CAP_BYTES = 10**6
TLS_FILES = ("tls_cert", "tls_key", "tls_ca")

_UNIX = "unix:"
_MAX_PORT = 65535
# The kernel's sun_path, without the zero at its end.
_PATH_BYTES = 107
_ADDRESS = re.compile(r"(?P<host>\[[^\]]+\]|[^:\[\]]+):(?P<port>\d{1,5})")
_SIZE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)(%|[kMGT]?B)")
_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@dataclass(frozen=True)
class DaemonConfig:
    """Settings of a daemon, named as in the TOML file. `roots` includes those of `roots_d`."""

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
    spools: tuple[str, ...] = SPOOLS
    spool_dir: str = ""
    spool_cap: str = "64MB"
    run: str = ""
    subscriptions: tuple[str, ...] = ("program",)
    metrics_hz: float = 1.0
    roots_d: str = ""

    @property
    def state_directory(self) -> str:
        """Directory of what must survive a restart: losses and deliveries."""
        return self.state or "/var/lib/profagentd"

    @property
    def run_directory(self) -> str:
        """Directory of the FIFOs and the socket that programs write to."""
        return self.run or "/run/profagent"

    @property
    def spool_directory(self) -> str:
        """Directory of the spools."""
        return self.spool_dir or os.path.join(self.state_directory, "spool")

    @property
    def spool_cap_bytes(self) -> int:
        """Bytes that each kind of spool may hold."""
        return _size_of(self.spool_cap)[0]

    @property
    def has_tls(self) -> bool:
        """True if the listener demands mutual TLS."""
        return bool(self.tls_cert)

    @property
    def is_open(self) -> bool:
        """True if other machines can reach the listener and it demands no certificate."""
        return not self.has_tls and not _is_local(self.listen)

    @property
    def policy(self) -> Policy:
        """Retention policy that the settings describe."""
        size_bytes, share = _size_of(self.min_free) if self.min_free else (0, 0.0)
        return Policy(Retain[self.retain.upper()], self.retain_for, size_bytes, share, self.delete_undelivered)


@dataclass(frozen=True)
class ExaminedConfig:
    """Settings with every mistake in them. After a mistake in a value, `config` holds the defaults.

    `places` names the file, or the arguments, that each key comes from.
    """

    config: DaemonConfig
    mistakes: list[DaemonError]
    places: Mapping[str, str]


def examine(path: Path | None, arguments: Mapping[str, Any], *, needs_root: bool = False) -> ExaminedConfig:
    """Return the settings of the file at `path`, if any, overridden by those arguments that are not None."""
    present = {key: value for key, value in arguments.items() if value is not None}
    try:
        from_file = _read(path) if path else {}
    except DaemonError as error:
        return ExaminedConfig(DaemonConfig(), [error], {})
    places = {**dict.fromkeys(from_file, str(path)), **dict.fromkeys(present, ARGUMENTS)}
    values: dict[str, Any] = {
        key: tuple(each) if isinstance(each, list) else each for key, each in {**from_file, **present}.items()
    }
    mistakes = [error for key, value in values.items() for error in _value_mistakes(key, value, places[key])]
    if mistakes:
        return ExaminedConfig(DaemonConfig(), mistakes, places)
    config = DaemonConfig(**values)
    mistakes = [_mistake(places.get(key, ARGUMENTS), f"{key}: {text}", hint) for key, text, hint in _clashes(config)]
    if needs_root and not config.roots and not config.roots_d:
        hint = "name the directories that hold JOBs: --root DIR, or roots = ['DIR']"
        mistakes.append(_mistake(str(path or ARGUMENTS), "roots: no root is given", hint))
    roots = _roots(config, places, mistakes)
    return ExaminedConfig(replace(config, roots=roots), mistakes, places)


def real_root(root: str) -> bytes:
    """Return the absolute path without links. A network file system is not asked, as it may hang."""
    path = os.fsencode(os.path.abspath(root))
    return path if is_remote(path) else os.path.realpath(path)


def do_overlap(one: bytes, other: bytes) -> bool:
    """Return True if two real paths are the same, or one lies in the other."""
    upper, lower = sorted((os.path.join(one, b""), os.path.join(other, b"")), key=len)
    return lower.startswith(upper)


def _mistake(place: str, text: str, hint: str) -> DaemonError:
    return DaemonError(f"{place}: {text}", hint=hint)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise _mistake(str(path), str(error.strerror), "name a file that can be read with --config") from error
    except (ValueError, RecursionError) as error:  # it is not UTF-8, or not TOML
        raise _mistake(str(path), str(error), "write it as TOML, e.g. roots = ['/opt/app']") from error


def _value_mistakes(key: str, value: Any, place: str) -> Iterator[DaemonError]:
    if key not in _RULES:
        yield _mistake(place, f"unknown key '{key}'", f"the keys are {', '.join(_RULES)}")
    elif not _RULES[key][0](value):
        shown = list(value) if isinstance(value, tuple) else value
        yield _mistake(place, f"{key} = {shown!r}", f"{key} is {_RULES[key][1]}")


# Rules for single values

_Rule = Callable[[Any], bool]


def _text(pattern: str) -> _Rule:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value, re.DOTALL) is not None


def _texts(pattern: str, most: int = sys.maxsize) -> _Rule:
    return lambda value: isinstance(value, tuple) and len(value) <= most and all(map(_text(pattern), value))


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool)


def _is_seconds(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf


def _is_depth(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_DEPTH


def _is_address(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    if value.startswith(_UNIX):
        return 0 < len(os.fsencode(value[len(_UNIX) :])) <= _PATH_BYTES
    match = _ADDRESS.fullmatch(value)
    return match is not None and int(match.group("port")) <= _MAX_PORT


def _is_size(value: Any) -> bool:
    if not isinstance(value, str) or not _SIZE.fullmatch(value):
        return False
    size_bytes, share = _size_of(value)
    return size_bytes > 0 or 0 < share < 1


def _is_cap(value: Any) -> bool:
    return _is_size(value) and _size_of(value)[0] >= LEAST_CAP_BYTES


def _is_hz(value: Any) -> bool:
    return _is_seconds(value) and value <= MAX_HZ


def _size_of(text: str) -> tuple[int, float]:
    """Return the bytes of `200MB` and 0, or 0 and the share of `10%`."""
    match = _SIZE.fullmatch(text)
    assert match is not None, "the rule for `min_free` was checked"
    number, unit = float(match.group(1)), match.group(2)
    return (0, number / 100) if unit == "%" else (int(number * _UNITS[unit]), 0.0)


_RULES: dict[str, tuple[_Rule, str]] = {
    "roots": (_texts(".+"), "a list of directories"),
    "roots_d": (_text("/.*"), "an absolute path of a directory with files *.conf"),
    "listen": (_is_address, f"HOST:PORT, or unix:PATH with a PATH of at most {_PATH_BYTES} bytes"),
    "quiet_after_s": (_is_seconds, "a number of seconds above 0"),
    "depth": (_is_depth, f"a number of levels from 1 to {MAX_DEPTH}"),
    "scan": (_is_truth, "true or false"),
    "acl_json": (_texts(".+"), "a list of files, or of patterns of files"),
    "retain": (_text("|".join(POLICIES)), f"one of {', '.join(POLICIES)}"),
    "retain_for": (
        _texts("[A-Za-z0-9._-]{1,64}", MAX_CONSUMERS),
        f"a list of at most {MAX_CONSUMERS} names, each 1 to 64 of A-Z a-z 0-9 . _ -",
    ),
    "min_free": (_is_size, "a text like '200MB', '1.5GB' or '10%'"),
    "delete_undelivered": (_is_truth, "true or false"),
    "state": (_text("/.*"), "an absolute path of a directory"),
    "spools": (_texts("|".join(SPOOLS)), f"a list of {', '.join(SPOOLS)}; empty for none"),
    "spool_dir": (_text("/.*"), "an absolute path of a directory"),
    "spool_cap": (_is_cap, "a text like '64MB', at least 1MB"),
    "run": (_text("/.*"), "an absolute path of a directory"),
    "subscriptions": (
        _texts("[A-Za-z0-9_.]{1,64}", MAX_SUBSCRIPTIONS),
        f"a list of at most {MAX_SUBSCRIPTIONS} names, each 1 to 64 of A-Z a-z 0-9 _ .",
    ),
    "metrics_hz": (_is_hz, f"a number above 0, at most {MAX_HZ}"),
    "log_level": (_text("|".join(LOG_LEVELS)), f"one of {', '.join(LOG_LEVELS)}"),
    "identity": (_text("[A-Za-z0-9_-]{1,64}"), "1 to 64 letters, digits, `-` and `_`, e.g. a UUID"),
    "tls_cert": (_text(".*"), "a PEM file: this board's certificate"),
    "tls_key": (_text(".*"), "a PEM file: the certificate's key"),
    "tls_ca": (_text(".*"), "a PEM file: the authority that issued the hosts' certificates"),
    "tls_revoked": (_text(".*"), "a file with the fingerprint of a revoked certificate a line"),
    "insecure": (_is_truth, "true or false"),
}


# Rules for combinations

_TLS_HINT = (
    "name what `profagent keys issue board` has made: --tls-cert, --tls-key, --tls-ca; or listen on 127.0.0.1 and use a"
    " tunnel: ssh -L 50151:127.0.0.1:50151 BOARD; --insecure lets anybody in"
)


def _clashes(config: DaemonConfig) -> Iterator[tuple[str, str, str]]:
    missing = [key for key in TLS_FILES if not getattr(config, key)]
    present = [key for key in (*TLS_FILES, "tls_revoked") if getattr(config, key)]
    if missing and present:
        what = f"TLS without {' and '.join(missing)}"
        yield present[0], what, "TLS needs tls_cert, tls_key and tls_ca; tls_revoked is optional"
    elif config.has_tls and config.insecure:
        yield "insecure", "TLS and insecure cannot be given together", "give only one of them"
    elif config.has_tls and config.listen.startswith(_UNIX):
        yield "listen", "a Unix socket has no TLS", "its file's mode says who may connect; leave tls_… out"
    elif config.is_open and not config.insecure:
        yield "listen", f"{config.listen} can be reached from outside, which needs TLS", _TLS_HINT
    yield from _retention_clashes(config)


def _retention_clashes(config: DaemonConfig) -> Iterator[tuple[str, str, str]]:
    retain = config.retain
    of_use = {"retain_for": ("delivered", "min_free"), "min_free": ("min_free",), "delete_undelivered": ("min_free",)}
    for key, choices in of_use.items():
        if getattr(config, key) and retain not in choices:
            yield key, f"of no use with retain = {retain}", f"leave it out, or choose retain = {choices[0]}"
    if retain == "min_free" and not config.min_free:
        yield "retain", "it is min_free, and no min_free is given", "say how much, e.g. min_free = '200MB' or '10%'"
    if retain != "keep" and not config.retain_for and not config.delete_undelivered:
        what = f"it is {retain}, and without retain_for nothing would ever be delivered"
        hint = "name the consumers that must have a log before it goes, e.g. retain_for = ['record-HOSTNAME']"
        yield "retain", what, hint


def _is_local(listen: str) -> bool:
    host = listen.rpartition(":")[0].strip("[]")
    try:
        return listen.startswith(_UNIX) or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# Roots


def _roots(config: DaemonConfig, places: Mapping[str, str], mistakes: list[DaemonError]) -> tuple[str, ...]:
    """Return the roots of the settings and of `roots_d`; add mistakes to `mistakes`.

    Only roots of the arguments may be relative: the daemon may start in any directory.
    """
    place = places.get("roots", ARGUMENTS)
    roots = dict.fromkeys(config.roots, place)
    try:
        for root, file in _named_roots(config.roots_d):
            roots.setdefault(root, file)
    except (OSError, ValueError) as error:
        mistakes.append(_mistake(places["roots_d"], f"roots_d: {error}", "make its *.conf readable texts"))
    for root, where in roots.items():
        if where != ARGUMENTS and not root.startswith("/"):
            hint = "begin it with /: the daemon may start in any directory"
            mistakes.append(_mistake(where, f"roots: {root!r} is no absolute path", hint))
    mistakes += _overlaps(roots, config.roots)
    return tuple(roots)


def _named_roots(directory: str) -> Iterator[tuple[str, str]]:
    """Yield the roots in a directory's `*.conf`, a line each, with their files. Raises OSError and ValueError."""
    for path in sorted(Path(directory).glob("*.conf")) if directory else ():
        for line in path.read_text("utf-8").splitlines():
            if line.strip() and not line.lstrip().startswith("#"):
                yield line.strip(), str(path)


def _overlaps(roots: Mapping[str, str], named: Sequence[str]) -> Iterator[DaemonError]:
    for twice in {root for root in named if named.count(root) > 1}:
        yield _mistake(roots[twice], f"roots: {twice} is named twice", "name it once")
    # Resolved paths are compared: two names of one directory are the same root.
    for pair in itertools.combinations(((real_root(root), root) for root in roots), 2):
        (upper_path, upper), (lower_path, lower) = sorted(pair, key=lambda each: len(each[0]))
        if lower_path == upper_path:
            yield _mistake(roots[lower], f"roots: {lower} is the same directory as {upper}", "name it once")
        elif do_overlap(lower_path, upper_path):
            hint = "name only the upper one, and look deeper with --depth"
            yield _mistake(roots[lower], f"roots: {lower} lies in {upper}", hint)
