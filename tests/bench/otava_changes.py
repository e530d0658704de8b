"""Changes of level by Apache Otava: series as a JSON list on standard input, lists of places on standard output.

It runs in the environment of the benchmarks, which has Otava; its defaults are those of its own command.
"""

from __future__ import annotations

import json
import sys

from otava.analysis import compute_change_points  # type: ignore[import-not-found]


def places(series: list[float]) -> list[int]:
    """Return the first values of new levels; a series that Otava refuses has none."""
    try:
        found, _ = compute_change_points(series)
    except ValueError:
        return []
    return [int(change.index) for change in found]


if __name__ == "__main__":
    json.dump([places(series) for series in json.load(sys.stdin)], sys.stdout)
