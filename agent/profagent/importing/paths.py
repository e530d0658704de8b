"""Import of everything at given paths in one run: a session of a workspace for each JOB and each result."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from profagent.ascend.importing import ImportedSource, import_results, with_ledger
from profagent.cli.progress import progress
from profagent.errors import ProfagentError, UsageError
from profagent.formats.counter_maps import BUILT_IN, CounterMaps
from profagent.importing.importing import import_into, require_identity
from profagent.importing.sources import Walk
from profagent.store.sessions import NO_BOARD
from profagent.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagent.importing.sources import Job, SkippedFile
    from profagent.link.messages import Profiling
    from profagent.store.workspace import Workspace

_SCRATCH = ".import-"


class ImportedPaths(NamedTuple):
    """Result of an import: all sources, the sessions of those that are JOBs, and every file that was skipped."""

    taken: list[ImportedSource]
    jobs: list[int]
    skipped: list[SkippedFile]


async def import_paths(
    paths: Sequence[Path],
    workspace: Workspace,
    *,
    board: str = NO_BOARD,
    maps: CounterMaps = BUILT_IN,
    profiling: Profiling | None = None,
) -> ImportedPaths:
    """Import every source at the paths. A source that fails does not stop the others.

    `maps` and `profiling` apply to the JOBs. Raises UsageError if no path has anything to import, or if these are
    given and there is no JOB; StoreError if the workspace cannot be written.
    """
    require_identity(board)
    with workspace.locked():
        # Scratch folders of killed imports: the lock guarantees that no other import uses them.
        for leftover in workspace.root.glob(f"{_SCRATCH}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        with TemporaryDirectory(prefix=_SCRATCH, dir=workspace.root) as scratch:
            walk = Walk(Path(scratch), workspace.root)
            # The walk reads and unpacks files, which must not block the event loop.
            taken = await asyncio.to_thread(_look_through, walk, paths)
            if not walk.jobs and (maps.named is not None or profiling is not None):
                raise UsageError("--counter-map and --acl-json apply to JOBs, and there is none", hint="leave them out")
            jobs = [await _import_job(job, workspace, board, maps, profiling) for job in walk.jobs]
            async with Store(workspace.database) as store:
                jobs = [await with_ledger(store, each) for each in jobs]
                taken += jobs
                with progress("import", "results") as shown:
                    total = len(walk.results)

                    def note(each: ImportedSource) -> None:
                        taken.append(each)
                        shown(len(taken), len(walk.jobs) + total)

                    await import_results(walk.results, store, workspace.database, Path(scratch), board, note)
    return ImportedPaths(taken, [each.session for each in jobs if each.session is not None], walk.skipped)


def _look_through(walk: Walk, paths: Sequence[Path]) -> list[ImportedSource]:
    """Look through the paths and return the sources that failed. Raises UsageError if there is nothing at all."""
    errors: dict[Path, UsageError] = {}
    for path in paths:
        try:
            walk.look_through(path)
        except UsageError as error:
            errors[path] = error
    walk.finish()
    if errors and not (walk.jobs or walk.results or walk.failed):
        raise UsageError("; ".join(map(str, errors.values())), hint=next(iter(errors.values())).hint)
    failed = [*errors.items(), *((each.address, each.error) for each in walk.failed)]
    return [ImportedSource(path, None, error) for path, error in failed]


async def _import_job(
    job: Job, workspace: Workspace, board: str, maps: CounterMaps, profiling: Profiling | None
) -> ImportedSource:
    try:
        # Nobody sets this event: a signal cancels the task, and the next import continues from what the workspace has.
        summary = await import_into(
            job.path, workspace, asyncio.Event(), board=board, maps=maps, profiling=profiling, found=job
        )
    except ProfagentError as error:
        return ImportedSource(job.address, None, error, "JOB")
    except OSError as error:
        error_to_report = ProfagentError(f"cannot read {job.address}: {error}", hint="check its permissions")
        return ImportedSource(job.address, None, error_to_report, "JOB")
    rows = sum(summary["records"].values()) + sum(summary["events"].values())
    return ImportedSource(job.address, summary["session"], None, "JOB", rows, is_known=bool(summary["earlier"]))
