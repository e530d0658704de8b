"""`profagent demo`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from profagent.cli.exit_codes import exit_code_of
from profagent.cli.options import duration_s
from profagent.cli.running import program, run_until_stopped, tell
from profagent.diff.diff import Operand
from profagent.errors import ProfagentError, UnreachableError
from profagent.export.formats import FORMATS
from profagent.export.merged import SessionOperand, export_trace
from profagent.export.summary import export_summary
from profagent.export.timeline import export_timeline
from profagent.limits import DEMO_START_S, DEMO_STOP_S, ENDING_S
from profagent.record.options import RecordOptions
from profagent.record.record import record
from profagent.report.report import write_report
from profagent.store.workspace import Workspace
from profagent.tables.provenance import summary_lines
from profagent.watch.lines import line_of
from profagent.watch.watch import WatchOptions, watch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from profagent.store.events import Event


T = TypeVar("T")
# Formats of merged traces that the demo exports, with a description of each.
TRACES = {"perfetto": "all on one page", "trace": "the same as JSON"}


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The duration, rate and network of the simulated program, and the workspace to record into."""

    workspace: Workspace
    for_s: float = 5.0
    rate: float = 10.0
    model: str = "yolov5s"


async def demo(
    options: DemoOptions, show: Callable[[Event], None], tell: Callable[[str], None], stop: asyncio.Event
) -> tuple[dict[str, Any], Path]:
    """Run the simulated board, show it live, record and export it; return the summary and the folder of exports.

    Raises ProfagentError.
    """
    async with simulated_board(options) as (address, process):
        summary = await _while_running(process, _capture(options, address, show, tell, stop))
    tell("exporting")
    folder = options.workspace.root / "exports" / f"session-{summary['session']}"
    database, session = options.workspace.database, summary["session"]
    for name in TRACES:
        format_ = FORMATS[name]
        await export_trace([SessionOperand(database, session)], folder / format_.place, writer=format_.load())
    await export_timeline(database, folder / "timeline", session=session)
    await export_summary(database, folder / "summary", session=session)
    await export_summary(database, folder / "aggregate", session=session, aggregate=True)
    shown = await write_report(Operand(str(session), database, session), folder / "report.html")
    return {**summary, "verdict": shown["verdict"]}, folder


async def _while_running(process: asyncio.subprocess.Process, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`; cancel it and raise ProfagentError if the simulated board's process ends first."""
    task, ended = asyncio.create_task(work), asyncio.create_task(process.wait())
    try:
        await asyncio.wait([task, ended], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
    except UnreachableError:
        # The link may break shortly before the process ends: its exit code gives the better error.
        await asyncio.wait([ended], timeout=ENDING_S)
        if process.returncode is None:
            raise
    finally:
        task.cancel()
        ended.cancel()
        await asyncio.wait([task, ended])
    raise _board_failed(f"ended by itself (exit code {process.returncode})")


@asynccontextmanager
async def simulated_board(options: DemoOptions) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """Run `profagentd --simulate` on a free loopback port; yield its address and its process."""
    arguments = ["--listen", "127.0.0.1:0", "--simulate", "--model", options.model]
    arguments += ("--rate", f"{options.rate:g}", "--for", f"{options.for_s:g}", "--log-level", "warning")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "profagentd", *arguments),
        stdout=asyncio.subprocess.PIPE,
        # Ctrl-C must reach this process only: the board runs on until everything has been fetched.
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        line = b""
        with suppress(TimeoutError):
            line = await asyncio.wait_for(process.stdout.readline(), DEMO_START_S)
        address = line.decode().rpartition(" serving ")[2].strip()
        if not address:
            raise _board_failed("did not start")
        yield address, process
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), DEMO_STOP_S)
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _board_failed(how: str) -> ProfagentError:
    return ProfagentError(f"the simulated board {how}", hint="profagentd's own message above says why")


async def _capture(
    options: DemoOptions, address: str, show: Callable[[Event], None], tell: Callable[[str], None], stop: asyncio.Event
) -> dict[str, Any]:
    watching = asyncio.Event()
    live = asyncio.create_task(watch(WatchOptions(address, from_start=True), show, tell, watching))
    try:
        return await record(RecordOptions((address,), options.workspace, until_finished=True, backlog=True), tell, stop)
    finally:
        watching.set()
        # The board has just stopped, so a lost connection is expected here.
        with suppress(UnreachableError):
            await live


@click.command("demo")
@click.option(
    "--for",
    "for_text",
    default="5s",
    show_default=True,
    metavar="DURATION",
    help="The duration of the simulated program.",
)
@click.option("--rate", type=click.FloatRange(min=0.1, max=1000), default=10.0, show_default=True, metavar="INF_PER_S")
@click.option("--model", default="yolov5s", show_default=True, metavar="NAME", help="The simulated network.")
def command(*, for_text: str, rate: float, model: str) -> int:
    """Try everything without a board: a simulated board, live lines, a session, exports and a report.

    All figures are invented.

    Example: profagent demo --model resnet50 --for 10s
    Example: profagent demo --rate 100
    """
    root = Path(tempfile.mkdtemp(prefix="profagent-demo-"))
    chosen = DemoOptions(Workspace(root), duration_s(for_text), rate, model)
    summary, exports = run_until_stopped(
        lambda stop: demo(chosen, lambda event: click.echo(line_of(event)), tell, stop)
    )
    for line in summary_lines(summary):
        click.echo(line)
    click.echo(f"  exports:  {exports}")
    click.echo(f"  verdict:  {summary['verdict']}")
    click.echo("Files to look at, in the exports:")
    click.echo("  report.html                   what slows the run down, and why: open it in a browser")
    for name, about in TRACES.items():
        click.echo(f"  {FORMATS[name].place:<29} {about}: opens in {FORMATS[name].opens_in}")
    click.echo("  timeline/…/task_time_*.json   the vendor's timeline of layers")
    click.echo("  summary/…/op_summary_*.csv    each layer of each inference; aggregate/ has the means")
    click.echo(f"  {program()} show {summary['session']} --workspace {root}")
    click.echo(f"  {program()} watch {summary['session']} --workspace {root}")
    click.echo(f"  {program()} advise {summary['session']} --workspace {root}")
    return exit_code_of(summary)
