"""Lines of the daemon's metrics spool: names, sweeps and problems."""

from __future__ import annotations

import math
from typing import NamedTuple

LARGEST_TIME_US = 2**62


class MetricSample(NamedTuple):
    """A value; the time is microseconds since 1970 by the board's clock."""

    name: str
    unit: str
    time_us: int
    value: float


class MetricLines(NamedTuple):
    """What lines held: samples, collectors that gave nothing any more with the reason, and lines that are none."""

    samples: list[MetricSample]
    problems: dict[str, str]
    bad: int


Names = dict[str, tuple[str, str]]  # a number's name and unit


def decode(data: bytes, names: Names | None = None) -> MetricLines:
    """The lines of a segment; a last line without its end is left out.

    A segment's names stand at its beginning. For a later piece of one, give the `names` of the pieces before.
    """
    found, bad = MetricLines([], {}, 0), 0
    names = {} if names is None else names
    for line in data.decode("utf-8", "replace").split("\n")[:-1]:
        try:
            _take(line, names, found)
        except (ValueError, KeyError):
            bad += 1
    return found._replace(bad=bad)


def _take(line: str, names: Names, found: MetricLines) -> None:
    kind, _, rest = line.partition(" ")
    if kind == "n":
        number, unit, name = rest.split(" ", 2)
        names[number] = name, "" if unit == "-" else unit
    elif kind == "s":
        text, *values = rest.split(" ")
        time_us = int(text)
        pairs = [each.split("=", 1) for each in values]
        samples = [MetricSample(*names[number], time_us, float(value)) for number, value in pairs]
        if not 0 <= time_us < LARGEST_TIME_US or not all(math.isfinite(each.value) for each in samples):
            raise ValueError(line)
        found.samples.extend(samples)
    elif kind == "e":
        name, _, why = rest.partition(" ")
        found.problems[name] = why
    else:
        raise ValueError(kind)
