"""What lies at a path: results of msprof, torch_npu, MindSpore or TensorFlow, told by what is in the files."""

from __future__ import annotations

import os
import re
import time
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from profagent.ascend.archive import ZIP
from profagent.ascend.csv_rows import Sheet, read_sheet
from profagent.ascend.database import has_known_table, is_database
from profagent.ascend.families import families
from profagent.ascend.timeline import is_timeline
from profagent.errors import ResultError
from profagent.ingest.decoder import source_named

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BEGINNING_BYTES = 256 << 10
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
RESULTS = "ASCEND_PROFILER_OUTPUT"
EXPORTED = "mindstudio_profiler_output"
# Of 2023 and before: in each device's directory.
OLDER = ("summary", "timeline")
_DEVICE = re.compile(r"(?:device|host)(?:_\d+)?")
_SLICES = re.compile(r".*\.slice_\d+|.*\.data\..*")
_MSPROF_DATABASE = "msprof_*.db"
# How databases of one run are called, each once.
_DATABASES = re.compile(r"(ascend_[a-z]+_profiler|msprof|analysis|communication_analyzer).*\.db")
_TEXTS = (".csv", ".json")
# How archives of results are called; other tools pack what is theirs, too.
_ARCHIVES = re.compile(r"\.(?:tar|tgz|zip|(?:tar|csv|json|db)\.gz)$", re.IGNORECASE)
# Of a large file, one of several.
_SLICE = re.compile(r".*_slice_\d+.*")


# When a tool exported it.
_TIME = re.compile(r"_\d{14}(?=\.)")
# When it ran, or was exported, by the clock there.
_STAMP = re.compile(r"_(20\d{12})\d{0,3}(?=[_.]|$)", re.MULTILINE)
# Of several timelines with the same events one kind is taken.
_WHOLE_TIMELINES = ("msprof", "trace_view")
_ANALYSIS = ("analysis", "communication_analyzer")
_MAKES = ("kernels", "steps", "calls")


class Form(Enum):
    """How a file is read."""

    SUMMARY = "summary"
    TIMELINE = "timeline"
    REPORT = "report"
    DATABASE = "database"
    ARCHIVE = "archive"
    # Nothing that is known: in a directory of results it is noted.
    FOREIGN = "foreign"


class Found(NamedTuple):
    """A file, and how it is read; a summary has its header."""

    file: Path
    form: Form
    sheet: Sheet | None = None

    @property
    def is_known(self) -> bool:
        """Whether it is a result of the Ascend family."""
        return self.form is not Form.FOREIGN and (self.sheet is None or self.sheet.family is not None)


class Source(NamedTuple):
    """What becomes one session: a directory of results with its files, or one file. `raw` has slices only.

    `archive` is what it was unpacked from, `inside` where it stood there.
    """

    path: Path
    files: tuple[Path, ...]
    raw: bool = False
    archive: Path | None = None
    inside: str = ""

    @property
    def address(self) -> Path:
        """Where it is for people."""
        return self.path.absolute() if self.archive is None else self.archive.absolute() / self.inside

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(file.stat().st_size for file in self.files if file.exists())

    def stamp_us(self) -> int | None:
        """The earliest time in its names, taken for one of this host's clock; None where they have none."""
        stamps = _STAMP.findall("\n".join([self.path.name, *(file.name for file in self.files)]))
        try:
            return int(time.mktime(time.strptime(min(stamps), "%Y%m%d%H%M%S"))) * 1_000_000
        except ValueError:
            return None


def is_archive(file: Path) -> bool:
    """Whether a file is one that results may be packed in; one that cannot be read is none."""
    try:
        with file.open("rb") as data:
            return _is_packed(data.read(512))
    except OSError:
        return False


def _is_packed(beginning: bytes) -> bool:
    return beginning.startswith(ZIP) or beginning[:2] == b"\x1f\x8b" or beginning[257:262] == b"ustar"


