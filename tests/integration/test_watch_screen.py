"""A newcomer at a real terminal: the keys that the screen shows lead to the slowest layer and to what bounds it."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.board import eventually, running
from tests.integration.host import COMMAND, ENVIRONMENT
from tests.integration.rows import query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE_S = 40.0
LOOK_S = 0.1


class Terminal:
    """A terminal of tmux with one command in it: keys in, screen out."""

    def __init__(self, socket: Path) -> None:
        self._tmux = ["tmux", "-S", str(socket)]

    def start(self, *command: str | Path, columns: int = 120, rows: int = 40, **variables: str) -> None:
        """Run a command."""
        line = shlex.join(["env", *(f"{name}={value}" for name, value in variables.items()), *map(str, command)])
        size = ("-x", str(columns), "-y", str(rows))
        self._run("new-session", "-d", *size, f"{line}; echo; echo ended with $?; cat", ";", "set", "status", "off")

    def press(self, *keys: str) -> None:
        """Press keys, by their names."""
        for key in keys:
            self._run("send-keys", key)

    def do(self, about: str) -> None:
        """Press the key of which the screen's last lines say that it does so."""
        key = re.compile(rf"(\S+) {about}\b[^\n]*(\n[^\n│]*)?\s*$")
        found = key.search(self.until(key.search))
        assert found is not None, "it was waited for"
        self.press({"space": "Space", "enter": "Enter", "esc": "Escape"}.get(found[1], found[1]))

    def resize(self, columns: int, rows: int) -> None:
        """Have another size."""
        self._run("resize-window", "-x", str(columns), "-y", str(rows))

    @property
    def screen(self) -> str:
        """What is to be seen."""
        return self._run("capture-pane", "-p").stdout

    def until(self, wanted: str | Callable[[str], object]) -> str:
        """Wait until something is to be seen; gives the screen."""
        is_there = re.compile(re.escape(wanted)).search if isinstance(wanted, str) else wanted
        deadline = time.monotonic() + PATIENCE_S
        while not is_there(screen := self.screen):
            assert time.monotonic() < deadline, f"{wanted} never came:\n{screen}"
            time.sleep(LOOK_S)
        return screen

    def close(self) -> None:
        """End it and what runs in it."""
        self._run("kill-server", check=False)

    def _run(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        # A worker of the suite has a size in its environment, which would be taken for the terminal's.
        environment = {name: value for name, value in ENVIRONMENT.items() if name not in {"COLUMNS", "LINES"}}
        environment |= {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        command = [*self._tmux, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=check, timeout=PATIENCE_S)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    if shutil.which("tmux") is None:
        pytest.fail("tmux is missing: apt-get install tmux")
    terminal = Terminal(tmp_path / "tmux")
    yield terminal
    terminal.close()


def test_a_newcomer_finds_the_slowest_layer_and_what_bounds_it(root: Path, tmp_path: Path, terminal: Terminal) -> None:
    workspace = tmp_path / "workspace"
    with running("--root", root, "--simulate", "--rate", "20") as board:
        terminal.start(*COMMAND, "watch", "--board", board.address, "--workspace", workspace)
        screen = terminal.until("yolov5s.0")
        assert "[simulated]" in screen
        assert "● linked" in screen

        # The slowest layer stands first, and a key opens it.
        screen = terminal.until(re.compile(r"by median over \d\d").search)
        (slowest,) = re.findall(r"▸ (\S+)", screen)
        terminal.do("layer")
        terminal.until(slowest.partition("+")[0] + "+")
        terminal.until("bound by mac: cube instructions")
        terminal.until(re.compile(r"\d – +\d+\.\d+ ms ▕█").search)
        terminal.do("back")

        # A session from now on keeps a mark.
        terminal.do("save")
        terminal.until("saving as session 1")
        terminal.do("mark")
        terminal.until("what happens just now")
        terminal.press("l", "i", "g", "h", "t", "Enter")
        terminal.until(re.compile(r"mark +light").search)
        terminal.do("save")
        terminal.until("session 1 has ended")

        # It survives a small size and a board that goes away and comes back.
        terminal.resize(80, 24)
        terminal.until("(v: next)")
        board.process.kill()
        board.process.wait()
        terminal.until("○ away")
        with running("--root", root, "--simulate", "--rate", "20", listen=board.address):
            terminal.until("● linked")
            terminal.press("q")
            terminal.until("ended with 0")
    assert query(workspace / "profagent.db", "SELECT session, text FROM session_marks") == [(1, "light")]


def test_a_dumb_terminal_has_lines(root: Path, terminal: Terminal) -> None:
    with running("--root", root, "--simulate", "--rate", "5") as board:
        assert eventually(lambda: any(root.iterdir()))
        terminal.start(*COMMAND, "watch", "--board", board.address, TERM="dumb")
        screen = terminal.until(" inference ")
        terminal.press("C-c")
        terminal.until("ended with 0")
    assert "╭" not in screen
