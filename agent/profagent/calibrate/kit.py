"""The command `profagent kit`: evidence for open questions, from a JOB directory and the vendor's tables of it."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import re
import sys
import tarfile
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

import click

from profagent import __version__
from profagent.calibrate.vendor_table import (
    TOTAL,
    inference_of_name,
    inference_suffix,
    is_value,
    read_vendor_table,
    table_cells,
)
from profagent.cli import options
from profagent.cli.options import FILE, OUTPUT_FILE
from profagent.cli.running import run_to_the_end
from profagent.errors import FormatError, ProfagentError, UsageError
from profagent.files import write_atomically
from profagent.formats import model_info
from profagent.formats.model_info import TAG_BYTES, iter_items
from profagent.formats.names import SIMULATED_MARKER, LogKind, LogName, display_text, is_job_name, parse_log_name
from profagent.ingest.local import list_job
from profagent.limits import KIT_INFERENCES, LARGEST_KIT_BYTES
from profagent.store.database import reading
from profagent.store.queries import find_session, jobs_of
from profagent.store.sessions import require_records
from profagent.store.target import directory_named
from profagent.store.workspace import Workspace, session_named
from profagent.tables.table import Column, counted, printable, table_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from profagent.formats.model_info import Item
    from profagent.formats.names import InferenceKey


_INFO = (LogKind.NET_INFO, LogKind.LAYER_INFO)
_CONTAINERS = (model_info.LAYER_ITEM, model_info.NET_INFO)
# Items whose numbers are read, and so are copied. Any other number may be a part of a name in a torn file.
_NUMBERS = {
    model_info.LAYER_ID, model_info.BATCH_LAYER, model_info.SEGMENT_ID, model_info.PROF_LAYER_ID,
    model_info.OUTPUT_INDEX, model_info.NET_ID, model_info.NET_TYPE, model_info.LAYER_COUNT,
    model_info.PROF_LAYER_COUNT, model_info.BATCH_LAYER_COUNT, model_info.MAX_LOOP,
}  # fmt: skip
_TYPE = re.compile(rb"[A-Za-z0-9_]{1,64}\0*")
# Bytes of a container's 32-bit length that may remain before the first item.
_LENGTH_BYTES = 2
_TYPE_TITLE = "layer type"
# Shortest alias whose first letter tells the kind of the replaced name.
LETTERED_FROM = 4


class Aliases(dict[str, str]):
    """Aliases of names of one kind, by name; an alias has as many letters as the name has bytes."""

    def __init__(self, letter: str) -> None:
        self._letter = letter
        # Number of aliases of each length.
        self._of_length: Counter[int] = Counter()

    def of(self, name: str, size: int | None = None) -> str:
        """Return the alias of a name; `size` is its length in bytes, by default that in UTF-8."""
        if name not in self:
            size = len(name.encode("utf-8", "surrogateescape")) if size is None else size
            number, self._of_length[size] = self._of_length[size], self._of_length[size] + 1
            letter = self._letter if size >= LETTERED_FROM else ""
            digits = [ascii_lowercase[number // 26**place % 26] for place in reversed(range(size - len(letter)))]
            self[name] = letter + "".join(digits)
        return self[name]


class Anonymizer:
    """Replacement of names, each by the same alias everywhere.

    The `.info` files must come first: they have the names of single layers.
    """

    def __init__(self) -> None:
        # Aliases of models and of layers; one object for a whole kit keeps them the same throughout.
        self._models = Aliases("M")
        self._layers = Aliases("L")

    @property
    def replaced(self) -> tuple[str, ...]:
        """Texts of what was replaced, for the manifest."""
        return (
            f"{len(self._models)} names of models in names of files, by as many letters",
            f"{len(self._layers)} names of layers in .layer.info and vendor tables, by letters",
            "other fields of .info files, by as many zeros",
        )

    def path(self, path: str) -> str:
        """Return a path in the JOB with the alias of its model."""
        name = parse_log_name(path)
        if name is None or not name.model:
            return path
        # The model's name follows the folder, or the prefix and the device (the-format.md 2.1).
        start = path.index("/") + 1
        if name.kind not in _INFO:
            start = path.index(".", path.index(".") + 1) + 1
        return f"{path[:start]}{self._models.of(name.model)}{path[start + len(name.model) :]}"

    def content(self, path: str, data: bytes) -> bytes:
        """Return the content of a file of the JOB by its own path: `.info` files with aliases, logs unchanged."""
        name = parse_log_name(path)
        if name is None:
            # The marker of a simulated board names the model.
            return b""
        return self._info(data) if name.kind in _INFO else data

    def table(self, data: bytes, file: str) -> bytes:
        """Return the vendor's table as UTF-8 with commas, with aliases for all texts but titles and types.

        Raises FormatError.
        """
        heading, *rows = table_cells(data, file)
        plain_columns = {place for place, title in enumerate(heading) if title.lower() == _TYPE_TITLE}
        written = io.StringIO(newline="")
        writer = csv.writer(written, lineterminator="\n")
        writer.writerow(heading)
        for row in rows:
            writer.writerow([cell if place in plain_columns else self._cell(cell) for place, cell in enumerate(row)])
        return written.getvalue().encode()

    def _cell(self, cell: str) -> str:
        if is_value(cell) or cell.lower() == TOTAL:
            return cell
        return self._layers.get(cell) or "+".join(self._layers.of(part) if part else "" for part in cell.split("+"))

    def _info(self, data: bytes) -> bytes:
        start, items = max(
            ((start, _items(data, start, len(data))) for start in model_info.item_starts(data)),
            key=lambda found: (sum(item.id in _CONTAINERS for item in found[1]), found[1][-1].end if found[1] else 0),
        )
        # Zeros are the default: only bytes that are known to be harmless are copied.
        changed = bytearray(len(data))
        # The bytes before the first item are the rest of a length, which is harmless, or of a text, which is not.
        if start <= _LENGTH_BYTES:
            changed[:start] = data[:start]
        for item in items:
            self._copy(changed, data, item)
            for nested in _items(data, item.nested_start, item.end) if item.id in _CONTAINERS else ():
                self._copy(changed, data, nested)
        return bytes(changed)

    def _copy(self, changed: bytearray, data: bytes, item: Item) -> None:
        if isinstance(item.value, int):
            copied_end = item.end if item.id in _NUMBERS else item.offset + TAG_BYTES
        else:
            copied_end = item.nested_start
        changed[item.offset : copied_end] = data[item.offset : copied_end]
        if isinstance(item.value, bytes) and item.id == model_info.LAYER_NAME:
            changed[item.nested_start : item.end] = self._alias(item.value)
        elif isinstance(item.value, bytes) and item.id == model_info.LAYER_TYPE and _TYPE.fullmatch(item.value):
            changed[item.nested_start : item.end] = item.value

    def _alias(self, value: bytes) -> bytes:
        parts = value.split(b"\0", 1)[0].split(b"+")
        aliases = (self._layers.of(_text(part), len(part))[: len(part)].ljust(len(part), "x") for part in parts)
        return "+".join(aliases).encode("ascii").ljust(len(value), b"\0")


def _items(data: bytes, start: int, end: int) -> list[Item]:
    items: list[Item] = []
    try:
        for item in iter_items(data, start, end, "info"):
            items.append(item)  # noqa: PERF402 - those before an error count
    except FormatError:
        pass
    return items


def _text(name: bytes) -> str:
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        return name.decode("gb18030", "surrogateescape")


FORMAT = "profagent evidence 1"
MANIFEST = "manifest.json"
_OF_MODELS = (LogKind.INFO_JSON, *_INFO)
_COLUMNS = (Column("name in the archive"), Column("bytes"))


@dataclass(frozen=True, slots=True)
class Kit:
    """Evidence that is about to be sent: contents by name, the manifest, and remarks for the sender."""

    files: Mapping[str, bytes]
    manifest: Mapping[str, Any]
    remarks: Sequence[str]

    def archive(self) -> bytes:
        """Return a .tar.gz without owners, times or names of this machine; the same files give the same bytes."""
        manifest = (json.dumps(self.manifest, indent=1) + "\n").encode("ascii")
        written = io.BytesIO()
        with tarfile.open(fileobj=written, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8") as archive:
            for name, content in {MANIFEST: manifest, **self.files}.items():
                member = tarfile.TarInfo(f"evidence/{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        # gzip would write the time of compression.
        return gzip.compress(written.getvalue(), mtime=0)

    def lines(self) -> Iterator[str]:
        """Yield the description of the kit for the person who is asked."""
        mark = " [simulated: it proves nothing about hardware]" if self.manifest["simulated"] else ""
        yield printable(
            f"{counted(len(self.files), 'file')} of {self.manifest['job'] or 'a JOB'}, SDK {self.manifest['sdk']}{mark}"
        )
        for replaced in self.manifest["replaced"] or ("nothing: names of models and layers are as they were",):
            yield f"replaced: {replaced}"
        yield ""
        yield from table_lines(_COLUMNS, [(name, len(data)) for name, data in self.files.items()])
        yield ""
        yield from map(printable, self.remarks)


def gather(directory: Path, tables: Sequence[Path], *, sdk: str, is_anonymous: bool) -> Kit:
    """Return the kit of a JOB and the vendor's tables of it.

    Raises UsageError, UnsupportedBoardError, and FormatError for a file that is no table.
    """
    listing = list_job(directory)
    names = Anonymizer() if is_anonymous else None
    sizes = {}
    for path in listing.files:
        # A JOB that is being written may delete a file meanwhile.
        with suppress(OSError):
            sizes[path] = (directory / path).stat().st_size
    chosen = choose(sizes, {inference for table in tables if (inference := inference_of_name(table.name)) is not None})
    files = dict(sorted([*_job_files(directory, chosen, names), *_table_files(tables, names)]))
    kinds = (parse_log_name(path) for path in sizes.keys() - chosen)
    left_out = dict(sorted(Counter(name.kind.name.lower() if name else "other" for name in kinds).items()))
    job = directory.resolve().name
    manifest = {
        "format": FORMAT,
        "tool": f"profagent {__version__}",
        "sdk": sdk,
        "job": job if is_job_name(job) else "",
        "simulated": listing.is_simulated,
        "replaced": names.replaced if names else (),
        "files": [
            {"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in files.items()
        ],
        "left_out": left_out,
    }
    return Kit(files, manifest, tuple(_remarks(tables, files, left_out)))


def choose(sizes: Mapping[str, int], wanted: set[tuple[int, ...]]) -> set[str]:
    """Return the paths of a JOB's files that go into a kit, by their sizes and as many as fit.

    `wanted` are the inferences of the vendor's tables: model id, batch, pictures, pictures before.
    """
    names = {path: parse_log_name(path) for path in sorted(sizes)}
    groups = [[path] for path, name in names.items() if path == SIMULATED_MARKER or (name and name.kind in _OF_MODELS)]
    chosen: set[str] = set()
    # Files of models come first: without them the records of an inference mean little.
    room = LARGEST_KIT_BYTES
    for paths in (*groups, *_inferences(names, wanted)):
        size = sum(sizes[path] for path in paths)
        if size <= room:
            room -= size
            chosen.update(paths)
    return chosen


def _inferences(names: Mapping[str, LogName | None], wanted: set[tuple[int, ...]]) -> Iterator[list[str]]:
    groups: dict[InferenceKey, list[str]] = defaultdict(list)
    for path, name in names.items():
        if name is not None and name.kind in (LogKind.AICORE, LogKind.AICPU) and name.inference is not None:
            groups[name.inference].append(path)
    ranks: Counter[InferenceKey] = Counter()
    order = []
    for key in sorted(groups, key=lambda key: key.current_pic_count):
        model = key._replace(current_pic_count=0)
        is_wanted = (key.model_id, key.batch_num, key.input_pic_num, key.current_pic_count) in wanted
        if is_wanted or ranks[model] < KIT_INFERENCES:
            order.append((not is_wanted, ranks[model], key.current_pic_count, groups[key]))
        ranks[model] += 1
    yield from (paths for *_, paths in sorted(order))


def _job_files(directory: Path, chosen: set[str], names: Anonymizer | None) -> Iterator[tuple[str, bytes]]:
    """Yield names in the kit with their contents.

    The tables of layers come first, because the aliases of layers in other files depend on them.
    """
    for path in sorted(chosen, key=lambda path: (not path.endswith(".layer.info"), path)):
        try:
            data = (directory / path).read_bytes()
        except OSError as error:
            shown = display_text(str(directory / path))
            raise UsageError(f"cannot read {shown}: {error.strerror}", hint="name a JOB that is finished") from error
        yield f"job/{names.path(path) if names else path}", names.content(path, data) if names else data


def _table_files(tables: Sequence[Path], names: Anonymizer | None) -> Iterator[tuple[str, bytes]]:
    for number, table in enumerate(tables, 1):
        data = read_vendor_table(table)
        # The end of the name denotes the inference; the part before it has the model's name, or is private.
        name = f"op_summary_{number}{inference_suffix(table.name) or '.csv'}" if names else f"{number}/{table.name}"
        yield f"vendor/{name}", names.table(data, str(table)) if names else data


def _remarks(tables: Sequence[Path], files: Mapping[str, bytes], left_out: Mapping[str, int]) -> Iterator[str]:
    stays = ", ".join(f"{count} {what}" for what, count in left_out.items())
    yield f"left out: {stays or 'nothing'}"
    for table in tables:
        inference = inference_of_name(table.name)
        if inference is None or not any(name.endswith("." + ".".join(map(str, inference))) for name in files):
            yield f"the inference that {table.name} is of is not in the kit, or its name does not tell which it is"
    if not tables:
        yield "no vendor table: which word is which counter cannot be settled (--vendor-summary)"


async def job_files_of(target: str, job: str | None, workspace: Path | None) -> Path:
    """Return the directory of a JOB's files: the named one, or that of a session in the mirror. Raises UsageError."""
    directory = directory_named(target)
    if directory is not None:
        return directory
    place = Workspace.at(workspace)
    number = await session_named(place, target)
    async with reading(place.readable_database()) as connection:
        session = await find_session(connection, number)
        await require_records(connection, number)
        jobs = await jobs_of(connection, number, job)
    if len(jobs) != 1:
        names = ", ".join(each.name for each in jobs) or "none"
        raise UsageError(f"a kit contains one JOB, and session {number} has {names}", hint="choose with --job NAME")
    return place.board_mirror(session.board) / jobs[0].name


