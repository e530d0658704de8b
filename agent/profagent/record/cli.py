"""Command `profagent record`."""

from __future__ import annotations

import re
import shlex
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from profagent.boards.cli import run_on_boards, via
from profagent.cli import options
from profagent.cli.documents import print_document
from profagent.cli.lakes import require_lake
from profagent.cli.main import group
from profagent.cli.options import duration_s, size_bytes, time_us
from profagent.cli.running import SIGNALS, tell
from profagent.errors import INTERRUPTED, ProfagentError, UsageError
from profagent.formats.incident_rules import IncidentRule, KeepWhen
from profagent.formats.sampling import EachNth, parse_schedule
from profagent.record.options import RecordOptions
from profagent.record.record import record
from profagent.store.sessions import labels_of
from profagent.store.workspace import Workspace
from profagent.tables.provenance import several_lines, summary_lines
from profagent.units import US_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from profagent.boards.tunnel import OverSsh
    from profagent.link.credentials import Access

_CONSUMER = re.compile(r"[A-Za-z0-9._-]{1,64}")


def _consumer(text: str) -> str:
    if not _CONSUMER.fullmatch(text):
        raise UsageError(f"{text!r} is not a valid name of a consumer", hint="write 1 to 64 of A-Z a-z 0-9 . _ -")
    return text


