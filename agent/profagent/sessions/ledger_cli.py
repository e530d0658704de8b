"""`profagent ledger`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from profagent.cli import options
from profagent.cli.running import asynchronous
from profagent.cli.table import printable
from profagent.importing.job_folder import named_target
from profagent.ingest.reasons import REASONS
from profagent.store.database import reading
from profagent.store.queries import ledger_entries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from profagent.store.counter_maps import CounterMaps

SHOWN_ENTRIES = 10


@click.command("ledger")
@click.argument("target", metavar="SESSION|JOB")
@options.workspace
@click.option("--job", metavar="NAME", help="Only this JOB of the session.")
@click.option("--grade", type=click.Choice(["loss", "note"]), help="Only losses, or only notes.")
@click.option("--all", "is_all", is_flag=True, help=f"List every entry, not {SHOWN_ENTRIES} of a reason.")
@options.counter_map
@options.as_json
@asynchronous
async def command(
    *,
    target: str,
    workspace: Path | None,
    job: str | None,
    grade: str | None,
    is_all: bool,
    maps: CounterMaps,
    as_json: bool,
) -> None:
    """Show each loss and each note of a session: which file, which bytes, what it means and what to do.

    Example: profagent ledger 1 --grade loss
    """
    found = await named_target(target, job, workspace, maps)
    async with reading(found.database) as connection:
        entries = [_explained(each) for each in await ledger_entries(connection, found.session, found.job)]
    entries = [each for each in entries if grade in {None, each["grade"]}]
    if as_json:
        click.echo(msgspec.json.encode(entries))
        return
    for line in _told(entries, len(entries) if is_all else SHOWN_ENTRIES):
        click.echo(line)
    if not entries:
        click.echo(f"the ledger has no {grade or 'entry'}")


def _explained(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry with what its reason means; a reason of a newer board has neither text nor remedy."""
    known = REASONS.get(entry["reason"])
    return {**entry, "text": known and known.text, "remedy": known and known.remedy}


def _told(entries: Sequence[dict[str, Any]], most: int) -> Iterator[str]:
    """The entries by grade and reason, losses first."""
    kinds = sorted({(each["grade"], each["reason"]) for each in entries})
    for grade, reason in kinds:
        of_kind = [each for each in entries if (each["grade"], each["reason"]) == (grade, reason)]
        yield f"{grade}: {reason} ({sum(each['count'] for each in of_kind)})"
        if of_kind[0]["text"] is not None:
            yield f"  {of_kind[0]['text']}"
            yield f"  To do: {of_kind[0]['remedy']}"
        yield from (f"  - {_line(each)}" for each in of_kind[:most])
        if len(of_kind) > most:
            yield f"  - and {len(of_kind) - most} more: --all lists them"


def _line(entry: Mapping[str, Any]) -> str:

    where = "/".join(part for part in (entry["job"], entry["log"]) if part) or "the board"
    first, last = entry["first"], entry["last"]
    place = ""
    if entry["log"] and first is not None:
        place = f", byte {first}" if last in {None, first} else f", bytes {first} to {last}"
    count = f" ({entry['count']})" if entry["count"] > 1 else ""
    return printable(f"{where}{place}: {entry['detail']}{count}")
