"""Every view of the database, and the words of `record` and `watch`, against files in tests/golden/views.

`python -m tests.golden.write_views` makes the files anew; the difference is for a person to read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.golden.write_exports import NAMES
from tests.golden.write_views import GOLDEN, said_of_a_board, views_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", NAMES)
def test_every_view_is_the_golden_one(name: str, tmp_path: Path) -> None:
    assert views_of(name, tmp_path) == (GOLDEN / f"{name}.json").read_text("utf-8")


def test_watch_and_record_say_what_the_golden_file_says(tmp_path: Path) -> None:
    assert said_of_a_board(tmp_path) == (GOLDEN / "board.json").read_text("utf-8")
