"""Options that several verbs share."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from profagent.cli.progress import QUIET
from profagent.errors import UsageError
from profagent.tables.ci_formats import CI_FORMATS
from profagent.units import US_BY_UNIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from click.shell_completion import CompletionItem

    from profagent.tables.slo import Objective


_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?")
_TIME = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s)")
_AGE = re.compile(r"(\d+)([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGT]?)B?", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
US_PER_HOUR = 3_600_000_000
FOLDER, FILE = click.Path(file_okay=False, path_type=Path), click.Path(dir_okay=False, path_type=Path)
FOLDER_THERE = click.Path(exists=True, file_okay=False, path_type=Path)
FILE_THERE = click.Path(exists=True, dir_okay=False, path_type=Path)
# Destination of a result. A link that the user names is followed; one inside a folder of results never is.
OUTPUT_FILE = click.Path(dir_okay=False, resolve_path=True, path_type=Path)


def duration_s(text: str) -> float:
    """Return the seconds of `90`, `90s`, `10m` or `1h30m`; raise UsageError for 0 and anything else."""
    match = _DURATION.fullmatch(text.strip())
    hours, minutes, seconds = (float(part or 0) for part in (match.groups() if match is not None else "000"))
    duration = hours * 3600 + minutes * 60 + seconds
    if not duration:
        raise UsageError(f"{text!r} is not a duration", hint="write a time above zero, such as 90s, 10m or 1h30m")
    return duration


def time_us(text: str) -> float:
    """Return the microseconds of `20ms`, `350us` or `1.5s`; raise UsageError for 0 and anything else."""
    match = _TIME.fullmatch(text.strip())
    if match is None or not (found := float(match[1]) * US_BY_UNIT[match[2]]):
        raise UsageError(f"{text!r} is not a time", hint="write a time above zero, such as 20ms, 350us or 1.5s")
    return found


def age_us(text: str) -> int:
    """Return the microseconds of `36h`, `30d` or `8w`; raise UsageError for anything else."""
    match = _AGE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not an age", hint="write hours, days or weeks: 36h, 30d, 8w")
    return int(match[1]) * _HOURS[match[2]] * US_PER_HOUR


def size_bytes(text: str) -> int:
    """Return the bytes of `500M` or `1.5G`, in powers of 1024; raise UsageError for anything else."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a size", hint="write it like 500M or 20G")
    return int(float(match[1]) * 1024 ** _POWERS[match[2].upper()])


def _allowed(codes: Iterable[str]) -> frozenset[str]:
    if not codes:
        return frozenset()
    from profagent.tables.comparability import allowed_codes  # noqa: PLC0415 - most commands start without it

    return allowed_codes(codes)


F = TypeVar("F", bound="Callable[..., Any]")

PEAK_VARIABLE = "PROFAGENT_PEAK_MEMORY_RATE"
BYTES_PER_GB = 1e9
BOARD_HELP = "The board: its name in `profagent boards`, or the HOST[:PORT] at which its daemon listens."


