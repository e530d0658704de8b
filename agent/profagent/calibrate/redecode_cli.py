"""`profagent redecode`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from profagent.calibrate.redecode import redecode_job, redecode_session
from profagent.cli import options
from profagent.cli.running import run_to_the_end, tell
from profagent.cli.table import printable
from profagent.errors import IncompleteError
from profagent.importing.targets import named_target
from profagent.store.counter_maps import BUILT_IN
from profagent.store.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagent.calibrate.redecode import Redecoded
    from profagent.store.counter_maps import CounterMaps


@click.command("redecode")
@click.argument("target", metavar="SESSION|JOB")
@options.workspace
@options.counter_map
@options.as_json
def command(*, target: str, workspace: Path | None, maps: CounterMaps, as_json: bool) -> int:
    """Fill the counter columns of a session or JOB with another counter map.

    A number is a session of the workspace; a JOB directory is imported first when needed. When it fails or is
    killed, all columns are as before. Exit code 4: bytes of some records are not kept any more; these have no counters.

    Example: profagent redecode 3 --counter-map ss928.toml
    """
    found = named_target(target, None, workspace, BUILT_IN)
    if found.session is None:
        done = run_to_the_end(lambda: redecode_job(found.folder, maps, tell))
    else:
        done = redecode_session(Workspace.at(workspace), found.session, maps)
    if as_json:
        click.echo(msgspec.json.encode(_document(done)))
    else:
        for line in _lines(done):
            click.echo(printable(line))
    return IncompleteError.exit_code if done.filled.without_bytes else 0


def _document(done: Redecoded) -> dict[str, object]:
    return {
        "session": done.session,
        "counter_map_before": done.before,
        "counter_map": done.counter_map.name,
        "counter_map_digest": done.counter_map.fingerprint,
        "rows": done.filled.rows,
        "rows_without_bytes": done.filled.without_bytes,
    }


def _lines(done: Redecoded) -> Iterator[str]:
    known = done.counter_map
    yield (
        f"session {done.session}: {done.filled.rows:,} rows have the {len(known.counters)} counters of {known.name},"
        f" digest {known.fingerprint}; before: {done.before or 'none'}"
    )
    if done.filled.without_bytes:
        yield f"{done.filled.without_bytes:,} rows have none: their bytes are not kept any more"
