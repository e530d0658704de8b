"""`profagent watch`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
import msgspec

from profagent.boards.reaching import run_on_boards, via
from profagent.cli import options
from profagent.cli.running import tell, terminal_columns
from profagent.store.workspace import Workspace
from profagent.watch.live_text import folded, line_of
from profagent.watch.watch import WatchOptions, watch

if TYPE_CHECKING:
    from pathlib import Path

    from profagent.boards.tunnel import OverSsh
    from profagent.link.credentials import Access
    from profagent.store.counter_maps import CounterMaps


@click.command("watch")
@options.board
@options.access
@via
@click.option("--from-start", is_flag=True, help="Show what open JOBs hold already, too.")
@click.option("--records", "with_records", is_flag=True, help="A line for each record instead of each inference.")
@click.option("--save", is_flag=True, help="Keep the capture in the workspace.")
@options.workspace
@options.counter_map
@options.as_json
def command(  # noqa: PLR0913 - one parameter an option
    *,
    board: str,
    access: Access,
    over: OverSsh | None,
    from_start: bool,
    with_records: bool,
    save: bool,
    workspace: Path | None,
    maps: CounterMaps,
    as_json: bool,
) -> None:
    """Show a board's inferences live, until Ctrl-C.

    One line an inference: board time (UTC), model, pictures before it, total, its slowest layers. Nothing is kept and
    nothing on the board is released, unless --save is given.

    Example: profagent watch --board 192.168.1.20 --records;
    profagent watch --board root@192.168.1.20 --via ssh --root /opt/app/profiling
    """
    chosen = WatchOptions(
        board,
        from_start=from_start,
        with_records=with_records,
        maps=maps,
        save=Workspace.at(workspace) if save else None,
    )
    show = show_json if as_json else show_text
    summary = run_on_boards(
        [board], access, over, lambda reached, stop: watch(replace(chosen, access=reached), show, tell, stop)
    )
    show(summary)
    if "session" in summary:
        number, folder = summary["session"], summary["workspace"]
        tell(f"saved as session {number} of {folder}: profagent show --session {number} --workspace {folder}")


def show_json(event: dict[str, Any]) -> None:
    """One JSON object a line."""
    click.echo(msgspec.json.encode(event))


def show_text(event: dict[str, Any]) -> None:
    """One line of text; a terminal that is too narrow for it gets it in several."""
    columns = terminal_columns()
    click.echo(folded(line_of(event), columns) if columns else line_of(event))
