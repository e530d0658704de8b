"""`profagent sessions`, `ledger`, `gc`, and `baseline` (a session's name, which is a label)."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from profagent.cli import options
from profagent.cli.documents import print_document
from profagent.cli.exit_codes import tell_incomplete
from profagent.cli.lakes import in_lake, require_lake
from profagent.cli.options import age_us, size_bytes
from profagent.cli.running import asynchronous, tell
from profagent.cli.target import target_options
from profagent.errors import UsageError
from profagent.ledger import REASONS
from profagent.limits import SHOWN_LEDGER_ENTRIES
from profagent.link.boards_file import BoardNames
from profagent.sessions.clearing import Rules, chosen_sessions, clear, disk_bytes, keep_what_is_not_in
from profagent.store.coverage import coverage_of
from profagent.store.database import reading
from profagent.store.incidents import incident_counts
from profagent.store.queries import find_session, ledger_entries
from profagent.store.sessions import fits
from profagent.store.summary import all_sessions
from profagent.store.workspace import BASELINE, Workspace, session_named, set_baseline
from profagent.tables.provenance import (
    coverage_line,
    covered_text,
    events_line,
    keeping_line,
    named_gaps,
    recorded_loss_line,
    session_title,
    share_text,
)
from profagent.tables.table import Cell, Column, counted, fitted_lines, printable, time_text, toned

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from profagent.sessions.clearing import Chosen
    from profagent.store.sessions import Condition
    from profagent.store.target import Target
    from profagent.tables.table import Tone

_TITLES = "session|board|source|started (UTC)|state|covered|JOBs|inferences|captured|losses|notes|labels"
SESSION_COLUMNS = tuple(map(Column, _TITLES.split("|")))
# Columns that a narrow terminal leaves out, in this order.
LESS = ("source", "JOBs", "notes", "captured")


@click.command("sessions")
@options.workspace
@options.where
@options.as_json
@options.wide
@asynchronous
async def command(*, workspace: Path | None, where: list[Condition], as_json: bool, columns: int) -> None:
    """List the sessions of a workspace, oldest first.

    Example: profagent sessions --where label=build=1234
    Example: profagent sessions --wide
    """
    chosen = Workspace.at(workspace)
    async with reading(chosen.readable_database()) as connection:
        sessions = [session for session in await all_sessions(connection) if fits(session, where)]
        incidents = await incident_counts(connection)
    if as_json:
        print_document("sessions", sessions)
        return
    if not sessions:
        click.echo(f"no sessions {'that fit ' if where else ''}in {chosen.root}")
        return
    for line in fitted_lines(SESSION_COLUMNS, _rows(sessions), columns, less=LESS, tones=_tones(sessions)):
        click.echo(line)
    for session in sessions:
        for line in _claims(session):
            click.echo(toned(f"session {session['session']}: {printable(line)}"))
        for line in _remarks(session, incidents.get(session["session"], 0)):
            click.echo(f"session {session['session']}: {line}")
        for loss in session["kept_losses"]:
            click.echo(toned(f"session {session['session']}: {printable(recorded_loss_line(loss))}"))
        for line in session["implausible"]:
            click.echo(f"session {session['session']}: {printable(line)}")


def _remarks(session: Mapping[str, Any], incidents: int) -> Iterator[str]:
    if (events := events_line(session["events"])) is not None:
        yield events
    if (keeping := keeping_line(session["sampling"])) is not None:
        yield keeping
    if incidents:
        yield f"{counted(incidents, 'incident')}: `profagent incidents {session['session']}` lists them"


def _claims(session: Mapping[str, Any]) -> Iterator[str]:
    yield from session["incomplete"]
    coverage = session["coverage"]
    if coverage is not None and named_gaps(coverage):
        yield str(coverage_line(coverage))


def _rows(sessions: Sequence[Mapping[str, Any]]) -> list[tuple[Cell, ...]]:
    names = BoardNames.known()
    boards = {session["board"]: names.of(session["board"], session["hostname"]) for session in sessions}
    counts = Counter(boards.values())
    shown = {board: f"{name} {board[:8]}" if counts[name] > 1 else name for board, name in boards.items()}
    return [_cells(session, shown[session["board"]]) for session in sessions]


def _tones(sessions: Iterable[Mapping[str, Any]]) -> list[Tone | None]:
    return ["loss" if _state(session) == "INCOMPLETE" else None for session in sessions]


def _cells(session: Mapping[str, Any], board: str) -> tuple[Cell, ...]:
    state = _state(session)
    if session["cleared_us"] is not None:
        state += ", pushed" if session["lake"] else ", figures only"
    mark = " [simulated]" if session["simulated"] else ""
    return (
        session["session"],
        board + mark,
        _source(session),
        time_text(session["started_us"]),
        state,
        covered_text(session["coverage"]),
        session["jobs"],
        session["inferences"],
        share_text(session["sampling"]["sampled"], session["sampling"]["due"]),
        session["losses"],
        session["notes"],
        session["labels"] or "",
    )


def _source(session: Mapping[str, Any]) -> str:
    if session["source"] != "import":
        return str(session["source"])
    return " ".join((session["source"], "/".join(Path(session["address"]).parts[-2:])))


def _state(session: Mapping[str, Any]) -> str:
    if session["ended_us"] is None:
        return "unfinished"
    return "complete" if session["complete"] else "INCOMPLETE"


@click.command("ledger", cls=options.SessionCommand)
@asynchronous
@target_options
@click.option("--grade", type=click.Choice(["loss", "note"]), help="Only losses, or only notes.")
@click.option(
    "--all", "is_all", is_flag=True, help=f"List every entry, not only {SHOWN_LEDGER_ENTRIES} of each reason."
)
@options.as_json
async def ledger(*, target: Target, grade: str | None, is_all: bool, as_json: bool) -> None:
    """Show each loss and note of a session: its file and bytes, its meaning, and what to do.

    Example: profagent ledger 1 --grade loss
    Example: profagent ledger JOB… --all
    """
    async with reading(target.database) as connection:
        session = await find_session(connection, target.session)
        entries = [explained(each) for each in await ledger_entries(connection, target.session, target.job)]
        coverage = await coverage_of(connection, session.session)
    await tell_incomplete(target.database, [session.session])
    entries = [each for each in entries if grade in {None, each["grade"]}]
    if as_json:
        print_document("ledger", entries)
        return
    click.echo(printable(session_title(session._asdict())))
    for line in _by_reason(entries, len(entries) if is_all else SHOWN_LEDGER_ENTRIES):
        click.echo(toned(line))
    if not entries:
        click.echo(f"the ledger has no {grade or 'entry'}")
    if (covered := coverage_line(coverage)) is not None:
        click.echo(printable(covered))


def explained(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry of the ledger with the meaning and the remedy of its reason, None if the reason is unknown."""
    known = REASONS.get(entry["reason"])
    return {**entry, "text": known and known.text, "remedy": known and known.remedy}


