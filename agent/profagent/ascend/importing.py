"""Import of results of the Ascend family: each source becomes a draft, which the store takes in one transaction."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import shlex
import sqlite3
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from profagent import ledger
from profagent.ascend.database import import_database
from profagent.ascend.draft import DEVICE_FOLDER, Draft
from profagent.ascend.recognise import (
    FACTS,
    Form,
    RecognisedFile,
    ResultSource,
    figures_by_file,
    latest_exports,
    rank,
    recognise,
)
from profagent.ascend.reports import import_report
from profagent.ascend.summaries import import_sheet
from profagent.ascend.texts import ODD_VALUES
from profagent.ascend.timeline import import_timeline
from profagent.errors import ProfagentError, ResultError, UsageError
from profagent.files import to_the_end
from profagent.formats.names import display_text
from profagent.limits import MOST_IMPORTING_PROCESSES, MOST_NAMED
from profagent.store.database import refused
from profagent.store.drafts import take_over_file
from profagent.store.inference_pages import end_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    from profagent.store.store import Store

# Sources with fewer bytes are read in this process: another one costs more than it saves.
WORTH_A_PROCESS_BYTES = 32 << 20
CONTENT_LABEL = "content"
_LEDGER = "SELECT grade, sum(count) FROM ledger_entry WHERE session = ? GROUP BY grade"
_OF_RAW = "{path} has raw slices only, which no public tool reads"
# Hint for each tool that writes raw slices: the command that makes results of them.
_ANALYSES = {
    "msprof": "make results of it where CANN is installed: msprof --export=on --output={quoted}",
    "torch_npu": "make results of it where torch_npu is installed, in Python:"
    ' torch_npu.profiler.profiler.analyse("{path}")',
    "mindspore": "make results of it where MindSpore is installed, in Python: from mindspore.profiler import Profiler;"
    ' Profiler.offline_analyse("{path}")',
}

# Arguments of a draft: the source, the file for the draft, the store if the draft may write to it, and the board.
_DraftArguments = tuple[ResultSource, Path, Path | None, str]


class ImportedSource(NamedTuple):
    """Outcome of a source: its session, or the error that prevented one.

    `what` is a JOB, or the families of its files. `losses` and `notes` are counts of the session, as `sessions`
    shows them.
    """

    path: Path
    session: int | None
    error: ProfagentError | None
    what: str = ""
    rows: int = 0
    kernels: int = 0
    losses: int = 0
    notes: int = 0
    is_known: bool = False


class Drafted(NamedTuple):
    """File of a draft, and the outcome of its source.

    Without a session and an error, the draft is complete and waits to be taken over.
    """

    draft: Path
    taken: ImportedSource


async def import_results(
    found: Sequence[ResultSource],
    store: Store,
    database: Path,
    scratch: Path,
    board: str,
    done: Callable[[ImportedSource], None],
) -> None:
    """Import each source into a store, which no other process writes to, as a session. One that fails stops no other.

    `done` is called with the outcome of each. A source that is there already and has not changed is not imported
    again. Drafts are made in `scratch`. Raises StoreError if nothing can be written.
    """
    new = []
    for each in found:
        # The digest identifies the source in later imports, wherever it lies then.
        source = each._replace(content=await to_the_end(content_of, each))
        session = None if source.raw else await _session_with(store, source.content)
        if session is None:
            new.append(source)
        else:
            done(await with_ledger(store, ImportedSource(source.address, session, None, is_known=True)))
    with drafts_of(new, scratch, board, database) as drafts:
        while (drafted := await to_the_end(next, drafts, None)) is not None:
            done(await to_the_end(_taken_over, database, drafted))


def _error_for_people(source: ResultSource, error: Exception) -> ProfagentError:
    if isinstance(error, ProfagentError):
        return error if source.archive is None else ProfagentError(_with_address(source, error), hint=error.hint)
    hint = "check its permissions, and the free space of the workspace"
    return ProfagentError(_with_address(source, f"cannot read {source.address}: {error}"), hint=hint)


def _with_address(source: ResultSource, error: object) -> str:
    return str(error).replace(str(source.path), str(source.address))


def _taken_over(store: Path, drafted: Drafted) -> ImportedSource:
    draft, taken = drafted
    try:
        if taken.session is None and taken.error is None:
            return taken._replace(session=take_over_file(draft, store))
    except sqlite3.Error as error:
        return taken._replace(error=refused(store, error))
    finally:
        draft.unlink(missing_ok=True)
    return taken


async def _session_with(store: Store, content: str) -> int | None:
    query = (
        "SELECT session FROM session_label WHERE key = ? AND value = ?"
        " AND session NOT IN (SELECT session FROM cleared_session)"
    )
    rows = await store.query(query, (CONTENT_LABEL, content))
    return rows[0][0] if rows else None


async def with_ledger(store: Store, taken: ImportedSource) -> ImportedSource:
    """Return the source with the losses and notes of its session."""
    counts: dict[str, int] = dict(await store.query(_LEDGER, (taken.session,)))
    return taken._replace(losses=counts.get(ledger.LOSS, 0), notes=counts.get(ledger.NOTE, 0))


def content_of(source: ResultSource) -> str:
    """Return a digest of a source's name, and of the names and bytes of its files."""
    files = sorted(source.files)
    # The latest changes of a database may stand in a log beside it.
    files += [log for file in files if (log := file.with_name(f"{file.name}-wal")).is_file()]
    facts = [(os.path.relpath(file, source.path), _digest_of(file)) for file in files]
    return _digest(repr((source.path.name, facts)).encode()).hexdigest()


