"""Simulated fleet: sessions of many boards and nights, pushed into a lake that `fleet` is then asked about.

One JOB of the simulated board is varied for each board and night. `Fleet` defines the planted faults, which no question
knows.
"""

from __future__ import annotations

import asyncio
import functools
import multiprocessing
import shutil
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import count
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING

import numpy as np

from profagent.cli.progress import progress
from profagent.cli.running import program, tell
from profagent.demo.cli import DemoOptions, simulated_board
from profagent.errors import UsageError
from profagent.files import make_private_folder
from profagent.fleet.cli import Asking, Selected, changes_of, query_of
from profagent.formats.names import LogKind, parse_log_name
from profagent.formats.records import AICORE_DTYPE, API_DTYPE
from profagent.importing.importing import Import, Origin
from profagent.ingest.local import list_collection
from profagent.lake.lake import Lake
from profagent.lake.push import push
from profagent.lake.upkeep import compact
from profagent.record.options import RecordingOptions, RecordOptions
from profagent.record.record import record
from profagent.record.recording import Recording
from profagent.store.store import Store
from profagent.store.workspace import NothingToSync, Workspace
from profagent.tables.table import counted
from profagent.units import US_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor

    from numpy.typing import NDArray

EXECUTE = 2
# A tick is 100 cycles of a clock of 700 MHz.
TICKS_PER_US = 7
# Random spread as a share of a time: of boards, of their nights, of the layers of a night, and of single records.
BOARD_NOISE, NIGHT_NOISE, LAYER_NOISE, RECORD_NOISE = 0.01, 0.004, 0.003, 0.01
# Nights between two compactions: many files slow every commit to their table.
COMPACTED_EVERY = 3
# Name of the lake until it is complete, so that an interrupted command does not leave half a fleet.
MAKING = "making"
FOR_S, RATE = 0.4, 40.0
LAYERS = {"stem": 180.0, "stage1": 420.0, "stage2": 640.0, "pool": 90.0, "neck": 310.0, "head": 150.0}
_RUNS = "\n".join(f'    {{ time_us = {us}, layers = ["{name}:Convolution"] }},' for name, us in LAYERS.items())
NETWORK = f'name = "detector"\n[[segments]]\nunit = "aicore"\nruns = [\n{_RUNS}\n]\n'


@dataclass(frozen=True, slots=True)
class Fleet:
    """Boards in racks over nights up to `newest`, and the faults of some of them.

    `layer` takes `factor` times as long in `rack` in the newest `slow_nights`; in each session of board `lossy` the
    records of one inference are missing; board `away` has no session in the newest `away_nights`.
    """

    newest: date
    boards: int = 16
    rack_boards: int = 4
    nights: int = 30
    layer: str = "stage2"
    factor: float = 1.2
    rack: int = 3
    slow_nights: int = 6
    lossy: int = 6
    away: int = 15
    away_nights: int = 9

    def night(self, place: int) -> date:
        """Return the day of a night; night 0 is the oldest."""
        return self.newest - timedelta(days=self.nights - 1 - place)

    def factors(self, board: int, place: int) -> NDArray[np.float64]:
        """Return the factor for the time of each layer on a board in a night."""
        # The seeds make the fleet the same at each run, whichever host makes a board's night.
        own = 1 + BOARD_NOISE * np.random.default_rng(board).standard_normal()
        drawn = np.random.default_rng([board, place])
        found = own * (1 + NIGHT_NOISE * drawn.standard_normal())
        layers = found * (1 + LAYER_NOISE * drawn.standard_normal(len(LAYERS)))
        if self.rack_of(board) == self.rack and place >= self.nights - self.slow_nights:
            layers[[*LAYERS].index(self.layer)] *= self.factor
        return np.asarray(layers)

    def is_there(self, board: int, place: int) -> bool:
        """Return True if a board has a session in a night."""
        return board != self.away or place < self.nights - self.away_nights

    def rack_of(self, board: int) -> int:
        """Return the rack of a board; both count from 1."""
        return (board - 1) // self.rack_boards + 1


