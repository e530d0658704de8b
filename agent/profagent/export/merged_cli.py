"""`profagent export trace`, `export perfetto` and `export speedscope`: one trace of several sessions."""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from profagent.cli import options
from profagent.cli.exit_codes import exit_code_of_written
from profagent.cli.running import asynchronous, tell
from profagent.cli.table import counted, json_text
from profagent.errors import IncompleteError, UsageError
from profagent.export.json_trace import JsonTrace
from profagent.export.merged import Operand, export_trace
from profagent.export.perfetto import PerfettoTrace
from profagent.export.session_trace import Wanted
from profagent.export.speedscope import SpeedscopeFile
from profagent.formats.names import display_text
from profagent.importing.target import directory_named, named_target
from profagent.limits import LARGEST_PART_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from profagent.export.merged import Merged, Writer
    from profagent.export.tracks import Tracks
    from profagent.importing.target import Target
    from profagent.store.counter_maps import CounterMaps

F = TypeVar("F", bound="Callable[..., Any]")
MB = 1_000_000
US_PER_S = 1_000_000


def _merging(name: str) -> Callable[[F], F]:
    """The options of a command that writes one trace of several sessions."""
    options_of = (
        options.targets,
        options.workspace,
        click.option("--last", type=click.IntRange(min=1), metavar="N", help="Each model's last N inferences."),
        click.option(
            "--from", "from_text", metavar="TIME", help="From then on: s since 1970, or 2026-11-23T14:00:00 (UTC)."
        ),
        click.option("--to", "to_text", metavar="TIME", help="Until then. Both are the board's clock."),
        click.option("--output", type=options.OUTPUT_FILE, metavar="FILE", help=f"In place of trace/{name}."),
        options.counter_map,
        options.as_json,
        options.quiet,
    )

    def decorate(function: F) -> F:
        return functools.reduce(lambda made, option: option(made), reversed(options_of), function)

    return decorate


@click.command("trace", cls=options.SessionCommand)
@_merging("trace.json")
@click.option(
    "--part-size",
    type=click.IntRange(min=1),
    default=LARGEST_PART_BYTES // MB,
    show_default=True,
    metavar="MB",
    help="A larger trace is cut into files of this size.",
)
@asynchronous
async def trace(*, part_size: int, as_json: bool, **chosen: Any) -> int:
    """Write one trace of all that sessions have, for Perfetto and chrome://tracing.

    Inferences with segments and layers, API calls, ranges and marks, subscribed ops, metrics and PMU ratios, losses.
    Several boards come on the host's clock; the metadata tell how sure that is.

    Example: profagent export trace 3 --last 100
    Example: profagent export trace 3 4 --output both.json
    """
    writer = functools.partial(JsonTrace, largest_bytes=part_size * MB)
    merged, code = await _merged("trace.json", writer, **chosen)
    if len(merged.files) > 1:
        tell("cut by tracks: no file has all of a time. --from and --to choose a time, `export perfetto` is one file")
    _tell(merged, "one file" if len(merged.files) > 1 else "it", as_json=as_json)
    return code


@click.command("perfetto", cls=options.SessionCommand)
@_merging("trace.pftrace")
@asynchronous
async def perfetto(*, as_json: bool, **chosen: Any) -> int:
    """Write the same trace in Perfetto's own format: one file, less than half the size.

    Example: profagent export perfetto 3
    Example: profagent export perfetto 3 --last 100 --output last.pftrace
    """
    merged, code = await _merged("trace.pftrace", PerfettoTrace, **chosen)
    _tell(merged, "it", as_json=as_json)
    return code


@click.command("speedscope", cls=options.SessionCommand)
@_merging("trace.speedscope.json")
@asynchronous
async def speedscope(*, as_json: bool, **chosen: Any) -> int:
    """Write the slices as profiles for speedscope.

    Example: profagent export speedscope 3
    Example: profagent export speedscope 3 --last 100
    """
    merged, code = await _merged("trace.speedscope.json", SpeedscopeFile, **chosen)
    _tell(merged, "it", as_json=as_json, on="www.speedscope.app")
    return code


async def _merged(  # noqa: PLR0913 - one parameter an option
    name: str,
    writer: Callable[[Path, Tracks, dict[str, Any]], Writer],
    *,
    targets: tuple[str, ...],
    workspace: Path | None,
    last: int | None,
    from_text: str | None,
    to_text: str | None,
    output: Path | None,
    maps: CounterMaps,
) -> tuple[Merged, int]:
    """Write what was asked for, in a file of that name unless another is named; return the exit code as well."""
    if last is not None and (from_text or to_text):
        raise UsageError("--last does not go with --from and --to", hint="leave one of them out")
    found = [await target_of(target, workspace, maps) for target in targets]
    wanted = Wanted(last, _time_us(from_text), _time_us(to_text))
    operands = [Operand(target.database, target.session) for target in found]
    if len({*operands}) < len(operands):
        raise UsageError("a session is named twice", hint="name each once")
    merged = await export_trace(operands, output or found[0].output("trace") / name, wanted, writer)
    code = 0 if merged.events else IncompleteError.exit_code
    for target in found:
        code = await exit_code_of_written(target.database, [target.session], code)
    return merged, code


def _tell(merged: Merged, which: str, *, as_json: bool, on: str = "ui.perfetto.dev") -> None:
    if merged.unplaced:
        tell(f"{merged.unplaced} records have no known place in time and are left out")
    if merged.metadata["clock"] == "host":
        for session in merged.metadata["sessions"]:
            line = session["clock_offset_us"]
            sure = "not known: it is not moved" if line is None else f"known to {line['uncertainty_us']:,.0f} us"
            tell(f"session {session['session']}: its clock's distance from the host's is {sure}")
    if as_json:
        files = [display_text(str(file)) for file in merged.files]
        click.echo(json_text({"files": files, "events": merged.events, "metadata": merged.metadata}))
        return
    for file in merged.files:
        click.echo(str(file))
    click.echo(f"{counted(merged.events, 'event')}; drop {which} on {on}")


async def target_of(text: str, workspace: Path | None, maps: CounterMaps) -> Target:
    """What one of several words names: the workspace is that of the sessions among them."""
    return await named_target(text, None, workspace if directory_named(text) is None else None, maps)


def _time_us(text: str | None) -> int | None:
    """A moment of the board's clock. Raises UsageError."""
    if text is None:
        return None
    try:
        seconds = float(text) if text.replace(".", "", 1).isdecimal() else _moment(text).timestamp()
        return int(seconds * US_PER_S)
    except (ValueError, OverflowError) as error:
        hint = "write seconds since 1970, or a time as 2026-11-23T14:00:00, which is UTC"
        raise UsageError(f"{text!r} is no time", hint=hint) from error


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