def _digest_of(file: Path) -> str:
    try:
        with file.open("rb") as data:
            return hashlib.file_digest(data, _digest).hexdigest()
    except OSError:
        # The import of the file reports that it cannot be read.
        return ""


def _digest(data: bytes = b"") -> hashlib.blake2b:
    return hashlib.blake2b(data, digest_size=16)


@contextmanager
def drafts_of(found: Sequence[ResultSource], scratch: Path, board: str, store: Path) -> Iterator[Iterator[Drafted]]:
    """Yield an iterator over the drafts of sources, in their order; several processes make them if it is worth it."""
    is_alone = len(found) < 2 or sum(source.size for source in found) < WORTH_A_PROCESS_BYTES
    # A draft writes into the store only if this process makes all drafts: SQLite allows one writer.
    arguments = [
        (source, scratch / f"{number}.db", store if is_alone else None, board) for number, source in enumerate(found)
    ]
    if is_alone:
        yield map(_drafted, arguments)
        return
    with _processes(min(len(os.sched_getaffinity(0)), MOST_IMPORTING_PROCESSES, len(found))) as pool:
        futures = [pool.submit(_drafted, each) for each in arguments]
        yield (_result_of(future, each) for future, each in zip(futures, arguments, strict=True))


def _processes(number: int) -> ProcessPoolExecutor:
    # Processes are spawned, because forking a process with threads is not safe.
    return ProcessPoolExecutor(number, get_context("spawn"), end_with_parent)


def _result_of(future: Future[Drafted], arguments: _DraftArguments) -> Drafted:
    try:
        return future.result()
    except BrokenProcessPool:
        arguments[1].unlink(missing_ok=True)
    try:
        with _processes(1) as pool:
            return pool.submit(_drafted, arguments).result()
    except BrokenProcessPool:
        source, file, *_ = arguments
        return Drafted(file, ImportedSource(source.address, None, _too_large(source)))


def _too_large(source: ResultSource) -> ProfagentError:
    what = f"{source.address}: what read it was out of memory, or was killed"
    return ProfagentError(what, hint="import it alone, on a host with more free memory")


def _drafted(arguments: _DraftArguments) -> Drafted:
    source, file, store, board = arguments
    # Rows are many objects without cycles, and the search for cycles would take a third of the time.
    was_on = gc.isenabled()
    gc.disable()
    error_to_report: ProfagentError
    try:
        return Drafted(file, _draft_of(source, file, store, board))
    except (ProfagentError, OSError) as error:
        error_to_report = _error_for_people(source, error)
    except MemoryError:
        error_to_report = _too_large(source)
    except sqlite3.Error as error:
        error_to_report = refused(store or file, error)
    except ODD_VALUES as error:
        what = f"it has values that no known file has: {error}"
        error_to_report = _error_for_people(source, ResultError(source.path, 0, what))
    finally:
        if was_on:
            gc.enable()
    return Drafted(file, ImportedSource(source.address, None, error_to_report))


def _draft_of(source: ResultSource, file: Path, store: Path | None, board: str) -> ImportedSource:
    """Make the draft of a source. Raises ResultError if nothing could be read, UsageError for raw slices."""
    if source.raw:
        path = str(source.address)
        hint = _ANALYSES[source.raw].format(path=path, quoted=shlex.quote(path))
        raise UsageError(_OF_RAW.format(path=path), hint=hint)
    begun_us = time.time_ns() // 1000
    labels = {CONTENT_LABEL: source.content, **_labels(source)}
    draft = Draft(file, store, labels.get("device", "0"))
    try:
        _fill(draft, source)
        if source.beside is not None:
            draft.note(None, source.beside)
        name, address = display_text(source.path.name), display_text(str(source.address))
        session = draft.finish(board, name, address, _times_us(draft, source, begun_us), labels)
    # A cancelled or failed draft closes its connection, which rolls back what it wrote into the store.
    except BaseException:
        draft.abandon()
        raise
    counts = (draft.rows, draft.kernels, draft.losses, draft.notes)
    return ImportedSource(source.address, session, None, _what(draft.families), *counts)


