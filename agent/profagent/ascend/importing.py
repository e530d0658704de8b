"""Importing results of the Ascend family: each source a draft, made where it is, taken over as one transaction."""

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
    Found,
    ResultSource,
    latest_exports,
    rank,
    recognise,
    what_each_makes,
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

# Below so many bytes a process of its own costs more than it saves.
WORTH_A_PROCESS_BYTES = 32 << 20
CONTENT_LABEL = "content"
_LEDGER = "SELECT grade, sum(count) FROM ledger_entry WHERE session = ? GROUP BY grade"
_OF_RAW = "{path} has raw slices only, which no public tool reads"
# By the tool that has written raw slices: what makes results of them.
_ANALYSES = {
    "msprof": "make results of it where CANN is installed: msprof --export=on --output={quoted}",
    "torch_npu": "make results of it where torch_npu is installed, in Python:"
    ' torch_npu.profiler.profiler.analyse("{path}")',
    "mindspore": "make results of it where MindSpore is installed, in Python: from mindspore.profiler import Profiler;"
    ' Profiler.offline_analyse("{path}")',
}

# A source, the file for its draft, the store if it can be written to, the board.
_Asked = tuple[ResultSource, Path, Path | None, str]


class Taken(NamedTuple):
    """What became of a source: its session, or why it has none. `what` it was: a JOB, or the families of its files.

    `losses` and `notes` are the session's, as `sessions` counts them.
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
    """A file for a draft, and what became of its source: without session and error the draft is whole, and waits."""

    draft: Path
    taken: Taken


async def import_results(
    found: Sequence[ResultSource],
    store: Store,
    database: Path,
    scratch: Path,
    board: str,
    done: Callable[[Taken], None],
) -> None:
    """Bring sources into a store, which nobody else writes to, a session each. One that fails stops no other.

    `done` is told of each. What is there already, and has not changed, is not brought again. Drafts are made in
    `scratch`. Raises StoreError where nothing can be brought.
    """
    new = []
    for each in found:
        source = each._replace(content=await to_the_end(content_of, each))
        session = None if source.raw else await _session_with(store, source.content)
        if session is None:
            new.append(source)
        else:
            done(await with_ledger(store, Taken(source.address, session, None, is_known=True)))
    with drafts_of(new, scratch, board, database) as drafts:
        while (drafted := await to_the_end(next, drafts, None)) is not None:
            done(await to_the_end(_taken_over, database, drafted))


def _as_ours(source: ResultSource, error: Exception) -> ProfagentError:
    """The error, which names what was unpacked by its place in the archive."""
    if isinstance(error, ProfagentError):
        return error if source.archive is None else ProfagentError(_text(source, error), hint=error.hint)
    hint = "check its permissions, and the free space of the workspace"
    return ProfagentError(_text(source, f"cannot read {source.address}: {error}"), hint=hint)


def _text(source: ResultSource, error: object) -> str:
    return str(error).replace(str(source.path), str(source.address))


def _taken_over(store: Path, drafted: Drafted) -> Taken:
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


async def with_ledger(store: Store, taken: Taken) -> Taken:
    """Return it with the losses and notes of its session."""
    counts: dict[str, int] = dict(await store.query(_LEDGER, (taken.session,)))
    return taken._replace(losses=counts.get(ledger.LOSS, 0), notes=counts.get(ledger.NOTE, 0))


def content_of(source: ResultSource) -> str:
    """Return a digest of its name, and of its files' names and bytes."""
    files = sorted(source.files)
    # What was written last may stand beside a database.
    files += [log for file in files if (log := file.with_name(f"{file.name}-wal")).is_file()]
    facts = [(os.path.relpath(file, source.path), _digest_of(file)) for file in files]
    return _digest(repr((source.path.name, facts)).encode()).hexdigest()


def _digest_of(file: Path) -> str:
    try:
        with file.open("rb") as data:
            return hashlib.file_digest(data, _digest).hexdigest()
    except OSError:
        # Whoever reads it for its rows tells that.
        return ""


def _digest(data: bytes = b"") -> hashlib.blake2b:
    return hashlib.blake2b(data, digest_size=16)


@contextmanager
def drafts_of(found: Sequence[ResultSource], scratch: Path, board: str, store: Path) -> Iterator[Iterator[Drafted]]:
    """The drafts of sources, in their order, as they become ready; in parallel processes where it is worth it."""
    is_alone = len(found) < 2 or sum(source.size for source in found) < WORTH_A_PROCESS_BYTES
    # Only one process can write to the store.
    asked = [
        (source, scratch / f"{number}.db", store if is_alone else None, board) for number, source in enumerate(found)
    ]
    if is_alone:
        yield map(_drafted, asked)
        return
    with _processes(min(len(os.sched_getaffinity(0)), MOST_IMPORTING_PROCESSES, len(found))) as pool:
        futures = [pool.submit(_drafted, each) for each in asked]
        yield (_waited_for(future, each) for future, each in zip(futures, asked, strict=True))


def _processes(number: int) -> ProcessPoolExecutor:
    # Forking a process that has threads is not safe.
    return ProcessPoolExecutor(number, get_context("spawn"), end_with_parent)


def _waited_for(future: Future[Drafted], asked: _Asked) -> Drafted:
    """What a process made of it. One that dies takes the others with it: each of these is tried again alone."""
    try:
        return future.result()
    except BrokenProcessPool:
        asked[1].unlink(missing_ok=True)
    try:
        with _processes(1) as pool:
            return pool.submit(_drafted, asked).result()
    except BrokenProcessPool:
        source, file, *_ = asked
        return Drafted(file, Taken(source.address, None, _too_large(source)))


