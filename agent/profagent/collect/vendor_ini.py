"""The vendor's ini file: how a board is logged in to (manual, 'one-click', table 1)."""

from __future__ import annotations

import configparser
from dataclasses import dataclass, field

from profagent.errors import UsageError

__all__ = ["IniLogin", "read_ini"]

_SECTION = "ssh_config"
_PORT = 22
_HINT = "write [ssh_config] and, a line each, ip = …, username = …, pwd = …, port = 22; or use --board"


@dataclass(frozen=True, slots=True)
class IniLogin:
    """`target` as Target.parse takes it; the password is empty where none stands there."""

    target: str
    password: str = field(repr=False)


def read_ini(text: str, file: str) -> IniLogin:
    """What the file says. Raises UsageError."""
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text.removeprefix("\ufeff"), file)
    except configparser.Error as error:
        # Its own words may quote a line, and a line may be the password's.
        raise UsageError(f"{file} is no ini file: {type(error).__name__}", hint=_HINT) from None
    if not parser.has_section(_SECTION):
        raise UsageError(f"{file} has no section [{_SECTION}]", hint=_HINT)
    told = {key: value.strip() for key, value in parser.items(_SECTION)}
    for key in ("ip", "username"):
        if not told.get(key):
            raise UsageError(f"{file} has no {key} in [{_SECTION}]", hint=_HINT)
    host = f"[{told['ip']}]" if ":" in told["ip"] else told["ip"]
    return IniLogin(f"ssh://{told['username']}@{host}:{told.get('port') or _PORT}", told.get("pwd", ""))
