"""Imports a JOB and exports it; `python -m tests.golden.write_exports` in the checkout writes the golden files anew.

The JOBs are those that the runtime library wrote, and a small one of the simulated board.

Versions are left out: they change with every release.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
from pathlib import Path

from profagent.export.summary import export_summary
from profagent.export.timeline import export_timeline
from profagent.importing.importing import import_job
from profagentd.simulate.run import SimulationOptions
from tests.daemon.simulated_job import write_job

GOLDEN = Path(__file__).parent / "exports"
SAMPLES = Path(__file__).parents[1] / "data" / "jobs"
JOBS = {
    job.parent.name if job.parent != SAMPLES else "small": job for job in sorted(SAMPLES.rglob("JOB*")) if job.is_dir()
}
SIMULATED = "simulated"
NAMES = sorted([*JOBS, SIMULATED])
PARTS = ("summary", "aggregate", "timeline")
VERSIONS = re.compile(rb'"(profagent|daemon_version)": ?"[^"]*",\s*')


def export_job(name: str, folder: Path) -> Path:
    """Import a copy of the JOB and export it; gives the JOB directory."""
    job = job_copy(name, folder)
    asyncio.run(_exported(job))
    for file in {*job.glob("*/metadata.json"), *job.glob("timeline/*.json")}:
        _leave_out_versions(file)
    return job


async def _exported(job: Path) -> None:
    database = (await import_job(job)).database
    await export_summary(database, job / "summary", job=job.name)
    await export_summary(database, job / "aggregate", job=job.name, sheet_format="json", aggregate=True)
    await export_timeline(database, job / "timeline", job=job.name)


def job_copy(name: str, folder: Path) -> Path:
    """A copy of a sample, or a new JOB of the simulated board."""
    if name == SIMULATED:
        options = SimulationOptions(model="yolov5s", layers=8, pictures=2, seed=5)
        return write_job(folder, options, inferences=2, loads=2)
    return Path(shutil.copytree(JOBS[name], folder / JOBS[name].name))


def _leave_out_versions(file: Path) -> None:
    file.write_bytes(VERSIONS.sub(b"", file.read_bytes()))


def write_all() -> None:
    """Replace every golden file."""
    shutil.rmtree(GOLDEN, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in NAMES:
            job = export_job(name, Path(folder))
            for part in PARTS:
                shutil.copytree(job / part, GOLDEN / name / part)


if __name__ == "__main__":
    write_all()
