"""Sources to import at given paths: JOB directories and results of other tools, at any depth, also in archives.

One walk finds all sources, and lists every file that it skips.
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
from profagent.importing.descriptions import description_of
from profagent.ingest.local import OUTPUT_FOLDERS
from profagent.ingest.source import source_named
from profagent.limits import MOST_ARCHIVES, MOST_NAMED, REMEMBERED_RESULTS
from profagent.store.workspace import is_workspace
from profagent.tables.table import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from profagent.ascend.recognise import RecognisedFile
    from profagent.ledger import Entry

_TABLES = (".csv", ".json", ".db")


class SkipReason(Enum):
    """Reason why a file was skipped; the text follows a number of files."""

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
        """True if the ledger notes the file, because it may have had something to import."""
        return self in {
            SkipReason.UNKNOWN,
            SkipReason.DESCRIPTION,
            SkipReason.RAW,
            SkipReason.IRREGULAR,
            SkipReason.UNREADABLE,
            SkipReason.REPLACED,
        }


_REASONS = {Form.EMPTY: SkipReason.EMPTY, Form.ATTRIBUTES: SkipReason.ATTRIBUTES}


class SkippedFile(NamedTuple):
    """File that is not imported. `address` is its place as people see it: for one in an archive, the place there."""

    path: Path
    address: Path
    why: SkipReason


class FailedSource(NamedTuple):
    """Source that was recognised and cannot be imported."""

    address: Path
    error: ProfagentError


class Job(NamedTuple):
    """JOB directory, or one of OPS-…, MARKS-… or METRICS-….

    `first` is the place of an earlier copy of it. `beside` is the ledger entry for skipped files in or beside it.
    """

    path: Path
    address: Path
    first: Path | None = None
    beside: Entry | None = None


class _ArchiveOrigin(NamedTuple):
    """Archive that a folder was unpacked from: one at a path, or the one that stands `inside` of that archive."""

    archive: Path
    folder: Path
    inside: Path
    depth: int
    limits: Limits


def skipped_text(skipped: Sequence[SkippedFile]) -> str:
    """Return the number of skipped files with their reasons."""
    counts = Counter(each.why for each in skipped)
    if len(counts) == 1:
        return f"{counted(len(skipped), 'file')} {skipped[0].why.value}"
    parts = ", ".join(f"{count:,} {why.value}" for why, count in counts.most_common())
    return f"{len(skipped):,} files, of which {parts}"


class Walk:
    """Search for sources at paths; its results are `jobs`, `results`, `failed` and `skipped`.

    Archives are unpacked below `scratch`. The walk enters no workspace, nor the folder `own`, which becomes one.
    """

    def __init__(self, scratch: Path, own: Path) -> None:
        # Results of the walk, in the order in which sources were found.
        self.jobs: list[Job] = []
        self.results: list[ResultSource] = []
        self.failed: list[FailedSource] = []
        self.skipped: list[SkippedFile] = []
        self._scratch, self._own = scratch, own.resolve()
        # A folder is looked at for its run and again for each of its files.
        self._look = lru_cache(REMEMBERED_RESULTS)(recognised)
        # Paths that need no further visit.
        self._seen: set[Path] = set()
        # Address of the first copy of each JOB, by the JOB's name.
        self._first: dict[str, Path] = {}
        # Files whose contents became labels of a JOB.
        self._described: set[Path] = set()
        # Number of unpacked archives, which numbers their folders.
        self._archives = 0
        # Paths to visit, as a list instead of a recursion: folders may be nested deeper than Python's stack.
        self._to_visit: list[tuple[Path, _ArchiveOrigin | None]] = []

    def look_through(self, path: Path) -> None:
        """Look through a path. Raises UsageError if there is nothing to import."""
        hint = "name a JOB directory, a directory of results, or a file"
        try:
            if not path.exists():
                raise UsageError(f"{path} does not exist", hint=hint)
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}", hint=hint) from error
        # A session is named after its folder, and `.` has no name.
        here = path.resolve()
        is_seen, before, skipped = here in self._seen, self._count(), len(self.skipped)
        self._visit(here, None, is_named=True)
        while self._to_visit:
            self._visit(*self._to_visit.pop())
        if self._count() == before and not is_seen:
            found = f": {skipped_text(self.skipped[skipped:])}" if len(self.skipped) > skipped else ""
            raise UsageError(
                f"{path} has nothing that can be imported{found}",
                hint="name a JOB directory, a PROF_…, …_ascend_pt or …_ascend_ms directory, a CSV, JSON or .db file of"
                " one, or an archive",
            )

    def finish(self) -> None:
        """Give each source its ledger entry for skipped files in or beside it; call this once, after all paths.

        Files that are near no source go into the entry of the first one.
        """
        taken = {file for source in self.results for file in source.files} | self._described
        # A folder may be skipped as unknown before its files turn out to be part of a later source.
        self.skipped = [each for each in self.skipped if each.path not in taken or each.why is SkipReason.REPLACED]
        beside: dict[Path, list[SkippedFile]] = {}
        sources = [*(job.path for job in self.jobs), *(source.path for source in self.results if source.files)]
        inside, next_to = {*sources}, {path.parent: path for path in reversed(sources)}
        anywhere = next(iter(sources), None)
        for each in self.skipped:
            folders = each.path.parents
            home = next((folder for folder in folders if folder in inside), next_to.get(folders[0], anywhere))
            if home is not None and each.why.is_noted:
                beside.setdefault(home, []).append(each)
        entries = {path: _entry(skipped) for path, skipped in beside.items()}
        self.jobs = [each._replace(beside=entries.get(each.path)) for each in self.jobs]
        self.results = [each._replace(beside=entries.get(each.path)) for each in self.results]

    def _count(self) -> int:
        return len(self.jobs) + len(self.results) + len(self.failed)

    def _visit(self, path: Path, origin: _ArchiveOrigin | None, *, is_named: bool = False) -> None:
        if path in self._seen:
            return
        self._seen.add(path)
        try:
            if path.is_symlink():
                self._skip(path, origin, SkipReason.IRREGULAR)
            elif path.is_dir():
                self._visit_folder(path, origin)
            elif path.is_file():
                self._visit_file(path, origin, is_named=is_named)
            else:
                self._skip(path, origin, SkipReason.IRREGULAR)
        except OSError as error:
            hint = "check its permissions, and the free space of the workspace"
            what = f"cannot read {_address(path, origin)}: {error.strerror}"
            self.failed.append(FailedSource(_address(path, origin), ProfagentError(what, hint=hint)))

    def _visit_file(self, path: Path, origin: _ArchiveOrigin | None, *, is_named: bool) -> None:
        found = _recognised_alone(path) if is_named else self._look(path.parent).get(path)
        if found is None:
            # SQLite wrote the file beside a database, and reads it together with the database.
            return
        if isinstance(found, ResultError):
            # The import of a damaged result reports the damage.
            if is_named or path.suffix.lower() in _TABLES:
                self._take(ResultSource(path, (path,)), origin)
            else:
                self._skip(path, origin, SkipReason.UNREADABLE)
        # Other files are archives, too (wheels, office documents): only likely names are unpacked unasked.
        elif found.form is Form.ARCHIVE and (is_named or NAMES.search(path.name)):
            self._unpack(path, origin)
        elif found.form in _REASONS:
            self._skip(path, origin, _REASONS[found.form])
        elif found.is_known or is_named:
            self._take(ResultSource(path, (path,)), origin)
        else:
            is_description = fnmatch(path.name, DESCRIPTIONS)
            self._skip(path, origin, SkipReason.DESCRIPTION if is_description else SkipReason.UNKNOWN)

    def _visit_folder(self, path: Path, origin: _ArchiveOrigin | None) -> None:
        if path == self._own or is_workspace(path):
            self._skip(path, origin, SkipReason.WORKSPACE)
        elif source_named(path.name) and not (is_collection(path) or _has_attributes_only(path)):
            self._take_job(path, origin)
        elif _is_renamed_job(path):
            what = f"{_address(path, origin)} is a JOB directory that was renamed"
            hint = "give it its name back, JOB and 29 letters; or see it as it is: profagent import -dir DIR"
            self.failed.append(FailedSource(_address(path, origin), UsageError(what, hint=hint)))
        else:
            run = run_in(path, self._look)
            if run is not None:
                self._take_run(path, run, origin)
            self._push([path] if run is None else [path, *run.results], origin)

    def _take_job(self, path: Path, origin: _ArchiveOrigin | None) -> None:
        address = _address(path, origin)
        self._described |= description_of(path.parent).files
        self.jobs.append(Job(path, address, self._first.get(path.name)))
        self._first.setdefault(path.name, address)
        for file in (file for name in sorted(OUTPUT_FOLDERS) for file in _files_below(path / name)):
            self._skip(file, origin, SkipReason.EXPORT)
        self._to_visit += [(entry, origin) for entry in sorted(_foreign_entries(path), reverse=True)]

    def _take_run(self, path: Path, run: ProfilerRun, origin: _ArchiveOrigin | None) -> None:
        self._take(run.source, origin)
        # The other files in the folders of a run are its raw data, so no visit may take them for results.
        self._seen |= {*run.source.files, *run.folders, *run.results}
        if run.source.files:
            self._seen |= {*path.glob(FACTS)}
            for file in (file for folder in run.folders for file in _files_below(folder, {*run.results})):
                self._skip(file, origin, SkipReason.RAW)

    def _push(self, folders: Iterable[Path], origin: _ArchiveOrigin | None) -> None:
        # The list of paths is a stack: reversed, it is visited in the order of names.
        entries = sorted({entry for folder in folders for entry in folder.iterdir()} - self._seen, reverse=True)
        self._to_visit += [(entry, origin) for entry in entries]

    def _take(self, source: ResultSource, origin: _ArchiveOrigin | None) -> None:
        if origin is not None:
            inside = str(origin.inside / source.path.relative_to(origin.folder))
            source = source._replace(archive=origin.archive, inside=inside)
        self.results.append(source)

    def _skip(self, path: Path, origin: _ArchiveOrigin | None, why: SkipReason) -> None:
        self.skipped.append(SkippedFile(path, _address(path, origin), why))

    def _unpack(self, path: Path, origin: _ArchiveOrigin | None) -> None:
        self._archives += 1
        # A source at the top of the archive is named after its folder, which therefore has the archive's name.
        folder = self._scratch / f"archive-{self._archives}" / path.name
        address = _address(path, origin)
        if origin is None:
            new = _ArchiveOrigin(path, folder, Path(), 1, Limits(path, self._scratch))
        else:
            inside = origin.inside / path.relative_to(origin.folder)
            new = origin._replace(folder=folder, inside=inside, depth=origin.depth + 1)
        if new.depth > MOST_ARCHIVES:
            what = f"it is an archive in {MOST_ARCHIVES} others, and no more are unpacked"
            self.failed.append(FailedSource(address, ResultError(address, 0, what, hint=UNPACK_BY_HAND)))
            return
        folder.mkdir(parents=True)
        try:
            unpacked = unpack(path, folder, new.limits)
        except ResultError as error:
            shutil.rmtree(folder, ignore_errors=True)
            # The message names the archive by the place that people know, not by its scratch file.
            shown = ProfagentError(str(error).replace(str(path), str(address)), hint=error.hint)
            self.failed.append(FailedSource(address, shown))
            return
        for link in unpacked.others:
            self._skip(folder / link, new, SkipReason.IRREGULAR)
        for name in unpacked.replaced:
            self._skip(folder / name, new, SkipReason.REPLACED)
        self._to_visit.append((folder, new))


def _address(path: Path, origin: _ArchiveOrigin | None) -> Path:
    return path if origin is None else origin.archive / origin.inside / path.relative_to(origin.folder)


def _recognised_alone(path: Path) -> RecognisedFile | ResultError:
    try:
        return recognise(path)
    except ResultError as error:
        return error


def _has_attributes_only(path: Path) -> bool:
    """Return True if a folder has only the attribute files that macOS packs beside a folder of the same name."""
    files = _files_below(path)
    first = next(files, None)
    return first is not None and all(map(is_attributes, chain([first], files)))


def _is_renamed_job(path: Path) -> bool:
    data = path / "data"
    names = (parse_log_name(f"data/{entry.name}") for entry in data.iterdir()) if data.is_dir() else ()
    return any(name is not None and name.is_data for name in names)


def _foreign_entries(job: Path) -> Iterator[Path]:
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


def _entry(skipped: Sequence[SkippedFile]) -> Entry:
    # The database holds UTF-8 text, and a file name may have other bytes.
    names = ", ".join(display_text(each.path.name) for each in skipped[:MOST_NAMED])
    more = ", …" if len(skipped) > MOST_NAMED else ""
    return ledger.entry(ledger.NOT_TAKEN, f"{skipped_text(skipped)}: {names}{more}", count=len(skipped))
