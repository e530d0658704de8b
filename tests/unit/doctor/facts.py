"""A board in good order, for tests to break."""

from __future__ import annotations

from pathlib import Path

from profagent.link.translate import (
    DaemonFacts,
    Examination,
    InotifyFacts,
    JobFacts,
    NpuFacts,
    NpuProcess,
    ProcessFacts,
    RootFacts,
    UmapNode,
)

ROOT_PATH = "/opt/app/profiling"
UMAP = (Path(__file__).parents[2] / "data" / "umap" / "svp_npu.txt").read_text("utf-8")
PROCESS = NpuProcess(7, "main", 0, "0027")
ROOT = RootFacts(
    ROOT_PATH,
    file_system="ext4",
    total_bytes=8_000_000_000,
    free_bytes=4_000_000_000,
    jobs=2,
    open_jobs=1,
    newest=(JobFacts(f"{ROOT_PATH}/JOB1", 0o750),),
)
BOARD = Examination(
    npu=NpuFacts(has_device=True, modules=("ot_svp_npu",)),
    processes=ProcessFacts((PROCESS,), 1),
    umap=(UmapNode("svp_npu", text=UMAP), UmapNode("sys")),
    roots=(ROOT,),
    inotify=InotifyFacts(8192, 128, 16384, 5),
    daemon=DaemonFacts(0, 0),
)
