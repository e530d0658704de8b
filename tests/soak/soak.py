"""The soak: a board at full rate, JOB after JOB, over a link that breaks at random, until the time is over.

Run it with `make soak`; `SOAK_S=` says for how long. The exit code is 1 when something differs, or memory or
descriptors grow.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.fakes.dumps import VIEWS
from tests.faults.proxy import Ending, FaultProxy, Way
from tests.integration.board import content, eventually, mirrored, running
from tests.integration.host import Host, started
from tests.integration.rows import imported_rows, link_ledger, query, rows_of
from tests.soak.measures import MIB, SHORTEST_SPAN_S, Sample, sampled, trend, usual_descriptors

RATE = 100
# One runs on the NPU alone, the other on the CPU too.
MODELS = ("mobilenetv2", "resnet50")
# What a cap takes is for tests of its own.
SPOOLS = ("--spools", "ops,marks,metrics", "--metrics-hz", "10", "--spool-cap", "16GB")
JOB_S = 10.0
SAMPLE_S = 1.0
Inference = tuple[str, int, int]
_FINAL = (
    "SELECT model, current_pic_count, (SELECT count(*) FROM segment g JOIN aicore r USING (segment)"
    " WHERE g.inference = i.inference) + (SELECT count(*) FROM segment g JOIN aicpu r USING (segment)"
    " WHERE g.inference = i.inference) FROM inferences i WHERE job = ? AND figures = 'final'"
)
# A descriptor more or less is a connection that is just being made.
DESCRIPTORS_SLACK = 8


@dataclass
class Watched:
    """A process that lives as long as the soak, and what was seen of it."""

    name: str
    pid: int
    samples: list[Sample] = field(default_factory=list)

    def look(self, at_s: float) -> None:
        sample = sampled(self.pid, at_s)
        if sample is not None:
            self.samples.append(sample)

    def report(self) -> tuple[str, bool]:
        """A line for people, and whether it is as it should be."""
        first, last, line = self.samples[0], self.samples[-1], trend(self.samples)
        before, after = usual_descriptors(self.samples)
        is_long = line is not None and line.span_s >= SHORTEST_SPAN_S
        grows = (is_long and after > before + DESCRIPTORS_SLACK) or (line is not None and line.is_growth)
        text = (
            f"{self.name}: RSS {first.rss_bytes / MIB:.1f} MiB at the start, {last.rss_bytes / MIB:.1f} at the end"
            f" (slope {line or 'N/A'}); descriptors {first.descriptors}"
            f" at the start, {last.descriptors} at the end, usually {before}, then {after}"
        )
        return text + (": GROWS" if grows else ""), not grows


class Victim:
    """A second `record`, with a workspace of its own, that is killed and started again; a context manager."""

    def __init__(self, address: str, workspace: Path) -> None:
        self.workspace = workspace
        self._arguments = ("record", "--board", address, "--workspace", workspace)
        self._life = ExitStack()
        self._host: Host | None = None

    def __enter__(self) -> Self:
        self._host = self._life.enter_context(started(*self._arguments))
        self._host.err.until("recording")
        return self

    def __exit__(self, *_: object) -> None:
        self.kill_for_good()

    def kill(self) -> None:
        """SIGKILL, and another one in its place."""
        self.kill_for_good()
        self.__enter__()

    def kill_for_good(self) -> None:
        self._life.close()

    def own_end(self) -> str | None:
        """What it said when it ended without being killed; None while it runs."""
        if self._host is None or self._host.process.poll() is None:
            return None
        said = "; ".join(self._host.err)[-500:]
        return f"a record that was killed now and then ended by itself, with {self._host.process.returncode}: {said}"


class Watcher:
    """A `watch` of everything, whose lines are compared with rows."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._final: dict[str, list[Inference]] = {}
        self._read = 0

    def final(self, job: str) -> list[Inference]:
        """The inferences of a JOB that were shown as final: model, picture count, how many records."""
        lines = list(self.host.out)
        for event in map(json.loads, lines[self._read :]):
            if event["event"] == "inference" and event["figures"] == "final":
                shown = (event["model"], int(event["current_pic_count"]), event["records"])
                self._final.setdefault(event["job"], []).append(shown)
        self._read = len(lines)
        return sorted(self._final.get(job, []))


