"""Boards that this user knows by name: ~/.config/profagent/boards.toml. Comments in the file are preserved."""

from __future__ import annotations

import os
import re
import tomllib
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from profagent.errors import UsageError
from profagent.files import alone_in, make_directory, write_atomically
from profagent.limits import LONGEST_LABEL
from profagent.link.addresses import KnownBoard, checked_address, default_keys, full_address, host_of, is_local

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
LABEL_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_TEXTS = ("address", "uuid", "fingerprint", "ssh", "machine", "prefix")
_KEYS = (*_TEXTS, "groups", "labels")


@dataclass(frozen=True, slots=True)
class BoardEntry:
    """Entry of the file: address, identity, SHA-256 of the certificate, and SSH destination; empty texts are unknown.

    `machine` are the marks of its machine (`deploy.machine`), separated by spaces. `prefix` is the folder into which
    `deploy` installed the daemon, empty for the default. `groups` are names under which commands take several boards;
    `labels` are those of the board's sessions.
    """

    name: str
    address: str
    uuid: str = ""
    fingerprint: str = ""
    ssh: str = ""
    machine: str = ""
    prefix: str = ""
    groups: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def known(self) -> KnownBoard:
        """The board as links take it."""
        return KnownBoard(self.name, self.address, self.uuid, self.fingerprint, labels=self.labels)

    @property
    def is_behind_ssh(self) -> bool:
        """True if the daemon listens only within the board, for example at a loopback address: only SSH leads there."""
        return bool(self.ssh) and is_local(self.address)

    def check(self, source: str) -> Self:
        """Return the entry, or raise UsageError, which names `source`, for a value that is not valid."""
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"{source}: {self.name!r} is not a valid name of a board",
                hint="take 1 to 64 letters, digits, `-` and `_`",
            )
        if not self.address:
            raise UsageError(f"{source}: {self.name} has no address", hint='write address = "192.168.1.20"')
        checked_address(self.address)
        if self.fingerprint and not _FINGERPRINT.fullmatch(self.fingerprint):
            raise UsageError(
                f"{source}: {self.name}: fingerprint {self.fingerprint!r} is not a SHA-256 in hexadecimal digits",
                hint="`profagent keys list` shows it: 64 digits",
            )
        for group in self.groups:
            if not _NAME.fullmatch(group):
                raise UsageError(
                    f"{source}: {self.name}: {group!r} is not a valid name of a group",
                    hint="take 1 to 64 letters, digits, `-` and `_`",
                )
        for key, value in self.labels.items():
            if not is_label(key, value):
                raise UsageError(
                    f"{source}: {self.name}: {key}={value} is not a label", hint="write a short text after a plain key"
                )
        return self


def is_label(key: str, value: str) -> bool:
    """Return True if the key and the value can be a label of a session."""
    return bool(LABEL_KEY.fullmatch(key)) and value.isprintable() and len(value) <= LONGEST_LABEL


