"""What is found of random maps: never a wrong counter that is called certain, and next to every counter found."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profagent.calibrate.cli import match_rows
from profagent.calibrate.fitting import CounterVerdict, Evidence, LearntCounter, find_counters, values_of
from profagent.calibrate.kit import command
from profagent.calibrate.vendor_table import Rounded, VendorTable, parse_vendor_table
from profagent.errors import FormatError
from profagent.limits import KIT_INFERENCES, LARGEST_KIT_BYTES
from tests.fakes.counted_job import CountedJob, Place, counted_job, evidence_of, records_elsewhere

MAPS = 5
FOUND = 0.95


def found(job: CountedJob, decimals: int = 4, *, percent: bool = False) -> dict[str, LearntCounter]:
    return {each.counter: each for each in find_counters(evidence_of(job, decimals, percent=percent), job.bytes)}


def is_right(job: CountedJob, finding: LearntCounter) -> bool:
    """Whether it gives what the counter is, from where the counter is."""
    place = job.places[finding.counter]
    if finding.fit is None or place is None or finding.fit.offset != place.offset:
        return False
    return np.allclose(values_of(finding.fit, job.bytes), job.values[finding.counter])


def check_certain(job: CountedJob, findings: dict[str, LearntCounter]) -> None:
    """What is certain reads every other record of that map as well, and what is not says what would settle it."""
    body, values = records_elsewhere(np.random.default_rng(0), job)
    for counter, finding in findings.items():
        assert bool(finding.advice) == (finding.verdict is not CounterVerdict.CERTAIN)
        if finding.verdict is CounterVerdict.CERTAIN:
            assert finding.fit is not None
            assert is_right(job, finding), counter
            assert np.allclose(values_of(finding.fit, body), values[counter]), counter


@pytest.mark.parametrize(("decimals", "percent"), [(4, False), (4, True), (3, False), (2, False)])
def test_counters_of_random_maps(decimals: int, *, percent: bool) -> None:
    right = 0
    for seed in range(MAPS):
        job = counted_job(np.random.default_rng(seed))
        findings = found(job, decimals, percent=percent)
        check_certain(job, findings)
        right += sum(is_right(job, finding) for finding in findings.values())
    assert right >= FOUND * MAPS * 10


@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 90),
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from([2, 3, 4]),
    st.booleans(),
)
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
def test_nothing_wrong_is_certain(
    seed: int, rows: int, sums: int, constant: int, decimals: int, is_hostile: bool
) -> None:
    """Columns that are no single number, that are constant, or known from few rows; noise that is nearly a counter."""
    job = counted_job(np.random.default_rng(seed), rows, sums=sums, constant=constant, is_hostile=is_hostile)
    check_certain(job, found(job, decimals))


def test_a_number_that_is_there_twice_is_refused() -> None:
    job = counted_job(np.random.default_rng(5))
    place = job.places["mac_busy"]
    assert place is not None
    size = int(place.type[1:]) // 8
    doubled = _without_bytes_elsewhere(job, place, size)
    finding = {each.counter: each for each in find_counters(doubled, next(iter(doubled.values())).records)}["mac_busy"]
    assert finding.verdict is CounterVerdict.NOT_FOUND
    assert finding.fit is None
    assert len({rival.offset for rival in finding.rivals}) == 2


def _without_bytes_elsewhere(job: CountedJob, place: Place, size: int) -> dict[str, Evidence]:
    """Evidence in which the number stands a second time, in place of another counter."""
    other = next(each for each in job.places.values() if each and each is not place and int(each.type[1:]) // 8 >= size)
    records = job.bytes.copy()
    records[:, other.offset : other.offset + int(other.type[1:]) // 8] = 0
    records[:, other.offset : other.offset + size] = records[:, place.offset : place.offset + size]
    return {name: replace(each, records=records) for name, each in evidence_of(job, 4).items()}


def test_two_counters_of_the_same_bytes_are_neither() -> None:
    job = counted_job(np.random.default_rng(6))
    all_evidence = evidence_of(job, 4)
    all_evidence["mac_ppen"] = all_evidence["mac_busy"]
    findings = {each.counter: each for each in find_counters(all_evidence, job.bytes)}
    assert findings["mac_busy"].verdict is findings["mac_ppen"].verdict is CounterVerdict.NOT_FOUND
    assert "mac_ppen" in findings["mac_busy"].advice


def cycles_at_0x10(rows: int, decimals: int) -> Evidence:
    """A ratio of 0.7 to 0.99 of each layer's cycles, and nothing else in the records."""
    random = np.random.default_rng(1)
    ticks = random.integers(40_000, 60_000, rows)
    counts = (random.uniform(0.7, 0.99, rows) * ticks * 100).astype("<u4")
    records = np.zeros((rows, 256), np.uint8)
    records[:, 0x04:0x08] = ticks.astype("<u4").view(np.uint8).reshape(rows, 4)
    records[:, 0x10:0x14] = counts.view(np.uint8).reshape(rows, 4)
    values = np.round(counts / (ticks * 100.0), decimals)
    return Evidence(records, ticks.astype(np.float64), values, np.full(rows, 0.5 * 10.0**-decimals))


