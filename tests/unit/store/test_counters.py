"""What cannot be of counters is noted once for each session, when a JOB or the capture ends."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from profagent.formats.board_files import Done
from profagent.formats.counter_maps import CounterMaps, read_map, simulated_map
from profagent.formats.countermap import MAPPED_NAMES, RATES, SHARES
from profagent.ingest.changes import FrequencyKnown, InferenceTimed, LogAdvanced, LogReset, Redecoded, SegmentRecords
from profagent.ledger import IMPLAUSIBLE_COUNTER
from profagent.store.queries import implausible_of
from profagent.store.sessions import MapUsed
from profagentd.simulate.draw import load_counters
from tests.unit.store.rows import AICORE, JOB, Rows, aicore

SECOND = "data/aicore.0.m.3.0.1.1.5"
MAP = MapUsed("mine", "12")


@pytest.fixture
def rows(rows: Rows) -> Rows:
    rows.session(decoded_with=MAP)
    return rows


def some(path: str = AICORE, *values: float, first: int = 0) -> SegmentRecords:
    return aicore(path, [7_000] * len(values), first=first, counters={"dld": list(values)})


def noted(rows: Rows) -> list[tuple[int, str]]:
    rows.finish()
    return rows.query("SELECT session, detail FROM ledger WHERE reason = ?", IMPLAUSIBLE_COUNTER)


def test_a_session_is_marked_once_with_the_latest_numbers(rows: Rows) -> None:
    rows.apply(some(SECOND, 0.5, 2.0), some(AICORE, 0.1, 1.5))
    assert noted(rows) == [(2, f"dld is above 1 in 2 of 4 records, at worst 2; first record 1 of {AICORE}")]
    rows.apply(some(AICORE, 3.0, first=2))
    detail = f"dld is above 1 in 3 of 5 records, at worst 3; first record 1 of {AICORE}"
    assert noted(rows) == [(2, detail)]
    assert rows.ask(implausible_of, 2) == [f"implausible: {JOB}: {detail}"]


@pytest.mark.parametrize("changes", [(some(AICORE, 0.5, 1.0),), (aicore(),)])
def test_counters_that_can_be_leave_no_mark(rows: Rows, changes: tuple[SegmentRecords, ...]) -> None:
    rows.apply(*changes)
    assert noted(rows) == []


def test_rows_that_are_void_do_not_count(rows: Rows) -> None:
    rows.apply(LogAdvanced(AICORE, 1, 512), some(AICORE, 9.0, 0.5), LogAdvanced(SECOND, 1, 512), some(SECOND, 0.5, 2.0))
    rows.apply(LogReset(AICORE))
    assert noted(rows) == [(2, f"dld is above 1 in 1 of 2 records, at worst 2; first record 1 of {SECOND}")]
    rows.apply(Redecoded(SECOND, aicore(SECOND, [7_000] * 2)))
    assert noted(rows) == [], "no map, no counters"


@pytest.mark.parametrize("check", [*SHARES, *RATES])
def test_each_check_is_made(rows: Rows, check: str) -> None:
    counter = RATES.get(check) or SHARES[check][0]
    possible = dict.fromkeys(MAPPED_NAMES[:8], 0.5) | dict.fromkeys(RATES.values(), 1e6)
    impossible = possible | {counter: 1e9 if check in RATES else 1.5 if check.endswith("<= 1") else 0.6}
    counters = {name: [possible[name], impossible[name], math.nan] for name in MAPPED_NAMES}
    rows.apply(FrequencyKnown(700), aicore(ticks=[7_000, 7_000, 0], counters=counters))
    what = f"{counter} is " + ("more than" if check in RATES else "above " + check.partition("<= ")[2])
    assert any(detail.startswith(what) and "in 1 of 2 records" in detail for _, detail in noted(rows))


def test_a_job_that_an_earlier_profagent_began_is_read(rows: Rows) -> None:
    rows.apply(some(AICORE, 2.0))
    rows.query("DROP TABLE counter_bound")
    rows.session(decoded_with=MAP)
    rows.apply(some(SECOND, 0.5))
    assert [session for session, _ in noted(rows)] == [2]


def test_counters_beyond_any_float_are_told(rows: Rows) -> None:
    rows.apply(aicore(ticks=[7_000], counters={"mac_busy": [math.inf], "mac_ppen": [math.inf]}))
    assert [detail.partition(" in ")[0] for _, detail in noted(rows)] == ["mac_busy is above 1", "mac_ppen is above 1"]


@pytest.mark.parametrize(("peak", "is_odd"), [(34.1e9, True), (50e9, False)])
def test_rates_are_judged_by_what_the_memory_can_move(rows: Rows, peak: float, *, is_odd: bool) -> None:
    rows.session(decoded_with=MAP, peak_bytes_per_s=peak)
    counters = {"ddr_read_bytes": [1e6, 40e6], "mac_busy": [0.5, 0.5], "mac_ppen": [0.505, 0.4]}
    rows.apply(aicore(ticks=[7_000, 7_000], counters=counters))
    assert noted(rows) == []
    rows.apply(FrequencyKnown(700))
    what = "ddr_read_bytes is more than the memory can move in 1 of 2 records"
    assert [what in detail for _, detail in noted(rows)] == [True] * is_odd


def test_each_session_has_the_marks_of_what_it_fetched(rows: Rows) -> None:
    rows.apply(some(AICORE, 2.0))
    rows.session(decoded_with=MAP)
    rows.apply(some(AICORE, 0.5, first=1))
    assert [session for session, _ in noted(rows)] == [2]


@pytest.mark.parametrize(("end_us", "share"), [(10_979, None), (10_978, 1000 / 978), (10_500, 2.0)])
def test_layers_take_no_longer_than_their_inference(rows: Rows, end_us: int, share: float | None) -> None:
    change = aicore(ticks=[3_500, 3_500])
    rows.apply(FrequencyKnown(700), change, InferenceTimed(change.name, 0, Done(512, 10_000, end_us)))
    found = noted(rows)
    assert noted(rows) == found
    assert len(found) == (share is not None)
    assert share is None or f"in 1 of 1 inferences, at worst {share:,.4g} times; first {AICORE}" in found[0][1]


def test_a_capture_that_ends_before_its_job_is_marked(rows: Rows) -> None:
    rows.apply(some(AICORE, 2.0))
    rows.run(rows.writer.end(99))
    assert rows.ask(implausible_of, 2)


# Where a counter map is from

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
