"""Edits the `profiler` object of an acl.json for a run; the rest of the file stays (the-format.md 5)."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import shlex
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from profagent.doctor.acl_json import METRICS, PROFILER_KEYS
from profagent.errors import FormatError, UsageError
from profagent.files import content, written_atomically
from profagent.formats.board_files import load_acl_json
from profagent.formats.sampling import INTERVAL_MAX
from profagent.link.boards_file import BoardsFile
from profagent.ssh.connection import Person, connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from profagent.ssh.remote import BoardFile, Remote


_NEW_MODE = 0o644


@asynccontextmanager
async def opened_acl_json(path: str, board: str | None) -> AsyncIterator[AclJsonFile]:
    """Yield the file of this host, or of a board by its name or SSH target. Raises UsageError, UnreachableError."""
    if board is None:
        yield AclJsonFile(path, path)
        return
    async with connect(await asyncio.to_thread(BoardsFile().login, board), Person()) as remote:
        yield AclJsonFile(path, f"{path} on {board}", remote)


class AclJsonFile:
    """A file of this host or of a board; `shown` is its name in messages. A board's also raises UnreachableError."""

    def __init__(self, path: str, shown: str, remote: Remote | None = None) -> None:
        self.shown = shown
        self._path = path
        self._remote = remote
        self._found: BoardFile | None = None  # the board's file at the latest read(): write() keeps its owner and mode

    async def read(self) -> bytes | None:
        """Return the content; None if the file does not exist. Raises UsageError if it cannot be read."""
        if self._remote is not None:
            self._found = await self._remote.content(self._path)
            return None if self._found is None else self._found.data
        try:
            return await asyncio.to_thread(content, self._path, None)
        except OSError as error:
            raise UsageError(f"cannot read {self.shown}: {error.strerror}", hint="name an acl.json") from error

    async def write(self, data: bytes) -> None:
        """Replace the content atomically; owner and mode stay, and a link is followed. Raises ProfagentError."""
        if self._remote is None:
            await asyncio.to_thread(self._write_here, data)
            return
        # Owner and mode are those of the file that was read, even if another file has replaced it since.
        mode, owner = (self._found.mode, self._found.owner) if self._found else (_NEW_MODE, "")
        await self._remote.put(data, self._path, mode, owner=owner, follows_link=True)

    def _write_here(self, data: bytes) -> None:
        target = Path(os.path.realpath(self._path))
        mode = target.stat().st_mode & 0o7777 if target.exists() else _NEW_MODE
        with written_atomically(target) as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)

    async def output_state(self, output: str) -> str:
        """Return the state of `output` on the board for `acl_json_section`; empty for a file of this host."""
        if self._remote is None:
            return ""
        name = shlex.quote(output)
        kinds = f"if [ -d {name} ]; then echo directory; elif [ -e {name} ]; then echo not a directory"
        return (await self._remote.run(f"{kinds}; else echo missing; fi")).text


F = TypeVar("F", bound="Callable[..., Any]")
_SWITCHES = click.Choice(["on", "off"])
_INTERVAL = "Record each Nth inference; 0 (the vendor's default): only the first after each load of a model."


def profiler_options(given: ProfilerSettings) -> Callable[[F], F]:
    """`--interval`, `--acl_api`, `--aacpu`, `--switch`, `--aac_metrics`, which the command is given as `profiler`.

    What the command line does not say is as in `given`.
    """

    def decorate(function: F) -> F:
        @click.option("--interval", type=click.IntRange(0, INTERVAL_MAX), default=given.interval, help=_INTERVAL)
        @click.option("--acl_api", "--acl-api", type=_SWITCHES, default=given.acl_api, help="Record API calls.")
        @click.option("--aacpu", "--aicpu", type=_SWITCHES, default=given.aacpu, help="Record layers on the CPU.")
        @click.option("--switch", type=_SWITCHES, default=given.switch, help="Switch profiling on or off as a whole.")
        @click.option(
            "--aac_metrics",
            "--aic_metrics",
            metavar="NAME",
            default=given.aac_metrics,
            help=f"{DEFAULTS.aac_metrics} records layers of the NPU; any other name does not.",
        )
        @functools.wraps(function)
        def with_profiler(**given: Any) -> Any:
            asked = {name: given.pop(name) for name in ("switch", "interval", "acl_api", "aacpu", "aac_metrics")}
            return function(profiler=ProfilerSettings(**asked), **given)

        return cast("F", with_profiler)

    return decorate


