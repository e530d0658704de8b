"""Executed operators as columns, and the models, inferences and segments that they are grouped by."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.ascend.families import NOT_KNOWN, families
from profagent.formats.records import AI_CPU
from profagent.units import NS_PER_US

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray

PIPES = ("mac_busy", "vec_busy", "dstr", "dtrans", "dld", "scalar")
# Meaning of the time of a kernel's cores, by the prefix of the counters of these cores.
CORE_TIMES = {"aic_": "cube_time", "aiv_": "vector_time"}
# Processes of a timeline that have tasks of the device. A process without a name yet (None) is recognised by the
# arguments of its tasks.
WITH_TASKS = (None, "Ascend Hardware", "Task Scheduler")


class TextColumn(NamedTuple):
    """Column of texts that recur: `codes` has for each row the index of its text in `values`."""

    values: Sequence[str]
    codes: NDArray[np.int64]

    @classmethod
    def of(cls, texts: Sequence[str]) -> TextColumn:
        """Return a column of these texts."""
        places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        return cls([*places], np.fromiter(map(places.__getitem__, texts), np.int64, len(texts)))

    @classmethod
    def same(cls, text: str, count: int) -> TextColumn:
        """Return a column with one text in all rows."""
        return cls([text], np.zeros(count, np.int64))

    def all(self) -> list[str]:
        """Return the text of each row."""
        texts: list[str] = np.array(self.values, np.object_)[self.codes].tolist()
        return texts

    def known_or(self, text: str) -> TextColumn:
        """Return the column with `text` in place of every text that means unknown."""
        return self._replace(values=[text if each in NOT_KNOWN else each for each in self.values])


def distinct_rows(columns: Sequence[TextColumn]) -> tuple[list[tuple[str, ...]], list[int], NDArray[np.int64]]:
    """Return the distinct combinations of texts in order, the first row of each, and each row's combination."""
    keys = columns[0].codes
    for column in columns[1:]:
        keys = keys * len(column.values) + column.codes
    _, firsts, which = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(firsts)
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    places = firsts[order]
    texts = (map(column.values.__getitem__, column.codes[places].tolist()) for column in columns)
    return [*zip(*texts, strict=True)], places.tolist(), ranks[which]


class Kernels(NamedTuple):
    """Executed operators as columns; a time of -1 is unknown. `pipes` has a column for each of PIPES."""

    name: TextColumn
    type: TextColumn
    start_ns: NDArray[np.int64]
    duration_ns: NDArray[np.int64]
    device: TextColumn
    stream: TextColumn
    model: TextColumn
    step: TextColumn
    pipes: Sequence[NDArray[np.float64]] = ()

    def where(self, chosen: NDArray[np.bool_]) -> Kernels:
        """Return the chosen rows."""
        name, kind, device, stream, model, step = (
            texts._replace(codes=texts.codes[chosen])
            for texts in (self.name, self.type, self.device, self.stream, self.model, self.step)
        )
        times = self.start_ns[chosen], self.duration_ns[chosen]
        return Kernels(name, kind, *times, device, stream, model, step, [pipe[chosen] for pipe in self.pipes])


def counters_in(names: Collection[str]) -> list[str]:
    """Return the names that are shares of PIPES or times of cores; of several names of one meaning, in their order."""
    known = families().columns
    return [name for meaning in (*PIPES, *CORE_TIMES.values()) for name in known[meaning] if name in names]


