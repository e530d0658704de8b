"""`profagent gc`."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from profagent.cli import options
from profagent.cli.options import age_us, size_bytes
from profagent.errors import UsageError
from profagent.sessions.baselines import Baselines
from profagent.sessions.clearing import chosen_sessions, clear, disk_bytes, fitting_sessions
from profagent.sessions.clearing_choice import Rules
from profagent.store.sessions import condition_of
from profagent.store.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagent.sessions.clearing_choice import Chosen
    from profagent.store.sessions import Condition


@click.command("gc")
@options.workspace
@click.option("--older-than", metavar="AGE", help="Only sessions older than this: 36h, 30d, 8w.")
@click.option("--keep-last", type=click.IntRange(min=0), metavar="N", help="Keep the last N of each board.")
@click.option("--max-size", metavar="SIZE", help="Delete the oldest until the workspace is no larger: 500M, 20G.")
@click.option(
    "--where", multiple=True, metavar="COND", help="Only sessions with this, as in `sessions --where`; all must hold."
)
@click.option("--dry-run", is_flag=True, help="Say what would be deleted; delete nothing.")
@options.as_json
def command(
    *,
    workspace: Path | None,
    older_than: str | None,
    keep_last: int | None,
    max_size: str | None,
    where: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Delete the records of old sessions and their mirrored files; keep their statistics.

    What `stats` tells of them stays, and the ledger, labels and layers. Never touched: a session that is not over, a
    baseline, one that shares a JOB with a session that stays. Folders of JOBs outside of the workspace are not touched.

    Example: profagent gc --older-than 30d --keep-last 3 --dry-run
    """
    if (older_than, keep_last, max_size) == (None, None, None) and not where:
        raise UsageError("say what may go", hint="--older-than AGE, --keep-last N, --max-size SIZE or --where COND")
    now_us = time.time_ns() // 1000
    rules = Rules(
        None if older_than is None else now_us - age_us(older_than),
        keep_last,
        None if max_size is None else size_bytes(max_size),
    )
    chosen_workspace = Workspace.at(workspace)
    conditions = [condition_of(text) for text in where]
    chosen_workspace.readable_database()
    with chosen_workspace.locked():
        _run(chosen_workspace, rules, conditions, now_us, dry_run=dry_run, as_json=as_json)


def _run(
    workspace: Workspace, rules: Rules, conditions: Sequence[Condition], now_us: int, *, dry_run: bool, as_json: bool
) -> None:
    asked = fitting_sessions(workspace, conditions)
    baselines = {each.session: name for name, each in Baselines(workspace).all().items()}
    chosen = chosen_sessions(workspace, rules, asked=asked, baselines=baselines)
    before = disk_bytes(workspace.root)
    if not dry_run:
        asyncio.run(clear(workspace, chosen, now_us=now_us, tell=lambda line: click.echo(line, err=True)))
    after = None if dry_run else disk_bytes(workspace.root)
    if as_json:
        click.echo(msgspec.json.encode(_document(chosen, before, after)))
    else:
        _print(chosen, before, after)


def _print(chosen: Chosen, before: int, after: int | None) -> None:
    sessions = sorted(each.session for group in chosen.groups for each in group)
    verb = "would delete" if after is None else "deleted"
    named = ", ".join(map(str, sessions)) or "none"
    click.echo(f"{verb} the records of {len(sessions)} sessions: {named}")
    for session, why in sorted(chosen.staying.items()):
        click.echo(f"session {session} stays: it {why}")
    if after is None:
        click.echo(f"the workspace takes {_megabytes(before)}, about {_megabytes(chosen.freed_bytes)} less then")
    else:
        click.echo(f"the workspace takes {_megabytes(after)}, {_megabytes(before)} before")


def _document(chosen: Chosen, before: int, after: int | None) -> dict[str, object]:
    return {
        "sessions": sorted(each.session for group in chosen.groups for each in group),
        "staying": {str(session): why for session, why in chosen.staying.items()},
        "bytes_before": before,
        "bytes_after": after,
        "freed_bytes_estimated": chosen.freed_bytes,
    }


def _megabytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