def recognise(file: Path) -> Found:
    """What a file is, by its content. Raises ResultError where it is empty, no text of that kind, or not to be read."""
    try:
        with file.open("rb") as data:
            beginning = data.read(BEGINNING_BYTES)
    except OSError as error:
        # Of a folder that cannot be listed only this is known.
        why = "not all of the folder may be listed" if isinstance(error, IsADirectoryError) else error.strerror
        raise ResultError(file, 0, f"it cannot be read: {why}", hint="check its permissions") from error
    if not beginning:
        raise ResultError(file, 1, "it is empty: 0 bytes")
    if is_database(beginning):
        return Found(file, Form.DATABASE if has_known_table(file) else Form.FOREIGN)
    if _is_packed(beginning):
        return Found(file, Form.ARCHIVE)
    if b"\0" in beginning[:4] and file.suffix.lower() in _TEXTS:
        hint = f"iconv -f UTF-16 -t UTF-8 {file.name}"
        raise ResultError(file, 1, "it is not UTF-8, maybe UTF-16: save it as UTF-8", hint=hint)
    text = beginning.removeprefix(BYTE_ORDER_MARK).lstrip()
    if text[:1] in (b"[", b"{"):
        if is_timeline(text):
            return Found(file, Form.TIMELINE)
        return Found(file, Form.FOREIGN if families().of_report(text) is None else Form.REPORT)
    if file.suffix.lower() != ".csv" and (b"," not in text.partition(b"\n")[0] or b"\0" in beginning):
        return Found(file, Form.FOREIGN)
    return Found(file, Form.SUMMARY, read_sheet(file))


def sources(path: Path) -> Iterator[Source]:
    """What there is to import at a path, and below it. JOB directories of SS928 are left out."""
    try:
        yield from _sources(path)
    except OSError:
        # It is told when it is read, as the others are.
        yield Source(path, (path,))


def _sources(path: Path) -> Iterator[Source]:
    if path.is_file():
        yield Source(path, (path,))
        return
    found = _directory(path)
    if found is not None:
        yield found
        return
    if source_named(path.name):
        return
    is_run = _is_run(path)
    if is_run:
        yield Source(path, _files(path))
    for entry in sorted(path.iterdir()):
        if entry.is_symlink():
            continue
        if entry.is_dir():
            yield from sources(entry)
        elif not is_run and entry.is_file() and _is_known(entry):
            yield Source(entry, (entry,))


def _directory(path: Path) -> Source | None:
    """A directory that one profiler's run has written; None for any other."""
    if path.name in (RESULTS, EXPORTED):
        return Source(path, _files(path))
    if (path / RESULTS).is_dir():
        return Source(path, _files(path / RESULTS))
    devices = [entry for entry in sorted(path.iterdir()) if entry.is_dir() and _DEVICE.fullmatch(entry.name)]
    devices += [path] if _DEVICE.fullmatch(path.name) else []
    folders = [path / EXPORTED, *(device / name for device in devices for name in OLDER)]
    files = [file for folder in folders if folder.is_dir() for file in _files(folder)]
    databases = sorted(path.glob(_MSPROF_DATABASE))
    # Without a device's directory they may be of several runs.
    is_run = _is_run(path)
    if files or (databases and (devices or is_run)):
        return Source(path, (*files, *(_files(path) if is_run else databases)))
    folders = [path / "data", *devices, *(device / "data" for device in devices)]
    if not databases and any(map(_has_slices, folders)):
        return Source(path, (), raw=not source_named(path.name))
    return None


def _is_run(folder: Path) -> bool:
    """Whether its files are of one run, whatever it is called: a tool calls each by its family, and writes it once."""
    families_there: list[tuple[Form, str]] = []
    for file in _files(folder):
        try:
            found = recognise(file)
        except ResultError:
            continue
        name = _family_in_name(found)
        if name is None and found.is_known and found.form is not Form.ARCHIVE:
            # Somebody called it so, and may have put together what is of several runs.
            return False
        if name is not None and not _SLICE.fullmatch(file.name):
            families_there.append((found.form, name))
    return len(families_there) > 1 and len({*families_there}) == len(families_there)


