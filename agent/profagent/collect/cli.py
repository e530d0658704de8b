"""The command `profagent collect`."""

from __future__ import annotations

import configparser
import re
import stat
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from profagent.aclconfig.edit import DEFAULTS, profiler_options
from profagent.cli import options
from profagent.cli.documents import print_document
from profagent.cli.progress import BYTES, progress
from profagent.cli.running import run_until_stopped, tell
from profagent.collect.collecting import Collecting, CollectOptions
from profagent.errors import UsageError
from profagent.link.boards_file import BoardsFile
from profagent.ssh.connection import PasswordAsker, Person
from profagent.store.sessions import labels_of
from profagent.store.workspace import Workspace
from profagent.tables.provenance import summary_lines
from profagent.tables.table import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from profagent.aclconfig.edit import ProfilerSettings
    from profagent.collect.collecting import Collected
    from profagent.ssh.connection import Asker

F = TypeVar("F", bound="Callable[..., Any]")

_SECTION = "ssh_config"
_PORT = 22
_HINT = "write [ssh_config] and, a line each, ip = …, username = …, pwd = …, port = 22; or use --board"


def read_ini(text: str, file: str) -> tuple[str, str]:
    """Return the login, as Target.parse reads it, and the password, which may be empty. Raises UsageError."""
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text.removeprefix("\ufeff"), file)
    except configparser.Error as error:
        # The parser's message may quote a line, which may be the one with the password.
        raise UsageError(f"{file} is not an ini file: {type(error).__name__}", hint=_HINT) from None
    if not parser.has_section(_SECTION):
        raise UsageError(f"{file} has no section [{_SECTION}]", hint=_HINT)
    values = {key: value.strip() for key, value in parser.items(_SECTION)}
    for key in ("ip", "username"):
        if not values.get(key):
            raise UsageError(f"{file} has no {key} in [{_SECTION}]", hint=_HINT)
    host = f"[{values['ip']}]" if ":" in values["ip"] else values["ip"]
    return f"ssh://{values['username']}@{host}:{values.get('port') or _PORT}", values.get("pwd", "")


OPEN_MODE = 0o077
# The manual's constraints of use: paths of profiling have letters, digits and underscores.
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_]+")


def plain_name(text: str) -> str:
    """Return the name of a directory in the characters that the manual allows."""
    return _NOT_PLAIN.sub("_", text).strip("_") or "project"


def program_options(given: ProfilerSettings) -> Callable[[F], F]:
    """Return a decorator that adds the options of a run of programs on a board, with these settings of profiling."""
    added = (
        options.ssh_board,
        click.option(
            "--project",
            type=options.FOLDER,
            metavar="DIR",
            help="The directory to copy to the board; without it this directory, or none if the program is absolute.",
        ),
        click.option(
            "--acl-json", metavar="PATH", help="The program's acl.json: relative to the project, or absolute."
        ),
        profiler_options(given),
        click.option(
            "--env",
            "environment",
            multiple=True,
            metavar="K=V",
            help="Set a variable in the program's environment; may be repeated.",
        ),
        click.option(
            "--remote-dir",
            metavar="DIR",
            help="The project's directory on the board; without it one below ~/profagent.",
        ),
        options.bundle,
        click.option("--label", "labels", multiple=True, metavar="K=V", help="Label each session; may be repeated."),
        options.workspace,
        options.counter_map,
    )

    def decorate(function: F) -> F:
        for option in reversed(added):
            function = option(function)
        return function

    return decorate