async def make_fleet(fleet: Fleet, folder: Path, progressed: Callable[[float, float], None], hosts: int = 2) -> Path:
    """Make and push the sessions of a fleet; return the lake. Raises ProfagentError.

    Each host has a workspace and a process of its own for its boards.
    """
    template, lake = await _template(folder), folder / "lake"
    # Spawned, because a forked process would inherit locks that threads of this process hold.
    context = multiprocessing.get_context("spawn")
    done, total = 0, fleet.nights * hosts
    with ExitStack() as opened:
        executors: list[Executor] = [
            opened.enter_context(ProcessPoolExecutor(1, mp_context=context)) for _ in range(hosts)
        ]
        pushing = [
            asyncio.wrap_future(executors[host].submit(push_night, fleet, folder, template, place, host, hosts))
            for place in range(fleet.nights)
            for host in range(hosts)
        ]
        try:
            for each in asyncio.as_completed(pushing):
                await each
                done += 1
                progressed(done, total)
        finally:
            for waiting in executors:
                waiting.shutdown(wait=False, cancel_futures=True)
    # All pushes have ended: the name appears with the complete lake.
    (folder / MAKING).rename(lake)
    return lake


async def _template(folder: Path) -> Path:
    make_private_folder(folder)
    network = folder / "detector.toml"
    network.write_text(NETWORK, "ascii")
    options = DemoOptions(Workspace(folder / "template"), FOR_S, RATE, str(network))
    async with simulated_board(options) as (address, _):
        chosen = RecordOptions((address,), options.workspace, until_finished=True, backlog=True)
        await record(chosen, lambda _: None, asyncio.Event())
    (job,) = (options.workspace.root / "mirror").glob("*/JOB*")
    return job


def push_night(fleet: Fleet, folder: Path, template: Path, place: int, host: int, hosts: int) -> None:
    """Make and push the sessions of one host's boards in a night. Raises ProfagentError.

    The first host also compacts the lake every COMPACTED_EVERY nights, while the others push.
    """
    boards = [board for board in range(1 + host, fleet.boards + 1, hosts) if fleet.is_there(board, place)]
    asyncio.run(_push_night(fleet, Workspace(folder / f"host{host + 1}"), template, place, boards, folder / MAKING))
    if not host and place % COMPACTED_EVERY == COMPACTED_EVERY - 1:
        for _ in compact(lake_at(folder / MAKING)):
            pass


async def _push_night(
    fleet: Fleet, workspace: Workspace, template: Path, place: int, boards: list[int], address: Path
) -> None:
    make_private_folder(workspace.root)
    # A simulated fleet can be made again: no write waits for the disk.
    workspace.synced = NothingToSync()
    async with Store(workspace.database, durable=False) as store:
        sessions = [await _import(fleet, workspace, store, template, board, place) for board in boards]
    for session in sessions:
        await push(workspace, session, lake_at(address))


@functools.cache
def lake_at(address: Path) -> Lake:
    """Return the lake of this process; the cached object continues to read the log where it stopped."""
    return Lake(str(address))


async def _import(fleet: Fleet, workspace: Workspace, store: Store, template: Path, board: int, place: int) -> int:
    rng = np.random.default_rng([board, place, fleet.nights])
    begin_us = round(datetime.combine(fleet.night(place), datetime.min.time(), UTC).timestamp()) * US_PER_S
    job = workspace.root / "copied" / f"JOB{''.join(rng.choice([*ascii_uppercase], 29))}"
    shutil.copytree(template, job)
    vary(job, fleet.factors(board, place), begin_us, rng)
    if board == fleet.lossy:
        max((job / "data").glob("aicore.*[0-9]")).unlink()
    labels = {"rack": str(fleet.rack_of(board))}
    seconds = count(begin_us, US_PER_S)
    options = RecordingOptions(lambda: next(seconds), source="import", labels=labels, job=job.name, reads=True)
    importing = Import(job, list_collection(job), Recording(workspace, store, options), is_shared=True)
    await importing.begin(Origin(f"board-{board:02}"), job.name)
    await importing.run(asyncio.Event())
    shutil.rmtree(job)
    return importing.recording.session.number


