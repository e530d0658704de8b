"""A small workspace of two imported JOBs: `lab`, which the examples of the API use."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from profagent.importing.importing import import_into
from profagent.store.workspace import Workspace, set_baseline
from tests.encoders import aicore_record, api_record, done_text, layer_item, net_item

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

START_US = 1_795_230_382_000_000
LAYERS = ("conv1", "conv2", "fc")
# Ticks of each layer: 100 / 700 µs each.
TICKS = {"JOB" + "A" * 29: (1_400, 4_200, 2_100), "JOB" + "B" * 29: (1_400, 6_300, 2_100)}
INFERENCES = 20
LATENCY_US = 1_500


def job_files(ticks: tuple[int, ...]) -> Mapping[str, bytes]:
    """The files of a JOB of one model with these ticks, its calls and its clock."""
    names = [layer_item(place, name.encode() + b"\0", prof_layer_id=1 + place) for place, name in enumerate(LAYERS)]
    files = {
        "info.json.0": b'{"DeviceInfo": [{"aic_frequency": "700"}]}',
        "data/m.0.layer.info": b"".join(names),
        "data/m.0.net.info": net_item(0, prof_layers=len(LAYERS)),
    }
    calls = b""
    for count in range(INFERENCES):
        begin = START_US + count * 10_000
        log = f"data/aicore.0.m.3.0.1.1.{count}"
        # The later ones take a little longer, each of them differently.
        files[log] = b"".join(aicore_record(place, each + count, 0) for place, each in enumerate(ticks))
        times = {"start_time": begin + 100, "end_time": begin + 100 + 1_450}
        files[f"{log}.done"] = done_text(file_len=len(files[log]), **times, cache_hit=3, cache_mis=1)
        calls += api_record(2, begin, begin + LATENCY_US)
    files["data/acl_api.0.m.0"] = calls
    files["data/acl_api.0.m.0.done"] = done_text(file_len=len(calls), start_time=0, end_time=START_US, pid=7, tid=8)
    return files


def make_lab(folder: Path) -> Path:
    """Make the workspace `lab` in a folder: session 1 is the baseline `release`, session 2 has a slower conv2."""
    return asyncio.run(_make_lab(folder))


async def _make_lab(folder: Path) -> Path:
    workspace = Workspace(folder / "lab")
    for name, ticks in TICKS.items():
        job = folder / name
        for path, data in job_files(ticks).items():
            (job / path).parent.mkdir(parents=True, exist_ok=True)
            (job / path).write_bytes(data)
        await import_into(job, workspace, asyncio.Event())
    await set_baseline(workspace, "release", 1)
    return workspace.root


def copy_of(lab: Path, folder: Path, change: str = "") -> None:
    """Copy the database of a workspace into a folder, and change the copy."""
    with closing(sqlite3.connect(lab / "profagent.db")) as connection:
        connection.execute("VACUUM INTO ?", (str(folder / "profagent.db"),))
    with closing(sqlite3.connect(folder / "profagent.db")) as connection:
        connection.executescript(change)
