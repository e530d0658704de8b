"""What the daemon is told to do: by a TOML file, by files that name roots, and by its arguments, which win."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from profagentd.mistakes import Mistake
from profagentd.named_roots import overlap_mistakes, read_roots_d, relative_mistakes
from profagentd.retention import Policy, Retain
from profagentd.rules import ADDRESS, mistakes_of, size_of, texts_of
from profagentd.settings import ARGUMENTS, given, read_settings
from profagentd.tls_files import TlsFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

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