def completed(kind: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return the shell completion for words of a kind, one of KINDS in cli/completing.py."""

    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from profagent.cli.completing import words_of  # noqa: PLC0415 - only a shell asks

        return words_of(kind, context, incomplete)

    return complete


group = click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="GROUP",
    help="All boards of this group in `profagent boards`; may be repeated.",
    shell_complete=completed("groups"),
)
ssh_board = click.option(
    "--board",
    metavar="[USER@]BOARD",
    help="The board, reached over SSH: its name in `profagent boards`, or a Host of ~/.ssh/config.",
    shell_complete=completed("boards"),
)
bundle = click.option(
    "--bundle",
    type=FILE_THERE,
    metavar="FILE",
    help="For a board without Python: the file that `profagent bundle` made.",
)
target = click.argument("target", metavar="SESSION|JOB", shell_complete=completed("targets"))
optional_target = click.argument("target", metavar="[SESSION|JOB]", required=False, shell_complete=completed("targets"))
targets = click.argument(
    "targets", metavar="SESSION|JOB…", nargs=-1, required=True, shell_complete=completed("targets")
)
job = click.option("--job", metavar="NAME", help="Only this JOB of the session.", shell_complete=completed("jobs"))
acl_json = click.option(
    "--acl-json",
    type=FILE,
    metavar="FILE",
    help="The acl.json that the JOB's program read; its interval tells which inferences were due.",
)
workspace = click.option(
    "--workspace",
    type=FOLDER,
    metavar="DIR",
    help="The folder of sessions ($PROFAGENT_WORKSPACE, else ~/.local/share/profagent).",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
allow = click.option(
    "--allow",
    "allowed",
    multiple=True,
    metavar="CODE",
    callback=lambda _context, _option, codes: _allowed(codes),
    help="Compare the runs even if this rule of comparability forbids it; may be repeated.",
)
ci_format = click.option(
    "--format",
    "ci_format",
    type=click.Choice(CI_FORMATS),
    help="Print figures for continuous benchmarking: for Bencher, OpenMetrics or github-action-benchmark.",
)
quiet = click.option(
    "--quiet",
    is_flag=True,
    expose_value=False,
    callback=lambda context, _option, is_quiet: context.meta.update({QUIET: is_quiet}),
    help="Show no progress.",
)


_FROM_NEWEST = re.compile(r"-[0-9]+")


class SessionCommand(click.Command):
    """Command that takes sessions as arguments: `-2` is a session and not an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does; raise UsageError with a hint for the spelling `--session N`."""
        others = [word for word in args if not _FROM_NEWEST.fullmatch(word)]
        if len(others) < len(args):
            ctx.ignore_unknown_options = self._has_known_options(ctx, args)
        try:
            # An error must name the unknown option and not a session, so that sessions are left out.
            return super().parse_args(ctx, args if ctx.ignore_unknown_options else others)
        except click.NoSuchOption as error:
            if error.option_name != "--session":
                raise
            hint = f"a session stands by itself: {ctx.command_path} {_behind(args, '--session')}"
            raise UsageError("there is no option --session", hint=hint) from error

    def _has_known_options(self, ctx: click.Context, args: list[str]) -> bool:
        """Return True if all unknown options are sessions, counted from the newest."""
        parser = self.make_parser(ctx)
        parser.ignore_unknown_options = True
        values, words, _ = parser.parse_args([*args])
        for each in self.params:
            value = values.get(each.name) if isinstance(each, click.Argument) else None
            words += [value] if isinstance(value, str) else value or ()
        return all(_FROM_NEWEST.fullmatch(word) for word in words if word.startswith("-") and word != "-")


def _behind(args: list[str], option: str) -> str:
    """Return the value of an option; N if it has none."""
    for word, following in zip(args, [*args[1:], "N"], strict=True):
        name, separator, value = word.partition("=")
        if name == option:
            return value if separator else following
    return "N"


def wide(function: F) -> F:
    """Add `--wide`; the command receives the `columns` available for its tables, 0 without a terminal."""

    @click.option("--wide", "is_wide", is_flag=True, help="On a terminal: show whole names and all columns.")
    @functools.wraps(function)
    def with_columns(*args: Any, is_wide: bool, **others: Any) -> Any:
        from profagent.cli.running import terminal_columns  # noqa: PLC0415 - `--help` starts faster

        return function(*args, columns=terminal_columns(is_wide=is_wide), **others)

    return cast("F", with_columns)


def access(function: F) -> F:
    """Add `--keys DIR` and `--insecure`, which the command receives as one `access`."""

    @click.option("--keys", type=FOLDER, metavar="DIR", help="The folder of keys; without it ~/.config/profagent/keys.")
    @click.option(
        "--insecure",
        is_flag=True,
        help="Connect without TLS: nothing is encrypted, and nothing proves which board answers.",
    )
    @functools.wraps(function)
    def with_access(*args: Any, keys: Path | None, insecure: bool, **others: Any) -> Any:
        from profagent.link.boards_file import BoardsFile  # noqa: PLC0415 - verbs without boards start faster
        from profagent.link.credentials import Access  # noqa: PLC0415 - as above

        if insecure:
            click.echo(
                "--insecure: others can read and change the data, and nothing proves which board answers", err=True
            )
        return function(*args, access=Access(keys, insecure, BoardsFile().known()), **others)

    return cast("F", with_access)


def counter_map(function: F) -> F:
    """Add `--counter-map FILE`; the command receives `maps`, of it or else of ~/.config/profagent/counter-maps."""

    @click.option(
        "--counter-map",
        type=FILE,
        metavar="FILE",
        help="The counter map: it says which word of a record is which PMU counter.",
    )
    @functools.wraps(function)
    def with_maps(*args: Any, counter_map: Path | None, **others: Any) -> Any:
        from profagent.cli.running import tell  # noqa: PLC0415 - verbs that decode nothing start faster
        from profagent.formats.counter_maps import CounterMaps, maps_folder, read_map  # noqa: PLC0415 - as above

        named = None if counter_map is None else read_map(counter_map)
        maps = CounterMaps(named, maps_folder(), tell, peak_bytes_per_s=_peak_bytes_per_s())
        return function(*args, maps=maps, **others)

    return cast("F", with_maps)


def _peak_bytes_per_s() -> float:
    from profagent.formats.countermap import PEAK_MEMORY_RATE  # noqa: PLC0415 - numpy, only where it is decoded

    given = os.environ.get(PEAK_VARIABLE, "")
    try:
        peak = float(given) * BYTES_PER_GB if given else PEAK_MEMORY_RATE
    except ValueError:
        peak = 0.0
    if not 0 < peak < float("inf"):
        raise UsageError(f"${PEAK_VARIABLE} is {given!r}", hint="write GB/s, like 34.1, or leave it empty")
    return peak


def boards(*, required: bool = True) -> Callable[[F], F]:
    """Add `--board BOARD` and `--group GROUP`, each repeatable, which the command receives as one `boards`."""

    def decorate(function: F) -> F:
        @click.option(
            "--board",
            "boards",
            multiple=True,
            metavar="BOARD",
            help=f"{BOARD_HELP} May be repeated.",
            shell_complete=completed("boards"),
        )
        @group
        @functools.wraps(function)
        def with_boards(*args: Any, boards: tuple[str, ...], groups: tuple[str, ...], **others: Any) -> Any:
            if required and not boards and not groups:
                raise UsageError("no board is named", hint="name one with --board BOARD, or several with --group GROUP")
            named = (*boards, *(each for each in boards_of(groups) if each not in boards))
            return function(*args, boards=named, **others)

        return cast("F", with_boards)

    return decorate


def boards_of(groups: Iterable[str]) -> tuple[str, ...]:
    """Return the boards of groups, each once. Raises UsageError for a group without boards."""
    from profagent.link.boards_file import BoardsFile  # noqa: PLC0415 - verbs without boards start faster

    file = BoardsFile()
    return tuple(dict.fromkeys(board for each in groups for board in file.group(each)))


def where(function: F) -> F:
    """Add the repeatable `--where COND`, which the command receives as conditions on sessions."""
    from profagent.store.sessions import FORMS, condition_of  # noqa: PLC0415 - numpy, only where it is asked

    return click.option(
        "--where",
        multiple=True,
        metavar="COND",
        callback=lambda _context, _option, texts: [condition_of(text) for text in texts],
        help=f"Only sessions with {FORMS}. May be repeated: a session must meet all conditions.",
        shell_complete=completed("conditions"),
    )(function)


def slo(text: str) -> Callable[[F], F]:
    """Add the repeatable `--slo OBJECTIVE` with a text of help; the command receives the `objectives`."""

    def objectives_of(_context: click.Context, _option: click.Parameter, texts: Sequence[str]) -> list[Objective]:
        if not texts:
            return []
        from profagent.tables.slo import Objective  # noqa: PLC0415 - numpy, only where it is asked

        return [Objective.parse(each) for each in texts]

    about = f"{text} May be repeated."
    return click.option("--slo", "objectives", multiple=True, metavar="OBJECTIVE", callback=objectives_of, help=about)


def job_directory(*, required: bool = True) -> Callable[[F], F]:
    """Return the option `-dir JOB`, in the spelling of the vendor's tool."""
    return click.option(
        "-dir",
        "--collection-dir",
        "directory",
        required=required,
        type=FOLDER,
        metavar="JOB",
        help="The JOB… directory, the one with data/ and info.json.0.",
    )
