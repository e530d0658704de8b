"""Files that are read where they stand: each is there as far as it has come, and as long as it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.ingest.mirror_in_place import MirrorInPlace
from tests.fakes.dumps import write_files

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_is_there_as_far_as_it_has_come(tmp_path: Path) -> None:
    mirror = MirrorInPlace(write_files(tmp_path, {"data/log": b"0123456789", "later": b"x"}))
    assert (mirror.read("data/log"), mirror.size("data/log"), mirror.names()) == (None, None, [])
    mirror.begin("data/log", 1, 0, snapshot=False)
    assert mirror.read("data/log") == b""
    mirror.append("data/log", 0, b"01234", snapshot=False)
    assert (mirror.read("data/log"), mirror.size("data/log")) == (b"01234", 5)
    assert (mirror.read("data/log", 9, start=3), mirror.read("data/log", 1), mirror.read("data/log", start=7)) == (
        b"34",
        b"0",
        b"",
    )
    mirror.put("later", 1, b"x", snapshot=True)
    assert mirror.names() == ["data/log", "later"]
    (tmp_path / "later").unlink()
    assert mirror.read("later") is None


def test_a_file_that_is_rewritten_whole_is_there_when_it_has_come_whole(tmp_path: Path) -> None:
    mirror = MirrorInPlace(write_files(tmp_path, {"info": b"abcdef"}))
    mirror.begin("info", 1, 0, snapshot=True)
    mirror.append("info", 0, b"abcdef", snapshot=True)
    assert mirror.read("info") is None
    assert (mirror.finish_snapshot("info"), mirror.read("info")) == (b"abcdef", b"abcdef")
    assert mirror.finish_snapshot("info") is None
