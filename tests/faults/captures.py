"""Hosts that record one growing JOB, each from a daemon of its own and over a link that is broken in its own way."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from profagent.keys.keys import Keys
from tests.faults.proxy import FaultProxy, Way
from tests.integration.board import content, eventually, mirrored, running, tls_arguments
from tests.integration.host import Ended, Host, started
from tests.integration.rows import Rows, imported_rows, link_ledger, rows_of

RATE = 10
PLAY_S = 150.0
# A pretend network of 40 layers: 10 kB of records an inference.
MODEL = ("--model", "mobilenetv2", "--layers", "40", "--seed", "8")


@dataclass
class Link:
    """A recording through a proxy."""

    proxy: FaultProxy
    host: Host
    workspace: Path
    chance: random.Random

    def told(self, text: str) -> int:
        """How many lines of the host hold a text."""
        return sum(text in line for line in self.host.err)

    def linked(self, times: int) -> None:
        """Wait until the link was made so many times."""
        self.host.err.until("recording", times)

    def carries(self, count: int) -> None:
        """Wait until so many bytes more have come to the host."""
        goal = self.proxy.carried[Way.DOWN] + count
        assert self.proxy.wait_for(lambda: self.proxy.carried[Way.DOWN] >= goal), f"fewer than {count} bytes came"


Scenario = Callable[[Link], None]


@dataclass(frozen=True)
class Captured:
    """What a recording left, once the board's JOB had finished."""

    failure: BaseException | None
    ended: Ended
    workspace: Path
    job: Path
    imported: Rows

    def check(self) -> None:
        """The scenario went as it should, and mirror and rows are the board's."""
        if self.failure is not None:
            raise AssertionError(self.ended.err) from self.failure
        assert self.ended.code == 0, self.ended.err
        assert mirrored(self.workspace) == content(self.job)
        assert rows_of(self.workspace / "profagent.db", self.job.name) == self.imported
        assert self.ledger == []

    @property
    def ledger(self) -> list[tuple[str | None, str, str]]:
        """What happened on the way."""
        return link_ledger(self.workspace / "profagent.db", self.job.name)


def captured(
    scenarios: Mapping[str, Scenario], folder: Path, for_s: float, *, encrypted: Collection[str] = ()
) -> dict[str, Captured]:
    """Record one JOB by a host for each scenario, for so long at least and until each scenario is over.

    The scenarios in `encrypted` are played on links with mutual TLS.
    """
    keys = Keys(folder / "keys")
    keys.init("lab")
    tls = dict.fromkeys(encrypted, tls_arguments(keys.issue_board("board", ("127.0.0.1",)).folder))
    trusting = dict.fromkeys(encrypted, ("--keys", str(keys.folder)))
    root = folder / "root"
    root.mkdir()
    begun = time.monotonic()
    with ExitStack() as stack, ThreadPoolExecutor(len(scenarios)) as threads:
        npu = stack.enter_context(running("--root", root, "--simulate", "--rate", str(RATE), *MODEL))
        assert eventually(lambda: any(root.iterdir()))

        def linked(name: str) -> Link:
            board = stack.enter_context(running("--root", root, *tls.get(name, ())))
            return stack.enter_context(recording(board.address, folder / name, *trusting.get(name, ())))

        links = dict(zip(scenarios, threads.map(linked, scenarios), strict=True))
        plays = {name: threads.submit(_played, play, links[name]) for name, play in scenarios.items()}
        wait(plays.values(), PLAY_S)
        time.sleep(max(0.0, begun + for_s - time.monotonic()))
        # Asked to end, the simulated board finishes its JOB first.
        npu.stop()
        ends = {name: link.host.ended() for name, link in links.items()}
    (job,) = root.iterdir()
    imported = imported_rows(job, folder / "imported")
    return {name: Captured(plays[name].exception(), ends[name], folder / name, job, imported) for name in scenarios}


def _played(play: Scenario, link: Link) -> None:
    """Whether it goes well or not, the link is whole afterwards."""
    try:
        play(link)
    finally:
        link.proxy.heal()


@contextmanager
def recording(address: str, workspace: Path, *options: str) -> Iterator[Link]:
    """A `record` of the board at `address` through a proxy, until the board's JOBs are finished."""
    chance = random.Random(workspace.name)
    with FaultProxy(address, chance.randrange(1 << 32)) as proxy:
        where = ("--board", proxy.address, "--workspace", workspace)
        with started("record", *where, "--until-finished", *options) as host:
            link = Link(proxy, host, workspace, chance)
            link.linked(1)
            yield link
