"""Roots that files name, and roots that lie in each other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from profagentd.command import parse
from profagentd.config import examine
from profagentd.roots import lie_together, read_roots_d


def test_each_line_of_each_conf_file_is_a_root_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "b.conf").write_text("  /b  \n\n# a remark\n/c # not a remark\n")
    (tmp_path / "a.conf").write_text("/a\n/b\n")
    (tmp_path / "c.txt").write_text("/d\n")
    roots, mistakes = read_roots_d(str(tmp_path))
    assert mistakes == []
    assert roots == {
        "/a": f"{tmp_path}/a.conf:1",
        "/b": f"{tmp_path}/a.conf:2",
        "/c # not a remark": f"{tmp_path}/b.conf:4",
    }


def test_what_is_no_absolute_path_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("/a\nb\n/c\0\n")  # as a power cut leaves a file
    (tmp_path / "b.conf").write_bytes(b"/d\n\xff")
    os.mkfifo(tmp_path / "c.conf")
    roots, mistakes = read_roots_d(str(tmp_path))
    assert list(roots) == ["/a"]
    assert [each.place for each in mistakes] == [
        f"{tmp_path}/{place}" for place in ("a.conf:2", "a.conf:3", "b.conf:2", "c.conf")
    ]


def test_a_directory_that_is_not_there_names_none(tmp_path: Path) -> None:
    assert read_roots_d(str(tmp_path / "none")) == ({}, [])


def test_what_is_no_directory_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    _, mistakes = read_roots_d(str(tmp_path / "file"))
    assert [str(each) for each in mistakes] == [f"the arguments: roots_d: {tmp_path}/file: Not a directory"]


def test_an_argument_may_name_a_directory_from_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse(["--roots-d", "roots.d"]).roots_d == f"{tmp_path}/roots.d"


def test_its_roots_come_after_the_named_ones_each_once(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("/b\n/a\n")
    examined = examine(None, {"roots": ["/a"], "roots_d": str(tmp_path)})
    assert (examined.config.roots, examined.mistakes) == (("/a", "/b"), [])


def test_one_that_lies_in_another_is_named_where_it_stands(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("/a/b\n")
    examined = examine(None, {"roots": ["/a"], "roots_d": str(tmp_path)})
    assert [str(each) for each in examined.mistakes] == [f"{tmp_path}/a.conf:1: roots: /a/b lies in /a"]


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [(b"/a", b"/a", True), (b"/a/b", b"/a", True), (b"/", b"/a", True), (b"/a", b"/ab", False)],
)
def test_paths_lie_together_when_one_holds_the_other(one: bytes, other: bytes, together: bool) -> None:
    assert lie_together(one, other) is lie_together(other, one) is together
