"""`kit`: what settles open facts, gathered from a JOB directory and the vendor's tables of it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from profagent import __version__
from profagent.calibrate.aliases import Anonymous
from profagent.calibrate.kit import JOB, MANIFEST, MOST_BYTES, VENDOR, Manifest, choose, listed, manifest_text, packed
from profagent.calibrate.named_file import read_vendor_table
from profagent.calibrate.table_name import inference_text, said_inference
from profagent.calibrate.vendor_table import parse_vendor_table
from profagent.errors import UsageError
from profagent.formats.names import display_text, is_job_name
from profagent.ingest.local import list_job

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from profagent.calibrate.kit import Choice
    from profagent.ingest.local import JobListing

__all__ = ["Kit", "gather"]

LARGEST_TABLE_BYTES = 2 << 20
MOST_TABLES = 64
_TABLE_WHY = "the vendor's figures of an inference: which word is which counter"


@dataclass(frozen=True, slots=True)
class Kit:
    """What is about to be sent; `remarks` are for whoever sends it."""

    manifest: Manifest
    files: Mapping[str, bytes]
    remarks: tuple[str, ...]

    def archive(self) -> bytes:
        """The .tar.gz, the same for the same files."""
        return packed({MANIFEST: manifest_text(self.manifest), **self.files})


def gather(directory: Path, tables: Sequence[Path], *, sdk: str, is_anonymous: bool) -> Kit:
    """Read what a kit needs. Raises UsageError, UnsupportedBoardError, and FormatError for what is no table."""
    listing = list_job(directory)
    names = Anonymous() if is_anonymous else None
    wanted = {said for table in tables if (said := said_inference(table.name)) is not None}
    choice = choose(_sizes(directory, listing), wanted)
    contents = dict(_job_files(directory, choice, names)) | dict(_table_files(tables, names))
    files = dict(sorted((name, data) for name, (data, _) in contents.items()))
    manifest = Manifest(
        tool=f"profagent {__version__}",
        sdk=sdk,
        job=directory.resolve().name if is_job_name(directory.resolve().name) else "",
        simulated=listing.is_simulated,
        replaced=names.replaced if names else (),
        files=tuple(listed(name, data, contents[name][1]) for name, data in files.items()),
        left_out=choice.left_out,
    )
    return Kit(manifest, files, tuple(_remarks(tables, manifest)))


def _sizes(directory: Path, listing: JobListing) -> dict[str, int]:
    sizes = {}
    for path in listing.files:
        with suppress(OSError):  # it may just have gone: the JOB may be at work
            sizes[path] = (directory / path).stat().st_size
    return sizes


def _job_files(directory: Path, choice: Choice, names: Anonymous | None) -> Iterator[tuple[str, tuple[bytes, str]]]:
    """Name in the kit, content, and what it is for; names are told apart by the tables of layers, which come first."""
    for path in sorted(choice.chosen, key=lambda path: (not path.endswith(".layer.info"), path)):
        data = _read(directory / path, MOST_BYTES)
        if names is not None:
            data = names.content(path, data)
        yield f"{JOB}/{names.path(path) if names else path}", (data, choice.chosen[path])


def _table_files(tables: Sequence[Path], names: Anonymous | None) -> Iterator[tuple[str, tuple[bytes, str]]]:
    if len(tables) > MOST_TABLES:
        raise UsageError(f"{len(tables)} vendor tables are too many", hint=f"name at most {MOST_TABLES}")
    is_renamed = names is not None or len({table.name for table in tables}) < len(tables)
    for number, table in enumerate(tables, 1):
        data = _table(table)
        if names is not None:
            data = names.table(data, str(table))
        # The name says which inference it is of; what stands before that is the model's, or somebody's own.
        alias = f"op_summary_{number}{inference_text(table.name) or '.csv'}"
        yield f"{VENDOR}/{alias if is_renamed else table.name}", (data, _TABLE_WHY)


def _read(path: Path, size: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError as error:
        shown = display_text(str(path))
        raise UsageError(f"cannot read {shown}: {error.strerror}", hint="name a JOB that is finished") from error


def _table(path: Path) -> bytes:
    data = read_vendor_table(path, LARGEST_TABLE_BYTES)
    parse_vendor_table(data, str(path))
    return data


def _remarks(tables: Sequence[Path], manifest: Manifest) -> Iterator[str]:
    for table in tables:
        said = said_inference(table.name)
        if said is None:
            yield f"the name of {table.name} does not tell its inference: it is in the kit if it is one of the first"
        elif not any(_is_of(each.name, said) for each in manifest.files):
            yield f"the inference that {table.name} is of is not in the kit"
    if not tables:
        yield "no vendor table: which word is which counter cannot be settled (--vendor-summary)"


def _is_of(name: str, said: tuple[int, ...]) -> bool:
    """Whether a file of the kit is of that inference: it ends in the same numbers."""
    return PurePosixPath(name).name.endswith("." + ".".join(map(str, said)))