def largest_shares(counters: Mapping[str, NDArray[np.float64]], number: int) -> list[NDArray[np.float64]]:
    """Return the share of each of PIPES in this number of kernels, from columns of counters by name; NaN is unknown.

    The share is the largest of a pipe's counters, relative to the time of the core that took longer. A kernel of
    the vector core has 0 or nothing in the counters of the cube core; a kernel of both has shares of two different
    times.
    """
    known = families().columns
    times = {
        prefix: next((counters[name] for name in known[meaning] if name in counters), None)
        for prefix, meaning in CORE_TIMES.items()
    }
    cube, vector = times.values()
    weights: dict[str, NDArray[np.float64]] = {}
    if cube is not None and vector is not None:
        longest = np.fmax(cube, vector)
        with np.errstate(divide="ignore", invalid="ignore"):
            # If one time is unknown or 0, the counters of the other core already relate to the longer time.
            weights = {"aic_": np.nan_to_num(cube / longest, nan=1.0), "aiv_": np.nan_to_num(vector / longest, nan=1.0)}
    shares = []
    for pipe in PIPES:
        found = [counters[name] * weights.get(name[:4], 1.0) for name in known[pipe] if name in counters]
        shares.append(np.fmax.reduce(found) if found else np.full(number, math.nan))
    return shares


def type_on(unit: str, kind: str) -> str:
    """Return a kernel's type, marked if the kernel ran on the AI CPU, another processor than all others."""
    return f"{kind} ({unit})" if unit == AI_CPU else kind


class CallTotals(NamedTuple):
    """Figures of all calls of a function together; times in µs."""

    name: str
    level: str
    times: int
    total: float
    mean: float
    most: float


class DraftModel:
    """Model of a draft: its layers, and the number of times that each device executed each of them."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.layers: dict[tuple[str, str], int] = {}
        self.times: dict[tuple[str, int], int] = defaultdict(int)


class DraftModels(dict[str, DraftModel]):
    """Models by name, numbered at their first use; names with one number are one model."""

    def __init__(self, number_of: Callable[[str], int]) -> None:
        super().__init__()
        self._number_of = number_of
        # Models by their number in the database.
        self.by_number: dict[int, DraftModel] = {}

    def __missing__(self, name: str) -> DraftModel:
        """Return a new model, or the one that has the name's number."""
        number = self._number_of(name)
        model = self[name] = self.by_number.setdefault(number, DraftModel(number))
        return model


class DraftLayers(dict[tuple[str, ...], int]):
    """Index of each layer in its model, by model, name and type, assigned at its first use."""

    def __init__(self, models: DraftModels) -> None:
        super().__init__()
        self._models = models

    def __missing__(self, key: tuple[str, ...]) -> int:
        """Return the next index in the layer's model."""
        model, name, kind = key
        layers = self._models[model].layers
        place = self[key] = layers.setdefault((name, kind), len(layers))
        return place


class DraftSegment:
    """Segment of a draft: the kernels of one step on one stream."""

    def __init__(self, number: int, log: int, inference: DraftInference, net: int, start_ns: int) -> None:
        self.number, self.log, self.inference, self.net = number, log, inference, net
        # The store holds the start of a segment in whole µs, and the times of its records relative to it.
        self.begin_ns = start_ns // NS_PER_US * NS_PER_US
        self.end_ns = start_ns
        self.ticks = self.records = 0

    def add(self, start_ns: NDArray[np.int64], end_ns: NDArray[np.int64], ticks: int) -> None:
        """Add kernels; a start of -1 is unknown."""
        self.records += len(start_ns)
        self.ticks += ticks
        self.end_ns = max(self.end_ns, int(end_ns.max()))
        known = start_ns[start_ns >= 0]
        if len(known):
            first, inference = int(known.min()), self.inference
            inference.start_ns = first if inference.start_ns is None else min(inference.start_ns, first)


class ProgramStep(NamedTuple):
    """Step of a program. Models and devices each number their steps from the same start."""

    number: str
    model: str
    device: str


def step_names(steps: Collection[ProgramStep]) -> dict[ProgramStep, str]:
    """Return the name of each step, with its model and device if there are several."""
    models, devices = {step.model for step in steps}, {step.device for step in steps}
    return {
        step: f"step {step.number}"
        + (f", model {step.model}" if step.model and len(models) > 1 else "")
        + (f", device {step.device}" if len(devices) > 1 else "")
        for step in steps
    }


class DraftInference:
    """Inference of a draft: one step of a model on a device."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.start_ns: int | None = None
        self.end_ns = 0
