"""The flight recorder at full speed: planted slow inferences, a recorder that is killed, and what is left.

Run it with `make soak-flight`; `FLIGHT_N=` is the number of inferences. The exit code is 1 when something differs.
Above MOST_PLAIN inferences a recording of all is measured with so many, and its bytes are scaled.
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
from tests.integration.board import mirrored, running
from tests.integration.host import profagent, started
from tests.integration.rows import query

SLOW_EVERY = 1000
KILLS = 20
MOST_PLAIN = 20_000
# A network of 32 layers fills two blocks of the disk with each inference; the window has that inference alone.
LAYERS = 32
AROUND = "5ms"
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
            time.sleep(2 + random.uniform(0.2, 0.6) * inferences / 10_000)
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
    plain, quiet, flight = (folder / name for name in ("plain", "quiet", "flight"))
    few = min(count, MOST_PLAIN)
    _, root = _written(folder / "few", few)
    with running("--root", root) as board:
        for name, arguments in (
            ("record alone", ("--board", board.address, "--workspace", plain, "--backlog")),
            ("with --keep-when", _flight(board.address, quiet)),
        ):
            begin = time.monotonic()
            ended = profagent("record", *arguments, "--until-finished")
            seconds = time.monotonic() - begin
            print(f"{name}: {few / seconds:,.0f}/s, exit code {ended.code}", flush=True)
    job, root = _written(folder / "many", count)
    with running("--root", root) as board:
        arguments = _flight(board.address, flight)
        begin = time.monotonic()
        kills = _killed(arguments, flight, count)
        ended = profagent("record", *arguments, "--until-finished")
        seconds = time.monotonic() - begin
        print(f"{kills} kills in {seconds:,.0f} s, then exit code {ended.code}", flush=True)
    exact = _layers_of(plain) if few == count else None
    return _judged(job, flight, count, ended.code, exact, _bytes(plain) * count // few)


def _written(root: Path, count: int) -> tuple[Path, Path]:
    root.mkdir()
    options = SimulationOptions(model="mobilenetv2", layers=LAYERS, rate=RATE, slow_every=(SLOW_EVERY, 10.0))
    job = write_job(root, options, count, gaps=False)
    print(f"{count:,} inferences written", flush=True)
    return job, root


def _layers_of(workspace: Path) -> float:
    """Return the sum of all layers of the only model."""
    shown = profagent("stats", "1", "--workspace", workspace, "--by", "model", "--skip", "0", "--json")
    return float(shown.document["models"][0]["layers"]["total"])


def _text(path: bytes | str) -> str:
    return path.decode() if isinstance(path, bytes) else path


def _judged(job: Path, flight: Path, count: int, code: int, exact: float | None, bytes_all: int) -> int:
    database = flight / "profagent.db"
    kept = {number for (number,) in query(database, "SELECT current_pic_count FROM inferences")}
    planted = set(range(SLOW_EVERY - 1, count, SLOW_EVERY))
    # The first inferences are judged by no quantile yet.
    incidents = query(database, "SELECT count(*) FROM incident")[0][0]
    thinned = query(database, "SELECT sum(inferences) FROM minute_figure WHERE subject = 'layers'")[0][0] or 0
    files = mirrored(flight)
    same = all((job / _text(path)).read_bytes() == data for path, data in files.items())
    # Both files of a planted inference, as the board has them.
    names = {str(path).rpartition("/")[2] for path in map(_text, files)}
    of = {
        int(name.rpartition(".")[2]): name for name in names if name.startswith("aicore") and not name.endswith(".done")
    }
    whole = [number for number in planted if number in of and f"{of[number]}.done" in names]
    layers = _layers_of(flight)
    is_exact = exact is None or abs(layers - exact) < 1e-6 * exact
    bytes_kept = _bytes(flight)
    print(f"planted {len(planted):,}, kept whole {len(whole):,}, incidents {incidents:,}, mirror same: {same}")
    print(f"kept {len(kept):,} + thinned {thinned:,} = {len(kept) + thinned:,} of {count:,}")
    print(f"layers {layers:,.3f} us, exact: {is_exact if exact is not None else 'cannot tell'}")
    print(f"{bytes_kept / 1e6:,.1f} of {bytes_all / 1e6:,.1f} MB ({bytes_kept / bytes_all:.2%})")
    ok = code == 0 and same and is_exact and len(whole) == len(planted) and len(kept) + thinned == count
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
