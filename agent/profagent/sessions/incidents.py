"""Command `profagent incidents`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from profagent.cli import options
from profagent.cli.documents import print_document
from profagent.cli.exit_codes import tell_incomplete
from profagent.cli.running import asynchronous, tell
from profagent.cli.target import target_options
from profagent.store.database import reading
from profagent.store.incidents import incidents_of, recorder_of
from profagent.store.queries import find_session
from profagent.tables.incidents import INCIDENT_COLUMNS, incident_cells, incident_document, recorder_lines
from profagent.tables.table import fitted_lines

if TYPE_CHECKING:
    from profagent.store.target import Target


@click.command("incidents", cls=options.SessionCommand)
@asynchronous
@target_options
@options.as_json
@options.wide
async def command(*, target: Target, as_json: bool, columns: int) -> None:
    """List the incidents of a session that `record --keep-when` found: when, what fired, and what was slow.

    `culprit` is the layer or stage that took the longest beyond its median, `not in any layer` the time between layers.
    `watch SESSION --at N` and `export trace SESSION --incident N` open at one.

    Example: profagent incidents last
    Example: profagent incidents 1 --json
    """
    async with reading(target.database) as connection:
        session = (await find_session(connection, target.session)).session
        found = await incidents_of(connection, session)
        lines = recorder_lines(await recorder_of(connection, session), found)
    if as_json:
        print_document("incidents", [incident_document(each) for each in found])
    else:
        for line in fitted_lines(INCIDENT_COLUMNS, [incident_cells(each) for each in found], columns) if found else ():
            click.echo(line)
        for line in lines:
            tell(line)
    await tell_incomplete(target.database, [session])
