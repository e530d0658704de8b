"""Whatever the order in which a JOB's bytes come, and whoever dies meanwhile, the rows are those of an import."""

from __future__ import annotations

import tempfile
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profagent.formats.counter_maps import simulated_map
from profagent.formats.names import parse_log_name
from profagent.formats.sampling import EachNth, Keeping, Schedule
from tests.fakes.dumps import Dump, assert_same, dump, imported
from tests.fakes.job_copy import JobCopy
from tests.fakes.small_job import SMALL_JOB, aicore_done

MAP = simulated_map()
# What a snapshot may have been before: torn while it was written, of an earlier inference, or of another model.
EARLIER = [b"", b"file_len:25", aicore_done(256, 77, batches="2,1"), aicore_done(512), SMALL_JOB["data/m.0.layer.info"]]


class Act:
    """Something that happens to a log; no dataclass, so that an example is printed without its bytes."""

    def __init__(self, kind: str, path: str, data: bytes = b"") -> None:
        self.kind = kind
        self.path = path
        self.data = data

    def __repr__(self) -> str:
        return f"{self.kind}({self.path}, {len(self.data)})"


@st.composite
def cuts(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """The bytes in pieces of any size."""
    places = draw(st.lists(st.integers(0, len(data)), max_size=4))
    borders = [0, *sorted(places), len(data)]
    return [data[a:b] for a, b in pairwise(borders)]


@st.composite
def acts_of_data(draw: st.DrawFn, path: str, data: bytes, *, is_vouched: bool) -> list[Act]:
    """A data log as it grows; it may be made anew, vouched for too early, and lost before a commit."""
    acts: list[Act] = []
    if draw(st.booleans()):
        acts += [Act("feed", path, data[256:700]), Act("recreate", path)]
    for piece in draw(cuts(data)):
        if draw(st.integers(0, 9)) == 0:
            acts.append(Act("lose", path, piece))
        acts.append(Act("feed", path, piece))
        if is_vouched and draw(st.integers(0, 5)) == 0:
            acts.append(Act("complete", path))
    return acts + [Act("complete", path)] * is_vouched


@st.composite
def acts_of_snapshot(draw: st.DrawFn, path: str, data: bytes) -> list[Act]:
    """A snapshot and what it was before."""
    kinds = st.sampled_from(["snapshot", "snapshot", "lose snapshot"])
    earlier = draw(st.lists(st.tuples(kinds, st.sampled_from([*EARLIER, data])), max_size=2))
    return [*(Act(kind, path, content) for kind, content in earlier), Act("snapshot", path, data)]


@st.composite
def histories(draw: st.DrawFn) -> list[Act]:
    """Acts of all logs, each log's in their order, mixed, with restarts between them."""
    queues: list[list[Act]] = []
    for path, data in SMALL_JOB.items():
        name = parse_log_name(path)
        if name is None or not name.is_data:
            queues.append(draw(acts_of_snapshot(path, data)))
        else:
            queues.append(draw(acts_of_data(path, data, is_vouched=path + ".done" in SMALL_JOB)))
    turns = draw(st.permutations([number for number, queue in enumerate(queues) for _ in queue]))
    acts = [queues[number].pop(0) for number in turns]
    for place in sorted(draw(st.lists(st.integers(0, len(acts)), max_size=3)), reverse=True):
        acts.insert(place, Act(draw(st.sampled_from(["restart", "next session", "end"])), ""))
    return acts


@cache
def expected() -> Dump:
    """What an import of the whole JOB gives; no argument of a test, which would be printed with each example."""
    with tempfile.TemporaryDirectory() as folder:
        return imported(Path(folder) / ("JOB" + "A" * 29), SMALL_JOB, MAP)


def play(copy: JobCopy, act: Act) -> None:
    match act.kind:
        case "feed":
            copy.feed(act.path, act.data)
        case "lose":
            copy.lose(act.path, act.data)
        case "recreate":
            copy.recreate(act.path, act.data)
        case "complete":
            copy.complete(act.path)
        case "snapshot":
            copy.snapshot(act.path, act.data)
        case "lose snapshot":
            copy.snapshot(act.path, act.data, commit=False)
        case "restart":
            copy.restart()
        case "next session":
            copy.restart(new_session=True)
        case "end":
            copy.end()


KEEPINGS = (Schedule(wait=0, warmup=7, active=2), EachNth(7))


@cache
def chosen(keeping: Keeping) -> Dump:
    """What files in their order give, when only some inferences are kept."""
    with tempfile.TemporaryDirectory() as folder, JobCopy(Path(folder), counter_map=MAP, keeping=keeping) as copy:
        for path, data in SMALL_JOB.items():
            copy.send(path, data)
        for path in SMALL_JOB:
            if path + ".done" in SMALL_JOB:
                copy.complete(path)
        copy.end()
        return dump(copy.database)


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(acts=histories(), remembered=st.sampled_from([1, 2, 5, 1024]), keeping=st.sampled_from([None, *KEEPINGS]))
def test_any_order_and_any_restart_give_the_rows_of_an_import_or_choose_the_same_of_them(
    acts: list[Act], remembered: int, keeping: Keeping | None
) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        JobCopy(Path(folder), remembered_logs=remembered, counter_map=MAP, keeping=keeping) as copy,
    ):
        for act in acts:
            play(copy, act)
        copy.end()
        assert_same(dump(copy.database), expected() if keeping is None else chosen(keeping))
        for path, data in SMALL_JOB.items():
            assert copy.mirror.read(path) == data


@pytest.mark.parametrize("keeping", KEEPINGS, ids=str)
def test_what_is_chosen_has_the_rows_of_an_import(keeping: Keeping) -> None:
    found, whole = chosen(keeping), expected()
    assert found["api_records"] == whole["api_records"]
    assert found["layers"] == whole["layers"]
    for view in ("op_records", "aicpu_records"):
        assert set(found[view]) <= set(whole[view])
    assert 0 < len(found["inferences"]) < len(whole["inferences"])


def test_a_done_that_is_rewritten_while_its_log_stands_is_told_as_it_is_last(tmp_path: Path) -> None:
    path = "data/aicore.0.m.3.0.1.1.12"
    with JobCopy(tmp_path, remembered_logs=1, counter_map=MAP) as copy:
        copy.feed(path, b"")
        for announced in (256, 512, 768):
            copy.snapshot(f"{path}.done", aicore_done(announced))
            copy.complete(path)
            copy.feed("data/aicore.0.m.3.0.1.1.11", b"")
        copy.snapshot(f"{path}.done", aicore_done(1024))
        copy.snapshot(f"{path}.done", aicore_done(1280))
        copy.end()
        told = [row for row in dump(copy.database)["ledger"] if row[0] == path]
    assert [(row[2], row[-1]) for row in told] == [("missing-data", 1280)]
