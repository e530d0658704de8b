"""Command line of `profagent deploy`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from profagent.boards.daemon_tree import PYTHONS
from profagent.boards.layout import DEFAULT_PREFIX, Layout
from profagent.cli import options
from profagent.cli.running import run_to_the_end, tell
from profagent.deploy.board import DEFAULT_LISTEN, RequestedSettings
from profagent.deploy.deploying import Deployed, DeployOptions, opened
from profagent.deploy.units import INITS
from profagent.errors import UsageError
from profagent.link.addresses import default_keys
from profagent.tables.table import json_text, printable

RETAIN = ("keep", "delivered", "min_free")
# Options that only installing a version reads; --rollback and --remove refuse them.
SETTINGS = ("listen", "roots", "retain", "retain_for", "min_free")
BRINGS = (*SETTINGS, "python", "bundle", "wheelhouse")


@click.command("deploy")
@click.argument("target", metavar="[USER@]BOARD", shell_complete=options.completed("boards"))
@click.option("--listen", metavar="HOST:PORT", help=f"Where the daemon listens; {DEFAULT_LISTEN} at first.")
@click.option("--root", "roots", multiple=True, metavar="DIR", help="Where JOBs are looked for; may be repeated.")
@click.option("--retain", type=click.Choice(RETAIN), help="What the daemon deletes; at first nothing (keep).")
@click.option(
    "--retain-for",
    multiple=True,
    metavar="CONSUMER",
    help="Who must have a log before it goes; this host's record unless given.",
)
@click.option("--min-free", metavar="SIZE", help="With --retain min_free: 200MB, or 10% of the file system.")
@click.option("--init", type=click.Choice(["auto", *INITS]), default="auto", show_default=True, help="What starts it.")
@click.option("--prefix", default=DEFAULT_PREFIX, show_default=True, metavar="DIR", help="Where it is installed.")
@click.option("--name", default="", metavar="NAME", help="What --board calls it; its host name at first.")
@click.option(
    "--python", type=click.Choice(PYTHONS), help="Whose Python runs the daemon; auto: the board's, else the bundle's."
)
@options.bundle
@click.option(
    "--wheelhouse",
    type=options.FOLDER_THERE,
    metavar="DIR",
    help="The pinned libraries' wheels; else pip fetches them.",
)
@click.option(
    "--keys",
    type=options.FOLDER,
    metavar="DIR",
    help="The folder of keys; ~/.config/profagent/keys unless given.",
)
@click.option("--dry-run", "is_dry", is_flag=True, help="Look, say what would be done, and write nothing there.")
@click.option(
    "--replace",
    "may_replace",
    is_flag=True,
    help="Agree that another CA's keys or a copied identity go; else it is asked.",
)
@click.option("--upgrade", "is_upgrade", is_flag=True, help="Put this host's version in place of another one.")
@click.option("--rollback", is_flag=True, help="Go back to the version that ran before.")
@click.option("--remove", "is_removal", is_flag=True, help="Remove what was deployed, and its certificate; JOBs stay.")
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
    """Bring the daemon to a board that SSH reaches, have it run there as a service, and know the board by a name.

    It looks before it writes and leaves alone what is so already; what ran before runs on until the new version
    answers. ~/.ssh/config, agents, keys and jump hosts work as with ssh; the board needs no internet.

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
    if isinstance(done, bool):
        what = "nothing was written (--dry-run)" if wanted.is_dry else "removed; JOBs are where they were"
        document, lines = {"removed": done}, [what if done else "nothing is deployed there"]
    else:
        document, lines = _fields(done), _lines(done)
    if as_json:
        click.echo(json_text(document))
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
