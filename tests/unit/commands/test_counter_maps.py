"""Where a counter map is from."""

from __future__ import annotations

from pathlib import Path

import pytest

from profagent.commands.counter_maps import read_map, simulated_map
from profagent.errors import FormatError, UsageError
from profagentd.simulate.counters import load_counters


def test_the_simulated_board_s_map_is_the_one_it_writes_by() -> None:
    ours, theirs = simulated_map(), load_counters()
    assert {counter.name for counter in ours.counters} == {counter.name for counter in theirs}


def test_a_map_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        (Path(__file__).parents[3] / "agent/profagent/formats/maps/simulated.toml").read_text("utf-8"), "utf-8"
    )
    assert read_map(file).counters == simulated_map().counters


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.toml"):
        read_map(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"bytes\.toml"):
        read_map(tmp_path / "bytes.toml")


def test_a_file_that_is_no_map_is_a_format_error(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("[tool]\n", "ascii")
    with pytest.raises(FormatError, match=r"other\.toml"):
        read_map(tmp_path / "other.toml")
