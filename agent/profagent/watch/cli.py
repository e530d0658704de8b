"""`profagent watch`."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import msgspec

from profagent.boards.cli import run_on_boards, via
from profagent.cli import options
from profagent.cli.provenance import kept_loss_line, sampling_line, share_text
from profagent.cli.running import run_until_stopped, tell
from profagent.cli.table import UNKNOWN, printable, time_text
from profagent.errors import UnreachableError, UsageError
from profagent.formats.countermap import bound_mark
from profagent.formats.figure_states import FigureState
from profagent.store.workspace import Workspace
from profagent.watch.against import against_of
from profagent.watch.replay import Replayed, replay
from profagent.watch.watch import WatchOptions, watch_all

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from profagent.boards.tunnel import OverSsh
    from profagent.link.credentials import Access
    from profagent.store.counter_maps import CounterMaps
    from profagent.watch.live import Event


US_PER_MS = 1000.0
LONGEST_NAME = 24
# Of a line of the board, those with the most time.
SHOWN_SPANS = 6
# Stands after what rests on a counter that the map is not certain of.
DOUBT = "?"


def line_of(event: Event) -> str:
    """One line for an event, without the line's end."""
    mark = " [simulated]" if event["simulated"] else ""
    lines = {"inference": _inference, "record": _record, "board": _board, "kept_loss": kept_loss_line}
    if (line := lines.get(event["event"])) is not None:
        return line(event) + mark
    match event["event"]:
        case "ledger":
            where = event["log"] or event["job"] or "board"
            return f"{event['grade']}: {where}: {event['reason']}: {event['detail']} (count {event['count']}){mark}"
        case "job":
            return f"{event['job']} is {event['state']}{mark}"
    records = ", ".join(f"{count} {kind}" for kind, count in event["records"].items())
    ledger = ", ".join(f"{count} {grade}" for grade, count in event["ledger"].items())
    sampling = sampling_line(event["sampling"])
    return f"{event['inferences']} inferences, {sampling}; records: {records}; ledger: {ledger}{mark}"


def _inference(event: Event) -> str:
    slowest = "  ".join(
        f"{_short(layer['layer_name'])} {_ms(layer['duration_us'])} {_percent(layer['share'])}{_bound(layer, event)}"
        for layer in event["slowest"]
    )
    who = f"{event['model']}.{event['model_id']} inference {event['current_pic_count']}"
    ledger = "".join(f"  {entry['grade']}: {entry['reason']} ({entry['count']})" for entry in event["ledger"])
    if event["figures"] != FigureState.FINAL:
        slowest = f"figures are {event['figures']}: {event['why']}"
    is_less = event["due"] is not None and event["sampled"] < event["due"]
    share = f"  captured {share_text(event['sampled'], event['due'])}" if is_less else ""
    parts = (_clock(event["start_us"]), who, _ms(event["total_us"]), f"{event['records']} records", slowest)
    return "  ".join(part for part in parts if part) + share + ledger


def _board(event: Event) -> str:
    """NPU, temperature, what profiling costs, subscriptions, and the mean time of spans."""
    npu, warm, cost = event["npu_utilization"], event["temperature"], event["daemon_cpu"]
    parts = [f"NPU {UNKNOWN if npu is None else f'{npu:g}%'}", f"{UNKNOWN if warm is None else f'{warm:.1f}'} C"]
    parts.append(f"profagentd {UNKNOWN if cost is None else f'{cost:.1f}%'}")
    for ops in event["ops"]:
        rate = UNKNOWN if ops["per_s"] is None else f"{ops['per_s']:,.0f}"
        parts.append(f"{printable(ops['source'])} {rate} ops/s")
    parts += [f"{_short(printable(span['name']))} {_ms(span['mean_us'])}" for span in event["spans"][:SHOWN_SPANS]]
    return "  ".join([_clock(event["time_us"]), "board", *parts])


