"""Which lake a command takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from profagent.cli.lakes import VARIABLE, named_lake, require_lake
from profagent.errors import UsageError
from profagent.store.workspace import SETTINGS, Workspace


def test_the_option_wins_then_the_environment_then_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(tmp_path)
    monkeypatch.delenv(VARIABLE, raising=False)
    assert named_lake(None, workspace) == ""
    with pytest.raises(UsageError, match="no lake is named"):
        require_lake(None, workspace)
    (tmp_path / SETTINGS).write_text('lake = "s3://bucket/lake"\n')
    assert named_lake(None, workspace) == "s3://bucket/lake"
    monkeypatch.setenv(VARIABLE, "/of/the/environment")
    assert named_lake(None, workspace) == "/of/the/environment"
    assert named_lake("/of/the/option", workspace) == "/of/the/option"


def test_a_path_in_settings_is_relative_to_them(tmp_path: Path) -> None:
    for named, wanted in (("lake", tmp_path / "lake"), ("/lake", Path("/lake")), ("~/lake", Path.home() / "lake")):
        (tmp_path / SETTINGS).write_text(f'lake = "{named}"\n')
        assert Workspace(tmp_path).lake() == str(wanted)


@pytest.mark.parametrize("text", ["lake = 3", "lakes = 'here'", "lake", "\udcff"])
def test_settings_that_cannot_be_are_said(text: str, tmp_path: Path) -> None:
    (tmp_path / SETTINGS).write_text(text, "utf-8", errors="surrogateescape")
    with pytest.raises(UsageError, match=SETTINGS):
        Workspace(tmp_path).lake()
