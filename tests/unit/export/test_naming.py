"""Names of results: the manual's, kept short, apart and inside their folder."""

from __future__ import annotations

from typing import Any

import pytest

from profagent.export.export import (
    acl_name,
    acl_statistic_name,
    icache_miss_rate,
    op_statistic_name,
    op_summary_name,
    task_time_name,
    unique_name,
)
from tests.unit.export.rows import inference_row


def test_names_are_the_manual_s() -> None:
    row = inference_row(model_name="yolo_v1", model_id=2, batch_num=4, input_pic_num=6, current_pic_count=18, iter_id=3)
    assert task_time_name(row) == "task_time_0.yolo_v1.2.4"
    assert acl_name(0, "yolo_v1", 2, 4) == "acl_0.yolo_v1.2.4"
    assert op_summary_name(row, 700, is_aggregate=False) == "op_summary_0.yolo_v1.2.4.6.18.0.2500.700"
    assert op_statistic_name(row, is_aggregate=False) == "op_statistic_0_2_18_3"
    assert acl_statistic_name(0, 2) == "acl_statistic_0_2_0"


@pytest.mark.parametrize(
    ("hit", "miss", "rate"),
    [(75, 25, "0.2500"), (0, 8, "1.0000"), (8, 0, "0.0000"), (0, 0, "NA"), (None, 1, "NA"), (1, None, "NA")],
)
def test_the_miss_rate_is_a_fraction_of_four_digits(hit: Any, miss: Any, rate: Any) -> None:
    assert icache_miss_rate(inference_row(cache_hit=hit, cache_miss=miss)) == rate


@pytest.mark.parametrize("model", ["m" * 300, "检" * 100, "a" + "检" * 100, "\N{GRINNING FACE}" * 70])
def test_long_model_names_are_cut_and_kept_apart_by_a_digest(model: Any) -> None:
    stems = [
        op_summary_name(inference_row(model_name=name, current_pic_count=2**64 - 1), 700, is_aggregate=False)
        for name in (model, model + "x")
    ]
    assert stems[0] != stems[1]
    for stem in stems:
        assert len(unique_name(stem, "json", []).encode()) <= 255
        assert "~" in stem
        assert stem.startswith(f"op_summary_0.{model[0]}")
        assert stem.endswith(".0.1.1.18446744073709551615.0.2500.700")


def test_a_model_s_name_cannot_lead_to_another_folder() -> None:
    assert "/" not in task_time_name(inference_row(model_name="../../etc/passwd\0"))
    assert "\0" not in acl_name(0, "a\0b", 0, 0)


def test_tables_that_would_share_a_name_are_numbered() -> None:
    assert unique_name("op", "csv", []) == "op.csv"
    assert unique_name("op", "csv", ["op.csv", "op.2.csv"]) == "op.3.csv"


def test_a_models_name_keeps_nothing_that_some_system_refuses_in_a_file_name() -> None:
    assert acl_name(0, 'a:b*c?<d>"e"|f\\g', 1, 2) == "acl_0.a_b_c__d__e__f_g.1.2"
