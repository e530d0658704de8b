"""A week of a rack: nights of three simulated boards whose clocks run faster, with a planted drift and a planted stall.

Run it with `make week`; `WEEK_DIR=FOLDER` keeps the workspace and the pages. The exit code is 1 when the
pages do not name the board, the night and the cause of the drift, or the stage of the stall, or name anything else.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from html import unescape
from pathlib import Path

from tests.fakes.ports import own_port
from tests.integration.board import running
from tests.integration.host import Ended, profagent

# A level takes three nights.
NIGHTS = 7
SLOWER_FROM, SLOWER_BY = 3, 1.04
STALLS_IN, STALLS = 5, "preprocess=12@0.05"
BOARDS = ("lab1", "lab2", "lab3")
DRIFTING, STALLING = "lab2", "lab3"
# Ten minutes a night.
NIGHT_S, TIME_LAPSE, RATE = 600, 60, 0.5
NETWORK = """
name = "detector"
[[segments]]
unit = "aicore"
runs = [
    {{ time_us = 1500.0, layers = ["stem:Convolution"] }},
    {{ time_us = {neck}, layers = ["neck:Convolution"] }},
    {{ time_us = 900.0, layers = ["head:Convolution"] }},
]
"""
NECK_US = 2500.0
SETTINGS = """
workspace = "ws"
fail_if = ["latency.median>+3%", "layer.median>+5%"]
slo = ["frame.p99 < 8ms"]
"""
BOARD = """
[[boards]]
name = "{name}"
labels = {{ sdk = "{sdk}" }}
record = {{ until_finished = true, more = ["--backlog", "--keep-when", "frame > 8ms", "--around", "5s"] }}
"""


@dataclass(frozen=True)
class Rack:
    """The boards' addresses and what is planted in their nights."""

    folder: Path
    addresses: dict[str, str]

    def night(self, number: int) -> Ended:
        """Let every board run its program, and record the night."""
        with ExitStack() as stack:
            for place, name in enumerate(BOARDS):
                stack.enter_context(running(*self._simulated(number, place, name), listen=self.addresses[name]))
            (self.folder / "nightly.toml").write_text(self._settings(number), "utf-8")
            return profagent("nightly", "run", "--json", "--config", self.folder / "nightly.toml", **self.variables)

    @property
    def variables(self) -> dict[str, str]:
        """The host's own settings are not used."""
        return {"XDG_CONFIG_HOME": str(self.folder / "config")}

    def _simulated(self, number: int, place: int, name: str) -> list[str | Path]:
        folder = self.folder / name / str(number)
        (folder / "root").mkdir(parents=True)
        drifts = name == DRIFTING and number >= SLOWER_FROM
        network = folder / "detector.toml"
        # All of the inference is slower.
        network.write_text(NETWORK.format(neck=NECK_US + (4900.0 * (SLOWER_BY - 1) if drifts else 0.0)), "utf-8")
        options: list[str | Path] = ["--simulate", "--time-lapse", str(TIME_LAPSE), "--rate", str(RATE)]
        options += ["--for", str(NIGHT_S), "--model", network, "--seed", str(100 * number + place)]
        options += ["--root", folder / "root", "--run", folder / "run", "--spools", "marks,metrics"]
        options += ["--identity", f"board-{name}", "--log-level", "warning"]
        return options + (["--slow-stage", STALLS] if name == STALLING and number == STALLS_IN else [])

    def _settings(self, number: int) -> str:
        sdks = {name: "5.2" if name == DRIFTING and number >= SLOWER_FROM else "5.1" for name in BOARDS}
        return SETTINGS + "".join(BOARD.format(name=name, sdk=sdks[name]) for name in BOARDS)


def text_of(page: Path) -> str:
    """The text of an HTML page without its charts."""
    text = re.sub(r"<(style|script|svg)\b.*?</\1>", "", page.read_text("utf-8"), flags=re.DOTALL)
    return unescape(re.sub(r"<[^>]*>", "", text))


class Week:
    """The nights of a rack, and what does not hold of what their pages say."""

    def __init__(self, rack: Rack) -> None:
        self._rack, self._workspace = rack, rack.folder / "ws"
        # The sessions of each night by board.
        self._sessions: list[dict[str, int]] = []
        self.pages: list[str] = []
        self.faults: list[str] = []

    def run_night(self) -> str:
        """Run the next night; return its headlines."""
        begin, number = time.monotonic(), len(self.pages)
        ended = self._rack.night(number)
        document = ended.document
        self._sessions.append({board["board"]: board["session"] for board in document["boards"]})
        self.pages.append(text_of(max((self._workspace / "nightly").glob("*Z.html"))))
        self._check(all(self._sessions[-1].values()), f"night {number + 1} has no session of a board: {ended.err}")
        return f"night {number + 1}, {time.monotonic() - begin:.0f} s: {'; '.join(document['headlines'])}"

    def judge(self) -> None:
        """Read the last page for the drift, and that of the stall and its incidents for the stage."""
        last, stalled = self.pages[-1], self.pages[STALLS_IN]
        session = self._sessions[SLOWER_FROM][DRIFTING]
        found = re.search(rf"latency detector since session {session} \+(\d\.\d) %", last)
        is_right = found is not None and abs(float(found[1]) - 100 * (SLOWER_BY - 1)) < 0.7
        self._check(is_right, f"the last page does not say that {DRIFTING} is slower since session {session}")
        about = rf"from session {session} \(.*?\) on: .*?; changed with it: label sdk: 5\.1 -> 5\.2"
        self._check(re.search(about, last) is not None, "the last page does not name the cause of the drift")
        others = [line for page in self.pages for line in re.findall("SLOWER: .*", page) if DRIFTING not in line]
        self._check(not others, f"slower without a reason: {others}")
        blames = f"EXCEEDED: {STALLING} [simulated]: frame.p99 < 8ms"
        self._check(blames in stalled, f"the page of night {STALLS_IN + 1} does not say that {STALLING} is late")
        self._check("preprocess explains" in stalled, f"the page of night {STALLS_IN + 1} does not name the stage")
        self._judge_incidents()

    def _judge_incidents(self) -> None:
        for night, sessions in enumerate(self._sessions):
            for board, session in sessions.items():
                found = profagent("incidents", str(session), "--workspace", self._workspace, "--json").document
                culprits = {incident["culprit"] for incident in found}
                expected = {"preprocess"} if (night, board) == (STALLS_IN, STALLING) else set()
                self._check(culprits == expected, f"incidents of {board} in night {night + 1} name {culprits}")

    def _check(self, holds: bool, fault: str) -> None:
        if not holds:
            self.faults.append(fault)


def main() -> int:
    """Return 0 if a reader of the pages finds what was planted, and nothing else."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="keep workspace and pages there")
    folder = parser.parse_args().folder
    with tempfile.TemporaryDirectory(prefix="week-") as temporary:
        return _run(Path(temporary) if folder is None else folder.absolute())


def _run(folder: Path) -> int:
    rack = Rack(folder, {name: f"127.0.0.1:{own_port()}" for name in BOARDS})
    for name, address in rack.addresses.items():
        profagent("boards", "add", name, address, **rack.variables)
    week = Week(rack)
    for _ in range(NIGHTS):
        print(week.run_night(), flush=True)
    week.judge()
    print("\n".join(week.faults) or "the pages name what was planted, and nothing else")
    return 1 if week.faults else 0


if __name__ == "__main__":
    sys.exit(main())
