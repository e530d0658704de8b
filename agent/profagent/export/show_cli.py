"""`profagent show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from profagent.cli import options
from profagent.cli.running import terminal_columns
from profagent.export.export import export_timeline
from profagent.export.show import LAST_INFERENCE, show, shown_as_document, shown_as_text
from profagent.importing.job_folder import write_log
from profagent.importing.targets import choice_options, chosen_inferences, find_target, target_options, tell_unrecorded

if TYPE_CHECKING:
    from pathlib import Path

    from profagent.store.counter_maps import CounterMaps


@click.command("show")
@target_options
@choice_options
@options.as_json
def command(
    *,
    directory: Path | None,
    session: int | None,
    job: str | None,
    workspace: Path | None,
    maps: CounterMaps,
    last: int | None,
    inference: int | None,
    as_json: bool,
) -> int:
    """Print the four tables: AA core metric, Op statistic, Acl statistic, Frequency.

    Like the vendor's command it leaves sqlite/, log/ and timeline/ in a JOB directory.

    Example: profagent show -dir JOBABCDEFGHIJKLMNOPQRSTUVWXYZABC --last 1
    """
    target = find_target(directory, session, job, workspace, maps)
    choice = chosen_inferences(last, inference, LAST_INFERENCE)
    found = show(target.database, session=target.session, job=target.job, choice=choice)
    if directory is not None:
        export_timeline(target.database, target.output("timeline"), job=target.job)
        write_log(directory, ["show"])
    if as_json:
        click.echo(msgspec.json.encode([shown_as_document(each) for each in found]))
    else:
        for each in found:
            for line in shown_as_text(each, terminal_columns()):
                click.echo(line)
    is_without = any(not each.known_inferences for each in found)
    return tell_unrecorded(target.database, target.session, target.job) if is_without else 0