@click.command("collect")
@click.option("-m", "--main", required=True, metavar="MAIN", help="The program: relative to the project, or absolute.")
@click.option(
    "--config",
    type=options.FILE,
    metavar="INI",
    help="The vendor's ini file with [ssh_config]: ip, username, pwd, port. Better: --board and a key.",
)
@program_options(DEFAULTS)
@click.option(
    "--output",
    type=options.FOLDER,
    default=Path("profiling"),
    show_default=True,
    metavar="DIR",
    help="The directory of this host for JOB directories.",
)
@click.option("--all", "exports", is_flag=True, help="Import each JOB, and export its timeline and summary.")
@click.option("--release", "releases", is_flag=True, help="Delete JOBs on the board once they were copied completely.")
@options.as_json
@options.quiet
@click.argument("arguments", nargs=-1, metavar="[-- ARGS…]")
def command(  # noqa: PLR0913 - one parameter an option
    *,
    main: str,
    config: Path | None,
    board: str | None,
    project: Path | None,
    output: Path,
    remote_dir: str | None,
    workspace: Path | None,
    environment: tuple[str, ...],
    labels: tuple[str, ...],
    as_json: bool,
    **chosen: Any,
) -> int:
    """Run a program on a board with profiling, and fetch its JOB: the vendor's collect, without NFS.

    The changed files of the project are copied to the board over SSH, its acl.json is changed for this run only, and
    the JOB is recorded while the program runs. Ctrl-C ends the program and fetches the JOB as far as it was written.
    If the link is lost, the program goes on, and the capture resumes when the link is back.

    Exit code: that of the program (128 + n for signal n). If that is 0: 1 if nothing was recorded, 4 if data is
    missing. 2 and 3 mean the same as for all commands.

    Example: profagent collect -m out/main --board root@192.168.1.20 --project . --interval 1 --all -- input.bin
    Example: profagent collect -m /opt/app/main --board euler --acl-json /opt/app/acl.json
    """
    collect_options = collect_options_of(
        main=main,
        config=config,
        board=board,
        project=project,
        remote_dir=remote_dir,
        workspace=workspace,
        environment=environment,
        labels=labels_of(labels),
        output=output,
        **chosen,
    )
    show = partial(_show, as_json)
    with progress("upload", BYTES) as shown:
        done = run_until_stopped(lambda stop: Collecting(collect_options, show, tell, shown, stop).collect())
    _report(done, as_json=as_json)
    return done.exit_code


def collect_options_of(
    *,
    main: str,
    config: Path | None,
    board: str | None,
    project: Path | None,
    remote_dir: str | None,
    workspace: Path | None,
    environment: tuple[str, ...],
    **chosen: Any,
) -> CollectOptions:
    """Return the options that a command line means; `chosen` go into them unchanged. Raises UsageError."""
    name, target, asker = login(config, board)
    folder = project or (None if main.startswith("/") else Path())
    # A call in the home directory must not upload all of it.
    if folder is not None and project is None and folder.resolve() in (Path.home().resolve(), Path("/")):
        raise UsageError(
            f"{folder.resolve()} is not a project directory", hint="name the program's directory with --project"
        )
    return CollectOptions(
        board=name,
        target=target,
        asker=asker,
        main=main,
        workspace=Workspace.at(workspace),
        remote_dir=remote_dir or f"~/profagent/{plain_name((folder.resolve() if folder else Path(main)).name)}",
        entry=BoardsFile().entries().get(name),
        project=folder,
        config=config,
        environment=_pairs(environment),
        **chosen,
    )


def login(config: Path | None, board: str | None) -> tuple[str, str, Asker]:
    """Return the board's name for links, the target of SSH, and who answers its questions. Raises UsageError."""
    if (config is None) == (board is None):
        raise UsageError(
            "name the board with either --board or --config", hint="--board USER@HOST, or --config ssh.ini"
        )
    if board is not None:
        return board, BoardsFile().login(board), Person()
    assert config is not None
    try:
        mode, text = config.stat().st_mode, config.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {config}: {error}", hint="name the vendor's ini file, or use --board") from error
    target, password = read_ini(text, str(config))
    if password and mode & OPEN_MODE:
        tell(
            f"{config} holds a password and has mode {stat.S_IMODE(mode):04o}: chmod 600 {config}; better without one:"
            " ssh-copy-id, `profagent boards add NAME HOST --ssh USER@HOST`, then --board NAME"
        )
    return target, target, PasswordAsker(password, Person()) if password else Person()


def _pairs(texts: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, separator, pairs[name] = text.partition("=")
        if not separator or not name.isidentifier() or not name.isascii():
            raise UsageError(f"--env {text!r} is not a variable", hint="write it as NAME=VALUE")
    return pairs


def _show(is_document: bool, piece: bytes, is_stderr: bool) -> None:
    # With --json, stdout belongs to the document.
    stream = sys.stderr if is_stderr or is_document else sys.stdout
    stream.buffer.write(piece)
    stream.flush()


def _report(done: Collected, *, as_json: bool) -> None:
    for job in done.jobs:
        tell(f"{job}")
    if done.summary is not None:
        for line in summary_lines(done.summary):
            tell(line)
    for cause in done.causes:
        tell(cause.text)
        tell(f"  → {cause.remedy}")
    if as_json:
        document = {
            "status": None if done.is_lost else done.status,
            "exit_code": done.exit_code,
            "jobs": [str(job) for job in done.jobs],
            "causes": [{key: printable(value) for key, value in asdict(cause).items()} for cause in done.causes],
            "session": done.summary,
        }
        print_document("collect", document)
