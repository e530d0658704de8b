"""The command `profagent ab`."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from profagent.ab.report import ab_document, report_lines
from profagent.ab.rounds import AbOptions, AbRounds
from profagent.aclconfig.edit import DEFAULTS
from profagent.cli import options
from profagent.cli.documents import print_document
from profagent.cli.progress import BYTES, progress
from profagent.cli.running import run_until_stopped, tell
from profagent.collect.cli import collect_options_of, program_options
from profagent.diff.cli import floor_of
from profagent.errors import UsageError
from profagent.limits import MOST_ROUNDS
from profagent.store.sessions import labels_of

if TYPE_CHECKING:
    from profagent.diff.comparing import Floor


def _words(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    try:
        return None if text is None else tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"--against-args {text!r}: {error}", hint="quote words as in a shell") from error


@click.command("ab")
@click.option("-m", "--main", required=True, metavar="A", help="The program that may be slower; as in `collect`.")
@click.option("--against", required=True, metavar="B", help="The program that it is compared with; may be the same.")
@click.option("--against-args", callback=_words, metavar="ARGS", help="B's arguments, where they are not those of A.")
@click.option("--rounds", type=click.IntRange(1, MOST_ROUNDS), default=20, show_default=True, help="Runs of each side.")
@click.option(
    "--floor",
    metavar="PERCENT%,US",
    default="0.2%,0.1us",
    show_default=True,
    callback=lambda _context, _option, text: floor_of(text),
    help="Ignore smaller differences: a difference must reach both.",
)
@click.option("--skip", type=click.IntRange(min=0), metavar="N", help="Leave out the first N inferences of each load.")
@options.allow
@program_options(replace(DEFAULTS, interval=1))
@options.as_json
@options.quiet
@options.wide
@click.argument("arguments", nargs=-1, metavar="[-- ARGS…]")
def command(  # noqa: PLR0913 - one parameter an option
    *,
    main: str,
    against: str,
    against_args: tuple[str, ...] | None,
    arguments: tuple[str, ...],
    rounds: int,
    floor: Floor,
    skip: int | None,
    allowed: frozenset[str],
    labels: tuple[str, ...],
    as_json: bool,
    columns: int,
    **chosen: Any,
) -> int:
    """Run programs A and B in turns on a board, A B B A …, and say if A is slower than B, and in which layers.

    Both runs of a round are neighbours, so that a board that becomes warmer is not taken for a slower program. The
    arguments behind `--` go to both. Each run is a session with the labels ab, side and round. Ctrl-C compares the
    rounds that are complete.

    Exit code 1: A is slower by more than noise and --floor; 3: the board was lost; 4: data is missing, there are fewer
    than 7 rounds, or the programs are not comparable.

    Example: profagent ab --board euler -m ./a --against ./b --rounds 40
    Example: profagent ab --board euler -m ./app --against ./app --against-args old.om -- new.om
    """
    a = collect_options_of(main=main, config=None, labels=labels_of(labels), arguments=arguments, **chosen)
    b = replace(a, main=against, arguments=arguments if against_args is None else against_args)
    if a.project is None and not against.startswith("/"):
        raise UsageError(f"--against {against}: it is in no project", hint="name the project with --project")
    if not a.profiler.records:
        raise UsageError("nothing is to be recorded", hint="leave out --switch off, and record layers")
    name = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    wanted = AbOptions(a, b, rounds, name, floor, skip, allowed)
    with progress("upload", BYTES) as shown:
        found = run_until_stopped(lambda stop: AbRounds(wanted, tell, shown, stop).run())
    if as_json:
        print_document("ab", ab_document(found, wanted))
    else:
        click.echo("\n".join(report_lines(found, wanted, columns)))
    return found.exit_code