@pytest.mark.parametrize(("rows", "verdict"), [(12, CounterVerdict.LIKELY), (60, CounterVerdict.CERTAIN)])
def test_certain_is_what_would_not_agree_by_chance_in_a_thousand_million(rows: int, verdict: CounterVerdict) -> None:
    """With three decimals a row tells a number from one that is off by a thousandth in one case of two."""
    evidence = cycles_at_0x10(rows, 3)
    (finding,) = find_counters({"mac_busy": evidence}, evidence.records)
    assert finding.fit is not None
    assert (finding.fit.offset, finding.verdict) == (0x10, verdict)


# The vendor's op_summary in the forms that its users have

HEADING = "Layer Id,Ori Layer Name,Layer Name,Layer Type,Time(us),Time Ratio,Mac Busy Ratio,DDR Read(byte)"


@pytest.fixture
def job() -> CountedJob:
    return counted_job(np.random.default_rng(1), rows=20)


def read(text: str, encoding: str = "utf-8") -> VendorTable:
    return parse_vendor_table(text.encode(encoding), "op_summary.csv")


def test_fractions_and_percentages_are_the_same(job: CountedJob) -> None:
    fractions, percentages = read(job.table(4)), read(job.table(4, percent=True))
    for name, column in fractions.columns.items():
        assert column.half == pytest.approx(percentages.columns[name].half)
        assert np.allclose(column.values, percentages.columns[name].values, atol=2 * column.half)
        assert np.allclose(column.values, job.values[name], atol=column.half * 1.001)


def test_names_in_gbk() -> None:
    table = read(f"{HEADING}\n0,N/A,卷积一,Convolution,10.0,60.0,50.00,77\n", "gbk")
    assert table.names == ("卷积一",)
    assert table.columns["mac_busy"].values.tolist() == [0.5]


def test_the_total_is_no_layer_and_what_is_not_known_is_no_number() -> None:
    table = read(f"{HEADING}\n3,N/A,conv,Conv,10.0,100.00,N/A,12\n-,-,total,-,10.0,100.00,50.00,12\n")
    assert len(table.names) == 1
    assert np.isnan(table.columns["mac_busy"].values).all()
    assert table.columns["ddr_read_bytes"].values.tolist() == [12.0]
    assert table.columns["ddr_read_bytes"].half == 0.5


def test_a_few_small_ratios_may_be_either_and_are_refused() -> None:
    with pytest.raises(FormatError, match="found 1 of them with values"):
        read(f"{HEADING}\n0,N/A,a,Conv,10.0,60,0.5000,77\n0,N/A,b,Conv,10.0,40,0.4000,77\n")
    column = read(f"{HEADING}\n0,N/A,a,Conv,10.0,60,0.50%,77\n0,N/A,b,Conv,10.0,40,0.4%,77\n").columns["mac_busy"]
    assert column.values.tolist() == [0.005, 0.004]
    assert column.half == pytest.approx(0.00005)


