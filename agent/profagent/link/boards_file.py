"""The boards that this user knows by name: ~/.config/profagent/boards.toml, whose comments stay the user's."""

from __future__ import annotations

import os
import re
import tomllib
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from profagent.errors import UsageError
from profagent.files import alone_in, make_directory, write_atomically
from profagent.link.addresses import KnownBoard, checked_address, default_keys, full_address, host_of, is_local

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_KEYS = ("address", "uuid", "fingerprint", "ssh", "machine", "prefix")


@dataclass(frozen=True, slots=True)
class BoardEntry:
    """A board: where its daemon listens, its identity, SHA-256 of its certificate, how `ssh` calls it; "": unknown.

    `machine` is its machine's marks (`deploy.machine`), with spaces between them. `prefix` is where `deploy` put the
    daemon, "" where that is usual.
    """

    name: str
    address: str
    uuid: str = ""
    fingerprint: str = ""
    ssh: str = ""
    machine: str = ""
    prefix: str = ""

    @property
    def known(self) -> KnownBoard:
        """The board as links take it."""
        return KnownBoard(self.name, self.address, self.uuid, self.fingerprint)

    @property
    def is_behind_ssh(self) -> bool:
        """Whether its daemon listens on the board alone, say at a loopback address of its own: only SSH leads there."""
        return bool(self.ssh) and is_local(self.address)

    def check(self, source: str) -> Self:
        """Raises UsageError, which names `source`, for what cannot be right."""
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"{source}: {self.name!r} is no board's name", hint="take 1 to 64 letters, digits, `-` and `_`"
            )
        if not self.address:
            raise UsageError(f"{source}: {self.name} has no address", hint='write address = "192.168.1.20"')
        checked_address(self.address)
        if self.fingerprint and not _FINGERPRINT.fullmatch(self.fingerprint):
            raise UsageError(
                f"{source}: {self.name}: fingerprint {self.fingerprint!r} is no SHA-256 in hex",
                hint="`profagent keys list` shows it: 64 digits",
            )
        return self


class BoardsFile:
    """The file. It need not be there: then no board has a name."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or default_keys().parent / "boards.toml"

    def entries(self) -> dict[str, BoardEntry]:
        """The boards by name, in the file's order. Raises UsageError for a file that cannot be right."""
        tables = self._read(tomllib.loads).get("boards", {})
        if not isinstance(tables, dict):
            raise UsageError(f"{self.path}: boards is no table", hint="write [boards.NAME] above each board's keys")
        return {name: self._entry(name, table) for name, table in tables.items()}

    def known(self) -> Mapping[str, KnownBoard]:
        """The same as links take them."""
        return {name: entry.known for name, entry in self.entries().items()}

    def login(self, board: str) -> str:
        """How SSH calls a board that has a name; another one is called so already. Raises UsageError."""
        entry = self.entries().get(board)
        return board if entry is None else entry.ssh or host_of(full_address(entry.address))

    def behind_ssh(self, boards: Iterable[str]) -> list[BoardEntry]:
        """Those of the boards to which only SSH leads, each once. Raises UsageError."""
        entries = self.entries()
        return [entry for board in dict.fromkeys(boards) if (entry := entries.get(board)) and entry.is_behind_ssh]

    def put(self, entry: BoardEntry, *, is_same: bool = False) -> bool:
        """Add a board, or write its keys anew; whether it was there. Raises UsageError, ProfagentError.

        `is_same`: the name of a board with another identity is left to that one, with a UsageError.
        """
        entry.check("the board")
        with self._changing() as document:
            entries = self.entries()
            if is_same:
                check_same(entry, entries)
            boards = document.setdefault("boards", {})
            table = boards.setdefault(entry.name, {})
            for key in _KEYS:
                if value := getattr(entry, key):
                    table[key] = value
                else:
                    table.pop(key, None)
            return entry.name in entries

    def remove(self, name: str) -> None:
        """Forget a board. Raises UsageError when there is none of that name; ProfagentError."""
        with self._changing() as document:
            if name not in self.entries():
                raise UsageError(f"{self.path} has no board {name}", hint="`profagent boards` lists them")
            del document["boards"][name]

    def _read(self, parse: Callable[[str], T]) -> T:
        try:
            return parse(self.path.read_text("utf-8"))
        except FileNotFoundError:
            return parse("")
        except OSError as error:
            raise UsageError(f"cannot read {self.path}: {error.strerror}", hint="check its owner and mode") from error
        except ValueError as error:
            raise UsageError(f"{self.path}: {error}", hint="mend it, or move it away") from error

    def _entry(self, name: str, table: Any) -> BoardEntry:
        source = str(self.path)
        if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
            raise UsageError(f"{source}: {name} is no table of texts", hint=f"its keys are {', '.join(_KEYS)}")
        unknown = [key for key in table if key not in _KEYS]
        if unknown:
            raise UsageError(f"{source}: {name}: unknown key {unknown[0]!r}", hint=f"the keys are {', '.join(_KEYS)}")
        return BoardEntry(name, **{key: str(table.get(key, "")) for key in _KEYS}).check(source)

    @contextmanager
    def _changing(self) -> Iterator[Any]:
        """The document as it stands, which nobody else changes until it is written at the end.

        Where it is a link, what it leads to is written.
        """
        import tomlkit  # noqa: PLC0415 - takes long to load, and most commands only read

        target = Path(os.path.realpath(self.path))
        make_directory(target.parent)
        with alone_in(target.parent):
            self.entries()  # what cannot be right is not written over
            document = self._read(tomlkit.parse)
            yield document
            write_atomically(target, [tomlkit.dumps(document).encode()])


class BoardNames:
    """The names by which people know boards."""

    def __init__(self, entries: Iterable[BoardEntry] = ()) -> None:
        self._by_identity = {entry.uuid: entry.name for entry in entries if entry.uuid}

    @classmethod
    def known(cls) -> Self:
        """Return those of the file, none where that cannot be read: a listing does not fail by it."""
        with suppress(UsageError):
            return cls(BoardsFile().entries().values())
        return cls()

    def of(self, identity: str, hostname: str) -> str:
        """Return a board's name of `profagent boards`, else its host's name, else its identity."""
        return self._by_identity.get(identity) or hostname or identity


def check_same(entry: BoardEntry, entries: Mapping[str, BoardEntry]) -> None:
    """Raises UsageError where the entry's name stands for a board with another identity."""
    there = entries.get(entry.name)
    if there is not None and there.uuid not in ("", entry.uuid):
        raise UsageError(
            f"{entry.name} is another board",
            hint=f"take another --name; or, if that one is no more, `profagent boards remove {entry.name}`",
        )
