"""Importing what stands at given paths, all in one run: a session of a workspace for each JOB and each result."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from profagent.ascend.importing import Taken, import_results, with_ledger
from profagent.cli.progress import progress
from profagent.errors import ProfagentError, UsageError
from profagent.formats.counter_maps import BUILT_IN, CounterMaps
from profagent.importing.importing import import_into, require_identity
from profagent.importing.sources import Walk
from profagent.store.sessions import NO_BOARD
from profagent.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagent.importing.sources import Job, Passed
    from profagent.link.messages import Profiling
    from profagent.store.workspace import Workspace

_SCRATCH = ".import-"


class ImportedPaths(NamedTuple):
    """What became of all sources at the paths, those that are JOBs by their sessions, and every file not taken."""

    taken: list[Taken]
    jobs: list[int]
    passed: list[Passed]


async def import_paths(
    paths: Sequence[Path],
    workspace: Workspace,
    *,
    board: str = NO_BOARD,
    maps: CounterMaps = BUILT_IN,
    profiling: Profiling | None = None,
) -> ImportedPaths:
    """Import everything that is found at paths. One source that fails stops no other.

    `maps` and `profiling` are those of the JOBs. Raises UsageError where no path has anything to import, and where
    these are named and there is no JOB; StoreError where the workspace cannot be written.
    """
    require_identity(board)
    with workspace.locked():
        # Of imports that were killed.
        for left in workspace.root.glob(f"{_SCRATCH}*"):
            shutil.rmtree(left, ignore_errors=True)
        with TemporaryDirectory(prefix=_SCRATCH, dir=workspace.root) as scratch:
            walk = Walk(Path(scratch), workspace.root)
            taken = await asyncio.to_thread(_look_through, walk, paths)
            if not walk.jobs and (maps.named is not None or profiling is not None):
                raise UsageError(
                    "--counter-map and --acl-json are about JOBs, and there is none", hint="leave them out"
                )
            jobs = [await _import_job(job, workspace, board, maps, profiling) for job in walk.jobs]
            async with Store(workspace.database) as store:
                jobs = [await with_ledger(store, each) for each in jobs]
                taken += jobs
                with progress("import", "results") as shown:
                    total = len(walk.results)

                    def note(each: Taken) -> None:
                        taken.append(each)
                        shown(len(taken), len(walk.jobs) + total)

                    await import_results(walk.results, store, workspace.database, Path(scratch), board, note)
    return ImportedPaths(taken, [each.session for each in jobs if each.session is not None], walk.passed)


def _look_through(walk: Walk, paths: Sequence[Path]) -> list[Taken]:
    """Look through the paths; return what failed. Raises UsageError where nothing at all was found."""
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
    return [Taken(path, None, error) for path, error in failed]


async def _import_job(
    job: Job, workspace: Workspace, board: str, maps: CounterMaps, profiling: Profiling | None
) -> Taken:
    try:
        # A signal cancels it: what is in the workspace by then is where the next import goes on.
        summary = await import_into(
            job.path, workspace, asyncio.Event(), board=board, maps=maps, profiling=profiling, found=job
        )
    except ProfagentError as error:
        return Taken(job.address, None, error, "JOB")
    except OSError as error:
        said = ProfagentError(f"cannot read {job.address}: {error}", hint="check its permissions")
        return Taken(job.address, None, said, "JOB")
    rows = sum(summary["records"].values()) + sum(summary["events"].values())
    return Taken(job.address, summary["session"], None, "JOB", rows, is_known=bool(summary["earlier"]))
