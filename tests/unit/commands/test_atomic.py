"""Files and folders that come whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from profagent.errors import ProfagentError
from profagent.files import make_directory, write_atomically, write_folder_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_pieces_become_one_file(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a", [b"one ", b"two"])
    assert (tmp_path / "a").read_bytes() == b"one two"
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_an_error_half_way_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"new" * 1_000_000
        raise KeyboardInterrupt

    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "a", pieces())
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("a", b"old")]


def test_a_missing_folder_is_told_with_the_file_s_name(tmp_path: Path) -> None:
    with pytest.raises(ProfagentError, match=r"absent/a: No such file") as caught:
        write_atomically(tmp_path / "absent" / "a", [b"x"])
    assert "free space" in caught.value.hint


def test_a_target_that_is_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(ProfagentError, match="cannot write"):
        write_atomically(tmp_path / "a", [b"x"])
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_the_longest_name_a_file_system_takes_can_be_written(tmp_path: Path) -> None:
    write_atomically(tmp_path / ("n" * 255), [b"x"])
    assert [len(file.name) for file in tmp_path.iterdir()] == [255]


def test_directories_are_made_with_their_parents_and_may_be_there(tmp_path: Path) -> None:
    for _ in range(2):
        make_directory(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_a_directory_below_a_file_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(ProfagentError, match="cannot write"):
        make_directory(tmp_path / "a" / "b")


def test_a_folder_comes_whole_and_for_its_owner_alone(tmp_path: Path) -> None:
    write_folder_atomically(tmp_path / "a" / "b", {"one": b"1", "more/two": b"2"})
    folder = tmp_path / "a" / "b"
    assert ((folder / "one").read_bytes(), (folder / "more" / "two").read_bytes()) == (b"1", b"2")
    modes = [path.stat().st_mode & 0o777 for path in (folder, folder / "more", folder / "one")]
    assert modes == [0o700, 0o700, 0o600]
    assert [path.name for path in folder.parent.iterdir()] == ["b"]


def test_a_folder_that_holds_something_stays(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "old").write_bytes(b"old")
    with pytest.raises(ProfagentError, match="cannot write"):
        write_folder_atomically(tmp_path / "a", {"new": b"new"})
    assert [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))] == ["a", "a/old"]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is synchronised and renamed, in order, by the last part of its path."""
    seen: list[tuple[str, str]] = []
    fsync, replace = os.fsync, Path.replace

    def noted_fsync(descriptor: int) -> None:
        seen.append(("sync", Path(f"/proc/self/fd/{descriptor}").readlink().name))
        fsync(descriptor)

    def noted_replace(path: Path, target: Path) -> Path:
        seen.append(("rename", target.name))
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    return seen


def test_a_durable_file_is_on_the_disk_before_its_name_and_the_name_before_the_end(
    tmp_path: Path, steps: list[tuple[str, str]]
) -> None:
    write_atomically(tmp_path / "a", [b"x"], durably=True)
    (_, temporary), rename, directory = steps
    assert temporary.endswith(".part")
    assert (rename, directory) == (("rename", "a"), ("sync", tmp_path.name))


def test_a_folder_is_on_the_disk_before_its_name(tmp_path: Path, steps: list[tuple[str, str]]) -> None:
    write_folder_atomically(tmp_path / "a", {"one": b"1", "more/two": b"2"})
    named = steps.index(("rename", "a"))
    assert {name for _, name in steps[:named]} >= {"one", "two", "more"}
    assert steps[named + 1 :] == [("sync", tmp_path.name)]
