"""Tables as CSV and as JSON, in pieces."""

from __future__ import annotations

import json
import random
import re
from itertools import pairwise
from math import inf, nan, nextafter
from typing import Any

import numpy as np
import pytest

from profagent.export.job_files import unique_name
from profagent.export.sheets import TEXTS, Coded, Sheets
from profagent.export.summary import acl_statistic_name, op_statistic_name, op_summary_name
from profagent.export.tables import icache_miss_rate
from profagent.export.timeline import acl_name, task_time_name
from profagent.limits import ROWS_PER_PIECE
from profagent.tables.table import (
    Column,
    fitted_lines,
    json_text,
    printable,
    sheet_pieces,
    shortened,
    table_lines,
    text_width,
    toned,
)
from tests.unit.export.rows import inference_row

COLUMNS = (Column("Name"), Column("Time(us)", 3), Column("Bytes", 0))


def _csv(rows: list[tuple[Any, ...]]) -> bytes:
    return b"".join(sheet_pieces(COLUMNS, rows, "csv"))


def test_csv_has_a_heading_fixed_decimals_and_plain_line_ends() -> None:
    assert _csv([("conv", 1.5, 2048.0), ("relu", None, None)]) == (
        b"Name,Time(us),Bytes\nconv,1.500,2048\nrelu,N/A,N/A\n"
    )


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("a,b", '"a,b"'),
        ('say "x"', '"say ""x"""'),
        ("检测", "检测"),
        ("", ""),
        ("=1+1", "'=1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("-x", "'-x"),
        ("'=1", "''=1"),
        ("'quoted'", "'quoted'"),
        ("-1.5e3", "-1.5e3"),
        ("-", "-"),
        ("two\nlines\r", "two\\x0alines\\x0d"),
        ("\t=1", "\\x09=1"),
        ("\x1b[2J\u202e", "\\x1b[2J\\u202e"),
        ("C:\\x1b", "C:\\x5cx1b"),
        ("C:\\temp", "C:\\temp"),
    ],
)
def test_a_text_is_no_formula_and_steers_nothing(name: str, cell: str) -> None:
    assert _csv([(name, -1.0, -1.0)]).decode() == f"Name,Time(us),Bytes\n{cell},-1.000,-1\n"


def test_json_steers_nothing_and_means_the_same() -> None:
    name = "\x1b\x7f\x9b\u202e\u2066检测"
    for text in (json_text({"name": name}), b"".join(sheet_pieces(COLUMNS, [(name, 1.0, 1.0)], "json"))):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text.decode())
        (found, *_) = json.loads(text) if text.startswith(b"[") else [json.loads(text)]
        assert next(iter(found.values())) == name


@pytest.mark.parametrize("count", [0, 1, ROWS_PER_PIECE, ROWS_PER_PIECE + 1, 3 * ROWS_PER_PIECE])
def test_any_number_of_rows_comes_whole(count: Any) -> None:
    rows = [(f"layer{i}", float(i), None) for i in range(count)]
    assert len(json.loads(b"".join(sheet_pieces(COLUMNS, rows, "json")))) == count
    assert _csv(rows).count(b"\n") == count + 1


@pytest.mark.parametrize("sheet_format", ["csv", "json"])
def test_rows_are_not_gathered_before_the_first_piece(sheet_format: Any) -> None:
    numbers = iter(range(10 * ROWS_PER_PIECE))
    next(iter(sheet_pieces(COLUMNS, ((str(i), 1.0, None) for i in numbers), sheet_format)))
    assert next(numbers) == ROWS_PER_PIECE


# Many tables of one kind, by columns


def _numbers(decimals: int) -> list[float]:
    """Numbers around each place where texts are made another way, ties of the last decimal, and odd ones."""
    unit = 10.0**decimals
    ties = [
        (number + 0.5) / unit for number in (0, 1, 2, 3, 999, 1000, 4095, 131_070, TEXTS - 1, TEXTS, TEXTS + 1, 10**9)
    ]
    edges = [number / unit for number in (TEXTS - 1, TEXTS, TEXTS * unit - 1, TEXTS * unit, TEXTS * 1000, 2**53)]
    around = [nextafter(each, to) for each in (*ties, *edges) for to in (-inf, inf)]
    chance = random.Random(decimals)
    spread = [chance.uniform(0, 10 ** chance.uniform(-4, 16)) for _ in range(2000)]
    found = [*ties, *edges, *around, *spread, 0.0, 2.675, 1.005, 5e-324, 1e22, 1.7e308]
    return [*found, *(-each for each in found), inf, -inf]


@pytest.mark.parametrize("decimals", [0, 1, 3])
def test_a_column_of_numbers_has_python_s_own_texts(decimals: int) -> None:
    numbers = _numbers(decimals)
    sheet = Sheets([Column("x", decimals)], [np.array([*numbers, nan])], np.array([len(numbers) + 1]))
    (text,) = sheet.texts("csv")
    assert text.decode().split("\n") == ["x", *(f"{number:.{decimals}f}" for number in numbers), "N/A", ""]