def _what(families: Sequence[str]) -> str:
    more = len(families) - MOST_NAMED
    return ", ".join(families[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _times_us(draft: Draft, source: ResultSource, begun_us: int) -> tuple[int, int]:
    """Return when the source ran, by its kernels, else by its names.

    A time in the future is wrong; without any other, the time of the import is returned.
    """
    now_us, stamp_us = time.time_ns() // 1000, source.stamp_us()
    candidates = draft.times_us(), None if stamp_us is None else (stamp_us, stamp_us)
    return next((each for each in candidates if each is not None and each[1] <= now_us), (begun_us, now_us))


def _fill(draft: Draft, source: ResultSource) -> None:
    """Add every file to the draft. A damaged file becomes a loss of the ledger, unless there is no other."""
    errors: list[ResultError] = []

    def note_loss(file: Path, log: int | None, error: ResultError) -> None:
        errors.append(error)
        log = draft.begin_file(_path_in(source, file), file.stat().st_size) if log is None else log
        draft.note(log, ledger.entry(ledger.DAMAGED_RESULT, _with_address(source, error), *error.unread))

    found = _recognised(draft, source, note_loss)
    if found and not errors and not any(each.is_known for each in found):
        hint = "docs/reference/ascend.md lists the known families of results"
        raise ResultError(source.path, 0, "it matches no known family of results", hint=hint)
    makes = figures_by_file(found)
    taken: Sequence[str] = ()
    # Summaries come first, then databases: steps and calls that they have are not taken from other files again.
    for each in sorted(found, key=rank):
        log = None
        path, size = _path_in(source, each.file), each.file.stat().st_size
        try:
            if each.form is Form.DATABASE:
                import_database(draft, each.file, path, has_kernels="kernels" in makes[each.file])
            else:
                log = draft.begin_file(path, size, has_kernels="kernels" in makes[each.file])
                _import(draft, log, each, [name for name in makes[each.file] if name not in taken])
        except ResultError as error:
            note_loss(each.file, log, error)
        except ODD_VALUES as error:
            what = f"it has values that no known file of its family has: {error}"
            note_loss(each.file, log, ResultError(each.file, 0, what))
        if each.form is Form.DATABASE:
            taken = draft.figures_taken()
    if not draft.rows:
        raise errors[0] if errors else ResultError(source.path, 0, "none of its files has any row")


def _recognised(
    draft: Draft, source: ResultSource, note_loss: Callable[[Path, None, ResultError], None]
) -> list[RecognisedFile]:
    found: list[RecognisedFile] = []
    for file, latest in latest_exports(source.files).items():
        try:
            if file == latest:
                found.append(recognise(file))
            else:
                log = draft.begin_file(_path_in(source, file), file.stat().st_size)
                draft.note(log, ledger.entry(ledger.NOT_COUNTED, f"{latest.name} is a later export of it"))
        except ResultError as error:
            note_loss(file, None, error)
    return found


def _import(draft: Draft, log: int, found: RecognisedFile, makes: Sequence[str]) -> None:
    if found.sheet is not None:
        import_sheet(draft, log, found.file, found.sheet, has_kernels="kernels" in makes)
    elif found.form is Form.TIMELINE:
        import_timeline(draft, log, found.file, wants=makes)
    else:
        import_report(draft, log, found.file)


def _labels(source: ResultSource) -> dict[str, str]:
    labels = {"source": "ascend"}
    folder = source.path if source.path.is_dir() else source.path.parent
    folder = folder.parent if folder.name in ("ASCEND_PROFILER_OUTPUT", "mindstudio_profiler_output") else folder
    devices = {found[1] for file in source.files if (found := DEVICE_FOLDER.search(str(file.relative_to(source.path))))}
    if len(devices) == 1:
        labels["device"] = devices.pop()
    for file in sorted(folder.glob(FACTS)) if source.path.is_dir() else ():
        try:
            facts: dict[str, Any] = json.loads(file.read_text("utf-8-sig"))
            more = facts.get("ms_profiler_info") or {}
            known = {
                "framework": "MindSpore" if "ms_version" in facts else "PyTorch" if "config" in facts else None,
                "cann": facts.get("cann_version"),
                "rank": facts.get("rank_id", more.get("rank_id")),
                "device": more.get("device_id"),
            }
        except (OSError, *ODD_VALUES):
            continue
        labels |= {name: display_text(str(value))[:256] for name, value in known.items() if value is not None}
    return labels


def _path_in(source: ResultSource, file: Path) -> str:
    return file.name if file == source.path else str(file.relative_to(source.path))
