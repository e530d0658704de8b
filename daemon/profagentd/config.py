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

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_DEPTH = 16
LOG_LEVELS = ("debug", "info", "warning", "error")
_ADDRESS = re.compile(r"(?P<host>\[[^\]]+\]|[^:\[\]]+):(?P<port>\d{1,5})")
_MAX_PORT = 65535


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


def configure(path: Path | None, arguments: Mapping[str, Any]) -> DaemonConfig:
    """The settings of the file at `path`, if any, and over them those arguments that are not None. DaemonError."""
    config = read_file(path) if path else DaemonConfig()
    given = {key: value for key, value in arguments.items() if value is not None}
    return replace(config, **_checked(given, "the arguments"))


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
    found = [os.fsencode(os.path.realpath(root)) for root in roots]
    for root, upper in ((root, upper) for root in found for upper in found if root is not upper):
        if root == upper or root.startswith(os.path.join(upper, b"")):
            raise DaemonError(
                f"root {os.fsdecode(root)} lies in root {os.fsdecode(upper)}",
                hint="name only the upper one, and look deeper with --depth",
            )
    return found


def _checked(settings: Mapping[str, Any], source: str) -> dict[str, Any]:
    for key, value in settings.items():
        if key not in _RULES:
            raise DaemonError(f"{source}: unknown key '{key}'", hint=f"the keys are {', '.join(_RULES)}")
        is_right, rule = _RULES[key]
        if not is_right(value):
            raise DaemonError(f"{source}: {key} = {value!r}", hint=f"{key} is {rule}")
    if "listen" in settings:
        _check_loopback(settings["listen"])
    return {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}


def _check_loopback(listen: str) -> None:
    if listen.startswith("unix:"):
        return
    match = _ADDRESS.fullmatch(listen)
    assert match is not None, "the rule for `listen` was checked"
    if not _is_loopback(match.group("host").strip("[]")):
        raise DaemonError(
            f"{listen} can be reached from outside, which needs TLS, and this version has none",
            hint="listen on 127.0.0.1 and reach it through an SSH tunnel: ssh -L 50151:127.0.0.1:50151 BOARD",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_address(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    match = _ADDRESS.fullmatch(value)
    return value.startswith("unix:") or (match is not None and int(match.group("port")) <= _MAX_PORT)


def _is_texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(each, str) and each for each in value)


def _is_seconds(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf


def _is_depth(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_DEPTH


_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "roots": (_is_texts, "a list of directories"),
    "listen": (_is_address, "HOST:PORT, or unix:PATH"),
    "quiet_after_s": (_is_seconds, "a number of seconds above 0"),
    "depth": (_is_depth, f"a number of levels from 1 to {MAX_DEPTH}"),
    "scan": (lambda value: isinstance(value, bool), "true or false"),
    "acl_json": (_is_texts, "a list of files, or of patterns of files"),
    "log_level": (lambda value: value in LOG_LEVELS, f"one of {', '.join(LOG_LEVELS)}"),
}