def _record(event: Event) -> str:
    if event["unit"] == "acl_api":
        return f"{_clock(event['begin_us'])}  {event['name']}  {_us(event['duration_us'])}  thread {event['tid']}"
    who = f"{event['model']}.{event['model_id']} inference {event['current_pic_count']}"
    layer = f"{event['layer_name'] or UNKNOWN} ({event['layer_type'] or UNKNOWN})"
    busy = "".join(
        f"  {label} {_percent(event[name])}{DOUBT if name in event.get('likely', ()) else ''}"
        for label, name in (("mac", "mac_busy"), ("vec", "vec_busy"))
        if name in event
    )
    bound = f"  bound by{word}" if (word := _bound(event, event)) else ""
    where = f"{event['unit']} {event['segment']}.{event['sequence']}"
    return f"{who}  {where}  {layer}  {_us(event['duration_us'])}{busy}{bound}"


def _bound(layer: Mapping[str, Any], event: Event) -> str:
    """What bounds a layer, after a blank; nothing without a counter map. It rests on all ratios, certain or not."""
    if "bound_by" not in layer:
        return ""
    word = layer["bound_by"]
    return f" {UNKNOWN}" if word is None else f" {word}{bound_mark(event.get('likely', ()))}"


def _short(layer_name: str | None) -> str:
    """A layer's name for a line that has several; of fused ones the first, and how many there are more."""
    first, *others = (layer_name or UNKNOWN).split("+")
    name = first if len(first) <= LONGEST_NAME else first[: LONGEST_NAME - 1] + "…"
    return f"{name}+{len(others)}" if others else name


def _clock(time_us: int | None) -> str:
    """Board time of day, UTC."""
    text = time_text(time_us, "%H:%M:%S.%f")
    return "--:--:--.---" if text == UNKNOWN else text[:-3]


def _ms(duration_us: float | None) -> str:
    return UNKNOWN if duration_us is None else f"{duration_us / US_PER_MS:.3f} ms"


def _us(duration_us: float | None) -> str:
    return UNKNOWN if duration_us is None else f"{duration_us:.3f} us"


def _percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share:.1%}"


def wants_screen(*, plain: bool) -> bool:
    """Whether somebody sits at a terminal that can show a screen."""
    has_terminal = all(each.isatty() for each in (sys.stdin, sys.stdout, sys.stderr))
    return has_terminal and not plain and os.environ.get("TERM", "dumb") != "dumb"


