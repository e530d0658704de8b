"""With `--mirror kept`, what stays on the disk follows from the files alone: those that are kept, and the JOB's own."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profagent.commands.counter_maps import CounterMaps, simulated_map
from profagent.commands.recording import Recording
from profagent.commands.recording_options import RecordingOptions
from profagent.commands.workspace import Workspace
from profagent.formats.names import LogKind, parse_log_name
from profagent.formats.schedule import ByTime, EachNth, Keeping
from profagent.store.store import Store
from tests.fakes.dumps import Dump, dump, files_of
from tests.fakes.small_job import SMALL_JOB
from tests.integration.rows import query
from tests.unit.commands.link import JOB, Sender

KEEPINGS = (EachNth(7), ByTime(6_000, 1_000_000), ByTime(1, 1_000_000))


@dataclass(frozen=True)
class Act:
    """A file that comes up to a byte, and is vouched for where that is its end; or the JOB's end, or a restart."""

    kind: str
    path: str = ""
    size: int = 0


@st.composite
def histories(draw: st.DrawFn) -> list[Act]:
    """Files in any order, some of them in two steps, with ends of the JOB and restarts between."""
    whole = [Act("send", path, len(data)) for path, data in draw(st.permutations(list(SMALL_JOB.items())))]
    acts = list(whole)
    for act in draw(st.lists(st.sampled_from([act for act in whole if _is_data(act.path)]), unique=True, max_size=4)):
        begun = Act("send", act.path, draw(st.integers(0, act.size)))
        acts.insert(draw(st.integers(0, acts.index(act))), begun)
    for place in draw(st.lists(st.integers(0, len(whole)), max_size=4)):
        acts.insert(place, Act(draw(st.sampled_from(["restart", "end"]))))
    return acts


def _is_data(path: str) -> bool:
    name = parse_log_name(path)
    return name is not None and name.is_data


def _tells_time(path: str) -> bool:
    name = parse_log_name(path)
    return name is not None and name.is_done and name.kind is LogKind.AICORE


async def play(root: Path, acts: list[Act], keeping: Keeping, *, drops: bool) -> tuple[Dump, dict[str, bytes]]:
    """What rows and files a history leaves; a restart is a new process on the same workspace."""
    workspace = Workspace(root)
    runs = [list(run) for is_restart, run in groupby(acts, lambda act: act.kind == "restart") if not is_restart]
    options = RecordingOptions(lambda: 1, maps=CounterMaps(simulated_map()), keeping=keeping, drops=drops)
    for run in runs:
        async with Store(workspace.database, durable=False) as store:
            recording = Recording(workspace, store, options)
            sender = Sender(recording)
            await sender.open()
            for act in run:
                await _perform(recording, sender, act)
    return dump(workspace.database), files_of(workspace.board_mirror("board-1") / JOB)


async def _perform(recording: Recording, sender: Sender, act: Act) -> None:
    if act.kind == "end":
        await recording.change_state(JOB, "finished", caught_up=True)
        return
    data, is_data = SMALL_JOB[act.path], _is_data(act.path)
    is_whole = act.size == len(data) and (act.path + ".done" in SMALL_JOB or not is_data)
    await sender.send(act.path, data[: act.size], snapshot=not is_data, complete=is_whole)


@cache
def expected(keeping: Keeping) -> tuple[Dump, dict[str, bytes]]:
    """What files in their order leave when nothing is dropped, without those that were passed over."""
    with tempfile.TemporaryDirectory() as folder:
        acts = [*(Act("send", path, len(data)) for path, data in SMALL_JOB.items()), Act("end")]
        rows, files = asyncio.run(play(Path(folder), acts, keeping, drops=False))
        assert files == SMALL_JOB
        passed = query(Workspace(Path(folder)).database, "SELECT path FROM log WHERE NOT kept")
        dropped = {path for (path,) in passed if not (isinstance(keeping, ByTime) and _tells_time(path))}
        return rows, {path: data for path, data in files.items() if path not in dropped}


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(acts=histories(), keeping=st.sampled_from(KEEPINGS))
def test_the_disk_has_what_is_kept_whatever_the_order(acts: list[Act], keeping: Keeping) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows, files = asyncio.run(play(Path(folder), [*acts, Act("end")], keeping, drops=True))
    wanted_rows, wanted_files = expected(keeping)
    assert {path: len(data) for path, data in files.items()} == {path: len(data) for path, data in wanted_files.items()}
    assert files == wanted_files
    # What passes through has no offset before the board vouches for it.
    assert {**rows, "logs": []} == {**wanted_rows, "logs": []}


@pytest.mark.parametrize("keeping", KEEPINGS, ids=str)
def test_some_of_the_disk_is_kept_and_some_is_not(keeping: Keeping) -> None:
    _, files = expected(keeping)
    assert {"info.json.0", "data/acl_api.0.m.0"} <= set(files) < set(SMALL_JOB)
