"""Tables for a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from profagent.cli.table import Column, fitted_lines, printable, table_lines, text_width

COLUMNS = (Column("Name"), Column("Time(us)", 3))


def test_names_stand_left_and_numbers_right() -> None:
    assert list(table_lines(COLUMNS, [("conv", 1.5), ("a_long_name", 12345.678)])) == [
        "Name          Time(us)",
        "-----------  ---------",
        "conv             1.500",
        "a_long_name  12345.678",
    ]


def test_wide_characters_take_two_columns() -> None:
    assert list(table_lines(COLUMNS, [("检测头", 1.0), ("conv", 2.0)])) == [
        "Name    Time(us)",
        "------  --------",
        "检测头     1.000",
        "conv       2.000",
    ]


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("检测", 4), ("e\u0301", 1), ("\uff21", 2), ("\u200b", 0)])
def test_width_is_that_of_a_terminal(text: Any, width: Any) -> None:
    assert text_width(text) == width


def test_a_name_cannot_move_the_cursor() -> None:
    (line,) = list(table_lines(COLUMNS, [("a\x1b[2Jb\n", 1.0)]))[2:]
    assert "\x1b" not in line
    assert "\n" not in line
    assert printable("plain name") == "plain name"


LAYERS = [Column("name"), Column("type"), Column("total", 1), Column("mad", 1)]
ROWS = [("conv" * 10, "Convolution", 12.0, 1.0), ("pool", "Pooling", 3.0, 0.5)]


def test_in_a_narrow_terminal_long_words_are_cut_before_columns_go() -> None:
    lines = list(fitted_lines(LAYERS, ROWS, 60))
    assert max(map(len, lines)) <= 60
    assert lines[0].split() == ["name", "type", "total", "mad"]
    assert lines[2].startswith("convconvconvconvconvcon…  Convolution")


def test_columns_that_are_wanted_least_go_first_and_are_named() -> None:
    lines = list(fitted_lines(LAYERS, ROWS, 40, less=["mad", "type"]))
    assert lines[0].split() == ["name", "total"]
    assert lines[-1] == "(not shown in 40 columns: mad, type)"
