"""How far long work is: lines now and then in a pipe, a bar on a terminal, nothing for programs."""

from __future__ import annotations

import re
import sys

import click
import pytest
from click.testing import CliRunner

from profagent.cli import options
from profagent.cli.progress import BYTES, Progress, progress
from tests.board.terminal import at_terminal


class Clock:
    """A clock that stands until it is moved."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_elsewhere_a_line_every_ten_seconds_with_rate_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    shown = Progress("import", "files", now_s=clock)
    for second in range(25):
        clock.now_s = 100.0 + second
        shown(20 * second, 1000)
    shown.end()
    assert capsys.readouterr() == (
        "",
        "import: 200 of 1,000 files, 20/s, 40 s left\nimport: 400 of 1,000 files, 20/s, 30 s left\n",
    )


def test_bytes_are_megabytes(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    shown = Progress("upload", BYTES, now_s=clock)
    shown(0, 50e6)
    clock.now_s += 10
    shown(5e6, 50e6)
    assert capsys.readouterr().err == "upload: 5.0 of 50.0 MB, 0.5 MB/s, 90 s left\n"


@click.command()
@options.as_json
@options.quiet
def work(*, as_json: bool) -> None:
    with progress("work", "steps") as shown:
        click.echo(shown.is_shown)


@pytest.mark.parametrize(("arguments", "is_shown"), [([], True), (["--json"], False), (["--quiet"], False)])
def test_nothing_is_shown_with_json_or_quiet(arguments: list[str], is_shown: bool) -> None:
    assert CliRunner().invoke(work, arguments).output == f"{is_shown}\n"


def test_nothing_is_shown_where_no_command_runs() -> None:
    with progress("work", "steps") as shown:
        assert not shown.is_shown


AT_WORK = """
import time, click
from profagent.cli import options
from profagent.cli.progress import progress
from profagent.cli.running import tell

@click.command()
@options.quiet
def work():
    with progress("redecode", "records") as shown:
        for done in range(6):
            shown(1000 * done, 5000)
            if done == 3:
                tell("a remark")
            time.sleep(0.1)
    click.echo("the answer")

work()
"""


def test_a_terminal_has_a_bar_that_goes_and_leaves_what_was_said() -> None:
    with at_terminal(sys.executable, "-c", AT_WORK, TERM="xterm", COLUMNS="100") as terminal:
        assert terminal.ended() == 0
    assert re.search(r"redecode .*━.* of 5,000 records, [\d,.]+/s .*\d\d:\d\d", terminal.seen)
    assert re.search(r"(\r|\x1b\[2K|\n)a remark *\n", terminal.seen)
    assert terminal.seen.endswith("the answer\n")
    assert "\x1b[?25h" in terminal.seen  # the cursor is back


def test_a_terminal_that_cannot_go_back_has_no_bar() -> None:
    with at_terminal(sys.executable, "-c", AT_WORK, TERM="dumb") as terminal:
        assert terminal.ended() == 0
    assert terminal.seen == "a remark\nthe answer\n"