def _read_by(read: Callable[[Any], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    return lambda _context, _option, text: None if text is None else read(text)


@click.command("record")
@options.boards()
@options.access
@via
@options.workspace
@click.option(
    "--for",
    "for_s",
    metavar="DURATION",
    callback=_read_by(duration_s),
    help="Stop after this time: 90s, 10m, 1h30m.",
)
@click.option("--inferences", type=click.IntRange(min=1), metavar="N", help="Stop after N inferences of each board.")
@click.option("--until-finished", is_flag=True, help="Stop when every JOB seen is finished or quiet, on each board.")
@click.option("--backlog", is_flag=True, help="Also record JOBs that had already ended.")
@click.option("--from-now", is_flag=True, help="Skip data that exists at the start, and record only new data.")
@click.option("--new", is_flag=True, help="Begin a new session instead of continuing an incomplete one.")
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="K=V",
    callback=_read_by(labels_of),
    help="Label the session; may be repeated.",
)
@click.option(
    "--consumer",
    metavar="NAME",
    callback=_read_by(_consumer),
    help="The name under which the board counts the data that this host has (record-HOSTNAME).",
)
@click.option(
    "--metrics-listen",
    metavar="HOST:PORT",
    help="Serve metrics for Prometheus at this address, such as 127.0.0.1:9464, without access control.",
)
@click.option(
    "--schedule",
    metavar="K=N,…",
    help="Record inferences by this schedule: skip_first=10,wait=5,warmup=2,active=3,repeat=4.",
)
@click.option("--every", type=click.IntRange(min=1), metavar="N", help="Record the first inference, then every Nth.")
@click.option(
    "--keep-when",
    "rules",
    multiple=True,
    metavar="RULE",
    help="Flight recorder: figures of all inferences, records only around what a RULE finds; may be repeated.",
)
@click.option(
    "--around", metavar="TIME", default="2s", show_default=True, help="What --keep-when keeps before and after."
)
@click.option("--budget", metavar="SIZE/day", help="The most that --keep-when keeps in a day, such as 200M/day.")
@click.option(
    "--cool-down",
    metavar="TIME",
    default="10s",
    show_default=True,
    help="Time until a rule of --keep-when fires again.",
)
@click.option(
    "--push", "pushes", is_flag=True, help="At the end, push the session into the configured lake, as `push` does."
)
@options.slo(
    "Raise an alarm while an objective, such as 'frame.p99 < 33ms', is exceeded over the last minute: a line, and a"
    " metric of --metrics-listen."
)
@options.counter_map
@options.as_json
@options.quiet
def command(
    *,
    boards: tuple[str, ...],
    access: Access,
    over: OverSsh | None,
    workspace: Path | None,
    schedule: str | None,
    every: int | None,
    pushes: bool,
    as_json: bool,
    **chosen: Any,
) -> int:
    """Record boards into a workspace, until Ctrl-C or until the end that an option names.

    JOBs that are open or appear later are recorded. If an earlier `record` was killed or ended incomplete, its session
    is continued. With several boards, a board that cannot be reached does not delay the others.

    Exit code 3: a board was never reached. 4: the capture is incomplete: data is missing, the link was down or the
    disk full at the end, or the expected data did not come; the summary says which. 1: the capture is complete, but an
    objective of --slo was exceeded, or the capture could not be pushed.

    Example: profagent record --board 192.168.1.20 --until-finished --label build=1234
    Example: profagent record --group rack3 --for 10m
    Example: profagent record --board 192.168.1.20 --slo 'frame.p99 < 33ms' --metrics-listen 127.0.0.1:9464
    Example: profagent record --board 192.168.1.20 --keep-when 'latency > 1.5 * p99' --around 500ms --budget 200M/day
    """
    keep_when = _keep_when(**{name: chosen.pop(name) for name in ("rules", "around", "budget", "cool_down")})
    if [schedule is None, every is None, keep_when is None].count(False) > 1:
        raise UsageError("--schedule, --every and --keep-when all choose inferences", hint="give one of them")
    where = Workspace.at(workspace)
    lake = require_lake(None, where) if pushes else None
    # A capture leaves these signals ignored when it ends; a push afterwards is to stop at Ctrl-C like any command.
    heard = {each: signal.getsignal(each) for each in SIGNALS}
    nth = None if every is None else EachNth(every)
    keeping = nth if schedule is None else parse_schedule(schedule)
    wanted = RecordOptions(boards, where, keeping=keeping, keep_when=keep_when, **chosen)
    summary = run_on_boards(
        boards, access, over, lambda reached, stop: record(replace(wanted, access=reached), tell, stop)
    )
    is_alone = len(boards) == 1
    if as_json:
        print_document("record" if is_alone else "record-boards", summary)
    else:
        click.echo("\n".join(summary_lines(summary) if is_alone else several_lines(summary)))
    code = int((summary if is_alone else summary["total"])["exit_code"])
    if lake is None:
        return code
    for each, handler in heard.items():
        signal.signal(each, handler)
    captures: list[dict[str, Any] | None] = [summary] if is_alone else [each["session"] for each in summary["boards"]]
    pushed = _pushed(lake, where, [str(each["session"]) for each in captures if each is not None])
    return code or pushed


def _keep_when(rules: Sequence[str], around: str, budget: str | None, cool_down: str) -> KeepWhen | None:
    """Return the choice of a flight recorder that these texts describe, None without a rule. Raises UsageError."""
    if not rules and budget is not None:
        hint = "give a rule as well, such as --keep-when 'latency > 1.5 * p99'"
        raise UsageError("--budget goes with --keep-when", hint=hint)
    size = None if budget is None else size_bytes(budget.removesuffix("/day").removesuffix("B"))
    cool_down_us = 0 if cool_down.rstrip("hms") == "0" else _time_us(cool_down)
    parsed = tuple(IncidentRule.parse(rule) for rule in rules)
    return KeepWhen(parsed, _time_us(around), size, cool_down_us) if parsed else None


def _time_us(text: str) -> int:
    try:
        return round(time_us(text))
    except UsageError:
        return round(duration_s(text) * US_PER_S)


def _pushed(lake: str, workspace: Workspace, sessions: Sequence[str]) -> int:
    context = click.get_current_context()
    push = group.get_command(context, "push")
    assert push is not None
    named = {"address": lake, "workspace": workspace.root, "is_all": False, "as_json": False}
    try:
        if sessions:
            context.invoke(push, sessions=sessions, **named)
    except (ProfagentError, click.Abort) as error:
        again = f"profagent push {' '.join(sessions)} --workspace {shlex.quote(str(workspace.root))}"
        tell(f"profagent: not pushed: {str(error) or 'stopped'}")
        tell(f"  the records stay here; push them later: {again}")
        return INTERRUPTED.exit_code if isinstance(error, click.Abort) else error.exit_code
    return 0
