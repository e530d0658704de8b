"""Command line of `profagent deploy`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from profagent.boards.daemon_tree import PYTHONS
from profagent.boards.layout import DEFAULT_PREFIX, Layout
from profagent.cli import options
from profagent.cli.documents import print_document
from profagent.cli.running import run_to_the_end, tell
from profagent.deploy.board import DEFAULT_LISTEN, RequestedSettings
from profagent.deploy.deploying import Deployed, DeployOptions, opened
from profagent.deploy.units import INITS
from profagent.errors import UsageError
from profagent.link.addresses import default_keys
from profagent.tables.table import printable

RETAIN = ("keep", "delivered", "min_free")
# Options that only installing a version reads; --rollback and --remove refuse them.
SETTINGS = ("listen", "roots", "retain", "retain_for", "min_free")
BRINGS = (*SETTINGS, "python", "bundle", "wheelhouse")


@click.command("deploy")
@click.argument("target", metavar="[USER@]BOARD", shell_complete=options.completed("boards"))
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help=f"The address at which the daemon listens; {DEFAULT_LISTEN} if it was never set.",
)
@click.option(
    "--root", "roots", multiple=True, metavar="DIR", help="A directory in which programs make JOBs; may be repeated."
)
@click.option(
    "--retain", type=click.Choice(RETAIN), help="Which JOBs the daemon deletes; none (keep) if it was never set."
)
@click.option(
    "--retain-for",
    multiple=True,
    metavar="CONSUMER",
    help="A consumer that must have a log before it is deleted; without it this host's record.",
)
@click.option("--min-free", metavar="SIZE", help="With --retain min_free: 200MB, or 10% of the file system.")
@click.option(
    "--init",
    type=click.Choice(["auto", *INITS]),
    default="auto",
    show_default=True,
    help="The service manager that starts the daemon.",
)
@click.option(
    "--prefix", default=DEFAULT_PREFIX, show_default=True, metavar="DIR", help="The directory of the installation."
)
@click.option(
    "--name", default="", metavar="NAME", help="The board's name for --board; its host name if it was never set."
)
@click.option(
    "--python",
    type=click.Choice(PYTHONS),
    help="The Python that runs the daemon; auto: the board's own, else that of the bundle.",
)
@options.bundle
@click.option(
    "--wheelhouse",
    type=options.FOLDER_THERE,
    metavar="DIR",
    help="A folder with the wheels of the pinned libraries; without it pip downloads them.",
)
@click.option(
    "--keys",
    type=options.FOLDER,
    metavar="DIR",
    help="The folder of keys; without it ~/.config/profagent/keys.",
)
@click.option("--dry-run", "is_dry", is_flag=True, help="Only say what would be done; change nothing on the board.")
@click.option(
    "--replace",
    "may_replace",
    is_flag=True,
    help="Replace the keys of another CA, or a copied identity, without asking.",
)
@click.option("--upgrade", "is_upgrade", is_flag=True, help="Replace another version of the daemon by this host's.")
@click.option("--rollback", is_flag=True, help="Go back to the version that ran before.")
@click.option("--remove", "is_removal", is_flag=True, help="Remove the daemon and its certificate; JOBs stay.")
@options.as_json
@options.quiet
def command(
    *,
    target: str,
    prefix: str,
    keys: Path | None,
    rollback: bool,
    is_removal: bool,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Install the daemon on a board over SSH, run it there as a service, and give the board a name.

    The command looks first, and writes only what differs. The version that ran before goes on running until the new
    one answers. ~/.ssh/config, agents, keys and jump hosts work as with ssh. The board needs no internet access.

    Example: profagent deploy root@192.168.1.20 --root /opt/app/output --name euler
    Example: profagent deploy euler --upgrade
    """
    _check(rollback=rollback, is_removal=is_removal, chosen=chosen)
    asked = RequestedSettings(*(chosen.pop(key) for key in SETTINGS))
    python = chosen.pop("python") or "auto"
    if python == "bundled" and chosen["wheelhouse"]:
        raise UsageError("--wheelhouse does not go with --python bundled", hint="the bundle has its own: leave it out")
    wanted = DeployOptions(target, Layout(prefix), asked, python=python, keys=keys or default_keys(), **chosen)
    show = tell if as_json else _show

    async def act() -> Deployed | bool:
        async with opened(wanted, show, tell) as found:
            return await (found.remove() if is_removal else found.roll_back() if rollback else found.deploy())

    done = run_to_the_end(act)
    name = "deploy-remove" if isinstance(done, bool) else "deploy"
    if isinstance(done, bool):
        what = "nothing was written (--dry-run)" if wanted.is_dry else "removed; JOBs are where they were"
        document, lines = {"removed": done}, [what if done else "nothing is deployed there"]
    else:
        document, lines = _fields(done), _lines(done)
    if as_json:
        print_document(name, document)
    else:
        for line in lines:
            _show(line)


def _check(*, rollback: bool, is_removal: bool, chosen: dict[str, Any]) -> None:
    ways = [name for name, is_so in (("--upgrade", chosen["is_upgrade"]), ("--rollback", rollback)) if is_so]
    ways += ["--remove"] if is_removal else []
    if len(ways) > 1:
        raise UsageError(f"{' and '.join(ways)} cannot be given together", hint="give only one of them")
    given = [key for key in BRINGS if chosen[key]]
    if given and (rollback or is_removal):
        option = given[0].removesuffix("s").replace("_", "-")
        raise UsageError(f"--{option} does not go with {ways[0]}", hint="leave it out")


def _show(line: str) -> None:
    click.echo(printable(line))


def _lines(done: Deployed) -> list[str]:
    entry = done.entry
    if done.board is None:
        return ["nothing was written (--dry-run)"]
    is_inside = entry.is_behind_ssh
    at = (
        f"on the board itself ({entry.address}); profagent connects through SSH" if is_inside else f"at {entry.address}"
    )
    return [
        *([] if done.changes else ["nothing to do"]),
        f"{entry.name}: daemon running {at}; profagentd {done.board.daemon_version}, identity {entry.uuid}",
        done.at_boot,
        f"next: profagent watch --board {entry.name}",
    ]


def _fields(done: Deployed) -> dict[str, Any]:
    board = done.board
    return {
        **asdict(done.entry),
        "version": done.version,
        "changes": list(done.changes),
        "replaced": list(done.replaced),
        "daemon_version": None if board is None else board.daemon_version,
        "is_deployed": board is not None,
    }
