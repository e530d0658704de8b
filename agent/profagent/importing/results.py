"""Results of other Ascend tools as sessions of a workspace: what `profagent import PATH…` tells."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click
import msgspec

from profagent.ascend.importing import found_sources, import_results
from profagent.cli.progress import progress
from profagent.cli.running import tell
from profagent.cli.table import printable
from profagent.errors import IncompleteError, ProfagentError
from profagent.formats.names import display_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from profagent.ascend.importing import Taken
    from profagent.store.workspace import Workspace


async def imported_results(paths: Sequence[Path], workspace: Workspace, board: str, *, as_json: bool) -> int:
    """Import results of other tools, a session each, and tell what came of them; the exit code."""
    found = await asyncio.to_thread(found_sources, paths)
    come: list[object] = []
    with progress("import", "results") as shown:

        def count(one: object) -> None:
            come.append(one)
            shown(len(come), len(found))

        taken = await import_results(found, workspace, board, count)
    if as_json:
        click.echo(msgspec.json.encode([_result_document(each) for each in taken]))
    else:
        for each in taken:
            click.echo(printable(_result_line(each)))
        click.echo(f"database: {workspace.database}")
    for each in taken:
        if each.error is not None:
            said = str(each.error)
            tell(said if str(each.path) in said else f"{each.path}: {said}")
            tell(f"  {each.error.hint}")
    if any(each.error is not None for each in taken):
        return ProfagentError.exit_code
    return IncompleteError.exit_code if any(each.losses for each in taken) else 0


def _result_line(taken: Taken) -> str:
    if taken.session is None:
        return f"not imported: {taken.path}"
    if taken.is_known:
        return f"session {taken.session}: {taken.path}: nothing new"
    entries = f", {taken.entries} in its ledger" if taken.entries else ""
    return f"session {taken.session}: {taken.path}: {taken.rows:,} rows, {taken.kernels:,} kernels{entries}"


def _result_document(taken: Taken) -> dict[str, Any]:
    error = None if taken.error is None else display_text(str(taken.error))
    return {**taken._asdict(), "path": display_text(str(taken.path)), "error": error}
