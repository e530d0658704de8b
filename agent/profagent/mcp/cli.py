"""Command line of `profagent mcp`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from profagent.cli import options
from profagent.cli.running import installing
from profagent.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from profagent.link.credentials import Access


@click.command("mcp")
@options.workspace
@click.option("--reports", type=options.FOLDER, metavar="DIR", help="Where reports go; else a temporary folder.")
@click.option("--allow-record", is_flag=True, help="Allow captures of named boards into the workspace.")
@options.access
def command(*, workspace: Path | None, reports: Path | None, allow_record: bool, access: Access) -> None:
    """Answer an agent's questions about a workspace over MCP, on standard input and output.

    A client of the Model Context Protocol starts it. Its tools only read, unless --allow-record allows captures. Each
    answer has its caveats first.

    Example: profagent mcp --workspace ~/lab
    Example: profagent mcp --reports ~/reports --allow-record
    """
    if find_spec("mcp") is None:
        raise UsageError("this command needs mcp, which is not installed", hint=installing("mcp"))
    from profagent.mcp.server import Tools, make_server  # noqa: PLC0415 - its package takes two seconds to import

    make_server(Tools(workspace, access, reports), allow_record=allow_record).run("stdio")
