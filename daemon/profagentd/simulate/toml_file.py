"""Reading a TOML file table by table, with errors that name the file and the key."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from profagentd.errors import DaemonError

if TYPE_CHECKING:
    from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_HINT = "docs/reference/simulated-board.md describes the file of a simulated network"


def read_toml(path: Path) -> dict[str, Any]:
    """The file's top table. DaemonError when it cannot be read or is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DaemonError(f"{path}: {error.strerror}", hint="give --model a name or a readable file") from error
    except ValueError as error:
        raise DaemonError(f"{path}: not a TOML file: {error}", hint=_HINT) from error


class Table:
    """One table of a file. Each reader checks type and range; `finish` refuses keys that nobody read."""

    def __init__(self, file: Path, key: str, values: dict[str, Any]) -> None:
        self._file = file
        self._key = key
        self._values = values
        self._read: set[str] = set()

    def text(self, key: str) -> str:
        """A text that is not empty."""
        value = self._take(key, None)
        if not isinstance(value, str) or not value:
            raise self.error(key, "a text that is not empty")
        return value

    def integer(self, key: str, default: int | None, lowest: int, highest: int) -> int:
        """An integer within its bounds."""
        value = self._take(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
            raise self.error(key, f"an integer from {lowest} to {highest}")
        return value

    def number(self, key: str, default: float | None, highest: float) -> float:
        """A number from 0 up to its bound."""
        value = self._take(key, default)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= highest:
            raise self.error(key, f"a number from 0 to {highest:g}")
        return float(value)

    def flag(self, key: str) -> bool:
        """True or false; false where it is absent."""
        value = self._take(key, False)
        if not isinstance(value, bool):
            raise self.error(key, "true or false")
        return value

    def texts(self, key: str) -> list[str]:
        """An array of one or more texts."""
        value = self._take(key, None)
        if not isinstance(value, list) or not value or not all(isinstance(text, str) for text in value):
            raise self.error(key, "an array of one or more texts")
        return value

    def tables(self, key: str) -> list[Table]:
        """An array of one or more tables."""
        value = self._take(key, None)
        if not isinstance(value, list) or not value or not all(isinstance(table, dict) for table in value):
            raise self.error(key, "an array of one or more tables")
        return [Table(self._file, f"{self._path(key)}[{number}]", table) for number, table in enumerate(value)]

    def named_tables(self, key: str) -> dict[str, Table]:
        """A table of tables; empty where it is absent."""
        value = self._take(key, {})
        if not isinstance(value, dict) or not all(isinstance(table, dict) for table in value.values()):
            raise self.error(key, "a table of tables")
        return {name: Table(self._file, f"{self._path(key)}.{name}", table) for name, table in value.items()}

    def finish(self) -> None:
        """Refuse what is in the table and was not read."""
        for key in self._values:
            if key not in self._read:
                raise DaemonError(f"{self._file}: {self._path(key)}: unknown key", hint=_HINT)

    def error(self, key: str, expected: str) -> DaemonError:
        """The error of a key that does not hold what it should."""
        found = repr(self._values[key]) if key in self._values else "nothing"
        return DaemonError(f"{self._file}: {self._path(key)}: expected {expected}, found {found}", hint=_HINT)

    def _take(self, key: str, default: object) -> object:
        self._read.add(key)
        return self._values.get(key, default)

    def _path(self, key: str) -> str:
        return f"{self._key}.{key}" if self._key else key