def test_a_number_that_a_spreadsheet_cut_short_is_not_known() -> None:
    table = read(f"{HEADING}\n0,N/A,a,Conv,10.0,60.0,50.00,1.00159E+12\n1,N/A,b,Conv,1e-05,40.0,1.00,77\n")
    assert np.isnan(table.columns["ddr_read_bytes"].values).tolist() == [True, False]
    assert table.columns["ddr_read_bytes"].half == 0.5
    assert table.time_us.half == pytest.approx(0.5e-5)


# Rows of a table and records of an inference, of which some are missing on either side


def table(names: list[str | None], times_us: list[float]) -> VendorTable:
    return VendorTable("x", tuple(names), Rounded(np.array(times_us), 0.0005), {})


def pairs(
    found: VendorTable, names: list[str | None], times_us: list[float] | None
) -> tuple[list[int], list[int], str]:
    matched = match_rows(found, names, None if times_us is None else np.array(times_us))
    assert matched is not None
    return matched.rows.tolist(), matched.records.tolist(), matched.by


def test_by_name_and_time_though_either_side_misses_some() -> None:
    found = pairs(table(["a", "c", "d"], [1.0, 3.0, 4.0]), ["a", "b", "c"], [1.0, 2.0, 3.0])
    assert found == ([0, 1], [0, 2], "name and time")


def test_without_names_and_times_the_places_tell() -> None:
    found = pairs(table([None, None], [float("nan")] * 2), [None, None], None)
    assert found == ([0, 1], [0, 1], "sequence")
    assert match_rows(table([None, None], [float("nan")] * 2), [None], None) is None


def test_a_row_that_may_be_one_of_two_records_is_left_out() -> None:
    found = pairs(table(["a", "b", "c"], [1.0, 2.0, 3.0]), ["a", "b", "b", "c"], [1.0, 2.0, 2.0, 3.0])
    assert found == ([0, 2], [0, 3], "name and time")


@given(st.lists(st.integers(1, 4), min_size=1, max_size=30), st.data())
def test_no_pair_is_ever_wrong(kinds: list[int], data: st.DataObject) -> None:
    """Whatever is missing of the table, and however alike layers are."""
    kept = sorted(data.draw(st.sets(st.integers(0, len(kinds) - 1), min_size=1)))
    names: list[str | None] = [f"layer{kind}" for kind in kinds]
    times_us = [float(kind) for kind in kinds]
    matched = match_rows(
        table([names[each] for each in kept], [times_us[each] for each in kept]), names, np.array(times_us)
    )
    if matched is None:
        assert len(kept) < len(kinds)
    else:
        assert all(kept[row] == record for row, record in zip(matched.rows, matched.records, strict=True))


# Both pages that ask for evidence say the same, and nothing that the commands do not have

DOCS = Path(__file__).parents[3] / "docs" / "howto"
PAGES = [(DOCS / name).read_text("utf-8") for name in ("send-evidence.md", "send-evidence.zh.md")]


def test_both_pages_have_the_same_commands() -> None:
    english, chinese = (re.findall(r"^ *```.*?```|`[^`\n]+`", page, re.MULTILINE | re.DOTALL) for page in PAGES)
    assert set(english) == set(chinese)
    assert any("msprof.pyc export summary -dir" in block for block in english)
    assert PAGES[0].count("\n## ") == PAGES[1].count("\n## ")


def test_the_pages_tell_true_options_and_limits() -> None:
    options = {option for parameter in command.params for option in parameter.opts}
    for page in PAGES:
        (kit,) = re.findall(r"^profagent kit -o .*?\n(?=tar)", page, re.MULTILINE | re.DOTALL)
        assert set(re.findall(r" (--?[a-z][a-z-]*)", kit)) <= options
        assert "--anonymous" in page
        assert f" {KIT_INFERENCES} " in page
        assert f"{LARGEST_KIT_BYTES >> 20} MiB" in page
