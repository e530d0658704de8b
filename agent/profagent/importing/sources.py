"""What there is to import at given paths: JOB directories and results of other tools, at any depth, also in archives.

One walk finds them all, and lists everything that it passes over.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from contextlib import suppress
from enum import Enum
from fnmatch import fnmatch
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from profagent import ledger
from profagent.ascend.archive import NAMES, UNPACK_BY_HAND, Limits, unpack
from profagent.ascend.recognise import (
    DESCRIPTIONS,
    FACTS,
    Form,
    ProfilerRun,
    ResultSource,
    is_attributes,
    is_collection,
    recognise,
    recognised,
    run_in,
)
from profagent.errors import ProfagentError, ResultError, UsageError
from profagent.formats.names import display_text, parse_log_name
from profagent.importing.descriptions import described
from profagent.ingest.local import OUTPUT_FOLDERS
from profagent.ingest.source import source_named
from profagent.limits import MOST_ARCHIVES, MOST_NAMED, REMEMBERED_RESULTS
from profagent.store.workspace import is_workspace
from profagent.tables.table import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from profagent.ascend.recognise import Found
    from profagent.ledger import Entry

_TABLES = (".csv", ".json", ".db")


class Why(Enum):
    """Why a file was not taken; the text stands behind a number of files."""

    UNKNOWN = "of no known family"
    DESCRIPTION = "describing a run"
    RAW = "with raw data of a run whose results are taken"
    IRREGULAR = "not regular (a link or device)"
    UNREADABLE = "not readable"
    EMPTY = "without content"
    ATTRIBUTES = "with macOS attributes of others"
    REPLACED = "replaced by a later one of its name in the archive"
    EXPORT = "made in a JOB by an import or export"
    WORKSPACE = "in a workspace of profagent"

    @property
    def is_noted(self) -> bool:
        """Whether the ledger notes it: it may have had something to import."""
        return self in {Why.UNKNOWN, Why.DESCRIPTION, Why.RAW, Why.IRREGULAR, Why.UNREADABLE, Why.REPLACED}


_WHY = {Form.EMPTY: Why.EMPTY, Form.ATTRIBUTES: Why.ATTRIBUTES}


class Passed(NamedTuple):
    """A file that is not taken. `address` is where it is for people: in an archive by its place there."""

    path: Path
    address: Path
    why: Why


class Failed(NamedTuple):
    """A source that is known as such and cannot be imported."""

    address: Path
    error: ProfagentError


class Job(NamedTuple):
    """A JOB directory, or one of OPS-…, MARKS-… or METRICS-…; `beside` is what of its folder was not taken.

    `first` is where another copy of it was found before.
    """

    path: Path
    address: Path
    first: Path | None = None
    beside: Entry | None = None


class _Origin(NamedTuple):
    """What a folder was unpacked from: an archive at a path, or the one that stands `inside` of that."""

    archive: Path
    folder: Path
    inside: Path
    depth: int
    limits: Limits


def passed_text(passed: Sequence[Passed]) -> str:
    """Return how many files were not taken, and why."""
    counts = Counter(each.why for each in passed)
    if len(counts) == 1:
        return f"{counted(len(passed), 'file')} {passed[0].why.value}"
    parts = ", ".join(f"{count:,} {why.value}" for why, count in counts.most_common())
    return f"{len(passed):,} files, of which {parts}"


class Walk:
    """Looks through paths; `jobs`, `results`, `failed` and `passed` are what was found.

    Archives are unpacked below `scratch`. No workspace is looked into, nor the folder `own`, which is to be one.
    """

    def __init__(self, scratch: Path, own: Path) -> None:
        self.jobs: list[Job] = []
        self.results: list[ResultSource] = []
        self.failed: list[Failed] = []
        self.passed: list[Passed] = []
        self._scratch, self._own = scratch, own.resolve()
        self._look = lru_cache(REMEMBERED_RESULTS)(recognised)
        self._seen: set[Path] = set()
        self._first: dict[str, Path] = {}  # by name of a JOB, where its first copy is
        self._described: set[Path] = set()  # files that are labels of a JOB
        self._archives = 0
        # A list and no recursion: folders may be nested deeper than Python's stack.
        self._to_visit: list[tuple[Path, _Origin | None]] = []

    def look_through(self, path: Path) -> None:
        """Look through a path. Raises UsageError where there is nothing to import."""
        hint = "name a JOB directory, a directory of results, or a file"
        try:
            if not path.exists():
                raise UsageError(f"there is no {path}", hint=hint)
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}", hint=hint) from error
        # A session is called as its folder, which `.` does not tell.
        here = path.resolve()
        is_seen, before, passed = here in self._seen, self._count(), len(self.passed)
        self._visit(here, None, is_named=True)
        while self._to_visit:
            self._visit(*self._to_visit.pop())
        if self._count() == before and not is_seen:
            found = f": {passed_text(self.passed[passed:])}" if len(self.passed) > passed else ""
            raise UsageError(
                f"{path} has nothing that is known{found}",
                hint="name a JOB directory, a PROF_…, …_ascend_pt or …_ascend_ms directory, a CSV, JSON or .db file of"
                " one, or an archive",
            )

    def finish(self) -> None:
        """Give each source its entry for what is passed over in it or beside it; call it once, after all paths.

        What stands beside no source is in the entry of the first one.
        """
        taken = {file for source in self.results for file in source.files} | self._described
        self.passed = [each for each in self.passed if each.path not in taken or each.why is Why.REPLACED]
        beside: dict[Path, list[Passed]] = {}
        sources = [*(job.path for job in self.jobs), *(source.path for source in self.results if source.files)]
        inside, next_to = {*sources}, {path.parent: path for path in reversed(sources)}
        anywhere = next(iter(sources), None)
        for each in self.passed:
            folders = each.path.parents
            home = next((folder for folder in folders if folder in inside), next_to.get(folders[0], anywhere))
            if home is not None and each.why.is_noted:
                beside.setdefault(home, []).append(each)
        entries = {path: _entry(passed) for path, passed in beside.items()}
        self.jobs = [each._replace(beside=entries.get(each.path)) for each in self.jobs]
        self.results = [each._replace(beside=entries.get(each.path)) for each in self.results]

    def _count(self) -> int:
        return len(self.jobs) + len(self.results) + len(self.failed)

    def _visit(self, path: Path, origin: _Origin | None, *, is_named: bool = False) -> None:
        if path in self._seen:
            return
        self._seen.add(path)
        try:
            if path.is_symlink():
                self._pass(path, origin, Why.IRREGULAR)
            elif path.is_dir():
                self._visit_folder(path, origin)
            elif path.is_file():
                self._visit_file(path, origin, is_named=is_named)
            else:
                self._pass(path, origin, Why.IRREGULAR)
        except OSError as error:
            hint = "check its permissions, and the free space of the workspace"
            what = f"cannot read {_address(path, origin)}: {error.strerror}"
            self.failed.append(Failed(_address(path, origin), ProfagentError(what, hint=hint)))

    def _visit_file(self, path: Path, origin: _Origin | None, *, is_named: bool) -> None:
        found = _recognised_alone(path) if is_named else self._look(path.parent).get(path)
        if found is None:
            # SQLite has put it beside a database, and reads it with that.
            return
        if isinstance(found, ResultError):
            # A result that is damaged is told when it is read.
            if is_named or path.suffix.lower() in _TABLES:
                self._take(ResultSource(path, (path,)), origin)
            else:
                self._pass(path, origin, Why.UNREADABLE)
        elif found.form is Form.ARCHIVE and (is_named or NAMES.search(path.name)):
            self._unpack(path, origin)
        elif found.form in _WHY:
            self._pass(path, origin, _WHY[found.form])
        elif found.is_known or is_named:
            self._take(ResultSource(path, (path,)), origin)
        else:
            is_description = fnmatch(path.name, DESCRIPTIONS)
            self._pass(path, origin, Why.DESCRIPTION if is_description else Why.UNKNOWN)

    def _visit_folder(self, path: Path, origin: _Origin | None) -> None:
        if path == self._own or is_workspace(path):
            self._pass(path, origin, Why.WORKSPACE)
        elif source_named(path.name) and not (is_collection(path) or _has_attributes_only(path)):
            self._take_job(path, origin)
        elif _is_renamed_job(path):
            what = f"{_address(path, origin)} is a JOB directory that was renamed"
            hint = "give it its name back, JOB and 29 letters; or see it as it is: profagent import -dir DIR"
            self.failed.append(Failed(_address(path, origin), UsageError(what, hint=hint)))
        else:
            run = run_in(path, self._look)
            if run is not None:
                self._take_run(path, run, origin)
            self._push([path] if run is None else [path, *run.results], origin)

    def _take_job(self, path: Path, origin: _Origin | None) -> None:
        address = _address(path, origin)
        self._described |= described(path.parent).files
        self.jobs.append(Job(path, address, self._first.get(path.name)))
        self._first.setdefault(path.name, address)
        for file in (file for name in sorted(OUTPUT_FOLDERS) for file in _files_below(path / name)):
            self._pass(file, origin, Why.EXPORT)
        self._to_visit += [(entry, origin) for entry in sorted(_strangers(path), reverse=True)]

    def _take_run(self, path: Path, run: ProfilerRun, origin: _Origin | None) -> None:
        """Take the results of a run; what is in its folders beside them is not read."""
        self._take(run.source, origin)
        self._seen |= {*run.source.files, *run.folders, *run.results}
        if run.source.files:
            self._seen |= {*path.glob(FACTS)}
            for file in (file for folder in run.folders for file in _files_below(folder, {*run.results})):
                self._pass(file, origin, Why.RAW)

    def _push(self, folders: Iterable[Path], origin: _Origin | None) -> None:
        entries = sorted({entry for folder in folders for entry in folder.iterdir()} - self._seen, reverse=True)
        self._to_visit += [(entry, origin) for entry in entries]

    def _take(self, source: ResultSource, origin: _Origin | None) -> None:
        if origin is not None:
            inside = str(origin.inside / source.path.relative_to(origin.folder))
            source = source._replace(archive=origin.archive, inside=inside)
        self.results.append(source)

    def _pass(self, path: Path, origin: _Origin | None, why: Why) -> None:
        self.passed.append(Passed(path, _address(path, origin), why))

    def _unpack(self, path: Path, origin: _Origin | None) -> None:
        self._archives += 1
        # What has no folder of its own in there is called as the archive.
        folder = self._scratch / f"archive-{self._archives}" / path.name
        address = _address(path, origin)
        if origin is None:
            new = _Origin(path, folder, Path(), 1, Limits(path, self._scratch))
        else:
            inside = origin.inside / path.relative_to(origin.folder)
            new = origin._replace(folder=folder, inside=inside, depth=origin.depth + 1)
        if new.depth > MOST_ARCHIVES:
            what = f"it is an archive in {MOST_ARCHIVES} others, and no more are unpacked"
            self.failed.append(Failed(address, ResultError(address, 0, what, hint=UNPACK_BY_HAND)))
            return
        folder.mkdir(parents=True)
        try:
            unpacked = unpack(path, folder, new.limits)
        except ResultError as error:
            shutil.rmtree(folder, ignore_errors=True)
            said = ProfagentError(str(error).replace(str(path), str(address)), hint=error.hint)
            self.failed.append(Failed(address, said))
            return
        for link in unpacked.others:
            self._pass(folder / link, new, Why.IRREGULAR)
        for name in unpacked.replaced:
            self._pass(folder / name, new, Why.REPLACED)
        self._to_visit.append((folder, new))


def _address(path: Path, origin: _Origin | None) -> Path:
    return path if origin is None else origin.archive / origin.inside / path.relative_to(origin.folder)


def _recognised_alone(path: Path) -> Found | ResultError:
    try:
        return recognise(path)
    except ResultError as error:
        return error


def _has_attributes_only(path: Path) -> bool:
    """Whether a folder is what macOS packs beside the one of that name."""
    files = _files_below(path)
    first = next(files, None)
    return first is not None and all(map(is_attributes, chain([first], files)))


def _is_renamed_job(path: Path) -> bool:
    data = path / "data"
    names = (parse_log_name(f"data/{entry.name}") for entry in data.iterdir()) if data.is_dir() else ()
    return any(name is not None and name.is_data for name in names)


def _strangers(job: Path) -> Iterator[Path]:
    """Folders in a JOB that are not the JOB's own, and results of other tools beside its files."""
    with suppress(OSError):
        for folder in (job, job / "data"):
            with os.scandir(folder) as entries:
                of_others = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
            yield from (folder / name for name in of_others if folder != job or name not in (*OUTPUT_FOLDERS, "data"))
        for file in (file for file in job.iterdir() if file.suffix.lower() in _TABLES and not file.is_symlink()):
            with suppress(ResultError):
                if file.is_file() and recognise(file).is_known:
                    yield file


def _files_below(folder: Path, but: Collection[Path] = ()) -> Iterator[Path]:
    """All that is no directory, at any depth; a directory that may not be listed stands for what it has."""
    folders = [folder]
    while folders:
        at = folders.pop()
        try:
            entries = sorted(at.iterdir()) if at not in but and at.is_dir() else []
        except OSError:
            yield at
            continue
        for entry in entries:
            if entry.is_dir() and not entry.is_symlink():
                folders.append(entry)
            else:
                yield entry


def _entry(passed: Sequence[Passed]) -> Entry:
    # The database holds text; a name need not be any.
    names = ", ".join(display_text(each.path.name) for each in passed[:MOST_NAMED])
    more = ", …" if len(passed) > MOST_NAMED else ""
    return ledger.entry(ledger.NOT_TAKEN, f"{passed_text(passed)}: {names}{more}", count=len(passed))
