"""Tables op_summary as a run: files as profagent or the vendor's tool writes them, each of one inference."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from profagent.diff.alignment import LayerName
from profagent.diff.model_runs import ModelRun
from profagent.errors import UsageError
from profagent.stats.gathering import UNITS
from profagent.stats.warmup import warm_up

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["exported_files", "read_exported"]

METADATA_FILE = "metadata.json"
NAMES = "op_summary_*"
COLUMNS = ("Layer Id", "Layer Name", "Layer Type", "Time(us)")
_NAME = re.compile(
    r"op_summary_\d+\.(?P<model>.+)\.\d+\.(?P<batch>\d+)\.(?:(?P<pictures>\d+)\.(?P<count>\d+)|aggregate)\.(?:\d+\.\d+|NA)"
    r"\.(?:\d+|NA)(?:\.reload(?P<load>\d+))?(?:\.\d+)?\.(?:csv|json)"
)


def exported_files(path: Path) -> list[Path]:
    """The tables at a path: a file, or all of a folder; empty for a folder that has none, such as a JOB."""
    if path.is_file():
        return [path]
    return sorted(file for file in path.glob(NAMES) if file.suffix in (".csv", ".json"))


def read_exported(files: Sequence[Path], skip: int | None) -> tuple[list[ModelRun], list[dict[str, Any]]]:
    """The inferences of the tables, and where they come from as far as the metadata beside them tells.

    They are in the order of their picture counts, without `skip` of each load, or its warm-up. Raises UsageError for
    what is no such table, or has no times.
    """
    metadata = {file.parent: _metadata(file.parent) for file in files}
    loads: dict[tuple[Path, str, int], list[Path]] = {}
    for file in sorted(files, key=_count):
        loads.setdefault(_load(file), []).append(file)
    runs = [run for _, load in sorted(loads.items()) for run in _kept([*map(_inference, load)], skip)]
    return runs, [found for found in metadata.values() if found is not None]


def _count(file: Path) -> int:
    named = _NAME.fullmatch(file.name)
    return int(named["count"] or 0) if named else 0


def _load(file: Path) -> tuple[Path, str, int]:
    """What all tables of a load share; a name that tells nothing is a load of its own."""
    named = _NAME.fullmatch(file.name)
    return (file.parent, named.string[: named.end("batch")], int(named["load"] or 0)) if named else (file, "", 0)


def _kept(load: Sequence[ModelRun], skip: int | None) -> list[ModelRun]:
    first = warm_up(np.array([run.times.sum() for run in load])) if skip is None else skip
    return [replace(run, left_out=first if run is load[first] else 0) for run in load[first:]]


def _inference(file: Path) -> ModelRun:
    times: dict[tuple[str, str, str], float] = {}
    for row in _rows(file):
        layer, name, kind, time_us = (str(row.get(column)) for column in COLUMNS)
        if layer == "-":
            continue
        try:
            times[layer, name, kind] = times.get((layer, name, kind), 0.0) + float(time_us)
        except ValueError as error:
            hint = "export it from a JOB with info.json, and as CSV or JSON"
            raise UsageError(f"{file} has {time_us!r} for the time of layer {name}", hint=hint) from error
    if not times:
        raise UsageError(f"{file} is no table op_summary", hint=f"it needs the columns {', '.join(COLUMNS)}")
    named = _NAME.fullmatch(file.name)
    pictures = frozenset({(int(named["batch"]), int(named["pictures"]))} if named and named["pictures"] else ())
    layers = tuple(LayerName(name, kind, UNITS[0]) for _, name, kind in times)
    return ModelRun(named["model"] if named else file.stem, layers, np.array([list(times.values())]), pictures)


def _rows(file: Path) -> list[dict[str, Any]]:
    if file.suffix not in (".csv", ".json"):
        raise UsageError(f"{file} is neither CSV nor JSON", hint="export the table as CSV")
    try:
        # The vendor's tool and spreadsheets put a mark before the text.
        text = file.read_text("utf-8-sig")
        rows = json.loads(text) if file.suffix == ".json" else list(csv.DictReader(text.splitlines()))
    except (OSError, ValueError, csv.Error) as error:
        raise UsageError(f"cannot read {file}: {error}", hint="name a table op_summary, as CSV or JSON") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) and row.keys() >= set(COLUMNS) for row in rows):
        raise UsageError(f"{file} is no table op_summary", hint=f"it needs the columns {', '.join(COLUMNS)}")
    return rows


def _metadata(folder: Path) -> dict[str, Any] | None:
    """What profagent wrote beside its tables; None where there is nothing of it."""
    try:
        found = json.loads((folder / METADATA_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and {"simulated", "ledger", "sampling"} <= found.keys() else None
