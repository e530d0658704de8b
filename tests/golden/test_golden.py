"""Exports and every view of JOBs, and the words of `record` and `watch`, against the files beside this one.

`python -m tests.golden.write_exports` and `write_views` make the files anew; the difference is for a person to read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.golden import write_exports, write_views

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", write_exports.NAMES)
def test_every_export_is_the_golden_one(name: str, tmp_path: Path) -> None:
    job = write_exports.export_job(name, tmp_path)
    found = {f"{part}/{path}": data for part in write_exports.PARTS for path, data in _files(job / part).items()}
    assert found == _files(write_exports.GOLDEN / name)


def _files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*.*")) if file.is_file()}


@pytest.mark.parametrize("name", write_exports.NAMES)
def test_every_view_is_the_golden_one(name: str, tmp_path: Path) -> None:
    assert write_views.views_of(name, tmp_path) == (write_views.GOLDEN / f"{name}.json").read_text("utf-8")


def test_watch_and_record_say_what_the_golden_file_says(tmp_path: Path) -> None:
    assert write_views.said_of_a_board(tmp_path) == (write_views.GOLDEN / "board.json").read_text("utf-8")