PROFILER, DUMP = "profiler", "dump"
_HINT = "correct the file: `profagent aclconfig check` says what the runtime takes"
_SWITCH_KEYS = ("switch", "acl_api", "aicpu", "aacpu")
# The manual's spelling of each key, then the one that the libraries read.
_SPELLINGS = (("switch",), ("interval",), ("acl_api",), ("aacpu", "aicpu"), ("aac_metrics", "aic_metrics"))


@dataclass(frozen=True, slots=True)
class ProfilerSettings:
    """Requested values by the vendor's names; None: the value in the file, else the vendor's default."""

    switch: str | None = None
    output: str | None = None
    interval: int | None = None
    acl_api: str | None = None
    aacpu: str | None = None
    aac_metrics: str | None = None

    @property
    def records(self) -> bool:
        """True if a program that reads these settings records anything."""
        return self.switch == "on" and (self.acl_api == "on" or self.aacpu == "on" or self.aac_metrics == METRICS)


# The manual's defaults, 'collecting by acl.json', table 1.
DEFAULTS = ProfilerSettings("on", None, 0, "on", "on", METRICS)


def edited_acl_json(data: bytes, asked: ProfilerSettings, file: str, *, without_dump: bool = False) -> str:
    """Return the file's text with these values as strings, in both spellings; other keys stay.

    `without_dump` removes the key `dump`. Empty data stands for a missing file. Raises FormatError, and UsageError if
    no `output` is known.
    """
    document = _document(data, file) if data else {}
    found = document.get(PROFILER)
    own = _profiler_strings(found) if isinstance(found, dict) else {}
    others = {key: _as_strings(value) for key, value in document.items() if not (without_dump and key == DUMP)}
    text = json.dumps({**others, PROFILER: {**own, **_values(own, asked, file)}}, indent=2, ensure_ascii=False) + "\n"
    # Lone surrogates have no UTF-8 encoding: JSON can only write them as escapes.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def profiler_of(data: bytes, file: str) -> dict[str, object] | None:
    """Return the `profiler` object of the file; None without one. Raises FormatError."""
    found = _document(data, file).get(PROFILER)
    return found if isinstance(found, dict) else None


def has_dump(data: bytes) -> bool:
    """Return True if the file configures a Dump, which the manual forbids beside profiling."""
    try:
        return bool(_document(data, "").get(DUMP))
    except FormatError:
        return False


def _document(data: bytes, file: str) -> dict[str, object]:
    try:
        document = load_acl_json(data, file)
    except FormatError as error:
        raise FormatError(file, error.offset, error.expected, error.found, hint=_HINT) from error
    if not isinstance(document, dict):
        raise FormatError(file, 0, "an object", type(document).__name__, hint=_HINT)
    return document


def _values(own: Mapping[str, str], asked: ProfilerSettings, file: str) -> dict[str, str]:
    """Return the requested values, else the file's, else the defaults; in both spellings."""
    output = asked.output or own.get("output")
    if not output:
        raise UsageError(f"{file} names no output, and a program would crash", hint="name a directory with --output")
    values = {"output": output}
    for name, *other in _SPELLINGS:
        wanted = getattr(asked, name)
        found = next((own[key] for key in (*other, name) if key in own), getattr(DEFAULTS, name))
        values |= dict.fromkeys((name, *other), str(found if wanted is None else wanted))
    return {key: values[key] for key in PROFILER_KEYS}


def _profiler_strings(profiler: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of `profiler` as strings: a boolean switch is on or off, null is left out."""
    own = {}
    for key, value in profiler.items():
        if key in _SWITCH_KEYS and isinstance(value, bool):
            own[key] = "on" if value else "off"
        elif key not in PROFILER_KEYS:
            own[key] = _as_strings(value)
        elif isinstance(value, str) or (key != "output" and value is not None):
            own[key] = _text(value)
    return own


def _as_strings(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_strings(below) for key, below in value.items()}
    return [_as_strings(below) for below in value] if isinstance(value, list) else _text(value)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
