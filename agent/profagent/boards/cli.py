"""`profagent boards`."""

from __future__ import annotations

from dataclasses import asdict

import click
import msgspec

from profagent.cli import options
from profagent.cli.table import Column, table_lines
from profagent.link.boards_file import BoardEntry, BoardsFile

TITLES = ("name", "address", "uuid", "ssh", "fingerprint (SHA-256)")
COLUMNS = tuple(Column(title) for title in TITLES)


@click.group("boards", invoke_without_command=True)
@options.as_json
@click.pass_context
def command(context: click.Context, *, as_json: bool) -> None:
    """List the boards that have a name, which --board takes everywhere; `add` and `remove` change the list.

    They stand in ~/.config/profagent/boards.toml. A board whose identity or certificate is not the one that stands
    there is refused.

    Example: profagent boards; profagent boards add euler 192.168.1.20 --ssh root@192.168.1.20
    """
    if context.invoked_subcommand is not None:
        return
    file = BoardsFile()
    entries = list(file.entries().values())
    if as_json:
        click.echo(msgspec.json.encode([asdict(entry) for entry in entries]))
        return
    if not entries:
        click.echo(f"no boards in {file.path}")
        return
    rows = [(entry.name, entry.address, entry.uuid, entry.ssh, entry.fingerprint) for entry in entries]
    for line in table_lines(COLUMNS, rows):
        click.echo(line)


@command.command("add")
@click.argument("name")
@click.argument("address", metavar="HOST[:PORT]")
@click.option("--uuid", default="", metavar="UUID", help="Its identity; another board there is refused.")
@click.option("--fingerprint", default="", metavar="HEX", help="SHA-256 of its certificate; another one is refused.")
@click.option("--ssh", default="", metavar="USER@HOST", help="How ssh calls it, for --via ssh.")
def add(*, name: str, address: str, uuid: str, fingerprint: str, ssh: str) -> None:
    """Give a board a name, or write what stands under that name anew. Comments in the file stay.

    Example: profagent boards add euler 192.168.1.20:50151 --ssh root@192.168.1.20
    """
    file = BoardsFile()
    was_there = file.put(BoardEntry(name, address, uuid, fingerprint.lower().replace(":", ""), ssh))
    click.echo(f"{'changed' if was_there else 'added'} {name} in {file.path}")


@command.command("remove")
@click.argument("name")
def remove(*, name: str) -> None:
    """Forget a board's name. Nothing changes on the board.

    Example: profagent boards remove euler
    """
    file = BoardsFile()
    file.remove(name)
    click.echo(f"removed {name} from {file.path}")
