"""Command line of `profagent nightly`: its timer, and notification of the verdict by webhook, mail or command."""

from __future__ import annotations

import asyncio
import fcntl
import http.client
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from email.message import EmailMessage
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from profagent.cli.documents import print_document
from profagent.cli.lakes import named_lake
from profagent.cli.options import FILE, OUTPUT_FILE, age_us, boards_of, duration_s, group, size_bytes
from profagent.cli.options import as_json as as_json_option
from profagent.cli.running import run_to_the_end, run_until_stopped, tell
from profagent.diff.diff import parse_condition
from profagent.errors import ProfagentError, UsageError, WorkspaceBusyError
from profagent.files import make_directory, write_atomically
from profagent.limits import COMMAND_S, SYSTEMCTL_S, WEBHOOK_S
from profagent.link.boards_file import BoardsFile
from profagent.nightly.night import Night, each_board, example, read_settings, report_lines
from profagent.nightly.page import PastBoard, junit_of, past_nights, write_beside
from profagent.nightly.run import NightRun, Pushing, session_to_compare
from profagent.sessions.clearing import Rules, chosen_sessions, clear, keep_what_is_not_in
from profagent.store.sessions import condition_of
from profagent.store.workspace import Workspace, default_workspace, located
from profagent.tables.slo import Objective
from profagent.tables.table import counted, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from profagent.nightly.night import BoardOutcome, Nightly, NightlyRecipients


MANAGERS = ("user", "system")
NAMES = ("profagent-nightly.service", "profagent-nightly.timer")
_LINK = re.compile(r"<a [^>]*>(.*?)</a>")


def unit_folder(manager: str, environment: Mapping[str, str]) -> Path:
    """Return the directory of the units of the user's, or the system's, service manager."""
    if manager == "system":
        return Path("/etc/systemd/system")
    return Path(environment.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"


def units(settings: Path, at: str) -> dict[str, str]:
    """Return the texts of the units by name.

    They run the settings at the times of `at`, in the form of systemd's OnCalendar.
    """
    program = shutil.which("profagent") or str(Path(sys.argv[0]).resolve())
    values = {"@PROFAGENT@": _quoted(program), "@SETTINGS@": _quoted(str(settings.resolve())), "@AT@": at}
    texts = {}
    for name in NAMES:
        texts[name] = resources.files("profagent.nightly").joinpath(f"systemd/{name}.in").read_text("utf-8")
        for key, value in values.items():
            texts[name] = texts[name].replace(key, value)
    return texts


def install_timer(settings: Path, manager: str, at: str) -> Path:
    """Write the units, start the timer, and return the directory. Raises UsageError, ProfagentError."""
    if shutil.which("systemctl") is None:
        raise UsageError("systemctl was not found", hint="let cron, or another scheduler, call `profagent nightly run`")
    folder = unit_folder(manager, os.environ)
    make_directory(folder)
    for name, text in units(settings, at).items():
        write_atomically(folder / name, [text.encode()])
    own = ["--user"] if manager == "user" else []
    _systemctl(*own, "daemon-reload")
    _systemctl(*own, "enable", "--now", NAMES[1])
    return folder


def _systemctl(*arguments: str) -> None:
    command = ["systemctl", *arguments]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=SYSTEMCTL_S, check=False)  # noqa: S603 - systemd's own
        why = ended.stderr.strip() or f"exit code {ended.returncode}" if ended.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        why = str(error)
    if why:
        raise ProfagentError(
            f"{' '.join(command)}: {why}",
            hint="the units are written; a user's timer needs a login of that user (loginctl enable-linger)",
        )


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


DEFAULT_CONFIG = Path("nightly.toml")


config_option = click.option(
    "--config", type=FILE, default=DEFAULT_CONFIG, show_default=True, metavar="FILE", help="The settings file."
)


@click.group("nightly")
def command() -> None:
    """Record boards every night, compare them with earlier nights, and send the verdict.

    Example: profagent nightly init
    Example: profagent nightly run
    """


@command.command("init")
@config_option
@click.option(
    "--timer",
    type=click.Choice(["ask", *MANAGERS, "none"]),
    default="ask",
    show_default=True,
    help="Install a systemd timer of this service manager, which runs every night.",
)
@click.option(
    "--at",
    metavar="WHEN",
    help="The time, in the form of systemd's OnCalendar; without it the `schedule` of the settings.",
)
def init(*, config: Path, timer: str, at: str | None) -> None:
    """Write a settings file that explains every key, and install a systemd timer.

    Example: profagent nightly init --timer user --at '*-*-* 03:30'
    Example: profagent nightly init --timer none --config lab.toml
    """
    if config.exists():
        click.echo(f"{config} is there already: left as it is")
    else:
        write_atomically(config, [example(at).encode()])
        click.echo(f"wrote {config}: name your boards in it, then try `profagent nightly run --config {config}`")
    when = at or read_settings(config.read_text("utf-8"), str(config)).schedule
    manager = _manager(timer)
    if manager is not None:
        folder = install_timer(config, manager, when)
        click.echo(f"wrote the units to {folder} and started profagent-nightly.timer: {when}")