def _too_large(source: ResultSource) -> ProfagentError:
    what = f"{source.address}: what read it was out of memory, or was killed"
    return ProfagentError(what, hint="import it by itself, where more memory is free")


def _drafted(asked: _Asked) -> Drafted:
    source, file, store, board = asked
    # Rows are many objects and no cycles: looking for these takes a third of the time.
    was_on = gc.isenabled()
    gc.disable()
    said: ProfagentError
    try:
        return Drafted(file, _draft_of(source, file, store, board))
    except (ProfagentError, OSError) as error:
        said = _as_ours(source, error)
    except MemoryError:
        said = _too_large(source)
    except sqlite3.Error as error:
        said = refused(store or file, error)
    except ODD_VALUES as error:
        what = f"it has values that no known file has: {error}"
        said = _as_ours(source, ResultError(source.path, 0, what))
    finally:
        if was_on:
            gc.enable()
    return Drafted(file, Taken(source.address, None, said))


def _draft_of(source: ResultSource, file: Path, store: Path | None, board: str) -> Taken:
    """Raises ResultError where nothing could be read, UsageError for raw slices."""
    if source.raw:
        path = str(source.address)
        hint = _ANALYSES[source.raw].format(path=path, quoted=shlex.quote(path))
        raise UsageError(_OF_RAW.format(path=path), hint=hint)
    begun_us = time.time_ns() // 1000
    labels = {CONTENT_LABEL: source.content, **_about(source)}
    draft = Draft(file, store, labels.get("device", "0"))
    try:
        _fill(draft, source)
        if source.beside is not None:
            draft.note(None, source.beside)
        name, address = display_text(source.path.name), display_text(str(source.address))
        session = draft.finish(board, name, address, _times_us(draft, source, begun_us), labels)
    except BaseException:
        draft.abandon()
        raise
    counts = (draft.rows, draft.kernels, draft.losses, draft.notes)
    return Taken(source.address, session, None, _what(draft.families), *counts)


def _what(families: Sequence[str]) -> str:
    more = len(families) - MOST_NAMED
    return ", ".join(families[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _times_us(draft: Draft, source: ResultSource, begun_us: int) -> tuple[int, int]:
    """When it ran, by its kernels, else by its names; where neither tells a time that was, when it was imported."""
    now_us, stamp_us = time.time_ns() // 1000, source.stamp_us()
    told = draft.times_us(), None if stamp_us is None else (stamp_us, stamp_us)
    return next((each for each in told if each is not None and each[1] <= now_us), (begun_us, now_us))


def _fill(draft: Draft, source: ResultSource) -> None:
    """Bring every file in. What is damaged becomes a loss of the ledger, unless there is nothing else."""
    errors: list[ResultError] = []

    def lose(file: Path, log: int | None, error: ResultError) -> None:
        errors.append(error)
        log = draft.begin_file(_path_in(source, file), file.stat().st_size) if log is None else log
        draft.note(log, ledger.entry(ledger.DAMAGED_RESULT, _text(source, error), *error.unread))

    found = _recognised(draft, source, lose)
    if found and not errors and not any(each.is_known for each in found):
        hint = "docs/reference/ascend.md lists the families; what is of none is kept beside others of its run"
        raise ResultError(source.path, 0, "no family of results is like this", hint=hint)
    makes = what_each_makes(found)
    told: Sequence[str] = ()
    # Summaries come first, then databases: what they tell of steps and calls nothing else tells again.
    for each in sorted(found, key=rank):
        log = None
        path, size = _path_in(source, each.file), each.file.stat().st_size
        try:
            if each.form is Form.DATABASE:
                import_database(draft, each.file, path, has_kernels="kernels" in makes[each.file])
            else:
                log = draft.begin_file(path, size, has_kernels="kernels" in makes[each.file])
                _import(draft, log, each, [name for name in makes[each.file] if name not in told])
        except ResultError as error:
            lose(each.file, log, error)
        except ODD_VALUES as error:
            what = f"it has values that no known file of its family has: {error}"
            lose(each.file, log, ResultError(each.file, 0, what))
        if each.form is Form.DATABASE:
            told = draft.told()
    if not draft.rows:
        raise errors[0] if errors else ResultError(source.path, 0, "none of its files has a row")


def _recognised(draft: Draft, source: ResultSource, lose: Callable[[Path, None, ResultError], None]) -> list[Found]:
    found: list[Found] = []
    for file, latest in latest_exports(source.files).items():
        try:
            if file == latest:
                found.append(recognise(file))
            else:
                log = draft.begin_file(_path_in(source, file), file.stat().st_size)
                draft.note(log, ledger.entry(ledger.NOT_COUNTED, f"{latest.name} is a later export of it"))
        except ResultError as error:
            lose(file, None, error)
    return found


def _import(draft: Draft, log: int, found: Found, makes: Sequence[str]) -> None:
    if found.sheet is not None:
        import_sheet(draft, log, found.file, found.sheet, has_kernels="kernels" in makes)
    elif found.form is Form.TIMELINE:
        import_timeline(draft, log, found.file, wants=makes)
    else:
        import_report(draft, log, found.file)


def _about(source: ResultSource) -> dict[str, str]:
    """What the files beside the results tell: framework, version, rank and device."""
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
