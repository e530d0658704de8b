"""Recognition of the results of msprof, torch_npu, MindSpore or TensorFlow at a path, by the contents of files."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from enum import Enum
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from profagent.ascend.archive import is_packed
from profagent.ascend.csv_rows import Sheet, read_sheet
from profagent.ascend.database import has_known_table, is_database
from profagent.ascend.families import families
from profagent.ascend.timeline import is_timeline
from profagent.errors import ResultError
from profagent.limits import BEGINNING_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from profagent.ascend.families import Family
    from profagent.ledger import Entry

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
RESULTS = "ASCEND_PROFILER_OUTPUT"
EXPORTED = "mindstudio_profiler_output"
FRAMEWORK = "FRAMEWORK"
# Files that describe a run beside its results, and those of them that are read.
DESCRIPTIONS = "profiler_*.json"
FACTS = "profiler_info*.json"
# For each framework, the suffix of its profiler's directories, and its files in FRAMEWORK.
_FRAMEWORKS = {"torch_npu": ("_ascend_pt", "torch.*"), "mindspore": ("_ascend_ms", "mindspore.*")}
# Folders of results in each device's directory, of tools until 2023.
OLDER = ("summary", "timeline")
# Folders in a device's directory.
_OF_DEVICE = ("data", "log", "sqlite", *OLDER)
_DEVICE = re.compile(r"(?:device|host)(?:_\d+)?")
_RAW_SLICE = re.compile(r".*\.slice_\d+|.*\.data\.\d+\..*")
_MSPROF_DATABASE = "msprof_*.db"
# Names of the databases of a run, which has each of them once.
_DATABASES = re.compile(r"(ascend_[a-z]+_profiler|msprof|analysis|communication_analyzer).*\.db")
_TEXTS = (".csv", ".json")
# Beginning of a file in which macOS packs the attributes of another file, and nothing of its content.
_APPLE_DOUBLE = b"\x00\x05\x16\x07"
# One of the several files of a large result.
_SPLIT_RESULT = re.compile(r".*_slice_\d+.*")
# Time at which a tool exported a file, in the file's name.
_TIME = re.compile(r"_\d{14}(?=\.)")
# Time at which a run or an export took place, by the clock of that machine.
_STAMP = re.compile(r"_(20\d{12})\d{0,3}(?=[_.]|$)", re.MULTILINE)
# Timelines that hold the events of all others beside them; these others are then not counted.
_WHOLE_TIMELINES = ("msprof", "trace_view")
_ANALYSIS = ("analysis", "communication_analyzer")
_FIGURES = ("kernels", "steps", "calls")


class Form(Enum):
    """Way in which a file is read."""

    SUMMARY = "summary"
    TIMELINE = "timeline"
    REPORT = "report"
    DATABASE = "database"
    ARCHIVE = "archive"
    # An empty file marks something by its name, as a lock does.
    EMPTY = "empty"
    ATTRIBUTES = "attributes"
    # No known form.
    FOREIGN = "foreign"


_RESULTS = frozenset({Form.SUMMARY, Form.TIMELINE, Form.REPORT, Form.DATABASE})


class RecognisedFile(NamedTuple):
    """File with its form; a summary has its header."""

    file: Path
    form: Form
    sheet: Sheet | None = None

    @property
    def is_known(self) -> bool:
        """True if the file is a result of the Ascend family."""
        return self.form in _RESULTS and (self.sheet is None or self.sheet.family is not None)


class ResultSource(NamedTuple):
    """Source of one session: a directory of results with its files, or one file.

    `raw` is the tool that can make results of a directory with raw slices only. `archive` is the archive that the
    source was unpacked from, `inside` its place there. `beside` is the ledger entry for skipped files in its
    folder, `content` a digest of its files.
    """

    path: Path
    files: tuple[Path, ...]
    raw: str = ""
    archive: Path | None = None
    inside: str = ""
    beside: Entry | None = None
    content: str = ""

    @property
    def address(self) -> Path:
        """Absolute path of the source as people see it, through its archive if it was in one."""
        return self.path.absolute() if self.archive is None else self.archive.absolute() / self.inside

    @property
    def size(self) -> int:
        """Size of all files together in bytes."""
        return sum(file.stat().st_size for file in self.files if file.exists())

    def stamp_us(self) -> int | None:
        """Return the earliest time in the names, read by the clock of this host; None if no name has a time."""
        stamps = _STAMP.findall("\n".join([self.path.name, *(file.name for file in self.files)]))
        try:
            return int(time.mktime(time.strptime(min(stamps), "%Y%m%d%H%M%S"))) * 1_000_000
        except ValueError:
            return None


def recognise(file: Path) -> RecognisedFile:
    """Return the form of a file by its content. Raises ResultError if it is damaged, or cannot be read."""
    try:
        with file.open("rb") as data:
            beginning = data.read(BEGINNING_BYTES)
    except OSError as error:
        raise ResultError(file, 0, f"it cannot be read: {error.strerror}", hint="check its permissions") from error
    if not beginning and _must_have_rows(file):
        raise ResultError(file, 1, "it is empty: 0 bytes")
    form = _binary_form(file, beginning)
    return _text_found(file, beginning) if form is None else RecognisedFile(file, form)


def _binary_form(file: Path, beginning: bytes) -> Form | None:
    if not beginning:
        return Form.EMPTY
    if is_database(beginning):
        return Form.DATABASE if has_known_table(file) else Form.FOREIGN
    if is_packed(beginning):
        return Form.ARCHIVE
    return Form.ATTRIBUTES if beginning.startswith(_APPLE_DOUBLE) else None


def _text_found(file: Path, beginning: bytes) -> RecognisedFile:
    if b"\0" in beginning[:4] and file.suffix.lower() in _TEXTS:
        hint = f"iconv -f UTF-16 -t UTF-8 {file.name}"
        raise ResultError(file, 1, "it is not UTF-8, maybe UTF-16: save it as UTF-8", hint=hint)
    text = beginning.removeprefix(BYTE_ORDER_MARK).lstrip()
    if text[:1] in (b"[", b"{"):
        if is_timeline(text):
            return RecognisedFile(file, Form.TIMELINE)
        return RecognisedFile(file, Form.FOREIGN if families().of_report(text) is None else Form.REPORT)
    if file.suffix.lower() != ".csv" and (b"," not in text.partition(b"\n")[0] or b"\0" in beginning):
        return RecognisedFile(file, Form.FOREIGN)
    return RecognisedFile(file, Form.SUMMARY, read_sheet(file))


def is_attributes(file: Path) -> bool:
    """Return True if a readable file has only the attributes of another file."""
    with suppress(OSError), file.open("rb") as data:
        return data.read(len(_APPLE_DOUBLE)) == _APPLE_DOUBLE
    return False


def _must_have_rows(file: Path) -> bool:
    words = {word for family in families().family if family.kind != "table" for word in _words(family)}
    is_called_so = any(file.stem == word or file.stem.startswith(f"{word}_") for word in words)
    return (file.suffix.lower() in _TEXTS and is_called_so) or _DATABASES.fullmatch(file.name) is not None


Recognised = dict[Path, RecognisedFile | ResultError]


def recognised(folder: Path) -> Recognised:
    """Return each regular file of a folder in its form, or with the error that made it unreadable."""
    found: Recognised = {}
    for file in _files(folder):
        try:
            found[file] = recognise(file)
        except ResultError as error:
            found[file] = error
    return found


class ProfilerRun(NamedTuple):
    """Directory that one run of a profiler wrote: its results, and the folders whose other files are not read."""

    source: ResultSource
    folders: tuple[Path, ...]

    @property
    def results(self) -> list[Path]:
        """Folders that contain the results."""
        return [*dict.fromkeys(file.parent for file in self.source.files)]


def run_in(path: Path, look: Callable[[Path], Recognised]) -> ProfilerRun | None:
    """Return the run that wrote a directory, or None. `look` is `recognised`, or a cached form of it."""
    inside = _folders(path)
    own = path if path.name in (RESULTS, EXPORTED) else path / RESULTS
    if own.is_dir() and (files := _result_files(look(own))):
        of_run = (entry for entry in inside if entry.name == FRAMEWORK or is_collection(entry))
        return ProfilerRun(ResultSource(path, files), tuple(of_run))
    devices = [entry for entry in inside if _DEVICE.fullmatch(entry.name)]
    parts = [*devices, *(entry for entry in inside if entry.name == EXPORTED)]
    if _DEVICE.fullmatch(path.name):
        devices = [*devices, path]
        parts += [entry for entry in inside if entry.name in _OF_DEVICE]
    folders = [path / EXPORTED, *(device / name for device in devices for name in OLDER)]
    results = [file for folder in folders if folder.is_dir() for file in _result_files(look(folder))]
    here = look(path)
    databases = [file for file in here if fnmatch(file.name, _MSPROF_DATABASE)]
    is_run = _is_run(here)
    # Without a device's directory, databases side by side may come from several runs.
    if results or is_run or (databases and devices):
        return ProfilerRun(
            ResultSource(path, (*results, *(_result_files(here) if is_run else databases))), tuple(parts)
        )
    if not databases and _is_raw(path):
        return ProfilerRun(ResultSource(path, (), raw="msprof"), (*parts, path / "data"))
    tool = _framework(path)
    raw = [entry for entry in inside if _is_raw(entry)] if tool else []
    raw += [entry for entry in inside if raw and entry.name == FRAMEWORK]
    return ProfilerRun(ResultSource(path, (), raw=tool), tuple(raw)) if raw else None


def _framework(path: Path) -> str:
    for framework, (suffix, files) in _FRAMEWORKS.items():
        if path.name.endswith(suffix) or any((path / FRAMEWORK).glob(files)):
            return framework
    return ""


def _result_files(found: Recognised) -> tuple[Path, ...]:
    """Return the files that a folder of results contributes: known or damaged files, and unknown tables beside them."""
    if not any(isinstance(each, ResultError) or each.is_known for each in found.values()):
        return ()
    return tuple(file for file, each in found.items() if isinstance(each, ResultError) or each.form in _RESULTS)


def is_collection(folder: Path) -> bool:
    """Return True if a folder has the parts of an msprof collection, which a JOB of SS928 lacks."""
    return any(entry.name == EXPORTED or _DEVICE.fullmatch(entry.name) for entry in _folders(folder))


def _is_raw(path: Path) -> bool:
    devices = [entry for entry in _folders(path) if _DEVICE.fullmatch(entry.name)]
    devices += [path] if _DEVICE.fullmatch(path.name) else []
    return any(map(_has_slices, [path / "data", *devices, *(device / "data" for device in devices)]))


def _is_run(found: Recognised) -> bool:
    """Return True if the files come from one run, whatever the folder is called.

    A tool names each file by its family, and writes it once.
    """
    families_there: list[tuple[Form, str]] = []
    for each in found.values():
        if isinstance(each, ResultError):
            continue
        name = _family_in_name(each)
        if name is None and each.is_known:
            # A person chose this name, and may have collected files of several runs.
            return False
        if name is not None and not _SPLIT_RESULT.fullmatch(each.file.name):
            families_there.append((each.form, name))
    return len(families_there) > 1 and len({*families_there}) == len(families_there)


def _family_in_name(found: RecognisedFile) -> str | None:
    name = found.file.name
    if found.form is Form.DATABASE:
        return match[1] if (match := _DATABASES.fullmatch(name)) else None
    if found.sheet is not None:
        known = [found.sheet.family] if found.sheet.family is not None else []
    else:
        known = [family for family in families().family if family.kind == found.form.value]
    words = {word for family in known for word in _words(family)}
    # The longest name counts: communication_matrix is another family than communication.
    return max(filter(name.startswith, words), key=len, default=None)


def _words(family: Family) -> tuple[str, ...]:
    return family.name.partition(" ")[0], *family.names


def latest_exports(files: Sequence[Path]) -> dict[Path, Path]:
    """Return the latest export of each file: repeated exports differ in the time in their names."""
    latest = {file.with_name(_TIME.sub("", file.name)): file for file in sorted(files)}
    return {file: latest[file.with_name(_TIME.sub("", file.name))] for file in files}


def rank(each: RecognisedFile) -> tuple[int, bool]:
    """Return the sort key of a file: of several with the same figures, the first one contributes them."""
    order = _ORDER.index(each.form) if each.form in _ORDER else len(_ORDER)
    # An analysis has more about steps than the database that it was made from.
    return order, not each.file.name.startswith(_ANALYSIS)


# Summaries come first because they have counters; timelines have events that no other file has, but fewer figures.
_ORDER = (Form.SUMMARY, Form.DATABASE, Form.TIMELINE)


def figures_by_file(found: Sequence[RecognisedFile]) -> dict[Path, tuple[str, ...]]:
    """Return the figures (kernels, steps, calls) that each file contributes: each figure from one kind of file only."""
    summaries = {each.file: each.sheet.family for each in found if each.sheet is not None}
    makes: dict[Path, tuple[str, ...]] = {}
    of_summaries = {name for family in summaries.values() if family is not None for name in (family.into,) if name}
    is_database = any(each.form is Form.DATABASE and not each.file.name.startswith(_ANALYSIS) for each in found)
    whole = [each for each in found if each.form is Form.TIMELINE and each.file.name.startswith(_WHOLE_TIMELINES)]
    steps = [each for each in found if each.form is Form.TIMELINE and each.file.name.startswith("step_trace")]
    for each in found:
        contributed: set[str] = set()
        family = summaries.get(each.file)
        if family is not None:
            contributed = {family.into}
        elif each.form is Form.DATABASE:
            contributed = {*_FIGURES} - of_summaries
        elif each.form is Form.TIMELINE:
            contributed = {*_FIGURES} - of_summaries
            if is_database:
                contributed -= {"kernels", "calls"}
            if whole and each not in whole:
                contributed -= {"kernels", "calls"}
            if steps and each not in steps:
                contributed.discard("steps")
        makes[each.file] = tuple(name for name in _FIGURES if name in contributed)
    return makes


# Suffixes of the files that SQLite keeps beside a database.
_OF_DATABASE = ("-wal", "-shm", "-journal")


def _files(folder: Path) -> list[Path]:
    files = {file.name: file for file in sorted(folder.iterdir()) if file.is_file() and not file.is_symlink()}
    of_databases = {name + end for name in files for end in _OF_DATABASE}
    return [file for name, file in files.items() if name not in of_databases]


def _folders(path: Path) -> list[Path]:
    with suppress(OSError):
        return [entry for entry in sorted(path.iterdir()) if entry.is_dir() and not entry.is_symlink()]
    return []


def _has_slices(folder: Path) -> bool:
    with suppress(OSError), os.scandir(folder) as entries:
        return any(_RAW_SLICE.fullmatch(entry.name) for entry in entries)
    return False
