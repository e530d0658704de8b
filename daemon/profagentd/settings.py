"""The values that a TOML file, or the arguments, give to keys, and where each of them stands."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from profagentd.mistakes import Mistake, not_utf8

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ARGUMENTS = "the arguments"
_TWICE = "Cannot overwrite a value"
_KEY = re.compile(r"\s*([A-Za-z0-9_-]+)\s*=")
_AT = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")


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
        return _not_toml(path, text, str(error))
    return Settings(values, {key: f"{path}:{line}" for key, line in _lines(text)[0].items()})


def _not_toml(path: Path, text: str, why: str) -> Mistake:
    begins, begin = _lines(text)
    key = _KEY.match("".join(text.splitlines(keepends=True)[begin - 1 :]))
    if key and key.group(1) in begins and why.startswith(_TWICE):
        what = f"{key.group(1)}: it is given on line {begins[key.group(1)]} already"
        return Mistake(f"{path}:{begin}:{key.start(1) + 1}", what, "give each key once")
    what = f"{key.group(1)}: {why}" if key else why
    return Mistake(f"{path}:{_place(text, why)}", _AT.sub("", what), "write it as TOML, e.g. roots = ['/opt/app']")


def _place(text: str, why: str) -> str:
    """LINE:COLUMN of what the parser complains of, from 1 on; where that is the end, the last line's."""
    found = _AT.search(why)
    if found and found.group(1):
        return f"{found.group(1)}:{found.group(2)}"
    lines = text.removesuffix("\n").split("\n")
    return f"{len(lines)}:{len(lines[-1]) + 1}"


def _lines(text: str) -> tuple[dict[str, int], int]:
    """The line on which each key of a TOML text begins, and the one on which what is no TOML does.

    The first line after which a key is known starts no earlier.
    """
    lines = text.splitlines(keepends=True)
    begins: dict[str, int] = {}
    begin = 1
    for number in range(1, len(lines) + 1):
        try:
            known = tomllib.loads("".join(lines[:number]))
        except tomllib.TOMLDecodeError:
            continue  # a value that goes on over the next line
        begins.update({key: begin for key in known if key not in begins})
        begin = number + 1
    return begins, begin
