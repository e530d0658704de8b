"""However a JOB comes and whoever stops meanwhile: a figure that is shown as final is that of the import of the whole.

Every one that is not final is N/A with a reason. `PROFAGENT_ORDERS` is how many examples are played.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from profagent.importing.importing import import_job
from tests.fakes.dumps import Dump, assert_same, dump, write_files
from tests.fakes.ways import Way, going
from tests.property.played_board import Command, Player, Told
from tests.property.streamed_board import JOB
from tests.property.written_jobs import WrittenJob, jobs, loaded_again, recorded, simulated

FOLDER = "/dev/shm"
EXAMPLES = int(os.environ.get("PROFAGENT_ORDERS", "25"))
PHASES = [each for each in Phase if each is not Phase.shrink or not os.environ.get("NOSHRINK")]
SMALL = st.sampled_from([1, 1, 2, 3, 5, 9])
MESSAGES = st.sampled_from([1, 2, 3, 5, 8, 13, 40, 200])
# Only a command that keeps a workspace has a reader who looks into it between batches.
COMMANDS = st.sampled_from([Command.RECORD] * 3 + list(Command))
ACTS = st.one_of(
    st.tuples(st.sampled_from(["write", "write", "write_late"]), SMALL),
    st.tuples(st.just("hear"), MESSAGES),
    st.tuples(st.just("hear"), MESSAGES),
    st.tuples(
        st.sampled_from(["tell", "lose", "cut", "kill", "end", "wait", "pause", "fall_quiet", "finish_unheard"]),
        st.just(0),
    ),
    st.tuples(st.just("skew"), st.integers(1, 5)),
    st.tuples(st.just("write_part"), st.integers(0, 10)),
)


@settings(
    max_examples=EXAMPLES, phases=PHASES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(
    job=jobs(),
    command=COMMANDS,
    acts=st.lists(ACTS, max_size=30),
    is_scanned=st.booleans(),
    is_known=st.booleans(),
    pace=st.tuples(SMALL, MESSAGES, st.booleans()),
    is_imported=st.sampled_from([False, False, True]),
    way=st.sampled_from([Way.TOGETHER, Way.TOGETHER, Way.ONE_BY_ONE]),
)
def test_what_is_final_is_as_in_the_import_of_the_whole(
    job: WrittenJob,
    command: Command,
    acts: list[tuple[str, int]],
    is_scanned: bool,
    is_known: bool,
    pace: tuple[int, int, bool],
    is_imported: bool,
    way: Way,
) -> None:
    """What is left of the JOB comes over the link, or it `is_imported` into the workspace."""
    play(job, command, acts, pace, is_scanned=is_scanned, is_known=is_known, is_imported=is_imported, way=way)


# Orders in which figures were wrong once, or would be if one rule was not there.
TWO_SEGMENTS = ("aicore", "aicore")
IN_STEP = (1, 200, True)
CASES: dict[str, tuple[WrittenJob, Command, list[tuple[str, int]], tuple[int, int, bool]]] = {
    "a .done of an earlier load, while the next goes on": (
        loaded_again(TWO_SEGMENTS, [2, 2], [2, 4], has_lesser_loads=True),
        Command.FROM_START,
        [],
        IN_STEP,
    ),
    "the same in a workspace": (loaded_again(TWO_SEGMENTS, [2, 2], [2, 4]), Command.RECORD, [], IN_STEP),
    "a load without a .done, after one that had more records": (
        loaded_again(["aicore"], [3], [2], is_undone=True),
        Command.FROM_START,
        [],
        IN_STEP,
    ),
    "the same, and nobody looked": (
        loaded_again(["aicore"], [3], [2], is_undone=True),
        Command.FROM_START,
        [("write", 6), ("hear", 200), ("kill", 0)],
        IN_STEP,
    ),
    "data that come whole again with the next load, before its .done": (
        simulated(3, 1, 2),
        Command.WATCH,
        [("hear", 1), ("write_late", 2)],
        (9, 200, True),
    ),
    "a .done that is told after its data, which go on": (
        recorded()["runtime-reload"],
        Command.FROM_START,
        [("wait", 0), ("write", 1), ("write_part", 10), ("cut", 0)],
        (1, 13, True),
    ),
    "a first log of the CPU, after inferences without one": (
        recorded()["runtime-edge"],
        Command.RECORD,
        [],
        (2, 8, True),
    ),
    "a .done that is told last, of a JOB that seemed to have ended": (
        simulated(),
        Command.RECORD,
        [("write", len(simulated().writes) - 1), ("hear", 200), ("write_late", 1), ("finish_unheard", 0)],
        IN_STEP,
    ),
}


@pytest.mark.parametrize("is_scanned", [False, True], ids=["inotify", "scan"])
@pytest.mark.parametrize("case", CASES)
def test_such_an_order_makes_no_difference(case: str, is_scanned: bool) -> None:
    job, command, acts, pace = CASES[case]
    play(job, command, acts, pace, is_scanned=is_scanned)


def play(
    job: WrittenJob,
    command: Command,
    acts: Iterable[tuple[str, int]],
    pace: tuple[int, int, bool],
    *,
    is_scanned: bool = False,
    is_known: bool = True,
    is_imported: bool = False,
    way: Way = Way.TOGETHER,
) -> None:
    """The acts happen, then the program goes on to its end at this pace; all the while figures are right."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=FOLDER)))
        directory = write_files(folder / "whole" / JOB, job.files)
        database = asyncio.run(import_job(directory)).database
        stack.enter_context(going(way))
        player = Player(folder, job, Told.of(database), command, is_scanned=is_scanned, is_known=is_known)
        try:
            for act, argument in acts:
                getattr(player, act)(argument)
            player.go_on(*pace[:2], is_slow=pace[2])
            if is_imported:
                player.finish_by_import()
            else:
                player.finish()
            if player.must_have_told_all and not is_imported:
                final = {(each.key, each.load) for each in player.whole if each.is_final}
                assert set(player.lines.final) == final, "not all that is final was shown"
                assert player.lines.to_take_back == set(), "what was taken back was not told"
            player.stop()
            if command.keeps or is_imported:
                assert_same(_content(player.database), _content(database))
        finally:
            player.close()


def _content(database: Path) -> Dump:
    """All rows but what is told of each session by itself: how plausible the records are that it fetched."""
    found = dump(database)
    return {**found, "ledger": [row for row in found["ledger"] if "implausible-counter" not in row]}
