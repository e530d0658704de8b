"""Directories for the sockets of tunnels: whose are removed, and whose are not."""

from __future__ import annotations

from pathlib import Path

from profagent.boards.tunnel import socket_folder


def test_it_is_private_and_goes_with_its_owner(tmp_path: Path) -> None:
    with socket_folder(tmp_path) as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "0").touch()
    assert list(tmp_path.iterdir()) == []


def test_one_whose_owner_has_died_is_removed_by_the_next_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "profagent-ssh-dead").mkdir()
    (tmp_path / "profagent-ssh-dead/lock").touch()
    (tmp_path / "profagent-ssh-begun").mkdir()
    (tmp_path / "profagent-ssh-file").touch()
    (tmp_path / "others/lock").mkdir(parents=True)
    (tmp_path / "profagent-ssh-link").symlink_to("others")
    others = {"profagent-ssh-begun", "profagent-ssh-file", "profagent-ssh-link", "others"}
    with socket_folder(tmp_path) as mine, socket_folder(tmp_path) as another:
        assert {each.name for each in tmp_path.iterdir()} == {mine.name, another.name, *others}