@pytest.mark.parametrize("sheet_format", ["csv", "json"])
def test_each_table_has_its_rows_as_if_it_were_alone(sheet_format: str) -> None:
    names, times, counts = ["conv", "a,b", None], [1.5, nan, -0.0, 7.25], [1, 2, 3, 4]
    codes, ends = [0, 1, 2, 1], [2, 2, 4]
    columns = (Column("Name"), Column("Time(us)", 3), Column("Count"))
    values = (Coded(np.array(codes), names), np.array(times), np.array(counts))
    sheets = Sheets(columns, values, np.array(ends))
    rows = [("conv", 1.5, 1), ("a,b", None, 2), (None, -0.0, 3), ("a,b", 7.25, 4)]
    assert sheets.rows() == [rows[begin:end] for begin, end in pairwise([0, *ends])]
    alone = [b"".join(sheet_pieces(columns, some, sheet_format)) if some else b"" for some in sheets.rows()]
    assert [*sheets.texts(sheet_format)] == alone


# Tables for a terminal

SHOWN = (Column("Name"), Column("Time(us)", 3))


def test_names_stand_left_and_numbers_right() -> None:
    assert list(table_lines(SHOWN, [("conv", 1.5), ("a_long_name", 12345.678)])) == [
        "Name          Time(us)",
        "-----------  ---------",
        "conv             1.500",
        "a_long_name  12345.678",
    ]


def test_wide_characters_take_two_columns() -> None:
    assert list(table_lines(SHOWN, [("检测头", 1.0), ("conv", 2.0)])) == [
        "Name    Time(us)",
        "------  --------",
        "检测头     1.000",
        "conv       2.000",
    ]


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("检测", 4), ("e\u0301", 1), ("\uff21", 2), ("\u200b", 0)])
def test_width_is_that_of_a_terminal(text: Any, width: Any) -> None:
    assert text_width(text) == width


def test_a_name_cannot_move_the_cursor() -> None:
    (line,) = list(table_lines(SHOWN, [("a\x1b[2Jb\n", 1.0)]))[2:]
    assert "\x1b" not in line
    assert "\n" not in line
    assert printable("plain name") == "plain name"


CHOSEN = [Column("name"), Column("type"), Column("total", 1), Column("mad", 1)]
ROWS = [("conv" * 10, "Convolution", 12.0, 1.0), ("pool", "Pooling", 3.0, 0.5)]


def test_in_a_narrow_terminal_names_are_shortened_in_the_middle_before_columns_go() -> None:
    lines = list(fitted_lines(CHOSEN, ROWS, 60))
    assert max(map(len, lines)) <= 60
    assert lines[0].split() == ["name", "type", "total", "mad"]
    assert lines[2].split() == ["convconvconvconvc…vconvconvconvconv", "Convolution", "12.0", "1.0"]
    assert lines[3].split() == ["pool", "Pooling", "3.0", "0.5"]


def test_columns_that_are_wanted_least_go_first_and_are_named() -> None:
    lines = list(fitted_lines(CHOSEN, ROWS, 30, less=["mad", "type"]))
    assert lines[0].split() == ["name", "total"]
    assert lines[-2:] == ["(not shown in 30 columns: mad,", "type; --wide shows all)"]


def test_a_terminal_that_is_wide_enough_shows_all_and_a_pipe_does_always() -> None:
    for lines in (list(fitted_lines(CHOSEN, ROWS, 1000)), list(fitted_lines(CHOSEN, ROWS, 0))):
        assert "conv" * 10 in lines[2]
        assert "not shown" not in lines[-1]
    assert list(fitted_lines(CHOSEN, ROWS, 0, less=["mad"], tones=["slower", None])) == list(table_lines(CHOSEN, ROWS))


@pytest.mark.parametrize("name", ["x" * 70, "检测头" * 12, "a [bold]b[/bold] " * 5, "e\u0301" * 40])
@pytest.mark.parametrize("width", [34, 55, 90])
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    lines = list(fitted_lines([Column("[red]name"), Column("time", 1)], [(name, 1000.0), ("short", 2.0)], width))
    assert max(map(text_width, lines)) <= width
    assert lines[0].split() == ["[red]name", "time"]
    assert lines[2].endswith("1000.0")


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [("abcdef", 6, "abcdef"), ("abcdefg", 6, "abc…fg"), ("检测头层", 6, "检…层"), ("abc", 1, "…")],
)
def test_what_is_too_much_goes_from_the_middle(text: str, width: int, shown: str) -> None:
    assert shortened(text, width) == shown


@pytest.mark.parametrize(
    ("variables", "has_colours"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_colours_mean_something_and_are_left_out_where_nobody_wants_them(
    variables: dict[str, str], has_colours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    red, green, plain = list(fitted_lines(SHOWN, [("a", 1), ("b", 1), ("c", 1)], 80, tones=["slower", "faster", None]))[
        2:
    ]
    assert ("\x1b[31m" in red, "\x1b[32m" in green) == (has_colours, has_colours)
    assert "\x1b" not in plain
    assert toned("loss: gap x 3") == ("\x1b[31m\x1b[1mloss: gap x 3\x1b[0m" if has_colours else "loss: gap x 3")
    assert toned("JOBX: note: late x 3").startswith("\x1b[2m") is has_colours
    assert toned("loss: none") == "loss: none"


def test_a_pipe_gets_no_colours() -> None:
    assert toned("loss: gap x 3") == "loss: gap x 3"


# Names of results: the manual's, kept short, apart and inside their folder


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
