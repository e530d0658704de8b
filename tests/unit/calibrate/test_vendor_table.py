"""The vendor's op_summary in the forms that its users have."""

from __future__ import annotations

import numpy as np
import pytest

from profagent.calibrate.vendor_table import VendorTable, parse_vendor_table
from profagent.errors import FormatError
from tests.fakes.counted_job import CountedJob, counted_job

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
