"""Executed operators as columns, and what they are gathered by: models, inferences, segments."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profagent.ascend.families import NOT_KNOWN, families
from profagent.formats.records import AI_CPU

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray

PIPES = ("mac_busy", "vec_busy", "dstr", "dtrans", "dld", "scalar")
# The times of a kernel's cores, by the prefix of the counters of each.
CORE_TIMES = {"aic_": "cube_time", "aiv_": "vector_time"}
NS_PER_US = 1000
# Processes of a timeline with tasks of the device; one whose name comes later is known by what its tasks tell.
WITH_TASKS = (None, "Ascend Hardware", "Task Scheduler")


class Texts(NamedTuple):
    """A column of texts that come again and again: by row the place of its text in `values`."""

    values: Sequence[str]
    codes: NDArray[np.int64]

    @classmethod
    def of(cls, texts: Sequence[str]) -> Texts:
        """Return a column of these."""
        places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        return cls([*places], np.fromiter(map(places.__getitem__, texts), np.int64, len(texts)))

    @classmethod
    def same(cls, text: str, count: int) -> Texts:
        """Return a column of one text."""
        return cls([text], np.zeros(count, np.int64))

    def all(self) -> list[str]:
        """Return the text of each row."""
        texts: list[str] = np.array(self.values, np.object_)[self.codes].tolist()
        return texts

    def known_or(self, text: str) -> Texts:
        """Return the column with a text in the place of each that says that nothing is known."""
        return self._replace(values=[text if each in NOT_KNOWN else each for each in self.values])


def different(columns: Sequence[Texts]) -> tuple[list[tuple[str, ...]], list[int], NDArray[np.int64]]:
    """Return combinations of texts in the order in which they come, where each comes first, and by row which it has."""
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
    """Executed operators, as columns; -1 is a time that is not known. `pipes` is a column for each of PIPES."""

    name: Texts
    type: Texts
    start_ns: NDArray[np.int64]
    duration_ns: NDArray[np.int64]
    device: Texts
    stream: Texts
    model: Texts
    step: Texts
    pipes: Sequence[NDArray[np.float64]] = ()

    def where(self, chosen: NDArray[np.bool_]) -> Kernels:
        """Return the chosen ones."""
        name, kind, device, stream, model, step = (
            texts._replace(codes=texts.codes[chosen])
            for texts in (self.name, self.type, self.device, self.stream, self.model, self.step)
        )
        times = self.start_ns[chosen], self.duration_ns[chosen]
        return Kernels(name, kind, *times, device, stream, model, step, [pipe[chosen] for pipe in self.pipes])


def counters_in(names: Collection[str]) -> list[str]:
    """Return which of these names are shares of PIPES or times of cores, the first of a meaning first."""
    known = families().columns
    return [name for meaning in (*PIPES, *CORE_TIMES.values()) for name in known[meaning] if name in names]


def largest_shares(counters: Mapping[str, NDArray[np.float64]], number: int) -> list[NDArray[np.float64]]:
    """Return the share of each of PIPES in so many kernels, from columns of counters by name; NaN is not known.

    It is the largest of the counters of a pipe, in the time of the core that took longer: a kernel of the vector core
    has 0 or nothing in the counters of the cube core; one of both has shares of two times.
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
            # Of a time that is not known or 0 the other is no part.
            weights = {"aic_": np.nan_to_num(cube / longest, nan=1.0), "aiv_": np.nan_to_num(vector / longest, nan=1.0)}
    shares = []
    for pipe in PIPES:
        found = [counters[name] * weights.get(name[:4], 1.0) for name in known[pipe] if name in counters]
        shares.append(np.fmax.reduce(found) if found else np.full(number, math.nan))
    return shares


def type_on(unit: str, kind: str) -> str:
    """A kernel's type, with the AI CPU told where it ran there: it is another processor than that of all others."""
    return f"{kind} ({unit})" if unit == AI_CPU else kind


class Called(NamedTuple):
    """All calls of a function together; times in µs."""

    name: str
    level: str
    times: int
    total: float
    mean: float
    most: float


class Model:
    """A model: its layers, and how often each device executed them."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.layers: dict[tuple[str, str], int] = {}
        self.times: dict[tuple[str, int], int] = defaultdict(int)


class Models(dict[str, Model]):
    """Models by name, numbered as they are asked for; names with one number are one model."""

    def __init__(self, number_of: Callable[[str], int]) -> None:
        super().__init__()
        self._number_of = number_of
        self.by_number: dict[int, Model] = {}

    def __missing__(self, name: str) -> Model:
        """A new one."""
        number = self._number_of(name)
        model = self[name] = self.by_number.setdefault(number, Model(number))
        return model


class Layers(dict[tuple[str, ...], int]):
    """Places of layers in their models, by model, name and type, numbered as they are asked for."""

    def __init__(self, models: Models) -> None:
        super().__init__()
        self._models = models

    def __missing__(self, key: tuple[str, ...]) -> int:
        """The next place in its model."""
        model, name, kind = key
        layers = self._models[model].layers
        place = self[key] = layers.setdefault((name, kind), len(layers))
        return place


class Segment:
    """Kernels of one step on one stream."""

    def __init__(self, number: int, log: int, inference: Inference, net: int, start_ns: int) -> None:
        self.number, self.log, self.inference, self.net = number, log, inference, net
        self.begin_ns = start_ns // NS_PER_US * NS_PER_US
        self.end_ns = start_ns
        self.ticks = self.records = 0

    def add(self, start_ns: NDArray[np.int64], end_ns: NDArray[np.int64], ticks: int) -> None:
        """Further kernels; a start of -1 is not known."""
        self.records += len(start_ns)
        self.ticks += ticks
        self.end_ns = max(self.end_ns, int(end_ns.max()))
        known = start_ns[start_ns >= 0]
        if len(known):
            first, inference = int(known.min()), self.inference
            inference.start_ns = first if inference.start_ns is None else min(inference.start_ns, first)


class ProgramStep(NamedTuple):
    """A step of a program; models and devices count theirs alike."""

    number: str
    model: str
    device: str


def step_names(steps: Collection[ProgramStep]) -> dict[ProgramStep, str]:
    """What each is called: with its model and device where there are several."""
    models, devices = {step.model for step in steps}, {step.device for step in steps}
    return {
        step: f"step {step.number}"
        + (f", model {step.model}" if step.model and len(models) > 1 else "")
        + (f", device {step.device}" if len(devices) > 1 else "")
        for step in steps
    }


class Inference:
    """A step of a model on a device."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.start_ns: int | None = None
        self.end_ns = 0
