"""An agent's way over MCP, from an empty workspace to the slow layer and its reason: a real server, a real board."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from profagent.link.boards_file import BoardEntry, BoardsFile
from tests.daemon.daemon_process import environment
from tests.integration.board import running

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


async def test_a_fresh_workspace_tells_which_layer_is_slow_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    words = [
        "-c",
        "from profagent.cli.main import main; main()",
        "mcp",
        "--allow-record",
        "--workspace",
        str(tmp_path / "fresh"),
    ]
    server = StdioServerParameters(command=sys.executable, args=words, env=environment())
    (tmp_path / "board").mkdir()
    with running("--simulate", "--root", tmp_path / "board") as daemon:
        BoardsFile().put(BoardEntry("euler", daemon.address))
        async with Client(stdio_client(server)) as client:

            async def answer(tool: str, **arguments: Any) -> dict[str, Any]:
                result = await client.call_tool(tool, arguments)
                found: dict[str, Any] = result.structured_content or {}
                return found

            assert (await answer("sessions"))["code"] == "usage"
            recorded = await answer("record", board="euler", for_s=1.0)
            assert recorded["answer"]["session"] == 1
            assert "simulated: the figures are invented, no NPU was measured" in recorded["caveats"]
            slowest = (await answer("layers", top=1))["answer"]["rows"][0]
            assert slowest["share"] > 0
            assert slowest["bound by"]
            advice = await answer("advise")
            assert advice["caveats"] == recorded["caveats"]
            assert {"findings", "cannot_tell"} <= advice["answer"].keys()
