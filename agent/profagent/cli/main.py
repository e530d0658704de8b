"""The command `profagent`: its verbs, loaded when they are used, and its exit codes."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from importlib import import_module
from inspect import cleandoc
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

import click

from profagent import __version__
from profagent.errors import INTERRUPTED, Failure, ProfagentError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.shell_completion import CompletionItem

# Environment variable by which a shell asks for completions.
COMPLETE_VARIABLE = "_PROFAGENT_COMPLETE"
THREADS_VARIABLE = "OPENBLAS_NUM_THREADS"

EXIT_CODES = {
    0: "ok",
    1: "it failed, or the answer is 'no'",
    2: "the command line, a setting or the kind of data is wrong",
    3: "a board cannot be reached",
    4: "data is incomplete",
    130: "stopped by a second Ctrl-C",
}

EXAMPLE = "Example: "
HELP_HINT = "`--help` behind the command explains its arguments"
GLOSSARY = "What the words mean: docs/reference/glossary.md"
HELP = """Live profiling of SS928 boards.

\b
profagent demo                           try everything without a board
profagent watch --board 192.168.1.20     show a board's inferences live
profagent record --board 192.168.1.20    record a board into a workspace
profagent stats 1                        show which layers take the time
profagent export summary -dir JOB…       write the vendor's tables

Name a session by its number (1), as last, as -2 (the second newest), or by LABEL=VALUE (the newest with that label).

Exit codes: 0 success, 1 failure or the answer is no, 2 usage error, 3 a board cannot be reached, 4 data is incomplete.
"""

# By title and verb: the module of profagent that defines the command, as `command` unless another name follows, and its
# line in the help.
GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Look": {
        "demo": ("demo.cli", "Try everything on a simulated board."),
        "watch": ("watch.cli", "Show a board's inferences live."),
        "show": ("export.show", "Print a JOB's tables (the vendor's command)."),
        "stats": ("stats.cli", "Show what takes the time: layers, types, models, API calls."),
        "advise": ("advise.cli", "Say what slows a run down, and how much time a change could save."),
        "report": ("report.cli", "Write one HTML file for any browser: verdict, timeline, layers."),
        "trend": ("stats.cli:trend_command", "Show a model's time over sessions, and when it changed."),
    },
    "Capture": {
        "record": ("record.cli", "Record boards into a workspace."),
        "collect": ("collect.cli", "Run a program on a board and fetch its JOB (the vendor's command)."),
        "import": ("importing.cli", "Import JOBs and results of other tools (the vendor's command)."),
        "sessions": ("sessions.cli", "List the sessions of a workspace."),
        "incidents": ("sessions.incidents", "List what a flight recorder kept, and why."),
        "ledger": ("sessions.cli:ledger", "Show the losses and notes of a session, and what to do."),
        "gc": ("sessions.cli:gc", "Delete the records of old sessions; keep their statistics."),
    },
    "Compare": {
        "diff": ("diff.cli", "Compare two runs: which layers are slower or faster."),
        "ab": ("ab.cli", "Run two programs in turns on a board, and compare them."),
        "baseline": ("sessions.cli:baseline", "Name the sessions that others are compared with."),
        "nightly": ("nightly.cli", "Record boards every night and compare them with earlier nights."),
    },
    "Export": {
        "export": ("export.cli", "Write timelines and tables (the vendor's command)."),
        "push": ("lake.cli", "Copy sessions into a lake of Delta tables."),
        "fleet": ("fleet.cli", "Query a lake about all of its boards and nights."),
    },
    "Run boards": {
        "deploy": ("deploy.cli", "Install the daemon on a board over SSH."),
        "boards": ("boards.cli", "List, add and remove named boards."),
        "keys": ("keys.cli", "Make, issue and revoke TLS keys."),
        "doctor": ("doctor.cli", "Check this host, a board or a JOB."),
        "aclconfig": ("aclconfig.cli", "Read, change or check an acl.json."),
        "options": ("ascend_options.cli", "Make or check profiling options: TensorFlow, MindSpore, PyTorch, acl.json."),
        "bundle": ("deploy.bundle.cli", "Pack the daemon with a Python, for boards without one."),
    },
    "Settle counters": {
        "calibrate": ("calibrate.cli", "Learn a counter map from a JOB and the vendor's table."),
        "redecode": ("calibrate.redecode_cli", "Fill counter columns with another counter map."),
        "kit": ("calibrate.kit", "Pack evidence from a JOB or a session for the developers."),
    },
    "Programs": {
        "explain": ("explain.cli", "Say what a code means, and what to do."),
        "mcp": ("mcp.cli", "Answer an agent's questions over MCP, caveats first."),
        "schema": ("cli.documents", "Print the JSON Schema of what --json prints."),
    },
    "This shell": {
        "completion": ("completion.cli", "Install shell completion of commands, options and names."),
    },
}
VERBS = {verb: module for verbs in GROUPS.values() for verb, (module, _) in verbs.items()}


def begin_with_examples(command: click.Command) -> None:
    """Move the examples from the end of a command's help to its beginning; of a group, also those of its commands."""
    *paragraphs, last = cleandoc(command.help or "").split("\n\n")
    if last.startswith(EXAMPLE):
        examples = [line.replace(EXAMPLE, "").strip(" ;") for line in last.splitlines()]
        command.short_help = command.short_help or command.get_short_help_str()
        # A backspace at the beginning of a paragraph keeps click from rewrapping it.
        command.help = "\n\n".join(["\n  ".join(["\b\nExamples:", *examples]), *paragraphs])
        command.epilog = GLOSSARY
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            if (each := command.get_command(context, name)) is not None:
                begin_with_examples(each)


