"""`profagent kit`: what settles open facts, gathered from a JOB directory and the vendor's tables of it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sys
import tarfile
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from profagent import __version__
from profagent.calibrate.aliases import Anonymous
from profagent.calibrate.vendor_table import inference_text, read_vendor_table, said_inference
from profagent.cli.table import Column, printable, table_lines
from profagent.errors import ProfagentError, UsageError
from profagent.files import write_atomically
from profagent.formats.names import LogKind, LogName, display_text, is_job_name, parse_log_name
from profagent.ingest.local import list_job

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from profagent.formats.names import InferenceKey

FORMAT = "profagent evidence 1"
MANIFEST = "manifest.json"
# Of each model and number of pictures; one settles the tick, some more its numbering and that they agree.
FIRST_INFERENCES = 20
# Of all files together, before they are packed; an issue tracker takes about as much.
MOST_BYTES = 20 << 20
SIMULATED_MARKER = "simulated"
_WHY = {
    LogKind.INFO_JSON: "the NPU's clock: how long a tick is",
    LogKind.NET_INFO: "nets: how the file begins, loops and batches",
    LogKind.LAYER_INFO: "layers: how names and items are written, which numbers there are",
    LogKind.AICORE: "layers of an inference, its start and end: words, ticks and numbers",
    LogKind.AICPU: "times of CPU layers: how long a tick is",
}
_OF_MODELS = (LogKind.INFO_JSON, LogKind.NET_INFO, LogKind.LAYER_INFO)
_COLUMNS = tuple(map(Column, ("name in the archive", "bytes", "what it is for")))


@dataclass(frozen=True, slots=True)
class Kit:
    """What is about to be sent: contents and what each is for, by names; the manifest; remarks for the sender."""

    files: Mapping[str, tuple[bytes, str]]
    manifest: Mapping[str, Any]
    remarks: Sequence[str]

    def archive(self) -> bytes:
        """A .tar.gz without owners, times or names of this machine: the same for the same files."""
        manifest = (json.dumps(self.manifest, indent=1) + "\n").encode("ascii")
        written = io.BytesIO()
        with tarfile.open(fileobj=written, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8") as archive:
            for name, content in {MANIFEST: manifest, **{name: data for name, (data, _) in self.files.items()}}.items():
                member = tarfile.TarInfo(f"evidence/{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return gzip.compress(written.getvalue(), mtime=0)


def gather(directory: Path, tables: Sequence[Path], *, sdk: str, is_anonymous: bool) -> Kit:
    """Read what a kit needs. Raises UsageError, UnsupportedBoardError, and FormatError for what is no table."""
    listing = list_job(directory)
    names = Anonymous() if is_anonymous else None
    sizes = {}
    for path in listing.files:
        with suppress(OSError):  # it may just have gone: the JOB may be at work
            sizes[path] = (directory / path).stat().st_size
    chosen = choose(sizes, {said for table in tables if (said := said_inference(table.name)) is not None})
    files = dict(sorted([*_job_files(directory, chosen, names), *_table_files(tables, names)]))
    job = directory.resolve().name
    left_out = _left_out(sizes, chosen)
    manifest = {
        "format": FORMAT,
        "tool": f"profagent {__version__}",
        "sdk": sdk,
        "job": job if is_job_name(job) else "",
        "simulated": listing.is_simulated,
        "replaced": names.replaced if names else (),
        "files": [
            {"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "why": why}
            for name, (data, why) in files.items()
        ],
        "left_out": left_out,
    }
    return Kit(files, manifest, tuple(_remarks(tables, files, left_out)))


def choose(sizes: Mapping[str, int], wanted: set[tuple[int, ...]]) -> set[str]:
    """Choose paths by the sizes of a JOB's files, as many as fit.

    `wanted` are inferences that a vendor's table is of: model id, batch, pictures, pictures before.
    """
    names = {path: parse_log_name(path) for path in sorted(sizes)}
    groups = [[path] for path, name in names.items() if path == SIMULATED_MARKER or (name and name.kind in _OF_MODELS)]
    chosen: set[str] = set()
    room = MOST_BYTES
    for paths in (*groups, *_inferences(names, wanted)):
        size = sum(sizes[path] for path in paths)
        if size <= room:
            room -= size
            chosen.update(paths)
    return chosen


def _inferences(names: Mapping[str, LogName | None], wanted: set[tuple[int, ...]]) -> Iterator[list[str]]:
    """The files of each inference: those of the vendor's tables, then the first of each model in turn."""
    groups: dict[InferenceKey, list[str]] = defaultdict(list)
    for path, name in names.items():
        if name is not None and name.kind in (LogKind.AICORE, LogKind.AICPU) and name.inference is not None:
            groups[name.inference].append(path)
    ranks: Counter[InferenceKey] = Counter()
    order = []
    for key in sorted(groups, key=lambda key: key.current_pic_count):
        model = key._replace(current_pic_count=0)
        is_wanted = (key.model_id, key.batch_num, key.input_pic_num, key.current_pic_count) in wanted
        if is_wanted or ranks[model] < FIRST_INFERENCES:
            order.append((not is_wanted, ranks[model], key.current_pic_count, groups[key]))
        ranks[model] += 1
    yield from (paths for *_, paths in sorted(order))


