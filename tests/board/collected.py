"""A program for `collect`: it writes its JOB through the simulator, as its acl.json tells it."""

from __future__ import annotations

import sys
from pathlib import Path

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
