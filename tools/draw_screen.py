"""Draw docs/images/watch.svg, the screen of the README, and write the lines of its examples, or check them.

A simulated JOB with times of its own is imported and replayed, through the screen and in lines: the same code gives
the same picture and the same lines. Run it with the environment of `make check` (`make docs`).
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING

from profagent.importing.importing import import_into
from profagent.ingest.changes import JobChanges
from profagent.ingest.metrics import MetricsDecoder
from profagent.ingest.mirror import digest_of
from profagent.ingest.mirror_in_place import MirrorInPlace
from profagent.store.marks import add_mark
from profagent.store.store import Store
from profagent.store.workspace import Workspace
from profagent.watch.against import NOTHING
from profagent.watch.lines import line_of
from profagent.watch.model import BoardModel, LinkState
from profagent.watch.replay import Pace, Replayed, replay
from profagent.watch.screen.app import WatchApp
from profagent.watch.screen.run import ReplayKeeper, play_into
from profagentd.simulate.npu import Npu
from profagentd.simulate.run import SimulationOptions

if TYPE_CHECKING:
    from profagent.store.events import Event

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "watch.svg"
# A page has lines behind this mark, in a block that may begin with the command.
LINES = re.compile(r"(<!-- `make docs` makes these lines. -->\n```\n(?:\$ .*\n)?)(?:.*\n)*?(```\n)")
PAGES_WITH_LINES = ("README.md", "README.zh.md", "docs/howto/watch-the-screen.md")
SHOWN_INFERENCE, LONGEST_LINE = 40, 118
SIZE = (120, 34)
START_US = 1_767_225_600_000_000  # 2026-01-01 00:00:00 UTC
INFERENCES, PERIOD_US = 90, 50_000
BOARD, METRICS = "euler", "METRICS-board-20260101T000000000Z"
MARKED_US = 1_000_000
VALUES = (
    ("npu.hw_utilization", "%"),
    ("power.temperature", "C"),
    ("cpu.all", "%"),
    ("memory.available", "B"),
    ("daemon.cpu", "%"),
)


def main() -> None:
    """Write the picture and the lines, or with --check fail when what is there differs."""
    parser = argparse.ArgumentParser(description=cleandoc(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; fail when something is out of date")
    is_check = parser.parse_args().check
    with tempfile.TemporaryDirectory(prefix="profagent-screenshot-") as folder:
        picture, lines = asyncio.run(made(Path(folder)))
    wanted = {PICTURE: picture}
    for page in PAGES_WITH_LINES:
        text = (ROOT / page).read_text("utf-8")
        wanted[ROOT / page], count = LINES.subn(lambda found: found[1] + lines + found[2], text)
        assert count, f"{page} has no place for lines"
    for path, text in wanted.items():
        if not is_check:
            path.write_text(text, "utf-8")
        elif not path.exists() or path.read_text("utf-8") != text:
            sys.exit(f"out of date, run `make docs`: {path.name}")


async def made(folder: Path) -> tuple[str, str]:
    """The picture and the lines of one session."""
    workspace = await stored_session(folder)
    return await screenshot(workspace), await replayed_lines(workspace)


async def replayed_lines(workspace: Workspace) -> str:
    """The line of one inference of a replay, and the board's after it."""
    lines: list[str] = []

    def show(event: Event) -> None:
        if event["event"] == "board" if lines else event.get("current_pic_count") == SHOWN_INFERENCE:
            lines.append(_cut(line_of(event)))

    await replay(Replayed(workspace, 1, float("inf")), show, lambda _: None, asyncio.Event())
    return "".join(f"{line}\n" for line in lines[:2])


def _cut(line: str) -> str:
    """A line without the last of its parts, where it is too long for a page."""
    mark = " [simulated]"
    parts = line.removesuffix(mark).split("  ")
    while len("  ".join(parts)) + len(mark) > LONGEST_LINE:
        parts[-2:] = ["…"]
    return "  ".join(parts) + mark


async def screenshot(workspace: Workspace) -> str:
    """The screen at the end of a replay, as SVG."""
    app = await replayed_app(workspace)
    async with app.run_test(size=SIZE) as pilot:
        app.model.enter(LinkState.REPLAYED, "of session 1")
        await pilot.press("down", "down")
        await pilot.pause()
        return app.export_screenshot(title="profagent watch 1", simplify=True)


async def stored_session(folder: Path, inferences: int = INFERENCES) -> Workspace:
    """A workspace with a session of one simulated JOB."""
    npu = Npu(SimulationOptions(root=folder))
    first_us = end_us = npu.load(START_US)
    for number in range(inferences):
        end_us = npu.infer(first_us + number * PERIOD_US)
    npu.unload(end_us)
    assert npu.directory is not None, "it was loaded"
    workspace = Workspace(folder / "workspace")
    summary = await import_into(npu.directory, workspace, asyncio.Event(), board=BOARD)
    await _add_metrics(workspace, summary["session"], folder / METRICS, inferences)
    await add_mark(workspace.database, summary["session"], first_us + MARKED_US, "lights on")
    return workspace


async def _add_metrics(workspace: Workspace, session: int, folder: Path, inferences: int) -> None:
    """Metrics as the daemon's collector writes them, twice a second, in the same session."""
    lines = [f"n {number} {unit} {name}" for number, (name, unit) in enumerate(VALUES)]
    for sweep in range(2 * inferences * PERIOD_US // 1_000_000):
        values = (7 + sweep % 3, 41 + sweep / 10, 8 + sweep % 4, (414 - sweep) * 2**20, 3 + sweep % 2)
        pairs = " ".join(f"{number}={value:g}" for number, value in enumerate(values))
        lines.append(f"s {START_US + sweep * 500_000} {pairs}")
    text = "\n".join([*lines, ""]).encode()
    changes = [*MetricsDecoder(MirrorInPlace(folder)).whole("00000001", 1, text, digest_of(text))]
    async with Store(workspace.database) as store:
        ((board,),) = await store.query("SELECT board FROM session WHERE session = ?", (session,))
        await store.write(session, board, [JobChanges(folder.name, str(folder), changes)])


async def replayed_app(workspace: Workspace, session: int = 1) -> WatchApp:
    """The screen to which a session was replayed at once."""
    stop, replayed = asyncio.Event(), Replayed(workspace, session)
    pace = Pace(float("inf"), stop)
    model = BoardModel("replay", lambda: START_US, LinkState.REPLAYED)
    await play_into(model, replayed, pace, stop)
    return WatchApp([model], ReplayKeeper(pace), against=NOTHING, now_s=lambda: 0.0)


if __name__ == "__main__":
    main()
