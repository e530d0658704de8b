"""The flight recorder at full speed: planted slow inferences, a recorder that is killed, and what is left.

Run it with `make soak-flight`; `FLIGHT_N=` is the number of inferences. The exit code is 1 when something differs.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from profagentd.simulate.run import SimulationOptions
from tests.daemon.simulated_job import write_job
from tests.integration.board import content, mirrored, running
from tests.integration.host import profagent, started
from tests.integration.rows import query

SLOW_EVERY = 1000
KILLS = 20
AROUND = "25ms"
RATE = 100.0


def _bytes(workspace: Path) -> int:
    return sum(path.stat().st_size for path in workspace.rglob("*") if path.is_file())


def _flight(address: str, workspace: Path) -> tuple[str | Path, ...]:
    rule = ("--keep-when", "latency > 1.5 * p99", "--around", AROUND, "--cool-down", "0s")
    return ("--board", address, "--workspace", workspace, "--backlog", *rule)


def _killed(arguments: tuple[str | Path, ...], workspace: Path, inferences: int) -> int:
    """Record, and kill the recorder KILLS times while it copies; return how often it was."""
    kills = 0
    while kills < KILLS:
        with started("record", *arguments) as host:
            time.sleep(random.uniform(1.0, 3.0) * inferences / 10_000)
            if host.process.poll() is not None:
                break
            host.process.kill()
            kills += 1
    return kills


def main() -> int:
    """Return 0 if every planted inference was kept whole, and every other one counted once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inferences", type=int, default=100_000)
    count = parser.parse_args().inferences
    folder = Path(tempfile.mkdtemp(prefix="flight-"))
    try:
        return _soak(folder, count)
    finally:
        shutil.rmtree(folder)


def _soak(folder: Path, count: int) -> int:
    root, plain, flight = (folder / name for name in ("board", "plain", "flight"))
    root.mkdir()
    options = SimulationOptions(model="mobilenetv2", layers=20, rate=RATE, slow_every=(SLOW_EVERY, 10.0))
    job = write_job(root, options, count, gaps=False)
    print(f"{count:,} inferences written, {_bytes(job) / 1e6:,.0f} MB", flush=True)
    with running("--root", root) as board:
        begin = time.monotonic()
        ended = profagent("record", "--board", board.address, "--workspace", plain, "--backlog", "--until-finished")
        plain_s = time.monotonic() - begin
        print(f"record alone: {count / plain_s:,.0f}/s, exit code {ended.code}", flush=True)
        arguments = _flight(board.address, flight)
        begin = time.monotonic()
        ended = profagent("record", *arguments[:3], folder / "quiet", *arguments[4:], "--until-finished")
        quiet_s = time.monotonic() - begin
        print(f"with --keep-when: {count / quiet_s:,.0f}/s, exit code {ended.code}", flush=True)
        kills = _killed(arguments, flight, count)
        ended = profagent("record", *arguments, "--until-finished")
        print(f"{kills} kills, then exit code {ended.code}", flush=True)
    return _judged(job, plain, flight, count, ended.code)


def _text(path: bytes | str) -> str:
    return path.decode() if isinstance(path, bytes) else path


def _judged(job: Path, plain: Path, flight: Path, count: int, code: int) -> int:
    database = flight / "profagent.db"
    kept = {number for (number,) in query(database, "SELECT current_pic_count FROM inferences")}
    planted = set(range(SLOW_EVERY - 1, count, SLOW_EVERY))
    # The first inferences are judged by no quantile yet.
    incidents = query(database, "SELECT count(*) FROM incident")[0][0]
    thinned = query(database, "SELECT sum(inferences) FROM minute_figure WHERE subject = 'layers'")[0][0] or 0
    files = mirrored(flight)
    theirs = content(job)
    same = all(theirs.get(path) == data for path, data in files.items())
    # Both files of a planted inference, as the board has them.
    names = {str(path).rpartition("/")[2] for path in map(_text, files)}
    of = {
        int(name.rpartition(".")[2]): name for name in names if name.startswith("aicore") and not name.endswith(".done")
    }
    whole = [number for number in planted if number in of and f"{of[number]}.done" in names]
    figures = [
        {
            row["model"]: row["layers"]["total"]
            for row in profagent("stats", "1", "--workspace", each, "--by", "model", "--skip", "0", "--json").document[
                "models"
            ]
        }
        for each in (plain, flight)
    ]
    bytes_kept, bytes_all = _bytes(flight), _bytes(plain)
    print(f"planted {len(planted):,}, kept whole {len(whole):,}, incidents {incidents:,}, mirror same: {same}")
    print(f"kept {len(kept):,} + thinned {thinned:,} = {len(kept) + thinned:,} of {count:,}; layers in us {figures}")
    print(f"{bytes_kept / 1e6:,.1f} of {bytes_all / 1e6:,.1f} MB ({bytes_kept / bytes_all:.2%})")
    ok = code == 0 and same and len(whole) == len(planted) and len(kept) + thinned == count
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
