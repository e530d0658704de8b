"""`profagent export parquet` and `profagent export sqlite`: what a session's views have, for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from profagent.cli import options
from profagent.cli.running import asynchronous
from profagent.export.parquet import export_parquet
from profagent.export.sqlite_file import export_sqlite
from profagent.importing.job_folder import named_target
from profagent.store.database import FILE_NAME

if TYPE_CHECKING:
    from profagent.importing.job_folder import Target
    from profagent.store.counter_maps import CounterMaps


@click.command("parquet")
@click.argument("targets", metavar="SESSION|JOB…", nargs=-1, required=True, shell_complete=options.completed("targets"))
@options.workspace
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="In place of parquet/.")
@options.counter_map
@options.as_json
@asynchronous
async def parquet(
    *, targets: tuple[str, ...], workspace: Path | None, output: Path | None, maps: CounterMaps, as_json: bool
) -> None:
    """Write the views as Parquet, by board and day, for DuckDB, pandas and Spark.

    Several sessions may share a folder. Needs pyarrow: pip install 'profagent[parquet]'.

    Example: profagent export parquet 3
    Example: profagent export parquet 3 4 --output lake
    """
    documents = []
    for text in targets:
        target = await _target(text, workspace, maps)
        written = await export_parquet(target.database, output or target.output("parquet"), target.session)
        rows = sum(written.rows.values())
        line = f"session {written.metadata['session']}: {rows:,} rows of {len(written.rows)} views in {written.folder}"
        documents.append({"folder": str(written.folder), "rows": written.rows, "metadata": written.metadata})
        if not as_json:
            click.echo(line)
    if as_json:
        click.echo(msgspec.json.encode(documents))


@click.command("sqlite")
@options.target
@options.workspace
@click.option(
    "--output",
    type=options.OUTPUT_FILE,
    metavar="FILE",
    help=f"In place of sqlite/{FILE_NAME}; of a JOB, exports/{FILE_NAME}.",
)
@options.counter_map
@options.as_json
@asynchronous
async def sqlite(*, target: str, workspace: Path | None, output: Path | None, maps: CounterMaps, as_json: bool) -> None:
    """Write one session as a database of its own, with the views and without other sessions.

    A folder with such a profagent.db is a workspace to read from: profagent stats 3 --workspace DIR

    Example: profagent export sqlite 3
    Example: profagent export sqlite 3 --output /media/usb/profagent.db
    """
    found = await _target(target, workspace, maps)
    # A JOB's own database is in its sqlite/.
    file = output or found.output("exports" if found.session is None else "sqlite") / FILE_NAME
    metadata = await export_sqlite(found.database, file, found.session)
    if as_json:
        click.echo(msgspec.json.encode({"file": str(file), "metadata": metadata}))
    else:
        click.echo(f"session {metadata['session']}: {file}")


async def _target(text: str, workspace: Path | None, maps: CounterMaps) -> Target:
    return await named_target(text, None, workspace if text.isdecimal() else None, maps)
