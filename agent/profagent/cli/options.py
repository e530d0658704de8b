"""Options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")


def board(function: F) -> F:
    """`--board HOST[:PORT]`."""
    return click.option("--board", required=True, metavar="HOST[:PORT]", help="Where profagentd listens.")(function)


def counter_map(function: F) -> F:
    """`--counter-map FILE`."""
    return click.option(
        "--counter-map",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="TOML file that says which word of a record is which PMU counter.",
    )(function)


def job_directory(function: F) -> F:
    """`-dir JOB`, as the vendor's tool spells it."""
    return click.option(
        "-dir",
        "--collection-dir",
        "directory",
        required=True,
        type=click.Path(file_okay=False, path_type=Path),
        metavar="JOB",
        help="The JOB… directory, which holds data/ and info.json.0.",
    )(function)


def workspace(function: F) -> F:
    """`--workspace DIR`."""
    return click.option(
        "--workspace",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Where captures are kept; $PROFAGENT_WORKSPACE, else profagent in the user's data folder.",
    )(function)


def as_json(function: F) -> F:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(function)
