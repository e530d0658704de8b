"""Files and folders that come whole or not at all."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from profagent.errors import ProfagentError, UsageError
from profagent.files import folder_written, write_atomically, write_folder_atomically


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
    assert "make it first" in caught.value.hint


def test_a_target_that_is_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(ProfagentError, match="cannot write"):
        write_atomically(tmp_path / "a", [b"x"])
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_what_is_no_plain_file_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with closing(sqlite3.connect(tmp_path / "there.db")) as database:
        database.execute("CREATE TABLE kept (number INTEGER)")
    before = (tmp_path / "there.db").read_bytes()
    (tmp_path / "to the pipe").symlink_to("pipe")
    for name in ("pipe", "to the pipe", "there.db"):
        with pytest.raises(UsageError, match=name):
            write_atomically(tmp_path / name, [b"new"])
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "there.db").read_bytes() == before


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"theirs")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    write_atomically(tmp_path / "link", [b"new"])
    assert (tmp_path / "a").read_bytes() == b"theirs"
    assert (tmp_path / "link").read_bytes() == b"new"


@pytest.mark.parametrize("name", ["file/below", "n" * 300, "loop"])
def test_a_name_that_cannot_be_written_is_told(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ProfagentError, match="cannot write"):
        write_atomically(tmp_path / name, [b"x"])


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


# A folder that is filled, and then gets its name


def content(folder: Path) -> dict[str, bytes]:
    """Return the content of each file below a folder."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_new_folder_has_its_name_once_it_is_filled(tmp_path: Path) -> None:
    target = tmp_path / "results" / "JOB"
    with folder_written(target) as folder:
        (folder / "one").write_bytes(b"1")
        assert not target.exists()
    assert target.stat().st_mode & 0o777 == 0o700
    assert content(tmp_path) == {"results/JOB/one": b"1"}


def test_in_a_folder_that_holds_something_files_are_replaced_and_others_stay(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"old")
    (tmp_path / "notes").write_bytes(b"mine")
    with folder_written(tmp_path) as folder:
        (folder / "one").write_bytes(b"new")
        (folder / "two").write_bytes(b"2")
        assert (tmp_path / "one").read_bytes() == b"old"
    assert content(tmp_path) == {"one": b"new", "two": b"2", "notes": b"mine"}
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("error", [ProfagentError("no", hint="none"), KeyboardInterrupt()], ids=str)
@pytest.mark.parametrize("before", [None, {}, {"one": b"old"}], ids=["new", "empty", "filled"])
def test_an_error_half_way_leaves_a_folder_as_it_was(
    before: dict[str, bytes] | None, error: BaseException, tmp_path: Path
) -> None:
    target = tmp_path / "JOB"
    if before is not None:
        target.mkdir()
        for name, data in before.items():
            (target / name).write_bytes(data)

    def fail_half_way() -> None:
        with folder_written(target) as folder:
            (folder / "one").write_bytes(b"new")
            raise error

    with pytest.raises(type(error)):
        fail_half_way()
    assert [path.name for path in tmp_path.iterdir()] == ([] if before is None else ["JOB"])
    assert {path.name for path in target.glob("*")} == set(before or ())
    assert content(target) == (before or {})


@pytest.mark.parametrize("first", ["a", "z"])
def test_one_file_that_is_not_replaced_leaves_all_others_as_they_were(first: str, tmp_path: Path) -> None:
    """Whichever of them the folder gives first."""
    (tmp_path / first).write_bytes(b"old")
    os.mkfifo(tmp_path / "pipe")

    def fill() -> None:
        with folder_written(tmp_path) as folder:
            for name in ("a", "pipe", "z"):
                (folder / name).write_bytes(b"new")

    with pytest.raises(UsageError, match="pipe"):
        fill()
    assert {path.name for path in tmp_path.iterdir()} == {first, "pipe"}
    assert (tmp_path / first).read_bytes() == b"old"


@pytest.mark.parametrize("has_target", [True, False])
def test_what_a_killed_writer_left_goes_with_the_next_and_another_writer_stays(
    has_target: bool, tmp_path: Path
) -> None:
    target = tmp_path / "JOB"
    if has_target:
        target.mkdir()
    left = (target if has_target else tmp_path) / f".{'0' * 16}.part"
    left.mkdir()
    (left / "one").write_bytes(b"half")
    with folder_written(target) as first, folder_written(target) as second:
        assert not left.exists()
        assert first.is_dir()
        (second / "two").write_bytes(b"2")
    assert content(tmp_path) == {"JOB/two": b"2"}


def test_a_folder_where_a_file_stands_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ProfagentError, match="cannot write"), folder_written(tmp_path / "file"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