def vary(job: Path, factors: NDArray[np.float64], begin_us: int, rng: np.random.Generator) -> None:
    """Multiply the times of a JOB's layers by `factors` and noise, and move the beginning of its program."""
    names = {path: parse_log_name(f"data/{path.name}") for path in (job / "data").iterdir()}
    more_us: dict[int, int] = {}
    for path, name in names.items():
        if name is not None and name.is_data and name.kind is LogKind.AICORE:
            records = np.fromfile(path, AICORE_DTYPE)
            noise = 1 + RECORD_NOISE * rng.standard_normal(len(records))
            before, records["ticks"] = records["ticks"].copy(), records["ticks"] * factors[records["sequence"]] * noise
            records.tofile(path)
            more_us[name.current_pic_count or 0] = (int(records["ticks"].sum()) - int(before.sum())) // TICKS_PER_US
    (file,) = (path for path, name in names.items() if name and name.is_data and name.kind is LogKind.ACL_API)
    calls = np.fromfile(file, API_DTYPE)
    begins, ends = (calls[column].astype(np.int64) for column in ("begin_us", "end_us"))
    shift_us = begin_us - int(begins.min())
    # A call takes longer by what its layers take longer, so that latency and layers still agree.
    ends[calls["api"] == EXECUTE] += [more_us[number] for number in sorted(more_us)]
    calls["begin_us"], calls["end_us"] = begins + shift_us, ends + shift_us
    calls.tofile(file)
    for path, name in names.items():
        if name is not None and name.is_done:
            longer_us = 0 if name.current_pic_count is None else more_us[name.current_pic_count]
            moved_us = {"start_time": shift_us, "end_time": shift_us + longer_us}
            lines = (line.partition(":") for line in path.read_text("ascii").splitlines())
            path.write_text("".join(f"{key}:{_moved(value, moved_us.get(key))}\n" for key, _, value in lines), "ascii")


def _moved(text: str, by_us: int | None) -> str:
    return text if by_us is None else str(int(text) + by_us)


def shown(engine: str, output: Path | None) -> Iterator[str]:
    """Make a fleet, unless it exists, and ask its lake; yield the findings and further commands.

    Raises ProfagentError.
    """
    begun_s = time.monotonic()
    folder = output or Path(tempfile.mkdtemp(prefix="profagent-fleet-"))
    lake, fleet = folder / "lake", Fleet(datetime.now(UTC).date())
    if not lake.exists():
        if folder.exists() and any(folder.iterdir()):
            raise UsageError(f"{folder} is neither empty nor a fleet that this command made", hint="name a new folder")
        tell(f"{fleet.boards} boards and {fleet.nights} nights are made and pushed, which takes a minute or two")
        with progress("fleet", "nights of a host") as progressed:
            asyncio.run(make_fleet(fleet, folder, progressed))
    yield f"simulated: every figure is made up; asked by {engine} after {time.monotonic() - begun_s:.0f} s"
    yield from findings(Asking(str(lake), engine))
    yield "What to look at:"
    more = "" if engine == "duckdb" else f" --engine {engine}"
    for question in ("diff", "report -o fleet.html", "trend --layer stage2", "budget 2ms", "boards", "losses"):
        yield f"  {program()} fleet {question} --lake {lake}{more}"


def findings(asked: Asking) -> Iterator[str]:
    """Ask a lake for the faults of its fleet; yield a line for each. Raises UsageError, LakeError."""
    changes = changes_of(asked, Selected()).changes or ()
    slower = [change for change in changes if change.what == "slower" and change.layer is not None]
    for change in slower:
        since = "" if change.since is None else f" since the night of {change.since}"
        yield f"  slower: layer {change.layer} of {change.model} by {change.percent:.1f} %{since}; {change.where}"
    if not slower:
        yield "  no layer is slower in the newest nights"
    losses = asked.answers([*Selected().views(), query_of("losses")])[-1]
    for row in (dict(zip(losses.names, row, strict=True)) for row in losses.rows):
        if row["losses"]:
            yield f"  lossy:  {row['board']} lost something in {row['lossy']} of {counted(row['sessions'], 'session')}"
        if row["missed"]:
            yield f"  away:   {row['board']} has no session since the night of {row['last']}: {row['missed']} nights"
