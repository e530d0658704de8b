"""`export summary --aggregate`: one mean of all chosen inferences, however they are read."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

from profagent.export import tables
from profagent.export.summary import export_summary
from profagent.importing.importing import import_job
from profagent.store import columns
from profagentd.simulate.run import SimulationOptions
from tests.daemon.simulated_job import write_job

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


async def test_a_mean_over_several_pages_is_the_one_of_a_single_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = write_job(tmp_path, SimulationOptions(model="yolov5s", layers=8, pictures=2, seed=5), inferences=5)
    database = (await import_job(job)).database

    async def exported(most: int) -> dict[str, bytes]:
        monkeypatch.setattr(tables, "pages", partial(columns.pages, most=most))
        folder = tmp_path / str(most)
        await export_summary(database, folder, job=job.name, sheet_format="json", aggregate=True)
        return {file.name: file.read_bytes() for file in folder.glob("op_*.json")}

    whole = await exported(10_000)
    assert len(whole) == 2
    rows = json.loads(whole[next(name for name in whole if name.startswith("op_summary"))])
    # Two inferences on a page, and one on the last.
    assert await exported(2 * len(rows)) == whole
    assert await exported(1) == whole