def _by_reason(entries: Sequence[dict[str, Any]], most: int) -> Iterator[str]:
    kinds = sorted({(each["grade"], each["reason"]) for each in entries})
    for grade, reason in kinds:
        of_kind = [each for each in entries if (each["grade"], each["reason"]) == (grade, reason)]
        yield f"{grade}: {reason} ({sum(each['count'] for each in of_kind)})"
        if of_kind[0]["text"] is not None:
            yield f"  {of_kind[0]['text']}"
            yield f"  To do: {of_kind[0]['remedy']}"
        yield from (f"  - {_entry_line(each)}" for each in of_kind[:most])
        if len(of_kind) > most:
            yield f"  - and {len(of_kind) - most} more: --all lists them"


def _entry_line(entry: Mapping[str, Any]) -> str:
    where = "/".join(part for part in (entry["job"], entry["log"]) if part) or "the board"
    first, last = entry["first"], entry["last"]
    place = f", byte {first}" if last in {None, first} else f", bytes {first} to {last}"
    place = place if entry["log"] and first is not None else ""
    count = f" ({entry['count']})" if entry["count"] > 1 else ""
    return printable(f"{where}{place}: {entry['detail']}{count}")


@click.command("gc")
@options.workspace
@click.option("--older-than", metavar="AGE", help="Only sessions older than this: 36h, 30d, 8w.")
@click.option("--keep-last", type=click.IntRange(min=0), metavar="N", help="Keep the last N sessions of each board.")
@click.option(
    "--max-size", metavar="SIZE", help="Clear the oldest sessions until the workspace is at most this large: 500M, 20G."
)
@click.option(
    "--pushed", is_flag=True, help="Only sessions whose records are in a lake, from which they are read then."
)
@in_lake
@options.where
@click.option("--dry-run", is_flag=True, help="Only print the sessions that would be cleared.")
@options.as_json
@options.quiet
@asynchronous
async def gc(  # noqa: PLR0913 - one parameter an option
    *,
    workspace: Path | None,
    older_than: str | None,
    keep_last: int | None,
    max_size: str | None,
    pushed: bool,
    address: str | None,
    where: list[Condition],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Delete the records of old sessions and their mirrored files; keep their statistics.

    The figures of `stats`, the ledger, labels and layers stay. A session is never cleared if it goes on, is a
    baseline, or shares a JOB with a session that stays. JOBs outside the workspace are never touched.

    With --pushed, each session is first restored from the lake and compared, and is cleared only if both are equal.
    Commands that need its records then read them from the lake.

    Example: profagent gc --older-than 30d --keep-last 3 --dry-run
    Example: profagent gc --pushed --lake /mnt/lake --keep-last 3
    """
    if (older_than, keep_last, max_size) == (None, None, None) and not where and not pushed:
        hint = "--older-than AGE, --keep-last N, --max-size SIZE, --where COND or --pushed"
        raise UsageError("name the sessions that may be deleted", hint=hint)
    now_us = time.time_ns() // 1000
    before_us = None if older_than is None else now_us - age_us(older_than)
    rules = Rules(before_us, keep_last, None if max_size is None else size_bytes(max_size))
    found = Workspace.at(workspace)
    found.readable_database()
    lake = require_lake(address, found) if pushed else None
    with found.locked():
        chosen = await chosen_sessions(found, rules, where)
        before = disk_bytes(found.root)
        if lake is not None:
            lake = await keep_what_is_not_in(lake, found, chosen)
        if not dry_run:
            await clear(found, chosen, now_us=now_us, tell=tell, lake=lake)
        after = None if dry_run else disk_bytes(found.root)
    document = _cleared(chosen, before, after)
    if as_json:
        print_document("gc", document)
    else:
        click.echo("\n".join(_cleared_lines(document)))


def _cleared(chosen: Chosen, before: int, after: int | None) -> dict[str, Any]:
    return {
        "sessions": sorted(each.session for group in chosen.groups for each in group),
        "staying": {str(session): why for session, why in sorted(chosen.staying.items())},
        "bytes_before": before,
        "bytes_after": after,
        "freed_bytes_estimated": chosen.freed_bytes,
    }


def _cleared_lines(done: Mapping[str, Any]) -> Iterator[str]:
    sessions, before, after = done["sessions"], _megabytes(done["bytes_before"]), done["bytes_after"]
    verb = "would delete" if after is None else "deleted"
    yield f"{verb} the records of {counted(len(sessions), 'session')}: {', '.join(map(str, sessions)) or 'none'}"
    yield from (f"session {session} stays: it {why}" for session, why in done["staying"].items())
    if after is None:
        yield f"the workspace takes {before}, about {_megabytes(done['freed_bytes_estimated'])} less then"
    else:
        yield f"the workspace takes {_megabytes(after)}, {before} before"


def _megabytes(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


@click.group("baseline")
def baseline() -> None:
    """Name the sessions that others are compared with.

    Example: profagent baseline set release-1.2 14
    Example: profagent baseline list
    """


@baseline.command("set", cls=options.SessionCommand)
@click.argument("name", shell_complete=options.completed("baselines"))
@click.argument("session", shell_complete=options.completed("sessions"))
@options.workspace
@asynchronous
async def set_(*, name: str, session: str, workspace: Path | None) -> None:
    """Make a session the baseline of this name. Another session with that name loses it.

    Example: profagent baseline set release-1.2 14
    Example: profagent baseline set nightly 20 --workspace lab
    """
    chosen = Workspace.at(workspace)
    number = await session_named(chosen, session)
    await set_baseline(chosen, name, number)
    click.echo(f"baseline {name} is session {number} of {chosen.root}")


@baseline.command("list")
@options.workspace
@options.as_json
@options.wide
@asynchronous
async def list_(*, workspace: Path | None, as_json: bool, columns: int) -> None:
    """List the baselines of a workspace with their sessions.

    Example: profagent baseline list
    Example: profagent baseline list --json
    """
    chosen = Workspace.at(workspace)
    async with reading(chosen.readable_database()) as connection:
        found = [each for each in await all_sessions(connection) if BASELINE in each["labels_by_key"]]
    if as_json:
        print_document("baselines", [{"name": each["labels_by_key"][BASELINE], **each} for each in found])
        return
    if not found:
        click.echo(f"no baselines in {chosen.root}")
        return
    rows = [(each["labels_by_key"][BASELINE], *cells) for each, cells in zip(found, _rows(found), strict=True)]
    for line in fitted_lines((Column("baseline"), *SESSION_COLUMNS), rows, columns, less=LESS, tones=_tones(found)):
        click.echo(line)
