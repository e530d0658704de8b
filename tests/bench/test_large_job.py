"""A JOB of 200,000 files that still grows: copied from its start by one client while another watches."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import time
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path

import msgspec

from tests.bench.measure import PROFAGENT, Child, percentile, report, size_text, started
from tests.bench.probes import Answers, PrintedLines, asking, until
from tests.bench.programs import Program, program
from tests.daemon.daemon_process import running

NETWORK = Path(__file__).with_name("small_network.toml")
LAYERS, FILES_EACH, BACKLOG, RATE = 4, 4, 50_000, 20.0
# The phases before the copy begins and after it has caught up.
STEADY_S = 5.0


async def test_a_large_job_is_followed_while_it_grows(root: Path) -> None:
    board = root / "board"
    board.mkdir()
    with ExitStack() as stack:
        grown = program(board, rate=RATE, layers=LAYERS, model=NETWORK, backlog=BACKLOG)
        growing, begun = stack.enter_context(grown), time.monotonic()
        daemon = stack.enter_context(running("--root", board, "--log-level", "warning"))
        async with asking(daemon.address) as answers:
            watch = stack.enter_context(_command("watch", daemon.address, "--json"))
            following = _Following(answers, PrintedLines(watch), Child(daemon.process.pid))
            await following.open_watch()
            await following.stay("watch alone")
            record = stack.enter_context(
                _command("record", daemon.address, "--until-finished", "--json", "--workspace", root / "workspace")
            )
            logs = FILES_EACH * (BACKLOG + RATE * (time.monotonic() - begun))
            await following.catch_up(record, root / "workspace" / "profagent.db", logs)
            await following.stay("record and watch")
            summary = await following.finish(record, growing)
    assert summary["complete"]
    assert summary["records"]["aicore"] == (BACKLOG + len(growing.written)) * LAYERS
    files = sum(1 for _ in board.glob("JOB*/data/*"))
    report(f"a JOB of {files} files that grows by {RATE:g} inferences/s", following.figures)


class _Following:
    """The figures of each phase."""

    def __init__(self, answers: Answers, printed: PrintedLines, daemon: Child) -> None:
        self.figures: dict[str, str] = {}
        self._answers = answers
        self._printed = printed
        self._daemon = daemon
        self._phases: list[tuple[str, float, float]] = []

    async def open_watch(self) -> None:
        """Until the watch has passed over the backlog."""
        begin = time.monotonic()
        self.figures["watch: first line after"] = f"{await until(lambda: bool(self._printed.seen)) - begin:.1f} s"
        self._end("watch opens", begin)

    async def stay(self, phase: str) -> None:
        """Nothing but growth."""
        begin = time.monotonic()
        await asyncio.sleep(STEADY_S)
        self._end(phase, begin)

    async def catch_up(self, record: subprocess.Popen[str], database: Path, logs: float) -> None:
        """Until the record has committed what there was."""
        begin, daemon_s = time.monotonic(), self._daemon.cpu_s()
        took_s = await until(lambda: _committed(database) >= logs) - begin
        self.figures |= {
            "record: caught up after": f"{took_s:.1f} s, {_committed(database) / took_s:.0f} files/s",
            "record: share of a core until then": f"{Child(record.pid).cpu_s() / took_s:.0%}",
            "daemon: share of a core until then": f"{(self._daemon.cpu_s() - daemon_s) / took_s:.0%}",
        }
        self._end("record catches up", begin)

    async def finish(self, record: subprocess.Popen[str], growing: Program) -> dict[str, dict[str, int]]:
        """Until the record has ended with the JOB; its summary."""
        self.figures["record: peak RSS"] = size_text(Child(record.pid).peak_bytes())
        await asyncio.to_thread(growing.stop)
        begin = time.monotonic()
        output, _ = await asyncio.to_thread(record.communicate)
        self.figures["record: ended after the unload by"] = f"{time.monotonic() - begin:.1f} s"
        self.figures["daemon: peak RSS"] = size_text(self._daemon.peak_bytes())
        self._end("the JOB ends", begin)
        for phase, begin, end in self._phases:
            self.figures[f"{phase}: answer p50, longest"] = _pace(self._answers.between(begin, end))
            if delays := self._printed.delays_ms(growing.written, begin, end):
                self.figures[f"{phase}: write to line p50, longest"] = _pace(delays)
        summary: dict[str, dict[str, int]] = msgspec.json.decode(output)
        return summary

    def _end(self, phase: str, begin: float) -> None:
        self._phases.append((phase, begin, time.monotonic()))


def _command(verb: str, address: str, *arguments: str | Path) -> AbstractContextManager[subprocess.Popen[str]]:
    return started(*PROFAGENT, verb, "--board", address, *arguments, stdout=subprocess.PIPE)


def _committed(database: Path) -> int:
    """How many logs are in the database; a few more than those of inferences."""
    if not database.exists():
        return 0
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            (number,) = connection.execute("SELECT ifnull(max(log), 0) FROM log").fetchone()
    except sqlite3.OperationalError:
        return 0  # it is being made
    return int(number)


def _pace(values_ms: list[float]) -> str:
    return f"{percentile(values_ms, 50):.1f} ms, {max(values_ms):.0f} ms (n={len(values_ms)})"
