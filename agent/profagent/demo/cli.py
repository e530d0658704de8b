"""`profagent demo`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from profagent.cli.options import duration_s
from profagent.cli.running import run_until_stopped, tell
from profagent.demo.demo import DemoOptions, demo
from profagent.errors import IncompleteError
from profagent.record.cli import summary_lines
from profagent.store.workspace import Workspace
from profagent.watch.cli import show_text


@click.command("demo")
@click.option("--for", "for_text", default="5s", show_default=True, metavar="DURATION", help="How long it runs.")
@click.option("--rate", type=click.FloatRange(min=0.1, max=1000), default=10.0, show_default=True, metavar="INF_PER_S")
@click.option("--model", default="yolov5s", show_default=True, metavar="NAME", help="The simulated network.")
def command(*, for_text: str, rate: float, model: str) -> int:
    """Show the whole way without a board: simulated board, live lines, a session, all exports.

    Every figure is simulated: made up by profagentd --simulate.

    Example: profagent demo --model resnet50 --for 10s
    """
    root = Path(tempfile.mkdtemp(prefix="profagent-demo-"))
    chosen = DemoOptions(Workspace(root), duration_s(for_text), rate, model)
    result = run_until_stopped(lambda stop: demo(chosen, show_text, tell, stop))
    for line in summary_lines(result.summary):
        click.echo(line)
    click.echo(f"  exports:  {result.exports}")
    click.echo("What to look at:")
    click.echo("  timeline/…/task_time_*.json   drop it on ui.perfetto.dev or chrome://tracing")
    click.echo("  summary/…/op_summary_*.csv    each layer of each inference; aggregate/ has the means")
    click.echo(f"  profagent show --session {result.summary['session']} --workspace {root}")
    return 0 if result.summary["complete"] else IncompleteError.exit_code
