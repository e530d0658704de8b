"""Where a counter map is from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from profagent.store.counter_maps import CounterMaps, read_map, simulated_map
from profagentd.simulate.draw import load_counters

SIMULATED = (Path(__file__).parents[3] / "agent/profagent/formats/maps/simulated.toml").read_text("utf-8")


class Folder:
    """A folder of maps, and what is told of them."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.told: list[str] = []

    def write(self, name: str, *, sdk: str, scale: float = 1.0, simulated: bool = False) -> None:
        text = SIMULATED.replace("simulated = true", f"simulated = {simulated}".lower())
        text = re.sub(r"(?m)^sdk = .*$", f'sdk = "{sdk}"', re.sub(r"(?m)^name = .*$", f'name = "{name}"', text))
        (self.path / f"{name}.toml").write_text(text.replace("scale = 1.0", f"scale = {scale}"), "utf-8")

    def of(self, sdk: str = "", *, simulated: bool = False) -> str | None:
        """The name of the map that is taken, asked for twice, as a stream that begins again does."""
        maps = CounterMaps(folder=self.path, tell=self.told.append)
        found = maps.of(simulated=simulated, sdk=sdk)
        assert maps.of(simulated=simulated, sdk=sdk) is found
        return None if found is None else found.name


def test_the_simulated_board_s_map_is_the_one_it_writes_by() -> None:
    ours, theirs = simulated_map(), load_counters()
    assert set(ours.counters) == {counter.name for counter in theirs}


def test_the_only_map_of_the_folder_that_fits_is_taken_and_named_once(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("b1", sdk="2.0.1")
    folder.write("b2", sdk="2.0.2", scale=0.5)
    assert folder.of("2.0.2") == "b2"
    (line,) = folder.told
    assert str(tmp_path / "b2.toml") in line
    assert read_map(tmp_path / "b2.toml").fingerprint in line
    assert folder.of("3.0") is None
    assert folder.of("2.0.1", simulated=True) == "simulated"
    folder.write("mine", sdk="", simulated=True)
    assert folder.of("2.0.1", simulated=True) == "mine"


def test_of_several_maps_that_fit_none_is_taken(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("b1", sdk="2.0.1")
    folder.write("b2", sdk="unknown", scale=0.5)
    for sdk in ("", "2.0.1"):
        folder.told.clear()
        assert folder.of(sdk) is None
        (line,) = folder.told
        assert "b1.toml" in line
        assert "b2.toml" in line
    folder.write("b2", sdk="2.0.1")
    assert folder.of("2.0.1") == "b1", "it decodes alike"


def test_a_file_that_is_no_map_is_named_once_and_passed_over(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("b1", sdk="2.0.1")
    (tmp_path / "broken.toml").write_bytes(b"\xff")
    (tmp_path / "other.toml").write_text("[tool]", "ascii")
    assert folder.of() == "b1"
    assert sum("broken.toml" in line for line in folder.told) == 1
    assert sum("other.toml" in line for line in folder.told) == 1


@pytest.mark.parametrize(
    ("board", "told"),
    [
        ({"simulated": False}, "is of the simulated board"),
        ({"simulated": True, "sdk": "B1"}, ""),
        ({"simulated": True, "of_real": True}, "is of a real board"),
        ({"simulated": False, "of_real": True, "sdk": "B1"}, "is of SDK B2, and the board has B1"),
        ({"simulated": False, "of_real": True}, ""),
    ],
)
def test_a_map_that_is_named_is_taken_whatever_the_folder_has_and_a_misfit_is_told_once(
    tmp_path: Path, board: dict[str, Any], told: str
) -> None:
    named = replace(simulated_map(), simulated=False, sdk="B2") if board.pop("of_real", False) else simulated_map()
    Folder(tmp_path).write("b1", sdk="")
    lines: list[str] = []
    maps = CounterMaps(named, tmp_path, lines.append)
    assert [maps.of(**board) for _ in range(2)] == [named] * 2
    assert [told in line for line in lines] == [True] * bool(told)
