"""The archive of a kit: the same bytes for the same files."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from profagent.formats.names import LogKind, LogName, parse_log_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from profagent.formats.names import InferenceKey


FORMAT = "profagent evidence 1"


@dataclass(frozen=True, slots=True)
class Listed:
    """A file of the kit: its name there, its size in bytes, its SHA-256, and what it is for."""

    name: str
    bytes: int
    sha256: str
    why: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Files of the JOB that are not in the kit."""

    what: str
    files: int
    bytes: int
    why: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """`tool` made it; `sdk` is as its sender says; `replaced` is empty where nothing was."""

    tool: str
    sdk: str
    job: str
    simulated: bool
    replaced: tuple[str, ...]
    files: tuple[Listed, ...]
    left_out: tuple[LeftOut, ...]


def listed(name: str, content: bytes, why: str) -> Listed:
    """A file's line in the manifest."""
    return Listed(name, len(content), hashlib.sha256(content).hexdigest(), why)


def manifest_text(manifest: Manifest) -> bytes:
    """The manifest as JSON, in ASCII, the same for the same manifest."""
    return (json.dumps({"format": FORMAT, **asdict(manifest)}, indent=1) + "\n").encode("ascii")


# Of each model and number of pictures; one settles the tick, some more its numbering and that they agree.
FIRST_INFERENCES = 20
# Of all files together, before they are packed; an issue tracker takes about as much.
MOST_BYTES = 20 << 20
SIMULATED_MARKER = "simulated"

_WHY = {
    (LogKind.INFO_JSON, False): "the NPU's clock: how long a tick is",
    (LogKind.NET_INFO, False): "nets: how the file begins, loops and batches",
    (LogKind.LAYER_INFO, False): "layers: how names and items are written, which numbers there are",
    (LogKind.AICORE, False): "records of layers: their words, ticks and numbers",
    (LogKind.AICORE, True): "start and end of the inference: how long a tick is",
    (LogKind.AICPU, False): "times of CPU layers: how long a tick is",
    (LogKind.AICPU, True): "times of CPU layers: how long a tick is",
}
_NOT_NEEDED = {
    LogKind.ACL_API: ("calls of the runtime (acl_api)", "they settle nothing"),
    LogKind.CONT: ("tensors (cont)", "they are your data"),
}
_OTHER = ("other files", "they are none of the runtime's")
_FURTHER = ("further inferences", "the first settle as much")
_TOO_LARGE = ("files that are too large", f"a kit has at most {MOST_BYTES >> 20} MiB")


@dataclass(frozen=True, slots=True)
class Choice:
    """The paths that are wanted, with what each is for; and what is left out."""

    chosen: dict[str, str]
    left_out: tuple[LeftOut, ...]


def choose(files: Mapping[str, int], wanted: set[tuple[int, ...]]) -> Choice:
    """Choose by the sizes of a JOB's files.

    `wanted` are inferences that a vendor's table is of: model id, batch, pictures, pictures before.
    """
    names = {path: parse_log_name(path) for path in sorted(files)}
    order = [*_of_models(names), *_of_inferences(names, wanted)]
    chosen: dict[str, str] = {}
    too_large: set[str] = set()
    room = MOST_BYTES
    for group in order:
        size = sum(files[path] for path in group)
        if size > room:
            too_large |= set(group)
            continue
        room -= size
        chosen |= {path: _why(names[path]) for path in group}
    return Choice(dict(sorted(chosen.items())), tuple(_left_out(files, names, chosen, too_large)))


def _of_models(names: Mapping[str, LogName | None]) -> Iterator[list[str]]:
    """Files of the whole JOB, and of its models, each on its own."""
    for path, name in names.items():
        is_wanted = name is not None and name.kind in (LogKind.INFO_JSON, LogKind.NET_INFO, LogKind.LAYER_INFO)
        if is_wanted or path == SIMULATED_MARKER:
            yield [path]


def _of_inferences(names: Mapping[str, LogName | None], wanted: set[tuple[int, ...]]) -> Iterator[list[str]]:
    """The files of each inference: those of the vendor's tables, then the first of each model in turn."""
    groups: dict[InferenceKey, list[str]] = defaultdict(list)
    for path, name in names.items():
        if name is not None and name.kind in (LogKind.AICORE, LogKind.AICPU) and name.inference is not None:
            groups[name.inference].append(path)
    ranks: dict[tuple[object, ...], int] = defaultdict(int)
    order = []
    for key in sorted(groups, key=lambda key: key.current_pic_count):
        model = key._replace(current_pic_count=0)
        is_wanted = (key.model_id, key.batch_num, key.input_pic_num, key.current_pic_count) in wanted
        if is_wanted or ranks[model] < FIRST_INFERENCES:
            order.append((not is_wanted, ranks[model], key.current_pic_count, groups[key]))
        ranks[model] += 1
    for *_, paths in sorted(order):
        yield paths


def _why(name: LogName | None) -> str:
    return "says that the JOB is simulated" if name is None else _WHY[name.kind, name.is_done]


def _left_out(
    files: Mapping[str, int], names: Mapping[str, LogName | None], chosen: Mapping[str, str], too_large: set[str]
) -> Iterator[LeftOut]:
    reasons: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in files.keys() - chosen.keys():
        name = names[path]
        if path in too_large:
            reasons[_TOO_LARGE].append(path)
        elif name is None:
            reasons[_OTHER].append(path)
        else:
            reasons[_NOT_NEEDED.get(name.kind, _FURTHER)].append(path)
    for (what, why), paths in sorted(reasons.items()):
        yield LeftOut(what, len(paths), sum(files[path] for path in paths), why)


TOP = "evidence"
MANIFEST = "manifest.json"
JOB, VENDOR = "job", "vendor"
_MODE = 0o644
_LEVEL = 9


def packed(files: Mapping[str, bytes]) -> bytes:
    """A .tar.gz of the files in the order given, without owners, times or names of this machine."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{TOP}/{name}")
            member.size, member.mode = len(content), _MODE
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(written.getvalue(), _LEVEL, mtime=0)
