"""What a collect leaves on this host: the JOB directories where they were asked for, with their exports."""

from __future__ import annotations

import asyncio
import os
import shutil
from typing import TYPE_CHECKING

from profagent.errors import ProfagentError
from profagent.export.export import export_summary, export_timeline
from profagent.files import make_directory
from profagent.importing.importing import import_job
from profagent.importing.job_folder import own_folder, write_log

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from profagent.link.messages import Profiling
    from profagent.store.counter_maps import CounterMaps

__all__ = ["deliver_job", "export_job", "job_files"]


def deliver_job(mirror: Path, output: Path) -> Path:
    """Copy a JOB below `output`, whole or not at all; one of that name gives way to it. Raises ProfagentError."""
    target, part = output / mirror.name, output / f".{mirror.name}.part"
    make_directory(output)
    try:
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(mirror, part, symlinks=True)
        shutil.rmtree(target, ignore_errors=True)
        part.rename(target)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        raise ProfagentError(
            f"cannot write {target}: {error.strerror or error}",
            hint=f"the JOB is safe in {mirror}; make room, or name another --output",
        ) from error
    return target


async def export_job(job: Path, maps: CounterMaps, told: Profiling, sdk: str) -> None:
    """What the vendor's `--all` makes in a JOB directory: its database, timelines and summaries. StoreError."""
    imported = await import_job(job, maps, told=told, sdk=sdk)
    await asyncio.to_thread(_export, imported.database, job)
    await asyncio.to_thread(write_log, job, [f"collect: {imported.files} files in {imported.elapsed_s:.1f} s"])


def job_files(job: Path) -> Mapping[str, int]:
    """Sizes by path inside the JOB."""
    found: dict[str, int] = {}
    for folder, _, names in os.walk(job):
        for name in names:
            path = job / os.path.relpath(os.path.join(folder, name), job)  # noqa: PTH118 - names may be of any bytes
            found[path.relative_to(job).as_posix()] = path.lstat().st_size
    return found


def _export(database: Path, job: Path) -> None:
    export_timeline(database, own_folder(job, "timeline"), job=job.name)
    export_summary(database, own_folder(job, "summary"), job=job.name)
