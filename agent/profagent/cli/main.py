"""The command `profagent`: its verbs, loaded when they are used, and its exit codes."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

import click

from profagent import __version__
from profagent.errors import ProfagentError, UsageError

USAGE_EXIT_CODE = UsageError.exit_code
INTERRUPTED_EXIT_CODE = 130

# click takes a paragraph that begins with a backspace as it is.
HELP = """Live profiling of SS928 boards.

\b
profagent demo                           try it without a board
profagent watch --board 192.168.1.20     live lines of a board
profagent record --board 192.168.1.20    capture into a workspace
profagent export summary -dir JOB…       the vendor's tables

Exit codes: 0 fine, 1 failed or the answer is no, 2 usage, 3 the board cannot be reached, 4 data is incomplete.
"""

# verb: module of profagent that defines it as `command`, and what the list of verbs says.
VERBS = {
    "demo": ("cli.demo", "The whole way without a board: simulated board, live lines, database, exports."),
    "watch": ("cli.watch", "Show a board's inferences live."),
    "record": ("cli.record", "Capture a board into a workspace, headless."),
    "collect": (
        "cli.collect",
        "Run a program on a board with profiling, and have its JOB here (the vendor's command).",
    ),
    "import": ("cli.importing", "Import a JOB directory into its own database (the vendor's command)."),
    "export": ("cli.export", "Write timelines or summaries of a JOB (the vendor's command)."),
    "show": ("cli.show", "Print a JOB's tables (the vendor's command)."),
    "stats": ("cli.stats", "Tell what takes the time: layers, types, models, API calls, CPU layers, segments."),
    "diff": ("cli.diff", "Compare two runs: which layers are slower or faster by more than their noise."),
    "deploy": ("cli.deploy", "Bring the daemon to a board over SSH, and have it run there."),
    "keys": ("cli.keys", "Make, hand out and revoke the keys of boards and hosts."),
    "boards": ("cli.boards", "List the boards that have a name; add and remove them."),
    "bundle": ("cli.bundle", "Make a daemon with a Python of its own, for boards that have none."),
    "doctor": ("cli.doctor", "Find what is not as it should be: on this host, a board, in a JOB or an acl.json."),
    "aclconfig": ("cli.aclconfig", "Ask, change or check what an acl.json tells a program to record."),
    "calibrate": ("cli.calibrate", "Learn which word of a record is which PMU counter, with the vendor's tables."),
    "redecode": ("cli.redecode", "Fill the counter columns of a session or of a JOB with another counter map."),
    "kit": ("cli.kit", "Gather what settles open facts of a JOB, to be sent to the project."),
    "sessions": ("cli.sessions", "List the sessions of a workspace."),
    "ledger": ("cli.ledger", "Show what a session lost or noted: which file, what it means, what to do."),
    "nightly": ("nightly.cli", "Capture boards every night, and say in the morning whether anything is slower."),
    "trend": ("cli.trend", "Tell how a model's time went over sessions, and when its level changed."),
    "gc": ("cli.gc", "Let go of the records of old sessions; what was learnt of them stays."),
    "baseline": ("cli.baseline", "Name sessions that others are compared with."),
}


class LazyGroup(click.Group):
    """A group whose verbs are imported only when they are called: `--help` stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's interface
        """The verbs in the order of a first acquaintance."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """The verb's command; None when there is none."""
        if cmd_name not in VERBS:
            return None
        command = import_module(f"profagent.{VERBS[cmd_name][0]}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click; of a word that is no verb, the verb that is nearest is named."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches  # noqa: PLC0415 - a right word needs none

            near = get_close_matches(args[0], VERBS, n=1)
            if not near:
                raise
            raise click.UsageError(f"No such command {args[0]!r}. Did you mean {near[0]!r}?", ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; that the reader of our output has had enough (`| head`) ends it quietly."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Nothing that is left of the output must be flushed at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """The list of verbs, from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(verb, text) for verb, (_, text) in VERBS.items()])


@click.group(cls=LazyGroup, help=HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="profagent")
def group() -> None:
    """Hold the verbs."""


def run(arguments: list[str] | None = None) -> int:
    """Run a command line; returns its exit code."""
    try:
        result = group.main(args=arguments, prog_name="profagent", standalone_mode=False)
    except ProfagentError as error:
        from profagent.export.table import printable  # noqa: PLC0415 - `--help` imports next to nothing

        # What a board or a file said may stand in it.
        for line in (f"profagent: {error}", f"  {error.hint}"):
            click.echo(printable(line), err=True)
        return error.exit_code
    except click.UsageError as error:
        error.show()
        return USAGE_EXIT_CODE
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED_EXIT_CODE
    return result if isinstance(result, int) else 0


def main() -> None:
    """The entry point of the command."""
    sys.exit(run())