class BoardsFile:
    """The file of known boards. It may be missing: then no board has a name."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or default_keys().parent / "boards.toml"

    def entries(self) -> dict[str, BoardEntry]:
        """Return the boards by name, in the file's order. Raises UsageError for a file that is not valid."""
        tables = self._read(tomllib.loads).get("boards", {})
        if not isinstance(tables, dict):
            raise UsageError(f"{self.path}: boards is not a table", hint="write [boards.NAME] above each board's keys")
        return {name: self._entry(name, table) for name, table in tables.items()}

    def known(self) -> Mapping[str, KnownBoard]:
        """Return the boards by name, as links take them. Raises UsageError."""
        return {name: entry.known for name, entry in self.entries().items()}

    def login(self, board: str) -> str:
        """Return the SSH destination of a board; a text that is no known name is one itself. Raises UsageError."""
        entry = self.entries().get(board)
        return board if entry is None else entry.ssh or host_of(full_address(entry.address))

    def behind_ssh(self, boards: Iterable[str]) -> list[BoardEntry]:
        """Return those of the boards that only SSH reaches, each once. Raises UsageError."""
        entries = self.entries()
        return [entry for board in dict.fromkeys(boards) if (entry := entries.get(board)) and entry.is_behind_ssh]

    def group(self, name: str) -> list[str]:
        """Return the names of a group's boards, in the file's order. Raises UsageError if the group has no board."""
        entries = self.entries().values()
        found = [entry.name for entry in entries if name in entry.groups]
        if not found:
            groups = ", ".join(sorted({group for entry in entries for group in entry.groups}))
            hint = f"the groups are {groups}" if groups else f"`profagent boards set BOARD --group {name}` makes it"
            raise UsageError(f"no board is in the group {name}", hint=hint)
        return found

    def put(self, entry: BoardEntry, *, is_same: bool = False) -> bool:
        """Add a board or rewrite its keys; return True if it was in the file. Raises UsageError and ProfagentError.

        Groups and labels stay if the entry has none. With `is_same` a name that belongs to a board with another
        identity is not taken over: UsageError.
        """
        entry.check("the board")
        with self._changing() as document:
            entries = self.entries()
            if is_same:
                check_same(entry, entries)
            boards = document.setdefault("boards", {})
            table = boards.setdefault(entry.name, {})
            for key in _TEXTS:
                if value := getattr(entry, key):
                    table[key] = value
                else:
                    table.pop(key, None)
            _write_groups(table, entry.groups or entries.get(entry.name, entry).groups)
            _write_labels(table, entry.labels or entries.get(entry.name, entry).labels)
            return entry.name in entries

    def change(
        self,
        names: Iterable[str],
        *,
        joins: Sequence[str] = (),
        leaves: Collection[str] = (),
        labels: Mapping[str, str],
        drops: Collection[str] = (),
    ) -> None:
        """Add boards to groups and remove them from groups; set labels, and drop those with the keys `drops`.

        Raises UsageError for an unknown board, or a group or label that is not valid; ProfagentError.
        """
        with self._changing() as document:
            entries = self.entries()
            for name in names:
                entry = _known(entries, name, self.path)
                groups = tuple(each for each in dict.fromkeys((*entry.groups, *joins)) if each not in leaves)
                remaining = {key: value for key, value in {**entry.labels, **labels}.items() if key not in drops}
                replace(entry, groups=groups, labels=remaining).check("the board")
                _write_groups(document["boards"][name], groups)
                _write_labels(document["boards"][name], remaining)

    def remove(self, name: str) -> None:
        """Remove a board. Raises UsageError if the file has none of that name; ProfagentError."""
        with self._changing() as document:
            _known(self.entries(), name, self.path)
            del document["boards"][name]

    def _read(self, parse: Callable[[str], T]) -> T:
        try:
            return parse(self.path.read_text("utf-8"))
        except FileNotFoundError:
            return parse("")
        except OSError as error:
            raise UsageError(f"cannot read {self.path}: {error.strerror}", hint="check its owner and mode") from error
        except ValueError as error:
            raise UsageError(f"{self.path}: {error}", hint="correct it, or move it away") from error

    def _entry(self, name: str, table: Any) -> BoardEntry:
        source = str(self.path)
        groups, labels = (table.get("groups", []), table.get("labels", {})) if isinstance(table, dict) else ((), ())
        if not isinstance(groups, list) or not isinstance(labels, dict) or not _are_texts(table, groups, labels):
            raise UsageError(
                f"{source}: {name} is not a table of strings",
                hint=f"its keys are {', '.join(_KEYS)}; groups is a list, labels a table",
            )
        unknown = [key for key in table if key not in _KEYS]
        if unknown:
            raise UsageError(f"{source}: {name}: unknown key {unknown[0]!r}", hint=f"the keys are {', '.join(_KEYS)}")
        texts = {key: str(table.get(key, "")) for key in _TEXTS}
        return BoardEntry(name, **texts, groups=tuple(groups), labels=labels).check(source)

    @contextmanager
    def _changing(self) -> Iterator[Any]:
        """Yield the document under a lock, and write it at the end.

        If the file is a symbolic link, its target is written.
        """
        import tomlkit  # noqa: PLC0415 - takes long to load, and most commands only read

        target = Path(os.path.realpath(self.path))
        make_directory(target.parent)
        with alone_in(target.parent):
            self.entries()  # raises for an invalid file before it is overwritten
            # Read again with tomlkit, which preserves comments and order; the lock is held until the file is replaced.
            document = self._read(tomlkit.parse)
            yield document
            write_atomically(target, [tomlkit.dumps(document).encode()])


def _are_texts(table: Mapping[str, Any], groups: Iterable[Any], labels: Mapping[str, Any]) -> bool:
    texts = (value for key, value in table.items() if key not in ("groups", "labels"))
    return all(isinstance(value, str) for value in (*texts, *groups, *labels.values()))


def _known(entries: Mapping[str, BoardEntry], name: str, path: Path) -> BoardEntry:
    if name not in entries:
        raise UsageError(f"{path} has no board {name}", hint="`profagent boards` lists them")
    return entries[name]


def _write_groups(table: Any, groups: Sequence[str]) -> None:
    if groups:
        table["groups"] = list(groups)
    else:
        table.pop("groups", None)


def _write_labels(table: Any, labels: Mapping[str, str]) -> None:
    if not labels:
        table.pop("labels", None)
        return
    written = table.setdefault("labels", {})
    for key in [*written]:
        if key not in labels:
            del written[key]
    for key, value in labels.items():
        if written.get(key) != value:
            written[key] = value


class BoardNames:
    """Names of boards by identity, for listings."""

    def __init__(self, entries: Iterable[BoardEntry] = ()) -> None:
        # An entry without an identity cannot be matched with a session.
        self._by_identity = {entry.uuid: entry.name for entry in entries if entry.uuid}

    @classmethod
    def known(cls) -> Self:
        """Return the names of the file; none if it cannot be read, so that a listing does not fail because of it."""
        with suppress(UsageError):
            return cls(BoardsFile().entries().values())
        return cls()

    def of(self, identity: str, hostname: str) -> str:
        """Return the board's name in `profagent boards`, else its host name, else its identity."""
        return self._by_identity.get(identity) or hostname or identity


def check_same(entry: BoardEntry, entries: Mapping[str, BoardEntry]) -> None:
    """Raise UsageError if the entry's name belongs to a board with another identity."""
    there = entries.get(entry.name)
    if there is not None and there.uuid not in ("", entry.uuid):
        raise UsageError(
            f"{entry.name} is another board",
            hint=f"take another --name; or, if that one is no more, `profagent boards remove {entry.name}`",
        )