def _family_in_name(found: Found) -> str | None:
    """The family that a file's name begins with, if its content is of that kind."""
    name = found.file.name
    if found.form is Form.DATABASE:
        return match[1] if (match := _DATABASES.fullmatch(name)) else None
    if found.sheet is not None:
        known = [found.sheet.family] if found.sheet.family is not None else []
    else:
        known = [family for family in families().family if family.kind == found.form.value]
    words = {word for family in known for word in (family.name.partition(" ")[0], *family.names)}
    # The longest: communication_matrix is no communication.
    return max(filter(name.startswith, words), key=len, default=None)


def latest_exports(files: Sequence[Path]) -> dict[Path, Path]:
    """By file the latest export of it: what a tool exports once more differs in the time of its name."""
    latest = {file.with_name(_TIME.sub("", file.name)): file for file in sorted(files)}
    return {file: latest[file.with_name(_TIME.sub("", file.name))] for file in files}


def rank(each: Found) -> tuple[int, bool]:
    """Which file tells kernels, steps and calls first, where several do."""
    order = _ORDER.index(each.form) if each.form in _ORDER else len(_ORDER)
    # What was analysed tells more of steps than what it was made from.
    return order, not each.file.name.startswith(_ANALYSIS)


# A summary has counters, a timeline has what nothing else.
_ORDER = (Form.SUMMARY, Form.DATABASE, Form.TIMELINE)


def what_each_makes(found: Sequence[Found]) -> dict[Path, tuple[str, ...]]:
    """Which of kernels, steps and calls is taken from which file: each from one kind of file only."""
    summaries = {each.file: each.sheet.family for each in found if each.sheet is not None}
    makes: dict[Path, tuple[str, ...]] = {}
    told = {name for family in summaries.values() if family is not None for name in (family.into,) if name}
    is_database = any(each.form is Form.DATABASE and not each.file.name.startswith(_ANALYSIS) for each in found)
    whole = [each for each in found if each.form is Form.TIMELINE and each.file.name.startswith(_WHOLE_TIMELINES)]
    steps = [each for each in found if each.form is Form.TIMELINE and each.file.name.startswith("step_trace")]
    for each in found:
        wanted: set[str] = set()
        family = summaries.get(each.file)
        if family is not None:
            wanted = {family.into}
        elif each.form is Form.DATABASE:
            wanted = {*_MAKES} - told
        elif each.form is Form.TIMELINE:
            wanted = {*_MAKES} - told
            if is_database:
                wanted -= {"kernels", "calls"}
            if whole and each not in whole:
                wanted -= {"kernels", "calls"}
            if steps and each not in steps:
                wanted.discard("steps")
        makes[each.file] = tuple(name for name in _MAKES if name in wanted)
    return makes


# What SQLite keeps beside a database.
_OF_DATABASE = ("-wal", "-shm", "-journal")


def _files(folder: Path) -> tuple[Path, ...]:
    files = (file for file in sorted(folder.iterdir()) if file.is_file() and not file.is_symlink())
    return tuple(file for file in files if not file.name.endswith(_OF_DATABASE))


def _has_slices(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    with os.scandir(folder) as entries:
        return any(_SLICES.fullmatch(entry.name) for entry in entries)


def _is_known(file: Path) -> bool:
    try:
        found = recognise(file)
        return found.is_known and (found.form is not Form.ARCHIVE or _ARCHIVES.search(file.name) is not None)
    except ResultError:
        # A result that is damaged is told of, not passed over.
        return file.suffix.lower() in (*_TEXTS, ".db") and file.stat().st_size > 0
