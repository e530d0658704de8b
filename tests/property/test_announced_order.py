"""However files come, are told of and found: logs are announced in the order that the contract promises."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profagent_wire.v1 import board_pb2 as wire
from profagentd.follow.log import FileEvent
from profagentd.sources.files import OpenJob
from tests.fakes.small_job import aicore_done
from tests.property.streamed_board import StreamedBoard

FOLDER = "/dev/shm"
# The units of an inference, in the order in which they have data.
UNITS = [("aicore",), ("aicpu",), ("aicore", "aicpu"), ("aicpu", "aicore"), ("AAcore", "AAcpu")]
# Files that are made in one go, or told late.
SOME = st.integers(0, 9)
ACTS = [
    "make",
    "make",
    "tell",
    "tell",
    "tell_late",
    "lose",
    "turn",
    "turn",
    "turn",
    "open",
    "select",
    "select",
    "crowd",
    "leave",
]
# Room that other streams leave: for one log, a few, or enough for some to come unasked.
ROOMS = st.sampled_from([1, 2, 5, 90])
SURE_AND_COMMON = 64 + 3072


class Case:
    """One board, one client, and what was made and announced, in order."""

    def __init__(
        self, root: Path, files: list[str], drawn: st.DataObject, *, is_scanned: bool, acknowledges: bool
    ) -> None:
        self.board = StreamedBoard(root, is_scanned=is_scanned)
        self.drawn = drawn
        self.is_scanned = is_scanned
        self.acknowledges = acknowledges
        self.coming = iter(files)
        self.made: dict[str, int] = {}  # in which order
        self.untold: list[str] = []
        self.announced: set[str] = set()  # on this stream
        self.taken = 0  # room, by others

    # What may happen

    def make(self, count: int | None = None) -> None:
        for path in itertools.islice(self.coming, self.drawn.draw(SOME) if count is None else count):
            (self.board.directory / path).write_bytes(aicore_done(256) if path.endswith(".done") else bytes(256))
            self.made[path] = len(self.made)
            self.untold.append(path)

    def tell(self, all_but: int = 0) -> None:
        """Notices come in order; a scan gives names in any, and some that were made meanwhile with the next one."""
        if self.is_scanned:
            self.untold = self.drawn.draw(st.permutations(self.untold))
        count = max(0, len(self.untold) - all_but)
        told, self.untold = self.untold[:count], self.untold[count:]
        self.board.tell(
            dict.fromkeys(told, FileEvent.WRITTEN if self.is_scanned else FileEvent.MADE | FileEvent.WRITTEN)
        )

    def tell_late(self) -> None:
        self.tell(self.drawn.draw(SOME))

    def lose(self) -> None:
        self.untold = []
        self.board.lose_notices()

    def crowd(self) -> None:
        """Others leave so much room."""
        self.leave(SURE_AND_COMMON - self.drawn.draw(ROOMS))

    def leave(self, taken: int = 0) -> None:
        """Others have taken so much room from now on."""
        self.board.crowd(taken - self.taken)
        self.taken = taken

    def open(self) -> None:
        self.announced, self.taken = set(), 0
        self.board.open()

    def select(self) -> None:
        self.board.receive(wire.ClientMessage(select=wire.Select(follow=[1])))

    def turn(self) -> bool:
        """Whether anything was said."""
        said = self.board.turn()
        self.board.pass_time(1.0)
        for message in said:
            self.hear(message)
        return bool(said)

    def while_looking(self, status: Callable[[OpenJob, bytes], os.stat_result]) -> Callable[..., os.stat_result]:
        """Looking at a file, before which others may be made."""
        meanwhile = self.drawn.draw(st.lists(st.sampled_from([0, 0, 0, 1, 3]), max_size=50))

        def look(files: OpenJob, path: bytes) -> os.stat_result:
            self.make(meanwhile.pop() if meanwhile else 0)
            return status(files, path)

        return look

    # What the client does

    def hear(self, message: wire.ServerMessage) -> None:
        logs = message.announced.logs
        self.check([log.path.decode() for log in logs])
        nothing = [wire.Holding(handle=log.handle) for log in logs if not log.unasked]
        self.board.receive(wire.ClientMessage(holdings=wire.Holdings(logs=nothing)))
        durable = [
            wire.Acknowledgement(handle=done.handle, generation=done.generation, offset=done.size, complete=True)
            for done in (event.completed for event in message.batch.events if event.HasField("completed"))
        ]
        if self.acknowledges:
            self.board.receive(wire.ClientMessage(acknowledge=wire.Acknowledge(logs=durable)))

    def check(self, paths: list[str]) -> None:
        for path in paths:
            self.announced.add(path)
            due = {each for each in explaining(path) if each in self.made and self.made[each] < self.made[path]}
            assert due <= self.announced, f"{path} is announced before {due - self.announced}"


def explaining(path: str) -> Iterator[str]:
    """What is to be announced before, where it was made before."""
    unit, _, rest = path.removeprefix("data/").partition(".")
    if unit.endswith(("core", "cpu")) and path.endswith(".done"):
        yield from (f"data/{unit[:2]}{each}.{rest.removesuffix('.done')}" for each in ("core", "cpu"))
    elif unit.endswith(("core", "cpu", "api")):
        dev, name, *numbers = rest.split(".")
        model = f"{name}.{numbers[1] if len(numbers) > 1 else numbers[0]}"
        yield from ("simulated", f"info.json.{dev}", f"data/{model}.net.info", f"data/{model}.layer.info")


@st.composite
def files(draw: st.DrawFn) -> list[str]:
    """What a program makes, in its order."""
    made = ["info.json.0", *["simulated"] * draw(st.booleans())]
    for model in range(draw(st.integers(1, 3))):
        made += [f"data/m.{model}.{each}.info" for each in ("net", "layer")]
        made += [f"data/acl_api.0.m.{model}"] * draw(st.booleans())
        for pictures in range(draw(st.integers(1, 4))):
            data = [f"data/{unit}.0.m.3.{model}.1.1.{pictures}" for unit in draw(st.sampled_from(UNITS))]
            made += data + [f"{path}.done" for path in data]
    return made


@settings(max_examples=80)
@given(st.data(), files(), st.lists(st.sampled_from(ACTS), min_size=6, max_size=30), st.booleans(), st.booleans())
def test_a_done_comes_after_all_data_and_data_after_its_tables(
    drawn: st.DataObject, made: list[str], acts: list[str], is_scanned: bool, acknowledges: bool
) -> None:
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder, pytest.MonkeyPatch.context() as patch:
        case = Case(Path(folder), made, drawn, is_scanned=is_scanned, acknowledges=acknowledges)
        patch.setattr(OpenJob, "status", case.while_looking(OpenJob.status))
        case.make()
        case.open()
        for act in acts:
            getattr(case, act)()
        case.leave()
        case.select()
        case.make(len(made))
        case.tell()
        turns = itertools.takewhile(lambda _: case.turn(), range(1000))
        assert sum(1 for _ in turns) < 1000, "it comes to no end"
        assert case.announced == set(made)
