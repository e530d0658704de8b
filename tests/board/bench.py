"""A host and a board for `collect`: a project, what the command is run with, and where things land."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.integration.host import Ended, profagent

if TYPE_CHECKING:
    from tests.board.sshd import Sshd


CHECKOUT = Path(__file__).parents[2]
_MAIN = '''#!{python}
"""Arguments: inferences, seconds between them, what to do then (unload, wait, crash, nothing)."""

import json, os, random, signal, sys, time

sys.path[:0] = [{daemon!r}]
from pathlib import Path
from profagentd.simulate.npu import Npu
from profagentd.simulate.run import SimulationOptions

count, pause_s, then = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
text = Path("acl.json").read_text()
Path("seen.json").write_text(text)
profiler = json.loads(text)["profiler"]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0 if then == "unload" else 9))
print("up", flush=True)
print("to stderr", file=sys.stderr, flush=True)
if profiler["switch"] != "on":
    sys.exit(0)
options = SimulationOptions(model="mobilenetv2", interval=int(profiler["interval"]), root=Path(profiler["output"]))
npu = Npu(options, names=random.SystemRandom())
now = npu.load(time.time_ns() // 1000)
try:
    for number in range(count):
        now = npu.infer(now)
        print("inference", number, flush=True)
        time.sleep(pause_s)
    if then == "wait":
        time.sleep(1000)
    if then == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
finally:
    if then == "unload":
        npu.unload(now)
'''


def make_project(folder: Path) -> Path:
    """A project with the program, `main`, and an acl.json that says something else, too."""
    folder.mkdir(parents=True)
    main = folder / "main"
    main.write_text(_MAIN.format(python=sys.executable, daemon=str(CHECKOUT / "daemon")), "utf-8")
    main.chmod(0o755)
    (folder / "acl.json").write_text('{"other": "stays"}\n', "utf-8")
    return folder


LEFT = {"main", "seen.json", "acl.json", "profiling", ".profagent"}


class Bench:
    """`remote` is the project's directory on the board."""

    def __init__(self, folder: Path, friend: Sshd, variables: dict[str, str]) -> None:
        self.friend = friend
        self.variables = variables
        self.project = make_project(folder / "app")
        self.output = folder / "out"
        self.workspace = folder / "ws"
        self.remote = folder / "board"
        self.board = friend.target
        self.daemon: subprocess.Popen[str] | None = None  # that of the board, where one runs there

    def arguments(self, *more: str | Path) -> list[str | Path]:
        """The command line; after `--` the program's, three inferences at once unless they are given."""
        options = [*more]
        run = options[options.index("--") :] if "--" in options else ["--", "3", "0", "unload"]
        options = options[: options.index("--")] if "--" in options else options
        if not {"--config", "--board"} & {*options}:
            options += ["--board", self.board]
        if "-m" not in options:
            options += ["-m", "main"]
        where = ("--project", self.project, "--output", self.output, "--workspace", self.workspace)
        return ["collect", *where, "--remote-dir", self.remote, *options, *run]

    def collect(self, *more: str | Path) -> Ended:
        """Run it to its end."""
        return profagent(*self.arguments(*more), **self.variables)

    @property
    def jobs(self) -> list[Path]:
        """JOBs that have landed on the host."""
        return sorted(self.output.glob("JOB*"))

    @property
    def board_jobs(self) -> list[Path]:
        """JOBs on the board."""
        return sorted((self.remote / "profiling").glob("JOB*"))

    def is_tidy(self) -> bool:
        """The board is as it was, but for the project and JOBs."""
        acl_json = (self.remote / "acl.json").read_text()
        own = {path.name for path in (self.remote / ".profagent").iterdir()} - {"files", "state"}
        return acl_json == '{"other": "stays"}\n' and {path.name for path in self.remote.iterdir()} <= LEFT and not own
