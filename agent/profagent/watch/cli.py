"""The command `profagent watch`."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from profagent.boards.cli import run_on_boards, via
from profagent.cli import options
from profagent.cli.documents import print_document
from profagent.cli.exit_codes import tell_incomplete
from profagent.cli.running import run_until_stopped, tell
from profagent.errors import UsageError
from profagent.store.workspace import SESSION_FORMS, Workspace, session_named
from profagent.units import US_PER_MS
from profagent.watch.against import against_of
from profagent.watch.lines import line_of
from profagent.watch.replay import Replayed, replay
from profagent.watch.watch import WatchOptions, watch_all

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from profagent.boards.tunnel import OverSsh
    from profagent.formats.counter_maps import CounterMaps
    from profagent.link.credentials import Access
    from profagent.store.events import Event
    from profagent.tables.slo import Objective


def wants_screen(*, plain: bool) -> bool:
    """Return True if standard input, output and error are a terminal that can show the full screen."""
    has_terminal = all(each.isatty() for each in (sys.stdin, sys.stdout, sys.stderr))
    return has_terminal and not plain and os.environ.get("TERM", "dumb") != "dumb"


@click.command("watch", cls=options.SessionCommand)
@options.boards(required=False)
@click.argument("session", required=False, shell_complete=options.completed("sessions"))
@click.option(
    "--speed",
    type=click.FloatRange(min=0.01, max=1000),
    default=None,
    metavar="N",
    help="Replay a session N times as fast as it was recorded; 1 unless given.",
)
@click.option("--at", type=click.IntRange(min=1), metavar="N", help="Replay a session from its incident N on.")
@options.access
@via
@click.option("--from-start", is_flag=True, help="Also show the records that open JOBs hold already.")
@click.option("--plain", is_flag=True, help="Print lines instead of the screen.")
@click.option("--records", "with_records", is_flag=True, help="Print a line for each record instead of each inference.")
@click.option(
    "--against",
    metavar="SESSION",
    help="On the screen: compare layers with this session.",
    shell_complete=options.completed("sessions"),
)
@click.option(
    "--budget",
    "budgets",
    multiple=True,
    metavar="[MODEL=]MS",
    callback=lambda _context, _option, texts: budgets_of(texts),
    help="On the screen of several boards: the limit of the p99 latency; may be repeated.",
)
@options.slo("Raise an alarm while an objective, such as 'frame.p99 < 33ms', is exceeded over the last minute.")
@click.option("--save", is_flag=True, help="Store the shown data as a session of the workspace.")
@options.workspace
@options.counter_map
@options.as_json
def command(  # noqa: PLR0913 - one parameter an option
    *,
    boards: tuple[str, ...],
    session: str | None,
    speed: float | None,
    at: int | None,
    access: Access,
    over: OverSsh | None,
    from_start: bool,
    plain: bool,
    with_records: bool,
    against: str | None,
    budgets: Mapping[str, float],
    objectives: list[Objective],
    save: bool,
    workspace: Path | None,
    maps: CounterMaps,
    as_json: bool,
) -> int:
    """Show a board's inferences live, until Ctrl-C; or replay those of a session at their original pace.

    On a terminal, a screen shows layers, inferences, calls, metrics and events, and lists its keys; q leaves it. With
    several boards, it first shows one row for each, the worst on top: state, latency, p99 against the budget, losses
    and coverage. Enter opens a board, Esc goes back.

    In a pipe, or with --plain, --records or --json, each inference is one line: board time (UTC), model, pictures
    before it, latency, number of recorded layers, slowest layer. A latency with ≥ is the time from the first begin to
    the last end of its layers; the call itself takes longer. Every 2 s a line shows the board: NPU, temperature, the
    daemon's own processor time, subscriptions, the mean time of the program's spans.

    Without --save, nothing is stored, and nothing on the board counts as delivered.

    Exit code 1: an alarm of --slo was on.

    Example: profagent watch --board 192.168.1.20
    Example: profagent watch --board root@192.168.1.20 --via ssh --root /opt/app/profiling --records
    Example: profagent watch --group rack3 --budget 20
    Example: profagent watch --board 192.168.1.20 --slo 'frame.p99 < 33ms'
    Example: profagent watch last --at 2
    """
    is_screen = wants_screen(plain=plain or with_records or as_json)
    _check_screen(boards, budgets, against, is_screen=is_screen)
    place = Workspace.at(workspace)
    output = _Output(is_json=as_json, names_boards=len(boards) > 1)
    if session is not None:
        _check_replay(boards, session, has_slo=bool(objectives), has_save=save, has_map=maps.named is not None)
        word = session

        async def replay_named(stop: asyncio.Event) -> None:
            number = await session_named(place, word)
            replayed = Replayed(place, number, speed or 1.0, with_records=with_records, at=at)
            await _replay(replayed, output, against, stop, is_screen=is_screen)

        run_until_stopped(replay_named)
        return 0
    _check_boards(boards, speed, at)
    saved_in = place if save else None
    chosen = [
        WatchOptions(
            each,
            from_start=from_start,
            with_records=with_records,
            maps=maps,
            save=saved_in,
            objectives=tuple(objectives),
        )
        for each in boards
    ]

    async def run(reached: Access, stop: asyncio.Event) -> list[Event]:
        wanted = [replace(each, access=reached) for each in chosen]
        if not is_screen:
            return await watch_all(wanted, output.show, output.tell, stop)
        from profagent.watch.screen.run import watch_on_screen  # noqa: PLC0415 - textual takes time to import

        return await watch_on_screen(wanted, stop, place, against=await against_of(place, against), budgets=budgets)

    return output.end(boards, run_on_boards(boards, access, over, run))


def budgets_of(texts: Iterable[str]) -> dict[str, float]:
    """Return latency budgets in µs by model, from texts like `20` or `MODEL=20` in ms.

    The key "" stands for all other models. Raises UsageError for a text without a positive, finite number.
    """
    found = {}
    for text in texts:
        model, _, number = text.rpartition("=")
        try:
            found[model] = float(number) * US_PER_MS
        except ValueError:
            found[model] = 0.0
        if not 0 < found[model] < float("inf"):
            raise UsageError(f"{text!r} is not a budget", hint="write milliseconds: 20, or MODEL=20")
    return found


class _Output:
    """Standard output of a watch: a line of text or of JSON for each event, named by board if there are several."""

    def __init__(self, *, is_json: bool, names_boards: bool) -> None:
        self._is_json, self._names_boards = is_json, names_boards

    def show(self, board: str, event: Event) -> None:
        """Print one event as one line."""
        if self._is_json:
            print_document("watch", {"board": board, **event} if self._names_boards else event)
        else:
            click.echo(f"{board}: {line_of(event)}" if self._names_boards else line_of(event))

    def tell(self, board: str, text: str) -> None:
        """Print a remark to standard error."""
        tell(f"{board}: {text}" if self._names_boards else text)

    def end(self, boards: Sequence[str], summaries: Sequence[Event]) -> int:
        """Print each board's summary and where it was saved; return the smallest exit code other than 0, or 0."""
        for board, summary in zip(boards, summaries, strict=True):
            self.show(board, summary)
            if "session" in summary:
                number, folder = summary["session"], summary["workspace"]
                tell(f"saved as session {number} of {folder}: profagent show {number} --workspace {folder}")
        return min((summary["exit_code"] for summary in summaries if "exit_code" in summary), default=0)


