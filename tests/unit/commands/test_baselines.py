"""Sessions that have a name."""

from __future__ import annotations

from pathlib import Path

import pytest

from profagent.errors import StoreError, UsageError
from profagent.sessions.baselines import Baselines
from profagent.store.workspace import Workspace
from tests.unit.store.database import START_US, DatabaseBuilder


@pytest.fixture
def baselines(tmp_path: Path) -> Baselines:
    """Of a workspace with two sessions."""
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    builder.session()
    builder.session(started_us=START_US + 5)
    builder.close()
    return Baselines(Workspace(tmp_path))


def test_a_name_leads_to_its_session_and_may_move(baselines: Baselines) -> None:
    assert baselines.all() == {}
    baselines.put("release-1.2", 1)
    baselines.put("nightly", 1)
    moved = baselines.put("nightly", 2)
    assert (moved.session, moved.board, moved.started_us) == (2, "0ddba11", START_US + 5)
    assert baselines.get("nightly") == moved
    assert {name: each.session for name, each in baselines.all().items()} == {"nightly": 2, "release-1.2": 1}


def test_they_are_set_while_another_process_writes_to_the_workspace(baselines: Baselines, tmp_path: Path) -> None:
    with Workspace(tmp_path).locked():
        baselines.put("nightly", 1)
    assert baselines.get("nightly").session == 1


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", ".x", "a b", "x" * 65, "é"])
def test_a_name_that_could_be_no_file_s_is_refused(baselines: Baselines, name: str) -> None:
    with pytest.raises(UsageError):
        baselines.put(name, 1)
    with pytest.raises(UsageError):
        baselines.get(name)


def test_what_there_is_not_is_refused(baselines: Baselines) -> None:
    with pytest.raises(UsageError, match="no session 9"):
        baselines.put("nightly", 9)
    with pytest.raises(UsageError, match="no baseline"):
        baselines.get("nightly")


def test_a_session_of_a_database_that_was_made_anew_is_not_taken_for_it(baselines: Baselines, tmp_path: Path) -> None:
    baselines.put("nightly", 2)
    (tmp_path / "profagent.db").unlink()
    builder = DatabaseBuilder(tmp_path / "profagent.db")
    builder.session()
    builder.session(started_us=START_US + 9)
    builder.close()
    with pytest.raises(UsageError, match="made anew"):
        baselines.get("nightly")


def test_a_damaged_file_is_told_with_its_name(baselines: Baselines, tmp_path: Path) -> None:
    baselines.put("nightly", 2)
    (tmp_path / "baselines" / "nightly.json").write_text("{")
    with pytest.raises(StoreError, match=r"nightly\.json"):
        baselines.get("nightly")