@click.command("watch")
@click.option(
    "--board",
    "boards",
    multiple=True,
    metavar="BOARD",
    help=f"{options.BOARD_HELP} May be repeated.",
    shell_complete=options.completed("boards"),
)
@click.option(
    "--session",
    type=click.IntRange(min=1),
    metavar="ID",
    help="Replay a session of the workspace.",
    shell_complete=options.completed("sessions"),
)
@click.option(
    "--speed",
    type=click.FloatRange(min=0.01, max=1000),
    default=None,
    metavar="N",
    help="With --session: so many times as fast as it was (1).",
)
@options.access
@via
@click.option("--from-start", is_flag=True, help="Show what open JOBs hold already, too.")
@click.option("--plain", is_flag=True, help="Lines on a terminal, too.")
@click.option("--records", "with_records", is_flag=True, help="A line for each record instead of each inference.")
@click.option(
    "--against",
    metavar="NAME",
    help="On the screen: compare layers with a baseline, or a session's number.",
    shell_complete=options.completed("baselines"),
)
@click.option("--save", is_flag=True, help="Keep the capture in the workspace.")
@options.workspace
@options.counter_map
@options.as_json
def command(  # noqa: PLR0913 - one parameter an option
    *,
    boards: tuple[str, ...],
    session: int | None,
    speed: float | None,
    access: Access,
    over: OverSsh | None,
    from_start: bool,
    plain: bool,
    with_records: bool,
    against: str | None,
    save: bool,
    workspace: Path | None,
    maps: CounterMaps,
    as_json: bool,
) -> int:
    """Show a board's inferences live, until Ctrl-C.

    On a terminal: a screen of layers, inferences, calls, metrics and events, with its keys; q leaves it. In a pipe, or
    with --plain, --records or --json: one line an inference: board time (UTC), model, pictures before it, total, its
    slowest layers. Every 2 s one of the board: NPU, temperature, the daemon's own processor time, subscriptions, the
    mean time of the program's spans. Nothing is kept and nothing on the board is released, unless --save is given.

    Example: profagent watch --board 192.168.1.20;
    profagent watch --board root@192.168.1.20 --via ssh --root /opt/app/profiling --records;
    profagent watch --session 3 --speed 4
    """
    is_screen = wants_screen(plain=plain or with_records or as_json)
    _check(boards, session=session, speed=speed, save=save, against=against, is_screen=is_screen)
    place = Workspace.at(workspace)
    chosen = [
        WatchOptions(
            board,
            from_start=from_start,
            with_records=with_records,
            maps=maps,
            save=place if save else None,
        )
        for board in boards
    ]
    output = _Output(is_json=as_json, names_boards=len(boards) > 1)
    if session is not None:
        replayed = Replayed(place, session, speed or 1.0, maps, with_records=with_records)
        run_until_stopped(lambda stop: _replay(replayed, output, against, stop, is_screen=is_screen))
        return 0

    async def run(reached: Access, stop: asyncio.Event) -> list[Event]:
        wanted = [replace(each, access=reached) for each in chosen]
        if not is_screen:
            return await watch_all(wanted, output.show, output.tell, stop)
        from profagent.watch.screen.run import watch_on_screen  # noqa: PLC0415 - textual takes time to import

        return await watch_on_screen(wanted, stop, place, against=await against_of(place, against))

    summaries = run_on_boards(boards, access, over, run)
    for board, summary in zip(boards, summaries, strict=True):
        output.show(board, summary)
        if "session" in summary:
            number, folder = summary["session"], summary["workspace"]
            tell(f"saved as session {number} of {folder}: profagent show --session {number} --workspace {folder}")
    return 0 if all(summary.get("reached", True) for summary in summaries) else UnreachableError.exit_code


class _Output:
    """Where lines go: standard output, each with its board's name where there are several."""

    def __init__(self, *, is_json: bool, names_boards: bool) -> None:
        self._is_json, self._names_boards = is_json, names_boards

    def show(self, board: str, event: Event) -> None:
        """A line for an event."""
        if self._is_json:
            click.echo(msgspec.json.encode({"board": board, **event} if self._names_boards else event))
        else:
            click.echo(f"{board}: {line_of(event)}" if self._names_boards else line_of(event))

    def tell(self, board: str, text: str) -> None:
        """A remark."""
        tell(f"{board}: {text}" if self._names_boards else text)


def _check(
    boards: Sequence[str],
    *,
    session: int | None,
    speed: float | None,
    save: bool,
    against: str | None,
    is_screen: bool,
) -> None:
    """Raises UsageError where options do not go together."""
    if bool(boards) is (session is not None):
        raise UsageError("watch takes either boards or a session", hint="name --board BOARD, or --session ID")
    if len(set(boards)) < len(boards):
        raise UsageError("a board is named twice", hint="name each board once")
    if session is None and speed is not None:
        raise UsageError("--speed goes with --session", hint="leave it out: a board has its own pace")
    if session is not None and save:
        raise UsageError("--save goes with --board", hint="leave it out: the session is kept already")
    if against is not None and not is_screen:
        raise UsageError("--against is for the screen", hint="`profagent diff` compares two sessions in lines")


async def _replay(
    replayed: Replayed, output: _Output, against: str | None, stop: asyncio.Event, *, is_screen: bool
) -> None:
    if is_screen:
        from profagent.watch.screen.replaying import replay_on_screen  # noqa: PLC0415 - as above

        await replay_on_screen(replayed, stop, against=await against_of(replayed.workspace, against))
        return
    output.show("", await replay(replayed, partial(output.show, ""), tell, stop))