@click.command("kit", cls=options.SessionCommand)
@options.target
@options.workspace
@options.job
@click.option("-o", "--output", required=True, type=OUTPUT_FILE, metavar="FILE", help="The .tar.gz to write.")
@click.option(
    "--vendor-summary",
    "tables",
    multiple=True,
    type=FILE,
    metavar="CSV",
    help="The vendor's op_summary of this JOB; may be repeated.",
)
@click.option(
    "--anonymous",
    is_flag=True,
    help="Replace the names of models and layers; a name gets the same replacement everywhere.",
)
@click.option("--sdk", default="unknown", metavar="VERSION", help="The SDK whose runtime wrote the JOB.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation; required without a terminal.")
def command(
    *,
    target: str,
    job: str | None,
    workspace: Path | None,
    output: Path,
    tables: tuple[Path, ...],
    anonymous: bool,
    sdk: str,
    yes: bool,
) -> None:
    """Pack evidence from a JOB for the developers: show the files, ask, and write an archive.

    Example: profagent kit -o evidence.tar.gz JOB… --anonymous --sdk SDK_VERSION
    Example: profagent kit -o evidence.tar.gz last --anonymous
    Example: profagent kit -o evidence.tar.gz JOB… --vendor-summary op_summary_0.m.0.1.1.0.0.1000.700.csv
    """
    directory = run_to_the_end(lambda: job_files_of(target, job, workspace))
    kit = gather(directory, tables, sdk=sdk, is_anonymous=anonymous)
    click.echo("\n".join(kit.lines()))
    if not yes and not sys.stdin.isatty():
        raise UsageError(
            "nothing was written: there is no terminal to confirm at", hint="check the list, then add --yes"
        )
    shown = printable(str(output))
    if not yes and not click.confirm(f"Write {counted(len(kit.files), 'file')} to {shown}?"):
        raise ProfagentError("nothing was written", hint="check the list again, or add --anonymous")
    data = kit.archive()
    write_atomically(output, [data])
    click.echo(f"wrote {shown}: {len(data)} bytes, SHA-256 {hashlib.sha256(data).hexdigest()}")
    click.echo(f"what it settles: tar -xzf {shown}, then profagent doctor evidence/job")
