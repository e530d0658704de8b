"""However a JOB comes and whoever stops meanwhile: a figure that is shown as final is that of the import of the whole.

Every one that is not final is N/A with a reason. `PROFAGENT_ORDERS` is how many examples are played.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from profagent.commands.importing import import_job
from tests.fakes.dumps import assert_same, dump, write_files
from tests.property.played_board import Command, Player, Told
from tests.property.streamed_board import JOB
from tests.property.written_jobs import WrittenJob, jobs

FOLDER = "/dev/shm"
EXAMPLES = int(os.environ.get("PROFAGENT_ORDERS", "120"))
PHASES = [each for each in Phase if each is not Phase.shrink or not os.environ.get("NOSHRINK")]
SMALL = st.sampled_from([1, 1, 2, 3, 5, 9])
MESSAGES = st.sampled_from([1, 2, 3, 5, 8, 13, 40, 200])
ACTS = st.one_of(
    st.tuples(st.sampled_from(["write", "write", "write_late"]), SMALL),
    st.tuples(st.just("hear"), MESSAGES),
    st.tuples(st.just("hear"), MESSAGES),
    st.tuples(st.sampled_from(["tell", "lose", "cut", "kill", "end", "wait", "pause", "fall_quiet"]), st.just(0)),
    st.tuples(st.just("write_part"), st.integers(0, 10)),
)


@settings(
    max_examples=EXAMPLES, phases=PHASES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(
    job=jobs(),
    command=st.sampled_from(list(Command)),
    acts=st.lists(ACTS, max_size=30),
    is_scanned=st.booleans(),
    is_known=st.booleans(),
    is_imported=st.booleans(),
)
def test_what_is_final_is_as_in_the_import_of_the_whole(
    job: WrittenJob,
    command: Command,
    acts: list[tuple[str, int]],
    is_scanned: bool,
    is_known: bool,
    is_imported: bool,
) -> None:
    """What is left of the JOB comes over the link, or it `is_imported` into the workspace."""
    with tempfile.TemporaryDirectory(dir=FOLDER) as name:
        folder = Path(name)
        directory = write_files(folder / "whole" / JOB, job.files)
        database = asyncio.run(import_job(directory)).database
        player = Player(folder, job, Told.of(database), command, is_scanned=is_scanned, is_known=is_known)
        try:
            for act, argument in acts:
                getattr(player, act)(argument)
            if is_imported:
                player.finish_by_import()
            else:
                player.finish()
            if player.must_have_told_all and not is_imported:
                final = {(each.key, each.stretch) for each in player.whole if each.is_final}
                assert set(player.lines.final) == final, "not all that is final was shown"
            player.stop()
            if command.keeps or is_imported:
                assert_same(dump(player.database), dump(database))
        finally:
            player.close()