@contextmanager
def _without_threads() -> Iterator[None]:
    """Import numpy without its threads, which would spin for 0.1 s; restore the environment for child processes."""
    if THREADS_VARIABLE in os.environ:
        yield
        return
    os.environ[THREADS_VARIABLE] = "1"
    try:
        yield
    finally:
        del os.environ[THREADS_VARIABLE]


class LazyGroup(click.Group):
    """Group that imports a verb only when it is called, so that `--help` stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's interface
        """Return the verbs, in the order in which a new user meets them."""
        return list(VERBS)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the verbs with a prefix and their descriptions, without importing any."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - only a shell asks

        verbs = {verb: about for verbs in GROUPS.values() for verb, (_, about) in verbs.items()}
        found = [CompletionItem(verb, help=about) for verb, about in verbs.items() if verb.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Return the command of a verb; None if there is no such verb."""
        if cmd_name not in VERBS:
            return None
        module, _, name = VERBS[cmd_name].partition(":")
        with _without_threads():
            command = getattr(import_module(f"profagent.{module}"), name or "command")
        assert isinstance(command, click.Command)
        begin_with_examples(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a verb as click does; the error for an unknown word names the nearest verb."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches  # noqa: PLC0415 - a right word needs none

            near = get_close_matches(args[0], VERBS, n=1)
            if not near:
                raise
            raise click.UsageError(f"No such command {args[0]!r}. Did you mean {near[0]!r}?", ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; end quietly if the reader of the output has closed it (`| head`)."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Output that is still buffered must not be flushed at exit: it would raise once more.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """Write the lists of verbs, grouped by purpose."""
        for title, verbs in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(verb, about) for verb, (_, about) in verbs.items()])


@click.group(cls=LazyGroup, help=HELP, epilog=GLOSSARY, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="profagent")
def group() -> None:
    """Group all commands of profagent."""


def run(arguments: list[str] | None = None) -> int:
    """Run a command line; return its exit code."""
    if COMPLETE_VARIABLE in os.environ:
        from profagent.cli.completing import register  # noqa: PLC0415 - only a shell asks

        register()
    words = sys.argv[1:] if arguments is None else arguments
    # What follows `--` are arguments of a program on the board.
    wants_json = "--json" in words[: words.index("--") if "--" in words else None]
    try:
        result = group.main(args=arguments, prog_name="profagent", standalone_mode=False)
    except ProfagentError as error:
        from profagent.tables.table import printable  # noqa: PLC0415 - `--help` imports next to nothing

        # The message may quote a board or a file, and so contain control characters.
        for line in (f"profagent: {error}", f"  {error.hint}"):
            click.echo(printable(line), err=True)
        failure = error.failure()
    except click.ClickException as error:
        error.show()
        failure = Failure(error.format_message(), UsageError.code, HELP_HINT, error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        failure = Failure("stopped", INTERRUPTED.code, "start it again", INTERRUPTED.exit_code)
    else:
        return result if isinstance(result, int) else 0
    if wants_json:
        from profagent.cli.documents import print_document  # noqa: PLC0415 - as above

        # A command that prints lines may have printed some: this is the last one.
        print_document("failure", failure._asdict())
    return failure.exit_code


def main() -> None:
    """Run the command line of the process: the entry point of the console script."""
    # A path may have bytes that are not valid text: they are written unchanged.
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")
    sys.exit(run())
