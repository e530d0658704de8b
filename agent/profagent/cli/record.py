"""`profagent record`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from profagent.cli import options
from profagent.cli.ledger import ledger_lines
from profagent.cli.running import run_until_stopped, tell
from profagent.commands.counter_maps import read_map
from profagent.commands.record import RecordOptions, duration_s, record
from profagent.commands.workspace import Workspace
from profagent.errors import IncompleteError, UnsupportedBoardError, UsageError
from profagent.export.kept_loss import kept_loss_line
from profagent.export.sampling_text import sampling_lines
from profagent.export.table import printable

if TYPE_CHECKING:
    from pathlib import Path

    from profagent.link.credentials import Access

# The ledger's reason for a JOB of another SoC.
REFUSED = "unsupported-soc"


@click.command("record")
@options.board
@options.access
@options.workspace
@click.option("--for", "for_text", metavar="DURATION", help="Stop after so long: 90s, 10m, 1h30m.")
@click.option("--inferences", type=click.IntRange(min=1), metavar="N", help="Stop after so many inferences.")
@click.option("--until-finished", is_flag=True, help="Stop when every JOB seen is finished or quiet.")
@click.option("--backlog", is_flag=True, help="Take JOBs that are finished already, too.")
@click.option("--new", is_flag=True, help="Begin a new session even when one of this board is unfinished.")
@click.option("--label", "labels", multiple=True, metavar="K=V", help="Label the session; may be repeated.")
@options.counter_map
@options.as_json
def command(  # noqa: PLR0913 - one parameter an option
    *,
    board: str,
    access: Access,
    workspace: Path | None,
    for_text: str | None,
    inferences: int | None,
    until_finished: bool,
    backlog: bool,
    new: bool,
    labels: tuple[str, ...],
    counter_map: Path | None,
    as_json: bool,
) -> int:
    """Capture a board into a workspace, until an end that was named, or Ctrl-C.

    Takes JOBs that are open or appear later. A record that was killed goes on with its session.
    Exit code 4: bytes or records that existed are missing; the summary says which.

    Example: profagent record --board 192.168.1.20 --until-finished --label build=1234
    """
    chosen = RecordOptions(
        board,
        Workspace.at(workspace),
        for_s=None if for_text is None else duration_s(for_text),
        inferences=inferences,
        until_finished=until_finished,
        backlog=backlog,
        new=new,
        labels=dict(_label(label) for label in labels),
        counter_map=None if counter_map is None else read_map(counter_map),
        access=access,
    )
    summary = run_until_stopped(lambda stop: record(chosen, tell, stop))
    click.echo(msgspec.json.encode(summary) if as_json else "\n".join(summary_lines(summary)))
    if REFUSED in summary["ledger"]["note"]:
        return UnsupportedBoardError.exit_code
    return 0 if summary["complete"] else IncompleteError.exit_code


def summary_lines(summary: dict[str, Any]) -> list[str]:
    """A session's summary for people."""
    records = ", ".join(f"{count} {unit}" for unit, count in summary["records"].items())
    ledger = ledger_lines(summary["ledger"])
    mark = " [simulated]" if summary["simulated"] else ""
    return [
        f"session {summary['session']} of {summary['board']}{mark}: {_verdict(summary)}",
        f"  JOBs:     {' '.join(summary['jobs']) or 'none'}",
        f"  records:  {records}; {summary['bytes']} bytes",
        f"  sampling: {'; '.join(sampling_lines(summary['sampling']))}",
        f"  ledger:   {'; '.join(ledger) or 'empty'}",
        *(f"  {printable(kept_loss_line(loss))}" for loss in summary["kept_losses"]),
        f"  database: {summary['database']}",
        f"  mirror:   {summary['mirror']}",
    ]


def _verdict(summary: dict[str, Any]) -> str:
    return "complete" if summary["complete"] else "INCOMPLETE"


def _label(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise UsageError(f"{text!r} is no label", hint="write it as key=value")
    return key, value