def _check_screen(boards: Sequence[str], budgets: Mapping[str, float], against: str | None, *, is_screen: bool) -> None:
    if budgets and not is_screen:
        hint = "leave out --budget, or run watch on a terminal without --plain, --records and --json"
        raise UsageError("--budget is for the screen, and this command prints lines", hint=hint)
    if budgets and len(boards) < 2:
        hint = "leave out --budget, or name several boards with --board or --group"
        raise UsageError("--budget is for the screen of several boards", hint=hint)
    if against is not None and not is_screen:
        raise UsageError("--against is for the screen", hint="`profagent diff` compares two sessions in lines")


def _check_boards(boards: Sequence[str], speed: float | None, at: int | None) -> None:
    if not boards:
        raise _neither_or_both()
    if len(set(boards)) < len(boards):
        raise UsageError("a board was named twice", hint="name each board once")
    if (speed, at) != (None, None):
        hint = "leave it out: a board sends in its own time"
        raise UsageError(f"{'--speed' if at is None else '--at'} goes with a session", hint=hint)


def _check_replay(boards: Sequence[str], session: str, *, has_slo: bool, has_save: bool, has_map: bool) -> None:
    if boards:
        raise _neither_or_both()
    if has_save:
        raise UsageError("--save goes with --board", hint="leave it out: the session is already stored")
    if has_map:
        hint = f"`profagent redecode {session} --counter-map FILE` fills the session's columns anew"
        raise UsageError("--counter-map goes with --board", hint=hint)
    if has_slo:
        raise UsageError("--slo goes with --board", hint=f"`profagent stats {session} --slo …` judges a session")


def _neither_or_both() -> UsageError:
    hint = f"name --board BOARD, or a session: {SESSION_FORMS}"
    return UsageError("watch takes boards or a session, not both", hint=hint)


async def _replay(
    replayed: Replayed, output: _Output, against: str | None, stop: asyncio.Event, *, is_screen: bool
) -> None:
    await tell_incomplete(replayed.workspace.readable_database(), [replayed.session])
    if is_screen:
        from profagent.watch.screen.run import replay_on_screen  # noqa: PLC0415 - textual takes time to import

        await replay_on_screen(replayed, stop, against=await against_of(replayed.workspace, against))
        return
    output.show("", await replay(replayed, partial(output.show, ""), tell, stop))
