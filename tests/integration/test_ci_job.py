"""The CI job of docs/howto/ci.md: its script runs, and its figure is that of the Python API and of MCP."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcp import Client

import profagent as api
from profagent.link.credentials import Access
from profagent.mcp.server import Tools, make_server
from profagent.tables.provenance import SIMULATED
from tests.integration.board import eventually, running, simulated
from tests.integration.host import ENVIRONMENT, profagent, recorded

PAGE = Path(__file__).parents[2] / "docs/howto/ci.md"
INFERENCES = 60
NETWORK = """
name = "net"
batch_num = 1
[[segments]]
unit = "aicore"
runs = [
    {{ time_us = 1500.0, layers = ["conv1:Convolution"] }},
    {{ time_us = {conv2_us}, layers = ["conv2:Convolution"] }},
]
"""


def script() -> str:
    (found,) = re.findall(r"```\n(#!/bin/sh\n.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    return str(found)


def ran(folder: Path, conv2_us: float, seed: int) -> Path:
    """Return the JOB of a program that has just ended."""
    folder.mkdir()
    network = folder / "net.toml"
    network.write_text(NETWORK.format(conv2_us=conv2_us), "utf-8")
    made = simulated(folder / "root", INFERENCES, model=str(network), seed=seed)
    for directory in (made, made / "data"):
        os.utime(directory)
    return made


def run_job(folder: Path, board: str, workspace: Path, program: Callable[[], object]) -> tuple[int, str]:
    """Run the script as a CI job does, and the program once the board is recorded; the exit code and the output."""
    (folder / "measure.sh").write_text(script(), "utf-8")
    variables = {**ENVIRONMENT, "BOARD": board, "BUILD": "1201", "WORKSPACE": str(workspace)}
    variables["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{variables['PATH']}"
    output = folder / "output.txt"
    with (
        output.open("w") as written,
        subprocess.Popen(
            ["sh", "measure.sh"], cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=written, stderr=written
        ) as process,
    ):
        assert eventually(lambda: "recording" in output.read_text("utf-8"))
        program()
        code = process.wait(90)
    return code, output.read_text("utf-8")


async def by_mcp(workspace: Path) -> dict[str, Any]:
    async with Client(make_server(Tools(workspace, Access()))) as client:
        answer = await client.call_tool("stats", {"session": "build=1201", "by": "layer"})
        found: dict[str, Any] = answer.structured_content or {}
        return found


def test_the_script_fails_for_the_slower_layer_and_everybody_has_its_figure(tmp_path: Path) -> None:
    workspace, root = tmp_path / "workspace", tmp_path / "root"
    root.mkdir()
    recorded(ran(tmp_path / "before", 900.0, seed=1).parent, workspace)
    assert profagent("baseline", "set", "release", "last", "--workspace", workspace).code == 0
    made = ran(tmp_path / "after", 990.0, seed=2)
    with running("--root", root) as board:
        code, output = run_job(tmp_path, board.address, workspace, lambda: made.rename(root / made.name))
    assert code == 1, output
    assert re.search(r"FAILED layer\.median&gt;\+5%: conv2 \+\d", output), output
    assert "conv2" in (tmp_path / "diff.xml").read_text("utf-8")

    rows = profagent("stats", "build=1201", "--workspace", workspace, "--format", "github-benchmark").document
    (of_job,) = [row for row in rows if row["name"].endswith("conv2")]
    answer = api.open(workspace).session("build=1201").stats("layer")
    (of_api,) = [row for row in answer.table.to_dicts() if row["layer"] == "conv2"]
    told = asyncio.run(by_mcp(workspace))
    (of_mcp,) = [row for row in told["answer"]["rows"] if row["layer"] == "conv2"]
    assert of_job["value"] == of_api["median"] == of_mcp["median"]
    assert of_job["extra"] == SIMULATED
    assert SIMULATED in answer.provenance.caveats
    assert SIMULATED in told["caveats"]