class Soak:
    """One run in a folder of its own."""

    def __init__(self, folder: Path, seconds: float, seed: int) -> None:
        self._folder = folder
        self._root = folder / "root"
        self._spools = self._root / "spools"
        self._workspace = folder / "workspace"
        self._seconds = seconds
        self._chance = random.Random(seed)
        self._begun = time.monotonic()
        self._failures: list[str] = []
        self._faults: dict[str, int] = {}

    def run(self) -> bool:
        """Soak; whether all was as it should be."""
        self._spools.mkdir(parents=True)
        with ExitStack() as stack:
            daemon = stack.enter_context(running("--root", self._root))
            proxy = stack.enter_context(FaultProxy(daemon.address, self._chance.randrange(1 << 32)))
            where = ("--board", proxy.address, "--workspace", self._workspace)
            host = stack.enter_context(started("record", *where))
            host.err.until("recording")
            watcher = Watcher(stack.enter_context(started("watch", "--json", "--from-start", "--board", proxy.address)))
            watched = [
                Watched("daemon", daemon.process.pid),
                Watched("record", host.process.pid),
                Watched("watch", watcher.host.process.pid),
            ]
            victim = stack.enter_context(Victim(daemon.address, self._folder / "victim"))
            while self._elapsed_s < self._seconds:
                self._job(proxy, victim, watcher, watched)
            self._end(host, watched)
        return not self._failures

    @property
    def _database(self) -> Path:
        return self._workspace / "profagent.db"

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._begun

    def _job(self, proxy: FaultProxy, victim: Victim, watcher: Watcher, watched: list[Watched]) -> None:
        """A simulated board runs one model while the link breaks; its JOB and its spools are compared."""
        model = ("--model", self._chance.choice(MODELS), "--layers", "100")
        arguments = ("--simulate", "--rate", str(RATE), *model, "--seed", str(self._chance.randrange(1 << 30)))
        spools = (*SPOOLS, "--spool-dir", str(self._spools))
        known, known_spools = {*self._root.iterdir()}, {*self._spools.iterdir()}
        until = min(self._elapsed_s + JOB_S, self._seconds)
        with running("--root", self._root, *arguments, *spools) as npu:
            eventually(lambda: bool({*self._root.iterdir()} - known))
            while self._elapsed_s < until:
                time.sleep(self._chance.uniform(0.2, SAMPLE_S))
                for each in watched:
                    each.look(self._elapsed_s)
                self._break(proxy, victim)
            # What was broken is whole again: on a link that is reset at each megabyte, a JOB takes minutes to come.
            proxy.heal()
            # Asked to end, the simulated board finishes its JOB first.
            npu.stop()
        for job in {*self._root.iterdir()} - known:
            self._compare(job, self._workspace)
            self._compare(job, victim.workspace)
            self._is_shown(job.name, watcher)
        for spool in {*self._spools.iterdir()} - known_spools:
            self._is_mirrored(spool, self._workspace)
            self._is_mirrored(spool, victim.workspace)
        if (ended := victim.own_end()) is not None:
            self._failures.append(ended)

    def _break(self, proxy: FaultProxy, victim: Victim) -> None:
        """Some fault, or none."""
        kind = self._chance.choice(("none", "none", "kill", "cut", "reset", "flip", "delay", "half-close"))
        faults = proxy.faults
        proxy.heal()
        if kind == "delay":
            faults.delay_s = 0.05
        elif kind == "reset":
            faults.reset_within_bytes = 2_000_000
        elif kind == "flip":
            faults.flip_each_bytes, faults.flips_left = 200_000, 1
        elif kind == "kill":
            victim.kill()
        elif kind == "cut":
            proxy.cut(self._chance.choice(list(Ending)))
        elif kind == "half-close":
            proxy.half_close(self._chance.choice(list(Way)))
        self._faults[kind] = self._faults.get(kind, 0) + 1

    def _is_mirrored(self, collection: Path, workspace: Path) -> bool:
        database, name = workspace / "profagent.db", collection.name
        state = "SELECT count(*) FROM job WHERE name = ? AND state = 'finished'"
        if eventually(lambda: query(database, state, name) == [(1,)], 120.0) and eventually(
            lambda: mirrored(workspace, name) == content(collection), 60.0
        ):
            return True
        self._failures.append(f"{name}: the mirror in {workspace.name} is not the board's")
        return False

    def _compare(self, job: Path, workspace: Path) -> None:
        database, name = workspace / "profagent.db", job.name
        if not self._is_mirrored(job, workspace):
            return
        imported = imported_rows(job, Path(tempfile.mkdtemp(dir=self._folder)))
        if not eventually(lambda: rows_of(database, name) == imported, 30.0):
            self._failures.append(f"{name}: the rows in {workspace.name} are not those of an import")
        if link_ledger(database, name):
            self._failures.append(f"{name}: the ledger tells of {link_ledger(database, name)}")

    def _is_shown(self, job: str, watcher: Watcher) -> None:
        """Compare what was shown as final with the rows: each once."""
        rows = [(model, int(count), records) for model, count, records in query(self._database, _FINAL, job)]
        if not eventually(lambda: watcher.final(job) == sorted(rows), 60.0):
            self._failures.append(f"{job}: {len(watcher.final(job))} lines are final, and {len(rows)} rows")

    def _end(self, host: Host, watched: list[Watched]) -> None:
        ended = host.interrupt()
        if ended.code:
            self._failures.append(f"record ended with {ended.code}: {ended.err[-500:]}")
        database = self._database
        counts = {view: query(database, f"SELECT count(*) FROM {view}")[0][0] for view in VIEWS}
        ledger = query(database, "SELECT grade, reason, sum(count) FROM ledger_entry GROUP BY grade, reason")
        print(f"records: {counts}, in {query(database, 'SELECT count(*) FROM job')[0][0]} JOBs")
        print(f"ledger:  {ledger}")
        print(f"faults:  {self._faults}, {ended.err.count('retrying in')} links lost")
        for each in watched:
            line, is_right = each.report()
            print(line)
            if not is_right:
                self._failures.append(line)
        for failure in self._failures:
            print(f"FAILED: {failure}")


def main() -> int:
    """Soak as the command line says; the exit code."""
    parser = argparse.ArgumentParser(description="A board at full rate over a link that breaks at random.")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    args = parser.parse_args()
    print(f"seed {args.seed}, {args.seconds:.0f} s, {RATE} inferences/s", flush=True)
    with tempfile.TemporaryDirectory(prefix="profagent-soak-") as folder:
        return 0 if Soak(Path(folder), args.seconds, args.seed).run() else 1


if __name__ == "__main__":
    sys.exit(main())
