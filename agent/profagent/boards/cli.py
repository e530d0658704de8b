"""Command line of `profagent boards`, and the option `--via ssh` of other commands."""

from __future__ import annotations

import functools
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from profagent.cli import options
from profagent.cli.documents import print_document
from profagent.cli.running import run_until_stopped, tell
from profagent.errors import UsageError
from profagent.link.boards_file import BoardEntry, BoardsFile
from profagent.tables.table import Column, table_lines

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Sequence

    from profagent.boards.tunnel import OverSsh
    from profagent.link.credentials import Access


T = TypeVar("T")
F = TypeVar("F", bound="Callable[..., Any]")


def run_on_boards(
    boards: Sequence[str],
    access: Access,
    over: OverSsh | None,
    command: Callable[[Access, asyncio.Event], Awaitable[T]],
) -> T:
    """Run a command as `run_until_stopped` does, with access through tunnels where they are needed.

    With `over` every board is reached through a tunnel; without it only the boards that are not reachable otherwise.
    """
    if over is None and not BoardsFile().behind_ssh(boards):
        return run_until_stopped(lambda stop: command(access, stop))
    from profagent.boards.tunnel import access_to  # noqa: PLC0415 - asyncssh takes time to import

    async def through_tunnels(stop: asyncio.Event) -> T:
        async with access_to(boards, access, over, tell, stop) as tunnelled:
            return await command(tunnelled, stop)

    return run_until_stopped(through_tunnels)


def via(function: F) -> F:
    """Add the options `--via ssh`, `--root DIR` and `--bundle FILE`; the command receives them as one `over`."""

    @click.option(
        "--via",
        type=click.Choice(["ssh"]),
        is_flag=False,
        flag_value="ssh",
        help="Reach the board through SSH; BOARD may be USER@HOST.",
    )
    @click.option(
        "--root",
        "roots",
        multiple=True,
        metavar="DIR",
        help="With --via ssh: start a temporary daemon for this directory of the board. May be repeated.",
    )
    @options.bundle
    @functools.wraps(function)
    def with_way(*args: Any, via: str | None, roots: tuple[str, ...], bundle: Path | None, **others: Any) -> Any:
        if roots and via is None:
            raise UsageError("--root goes with --via ssh", hint="add --via ssh, or start profagentd with --root there")
        if bundle and not roots:
            raise UsageError("--bundle goes with --root", hint="name the directories to serve, --via ssh --root DIR")
        if via is None:
            return function(*args, over=None, **others)
        from profagent.boards.tunnel import OverSsh  # noqa: PLC0415 - asyncssh takes time to import

        return function(*args, over=OverSsh(roots, bundle), **others)

    return cast("F", with_way)


TITLES = ("name", "address", "groups", "labels", "uuid", "ssh", "fingerprint (SHA-256)")
COLUMNS = tuple(Column(title) for title in TITLES)


@click.group("boards", invoke_without_command=True)
@options.as_json
@click.pass_context
def command(context: click.Context, *, as_json: bool) -> None:
    """List the named boards. Each command takes these names with --board.

    The file ~/.config/profagent/boards.toml holds them. If another identity or certificate than the one in the file
    answers, the connection is refused.

    Example: profagent boards
    Example: profagent boards add euler 192.168.1.20 --ssh root@192.168.1.20
    """
    if context.invoked_subcommand is not None:
        return
    file = BoardsFile()
    entries = list(file.entries().values())
    if as_json:
        print_document("boards", [asdict(entry) for entry in entries])
        return
    if not entries:
        click.echo(f"no boards in {file.path}")
        return
    for line in table_lines(COLUMNS, [_row(entry) for entry in entries]):
        click.echo(line)


def _row(entry: BoardEntry) -> tuple[str, ...]:
    labels = " ".join(f"{key}={value}" for key, value in entry.labels.items())
    return (
        *(entry.name, entry.address, " ".join(entry.groups), labels),
        *(entry.uuid, entry.ssh, entry.fingerprint),
    )


@command.command("add")
@click.argument("name")
@click.argument("address", metavar="HOST[:PORT]")
@click.option("--uuid", default="", metavar="UUID", help="The board's identity; a board with another one is refused.")
@click.option(
    "--fingerprint", default="", metavar="HEX", help="SHA-256 of the board's certificate; another one is refused."
)
@click.option("--ssh", default="", metavar="USER@HOST", help="The login that ssh uses, for --via ssh.")
def add(*, name: str, address: str, uuid: str, fingerprint: str, ssh: str) -> None:
    """Give a board a name, or change a named board. Its groups and labels stay, as do comments in the file.

    Example: profagent boards add euler 192.168.1.20:50151 --ssh root@192.168.1.20
    Example: profagent boards add euler 192.168.1.20
    """
    file = BoardsFile()
    was_there = file.put(BoardEntry(name, address, uuid, fingerprint.lower().replace(":", ""), ssh))
    click.echo(f"{'changed' if was_there else 'added'} {name} in {file.path}")


@command.command("set")
@click.argument("names", metavar="NAME…", nargs=-1, required=True, shell_complete=options.completed("boards"))
@click.option(
    "--group", "joins", multiple=True, metavar="GROUP", help="Put the boards into this group; may be repeated."
)
@click.option(
    "--leave",
    "leaves",
    multiple=True,
    metavar="GROUP",
    help="Take the boards out of this group; may be repeated.",
    shell_complete=options.completed("groups"),
)
@click.option(
    "--label", "labels", multiple=True, metavar="K=V", help="Give their sessions this label; may be repeated."
)
@click.option("--drop", "drops", multiple=True, metavar="K", help="Remove the label with this key; may be repeated.")
def put_in_groups(
    *,
    names: tuple[str, ...],
    joins: tuple[str, ...],
    leaves: tuple[str, ...],
    labels: tuple[str, ...],
    drops: tuple[str, ...],
) -> None:
    """Put boards into groups, and give their future sessions labels.

    `record`, `watch` and `nightly` take a group with --group. A label given to `record` itself takes precedence.

    Example: profagent boards set euler orange --group rack3 --label rack=3
    Example: profagent boards set orange --leave rack3 --drop rack
    """
    if not (joins or leaves or labels or drops):
        raise UsageError("nothing to set", hint="name a --group or a --label; or --leave GROUP, --drop KEY")
    from profagent.store.sessions import labels_of  # noqa: PLC0415 - numpy, only where labels are set

    file = BoardsFile()
    file.change(names, joins=joins, leaves=leaves, labels=labels_of(labels), drops=drops)
    click.echo(f"changed {', '.join(names)} in {file.path}")


@command.command("remove")
@click.argument("name", shell_complete=options.completed("boards"))
def remove(*, name: str) -> None:
    """Forget a board's name. Nothing changes on the board.

    Example: profagent boards remove euler
    Example: profagent boards remove lab-3
    """
    file = BoardsFile()
    file.remove(name)
    click.echo(f"removed {name} from {file.path}")
