"""What a verb is about: a JOB directory or a session, and which of its inferences."""

from __future__ import annotations

from pathlib import Path

import pytest

from profagent.errors import UsageError
from profagent.importing.job_folder import find_target, named_target
from profagent.store.counter_maps import BUILT_IN, CounterMaps, simulated_map


@pytest.mark.parametrize(
    ("directory", "session", "job", "workspace", "maps"),
    [
        (None, None, None, None, BUILT_IN),
        (Path("JOB"), 1, None, None, BUILT_IN),
        (Path("JOB"), None, "JOBA", None, BUILT_IN),
        (Path("JOB"), None, None, Path("w"), BUILT_IN),
        (None, 1, None, None, CounterMaps(simulated_map())),
    ],
)
async def test_what_does_not_go_together_is_refused(
    directory: Path | None, session: int | None, job: str | None, workspace: Path | None, maps: CounterMaps
) -> None:
    with pytest.raises(UsageError):
        await find_target(directory, session, job, workspace, maps)


@pytest.mark.parametrize(
    ("job", "workspace", "said"),
    [("JOBA", None, "--job goes with a session"), (None, Path("w"), "--workspace goes with a session")],
)
async def test_a_job_directory_named_by_a_word_is_told_of_no_option_that_nobody_typed(
    job: str | None, workspace: Path | None, said: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as error:
        await named_target(str(tmp_path), job, workspace, BUILT_IN)
    assert str(error.value) == said
    assert error.value.hint == f"leave it out: {tmp_path} is a JOB directory"