def _manager(timer: str) -> str | None:
    """Return the service manager that the option names, or the person at the terminal chooses; None for none."""
    for manager in MANAGERS:
        place = unit_folder(manager, os.environ)
        asks = timer == "ask" and sys.stdin.isatty()
        if timer == manager or (asks and click.confirm(f"Have systemd run it every night, by units in {place}?")):
            return manager
    return None


@command.command("run")
@config_option
@as_json_option
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown.")
@click.option("--junit", type=OUTPUT_FILE, metavar="FILE", help="Write JUnit XML to this file.")
@group
def run(*, config: Path, as_json: bool, as_markdown: bool, junit: Path | None, groups: tuple[str, ...]) -> int:
    """Run a night: record all boards at the same time, export, compare, delete old data, and print the verdict.

    With --group, only boards of these groups are recorded, among those that the settings name.

    Exit code: 0 good; 1 slower, an objective is exceeded, or a step failed; 3 a board could not be reached; 4 data is
    missing.

    Example: profagent nightly run --config nightly.toml --junit night.xml
    Example: profagent nightly run --group rack3
    """
    if as_json and as_markdown:
        raise UsageError("--json and --markdown cannot be given together", hint="give only one of them")
    settings, rules = _settings(config)
    tonight = _tonight(settings, groups)
    here = config.resolve().parent
    workspace = Workspace(
        default_workspace() if settings.workspace is None else here / Path(settings.workspace).expanduser()
    )
    began = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%SZ")
    with _locked_for_night(workspace) as folder:
        # Nights are sorted newest first, so the first good one of a board is its last good night.
        earlier = [board for past in past_nights(folder) for board in past.boards]
        night_run = NightRun(tonight, here, workspace, began, earlier, tell)
        lake = named_lake(located(settings.lake, here), workspace)
        outcomes, pushing = run_until_stopped(lambda stop: _capture_and_push(night_run, lake, stop))
        night = Night(began, outcomes)
        # Tonight counts as well: the sessions that the next night will be compared with must survive the clearing.
        own = [PastBoard(each.board, each.verdict.word, each.session) for each in night.outcomes]
        measures = [session_to_compare(board.name, [*own, *earlier]) for board in settings.boards]
        staying = {each: "of the next night" for each in measures if each is not None}
        remarks = [pushing.remark] if pushing.remark else []
        # Records that the lake does not have yet must not be deleted.
        if pushing.is_done:
            remarks += cleared_after_night(workspace, settings, rules, staying, lake)
        night = replace(night, remarks=remarks)
        write_atomically(folder / f"{began}.json", [msgspec.json.encode(night.document()), b"\n"], durably=True)
        page = write_beside(folder, night, settings.reports)
    # The night is on the disk and its lock released: a slow webhook holds up no other run.
    for remark in tell_night(night, settings.tell, page):
        tell(remark)
    text = "\n".join(report_lines(night, as_markdown=as_markdown))
    if as_json:
        print_document("nightly", night.document())
    else:
        click.echo(text)
    if junit is not None:
        write_atomically(junit, [junit_of(night)])
    return night.exit_code


async def _capture_and_push(night_run: NightRun, lake: str, stop: asyncio.Event) -> tuple[list[BoardOutcome], Pushing]:
    outcomes = await night_run.boards(stop)
    # Without a single capture there is no database, and `push` would fail.
    is_pushed = lake and night_run.workspace.database.exists()
    return outcomes, await night_run.pushed(lake, stop) if is_pushed else Pushing("", is_done=True)


def _tonight(settings: Nightly, groups: Sequence[str]) -> Nightly:
    if not groups:
        return settings
    chosen = boards_of(groups)
    boards = [board for board in settings.boards if board.name in chosen]
    if not boards:
        raise UsageError(
            f"the settings name no board of {', '.join(groups)}", hint='write group = "…" below [[boards]]'
        )
    return msgspec.structs.replace(settings, boards=boards)


@contextmanager
def _locked_for_night(workspace: Workspace) -> Iterator[Path]:
    """Yield the directory of nights, locked against other runs. Raises WorkspaceBusyError, ProfagentError."""
    folder = workspace.root / "nightly"
    make_directory(folder)
    with (folder / "lock").open("w") as lock:
        try:
            # The kernel releases this lock when the process ends, however it ends: no stale lock can remain.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise WorkspaceBusyError(
                f"another `profagent nightly run` uses {workspace.root}", hint="wait for it, or end it"
            ) from error
        yield folder


