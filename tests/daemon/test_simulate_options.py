"""The command line of the simulated board."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from profagentd.errors import DaemonError
from profagentd.simulate import SimulationOptions, add_simulation_arguments, options_from


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_simulation_arguments(parser)
    return parser.parse_args(arguments)


def test_without_arguments_a_yolov5s_runs_for_ever() -> None:
    assert options_from(parsed()) == SimulationOptions()
    assert SimulationOptions() == SimulationOptions("yolov5s", None, 10.0, 1, 1, None, 0, Path(), 0)


def test_every_argument_reaches_its_option() -> None:
    network = ("--model", "m.toml", "--layers", "7")
    pace = ("--rate", "2.5", "--interval", "3", "--pictures", "4", "--for", "1.5", "--seed", "9", "--busy", "6")
    facts = ("--fact", "tick-unit=us", "--fact", "name-nul=without")
    options = options_from(parsed(*network, *pace, *facts))
    assert options == SimulationOptions("m.toml", 7, 2.5, 3, 4, 1.5, 9, Path(), 6, facts[1::2])


@pytest.mark.parametrize(
    "arguments",
    [
        ("--layers", "0"),
        ("--layers", "10001"),
        ("--rate", "0"),
        ("--rate", "-1"),
        ("--rate", "nan"),
        ("--rate", "inf"),
        ("--interval", "-1"),
        ("--interval", "10000"),
        ("--pictures", "0"),
        ("--pictures", "1025"),
        ("--for", "0"),
        ("--for", "inf"),
        ("--for", "nan"),
        ("--fact", "tick-unit=fortnight"),
        ("--fact", "tick-unit"),
        ("--fact", "other=us"),
    ],
)
def test_a_value_out_of_range_is_told_with_what_is_allowed(arguments: tuple[str, str]) -> None:
    with pytest.raises(DaemonError) as caught:
        options_from(parsed(*arguments))
    assert str(caught.value).startswith(arguments[0])
    assert caught.value.hint.startswith((arguments[0], "there are tick-unit=100-cycles|"))
    assert caught.value.exit_code == 2
