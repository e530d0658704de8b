"""Tables for a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from profagent.cli.table import Column, fitted_lines, printable, shortened, table_lines, text_width, toned

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


def test_in_a_narrow_terminal_names_are_shortened_in_the_middle_before_columns_go() -> None:
    lines = list(fitted_lines(LAYERS, ROWS, 60))
    assert max(map(len, lines)) <= 60
    assert lines[0].split() == ["name", "type", "total", "mad"]
    assert lines[2].split() == ["convconvconvconvc…vconvconvconvconv", "Convolution", "12.0", "1.0"]
    assert lines[3].split() == ["pool", "Pooling", "3.0", "0.5"]


def test_columns_that_are_wanted_least_go_first_and_are_named() -> None:
    lines = list(fitted_lines(LAYERS, ROWS, 30, less=["mad", "type"]))
    assert lines[0].split() == ["name", "total"]
    assert lines[-2:] == ["(not shown in 30 columns: mad,", "type; --wide shows all)"]


def test_a_terminal_that_is_wide_enough_shows_all_and_a_pipe_does_always() -> None:
    for lines in (list(fitted_lines(LAYERS, ROWS, 1000)), list(fitted_lines(LAYERS, ROWS, 0))):
        assert "conv" * 10 in lines[2]
        assert "not shown" not in lines[-1]
    assert list(fitted_lines(LAYERS, ROWS, 0, less=["mad"], tones=["slower", None])) == list(table_lines(LAYERS, ROWS))


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
    red, green, plain = list(
        fitted_lines(COLUMNS, [("a", 1), ("b", 1), ("c", 1)], 80, tones=["slower", "faster", None])
    )[2:]
    assert ("\x1b[31m" in red, "\x1b[32m" in green) == (has_colours, has_colours)
    assert "\x1b" not in plain
    assert toned("loss: gap x 3") == ("\x1b[31m\x1b[1mloss: gap x 3\x1b[0m" if has_colours else "loss: gap x 3")
    assert toned("JOBX: note: late x 3").startswith("\x1b[2m") is has_colours
    assert toned("loss: none") == "loss: none"


def test_a_pipe_gets_no_colours() -> None:
    assert toned("loss: gap x 3") == "loss: gap x 3"