def _left_out(sizes: Mapping[str, int], chosen: set[str]) -> dict[str, int]:
    """How many files of each kind stay at home."""
    names = (parse_log_name(path) for path in sizes.keys() - chosen)
    return dict(sorted(Counter(name.kind.name.lower() if name else "other" for name in names).items()))


def _job_files(directory: Path, chosen: set[str], names: Anonymous | None) -> Iterator[tuple[str, tuple[bytes, str]]]:
    """Name in the kit, content, and what it is for; names are told apart by the tables of layers, which come first."""
    for path in sorted(chosen, key=lambda path: (not path.endswith(".layer.info"), path)):
        try:
            data = (directory / path).read_bytes()
        except OSError as error:
            shown = display_text(str(directory / path))
            raise UsageError(f"cannot read {shown}: {error.strerror}", hint="name a JOB that is finished") from error
        name = parse_log_name(path)
        why = _WHY[name.kind] if name else "says that the JOB is simulated"
        yield f"job/{names.path(path) if names else path}", (names.content(path, data) if names else data, why)


def _table_files(tables: Sequence[Path], names: Anonymous | None) -> Iterator[tuple[str, tuple[bytes, str]]]:
    for number, table in enumerate(tables, 1):
        data = read_vendor_table(table)
        # The name says which inference it is of; what stands before that is the model's, or somebody's own.
        name = f"op_summary_{number}{inference_text(table.name) or '.csv'}" if names else f"{number}/{table.name}"
        content = names.table(data, str(table)) if names else data
        yield f"vendor/{name}", (content, "the vendor's figures of an inference: which word is which counter")


def _remarks(
    tables: Sequence[Path], files: Mapping[str, tuple[bytes, str]], left_out: Mapping[str, int]
) -> Iterator[str]:
    stays = ", ".join(f"{count} {what}" for what, count in left_out.items())
    yield f"left out: {stays or 'nothing'}"
    for table in tables:
        said = said_inference(table.name)
        if said is None or not any(name.endswith("." + ".".join(map(str, said))) for name in files):
            yield f"the inference that {table.name} is of is not in the kit, or its name does not tell which it is"
    if not tables:
        yield "no vendor table: which word is which counter cannot be settled (--vendor-summary)"


@click.command("kit")
@click.argument("job", metavar="JOB", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The archive to write, a .tar.gz.",
)
@click.option(
    "--vendor-summary",
    "tables",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="CSV",
    help="An op_summary that the vendor's tool made of this JOB; may be repeated.",
)
@click.option("--anonymous", is_flag=True, help="Replace the names of models and layers, each by the same throughout.")
@click.option("--sdk", default="unknown", metavar="VERSION", help="The SDK whose runtime wrote the JOB.")
@click.option("--yes", is_flag=True, help="Do not ask; needed where there is no terminal.")
def command(*, job: Path, output: Path, tables: tuple[Path, ...], anonymous: bool, sdk: str, yes: bool) -> None:
    """Pack evidence from a JOB for the developers: show the files, ask, and write an archive.

    Example: profagent kit -o evidence.tar.gz JOB… --anonymous --sdk SDK_VERSION
    """
    kit = gather(job, tables, sdk=sdk, is_anonymous=anonymous)
    for line in _kit_lines(kit):
        click.echo(line)
    if not yes and not sys.stdin.isatty():
        raise UsageError("nothing was written: nobody is here to agree", hint="look at the list, then add --yes")
    if not yes and not click.confirm(f"Write these {len(kit.files)} files to {printable(str(output))}?"):
        raise ProfagentError("nothing was written", hint="look at the list again, or add --anonymous")
    data = kit.archive()
    write_atomically(output, [data])
    click.echo(f"wrote {printable(str(output))}: {len(data)} bytes, SHA-256 {hashlib.sha256(data).hexdigest()}")
    click.echo(f"what it settles: tar -xzf {printable(str(output))}, then profagent doctor evidence/job")


def _kit_lines(kit: Kit) -> Iterator[str]:
    mark = " [simulated: it proves nothing about hardware]" if kit.manifest["simulated"] else ""
    yield printable(f"{len(kit.files)} files of {kit.manifest['job'] or 'a JOB'}, SDK {kit.manifest['sdk']}{mark}")
    for replaced in kit.manifest["replaced"] or ("nothing: names of models and layers are as they were",):
        yield f"replaced: {replaced}"
    yield ""
    yield from table_lines(_COLUMNS, [(name, len(data), why) for name, (data, why) in kit.files.items()])
    yield ""
    yield from map(printable, kit.remarks)
