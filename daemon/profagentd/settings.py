"""The values that a TOML file, or the arguments, give to keys, and where each of them stands."""

from __future__ import annotations

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
