"""Finding a counter map: the one that was named, or the simulated board's own."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from profagent.errors import UsageError
from profagent.formats.countermap import CounterMap, parse_counter_map

if TYPE_CHECKING:
    from pathlib import Path


@cache
def simulated_map() -> CounterMap:
    """The map that the simulated board writes its counters by."""
    file = resources.files("profagent.formats").joinpath("maps/simulated.toml")
    return parse_counter_map(file.read_text("utf-8"), "simulated.toml")


def read_map(file: Path) -> CounterMap:
    """The map in a file; UsageError when it cannot be read, FormatError when it is none."""
    try:
        return parse_counter_map(file.read_text("utf-8"), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot read the counter map {file}: {error}", hint="name a TOML file with [counters.NAME] tables"
        ) from error
