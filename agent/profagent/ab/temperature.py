"""The chip's temperature, read over SSH: the sessions of `ab` have the JOBs of the programs and no system metrics."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from profagent.errors import UnreachableError
from profagent.ssh.connection import connect

if TYPE_CHECKING:
    from profagent.collect.collecting import CollectOptions

_FILE = "/proc/umap/pm"
_CURRENT = re.compile(r"\bcur_temp\s*:\s*(-?\d+(?:\.\d+)?)")


class Temperature(NamedTuple):
    """Chip temperatures in °C, before the first run and after the last; None if the board does not tell it."""

    begin: float | None
    end: float | None


NO_TEMPERATURE = Temperature(None, None)


def temperature_in(text: str) -> float | None:
    """Return the temperature in the text of the driver's file, None without one."""
    found = _CURRENT.search(text)
    return None if found is None else float(found[1])


async def temperature_of(options: CollectOptions) -> float | None:
    """Return the board's temperature; None if it does not tell it, or is away."""
    try:
        async with connect(options.target, options.asker) as remote:
            ran = await remote.run(f"cat {_FILE} 2>/dev/null || :")
    except UnreachableError:
        return None
    return temperature_in(ran.text)
