"""What the daemon is told to do: by a TOML file, by files that name roots, and by its arguments, which win."""

from __future__ import annotations

import ipaddress
import math
import os
import re
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Callable

from profagentd.errors import ARGUMENTS, Mistake, not_utf8
from profagentd.retention.policy import Policy, Retain
from profagentd.roots import overlap_mistakes, read_roots_d, relative_mistakes
from profagentd.tls_files import TlsFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Settings:
    """Values by key, and the place of each key."""

    values: dict[str, Any]
    places: dict[str, str]


def given(arguments: Mapping[str, Any]) -> Settings:
    """The arguments that are not None."""
    values = {key: value for key, value in arguments.items() if value is not None}
    return Settings(values, dict.fromkeys(values, ARGUMENTS))


def read_settings(path: Path) -> Settings | Mistake:
    """What stands in a TOML file."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        return Mistake(str(path), str(error.strerror), "name a file that can be read with --config")
    except UnicodeDecodeError as error:
        return not_utf8(path, error, "write it as UTF-8")
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return Mistake(str(path), str(error), "write it as TOML, e.g. roots = ['/opt/app']")
    return Settings(values, dict.fromkeys(values, str(path)))


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


TLS_FILES = ("tls_cert", "tls_key", "tls_ca")
_TLS_HINT = (
    "name what `profagent keys issue board` has made: --tls-cert, --tls-key, --tls-ca; or listen on 127.0.0.1 and use a"
    " tunnel: ssh -L 50151:127.0.0.1:50151 BOARD; --insecure lets anybody in"
)
_RETENTION_KEYS = {
    Retain.KEEP: frozenset[str](),
    Retain.DELIVERED: frozenset(("retain_for",)),
    Retain.MIN_FREE: frozenset(("retain_for", "min_free", "delete_undelivered")),
}
NO_ROOT = ("no root is given", "name the directories that hold JOBs: --root DIR, or roots = ['DIR']")
_NEEDED_FOR = {
    "retain_for": "retain = delivered",
    "min_free": "retain = min_free",
    "delete_undelivered": "retain = min_free",
}


@dataclass(frozen=True)
class DaemonConfig:
    """A daemon's settings; the names are the keys of the TOML file. `roots` holds those of `roots_d`, too."""

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
    roots_d: str = ""

    @property
    def is_rootless(self) -> bool:
        """Whether nothing names a root, or will."""
        return not self.roots and not self.roots_d

    @property
    def has_tls(self) -> bool:
        """Whether the listener is one of mutual TLS."""
        return bool(self.tls_cert)

    @property
    def tls_files(self) -> TlsFiles:
        """The files that it needs."""
        return TlsFiles(self.tls_cert, self.tls_key, self.tls_ca)

    @property
    def is_open(self) -> bool:
        """Whether others can reach the listener, and it demands no certificate of them."""
        return not self.has_tls and not _is_local(self.listen)

    @property
    def policy(self) -> Policy:
        """What is deleted, and when."""
        retain = Retain[self.retain.upper()]
        size_bytes, share = size_of(self.min_free) if self.min_free else (0, 0.0)
        return Policy(retain, self.retain_for, size_bytes, share, self.delete_undelivered)


@dataclass(frozen=True)
class Examined:
    """Settings, without those that make no sense, which are `wrong`; every mistake in them; where each key stands.

    Of wrong roots those are there that are texts. `root_places`: where each root stands.
    """

    config: DaemonConfig
    mistakes: list[Mistake]
    places: dict[str, str]
    wrong: frozenset[str]
    root_places: dict[str, str]


def configure(path: Path | None, arguments: Mapping[str, Any]) -> DaemonConfig:
    """The settings of the file at `path`, if any, and over them those arguments that are not None. DaemonError."""
    examined = examine(path, arguments)
    if examined.mistakes:
        raise examined.mistakes[0].error()
    return examined.config


def need_root(config: DaemonConfig) -> None:
    """DaemonError when there is no root, and no directory that will name one."""
    if config.is_rootless:
        raise Mistake(ARGUMENTS, *NO_ROOT).error()