def _settings(config: Path) -> tuple[Nightly, Rules]:
    """Return the settings and the rules of clearing, with every text parsed. Raises UsageError."""
    try:
        text = config.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {config}: {error}", hint="`profagent nightly init` writes one") from error
    settings = read_settings(text, str(config))
    settings.boards = each_board(settings.boards, BoardsFile().group)
    records = [board.record.for_ for board in settings.boards if board.record and board.record.for_ is not None]
    for duration in (settings.time_limit, settings.wait, *records):
        duration_s(duration)
    for condition in settings.fail_if:
        parse_condition(condition)
    for objective in settings.slo:
        Objective.parse(objective)
    asked = settings.retention
    for where in asked.where:
        condition_of(where)
    before_us = None if asked.older_than is None else time.time_ns() // 1000 - age_us(asked.older_than)
    return settings, Rules(before_us, asked.keep_last, None if asked.max_size is None else size_bytes(asked.max_size))


def cleared_after_night(
    workspace: Workspace, settings: Nightly, rules: Rules, staying: Mapping[int, str], lake: str = ""
) -> list[str]:
    """Delete the records that the retention settings release, and return remarks about it.

    Baselines stay, and so do the sessions in `staying` (number and reason), and with a lake every session that is not
    in it.
    """
    conditions = [condition_of(text) for text in settings.retention.where]
    if (rules == Rules() and not conditions) or not workspace.database.exists():
        return []
    try:
        with workspace.locked():
            chosen = run_to_the_end(lambda: chosen_sessions(workspace, rules, conditions, staying))
            lake_name = run_to_the_end(lambda: keep_what_is_not_in(lake, workspace, chosen)) if lake else None
            run_to_the_end(lambda: clear(workspace, chosen, now_us=time.time_ns() // 1000, tell=tell, lake=lake_name))
    except ProfagentError as error:
        return [f"clearing up failed: {error}"]
    sessions = sorted(each.session for group in chosen.groups for each in group)
    numbers = ", ".join(map(str, sessions))
    return [f"deleted the records of {counted(len(sessions), 'session')}: {numbers}"] if sessions else []


def tell_night(night: Night, to: NightlyRecipients, page: Path | None = None) -> Iterator[str]:
    """Notify everyone whom the settings name, and yield a remark for each notification that failed.

    A failure does not change the verdict. `page` is attached to the mail.
    """
    document = msgspec.json.encode(night.document())
    if to.webhook:
        yield from _posted(to.webhook, document)
    if to.mail:
        yield from _handed(to.sendmail, bytes(mail(night, to, page)), "the mail was not sent")
    if to.command:
        yield from _handed(to.command, document, f"{to.command[0]} was not told")


def mail(night: Night, to: NightlyRecipients, page: Path | None) -> EmailMessage:
    """Return a mail with the verdict as its subject, the report as its text, and the page attached."""
    message = EmailMessage()
    message["Subject"] = printable(f"profagent: {night.headlines()[0]}")
    message["To"] = ", ".join(to.mail)
    if to.mail_from:
        message["From"] = to.mail_from
    message["Auto-Submitted"] = "auto-generated"
    where = [] if page is None else ["", f"with links to reports and earlier nights: {page} on {platform.node()}"]
    message.set_content("\n".join([*report_lines(night, as_markdown=False), *where]) + "\n")
    if page is not None:
        # The links of the page lead to files on this host, which the reader of the mail does not have.
        text = _LINK.sub(r"\1", page.read_text("utf-8"))
        message.add_attachment(text, subtype="html", filename=page.name)
    return message


def _posted(webhook: str, document: bytes) -> Iterator[str]:
    try:
        request = urllib.request.Request(  # noqa: S310 - settings take http:// and https:// only
            webhook, document, {"Content-Type": "application/json"}, method="POST"
        )
        urllib.request.urlopen(request, timeout=WEBHOOK_S).close()  # noqa: S310 - as above
    except (OSError, ValueError, http.client.HTTPException) as error:
        yield f"the webhook was not told: {error}"


def _handed(command: Sequence[str], document: bytes, failed: str) -> Iterator[str]:
    try:
        ended = subprocess.run(  # noqa: S603 - the user's own, from the settings
            command, input=document, timeout=COMMAND_S, check=False, stdout=subprocess.DEVNULL
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        yield f"{failed}: {error}"
    else:
        if ended.returncode:
            yield f"{command[0]} was told, and ended with exit code {ended.returncode}"
