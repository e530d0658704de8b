"""The NPU's node of /proc/umap: values by column, whatever the order and whatever is missing."""

from __future__ import annotations

from pathlib import Path

from profagent.formats.board_files import parse_umap

SAMPLE = (Path(__file__).parents[2] / "data" / "umap" / "svp_npu.txt").read_text("utf-8")


def test_the_manuals_example() -> None:
    columns = parse_umap(SAMPLE)
    assert columns["max_task_node_num"] == ("512",)
    assert columns["free_model_num"] == ("63",)
    assert columns["hw_utilization"] == ("0%",)
    assert columns["net_seg_num"] == ("610",)
    assert columns["total_irq_time"] == ("2445",)
    # The busy stream and the runtime info have one each.
    assert columns["timeout_err_cnt"] == ("0", "0")
    assert columns["device_id"] == ("0",) * 5


def test_columns_in_another_order_and_of_another_sdk() -> None:
    text = "---svp_nnn runtime info---\n hw_status mac_utilization(%) device_id\n busy 12 0\n idle 0 1\n"
    assert parse_umap(text) == {"hw_status": ("busy", "idle"), "mac_utilization": ("12", "0"), "device_id": ("0", "1")}


def test_a_second_table_below_the_first_one_in_a_section() -> None:
    assert parse_umap("a b\n1 2\nc d\n3 4\n") == {"a": ("1",), "b": ("2",), "c": ("3",), "d": ("4",)}


def test_lines_that_are_no_table() -> None:
    assert parse_umap("") == {}
    assert parse_umap("[SVP_NPU] Version: [x], Build Time[y]\n1 2 3\n") == {}
    assert parse_umap("a b\n1 2 3\n") == {}