def examine(path: Path | None, arguments: Mapping[str, Any]) -> Examined:
    """The settings, as far as they can be understood."""
    mistakes: list[Mistake] = []
    values: dict[str, Any] = {}
    # What no file and no argument gives is missed in the file, where there is one.
    places = {"roots": str(path)} if path else {}
    wrong: set[str] = set()
    for settings in (read_settings(path) if path else given({}), given(arguments)):
        if isinstance(settings, Mistake):
            mistakes.append(settings)
            wrong.update(DaemonConfig.__dataclass_fields__)
            continue
        found = dict(mistakes_of(settings))
        wrong.update(found)
        mistakes += found.values()
        values.update({key: _frozen(value) for key, value in settings.values.items() if key not in found})
        if "roots" in found:
            values["roots"] = texts_of(settings.values["roots"])
        places.update(settings.places)
    config = DaemonConfig(**values)
    mistakes += [Mistake(places[key], f"{key}: {text}", hint) for key, text, hint in _contradictions(config, wrong)]
    root_places = _root_places(config, places, mistakes)
    return Examined(replace(config, roots=tuple(root_places)), mistakes, places, frozenset(wrong), root_places)


def _root_places(config: DaemonConfig, places: Mapping[str, str], mistakes: list[Mistake]) -> dict[str, str]:
    """Its roots and those that its `roots_d` names, with their places; mistakes are added.

    Arguments may be relative.
    """
    place = places.get("roots", ARGUMENTS)
    named, found = read_roots_d(config.roots_d, places["roots_d"]) if config.roots_d else ({}, [])
    others = {root: place for root, place in named.items() if root not in config.roots}
    mistakes += [] if place == ARGUMENTS else relative_mistakes(config.roots, place)
    mistakes += found
    mistakes += overlap_mistakes([*((root, place) for root in config.roots), *others.items()])
    return {**dict.fromkeys(config.roots, place), **others}


def _contradictions(config: DaemonConfig, wrong: set[str]) -> Iterator[tuple[str, str, str]]:
    """Keys that do not go together with others, with what to say; nothing about those that are wrong by themselves."""
    if wrong.isdisjoint(("tls_revoked", *TLS_FILES)):
        given_files = [key for key in (*TLS_FILES, "tls_revoked") if getattr(config, key)]
        missing = [key for key in TLS_FILES if not getattr(config, key)]
        if missing and given_files:
            what = f"TLS without {' and '.join(missing)}"
            yield given_files[0], what, "TLS needs tls_cert, tls_key and tls_ca; tls_revoked is optional"
        elif wrong.isdisjoint(("listen", "insecure")):
            yield from _listener_contradictions(config)
    if "retain" not in wrong:
        yield from _retention_contradictions(config, wrong)


def _listener_contradictions(config: DaemonConfig) -> Iterator[tuple[str, str, str]]:
    if config.has_tls and config.insecure:
        yield "insecure", "TLS and insecure exclude each other", "leave one of them out"
    elif config.has_tls and config.listen.startswith("unix:"):
        yield "listen", "a Unix socket has no TLS", "its file's mode says who may connect; leave tls_… out"
    elif config.is_open and not config.insecure:
        yield "listen", f"{config.listen} can be reached from outside, which needs TLS", _TLS_HINT


def _retention_contradictions(config: DaemonConfig, wrong: set[str]) -> Iterator[tuple[str, str, str]]:
    retain = config.policy.retain
    for key, choice in _NEEDED_FOR.items():
        if getattr(config, key) and key not in _RETENTION_KEYS[retain]:
            yield key, f"of no use with retain = {config.retain}", f"leave it out, or choose {choice}"
    if retain is Retain.MIN_FREE and not config.min_free and "min_free" not in wrong:
        yield "retain", "it is min_free, and no min_free is given", "say how much, e.g. min_free = '200MB' or '10%'"
    names_consumers = config.retain_for or config.delete_undelivered
    if retain is not Retain.KEEP and not names_consumers and wrong.isdisjoint(("retain_for", "delete_undelivered")):
        what = f"it is {config.retain}, and without retain_for nothing would ever be delivered"
        hint = "name the consumers that must have a log before it goes, e.g. retain_for = ['record-HOSTNAME']"
        yield "retain", what, hint


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _is_local(listen: str) -> bool:
    if listen.startswith("unix:"):
        return True
    match = ADDRESS.fullmatch(listen)
    assert match is not None, "the rule for `listen` was checked"
    host = match.group("host").strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
