"""Runs of an invented network with noise of one kind or another, for tests and for the benchmark of the method."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from profagent.diff.comparing import Floor, compare
from profagent.diff.runs import LayerName, ModelRun

NOISE = 0.02
SLOWER = 1.05
TICKS_PER_US = 7

Noise = Callable[[np.random.Generator, int, int], np.ndarray]


def independent(rng: np.random.Generator, inferences: int, layers: int) -> np.ndarray:
    return NOISE * rng.standard_normal((inferences, layers))


def repeating(rng: np.random.Generator, inferences: int, layers: int) -> np.ndarray:
    """Sixteen different inferences in any order, as those of the simulated board."""
    return independent(rng, 16, layers)[rng.integers(0, 16, inferences)]


def alike(rng: np.random.Generator, inferences: int, layers: int, share: float = 0.5) -> np.ndarray:
    """Each inference keeps a share of its forerunner's deviation."""
    noise = independent(rng, inferences, layers)
    for place in range(1, inferences):
        noise[place] = share * noise[place - 1] + (1 - share**2) ** 0.5 * noise[place]
    return noise


def drifting(rng: np.random.Generator, inferences: int, layers: int) -> np.ndarray:
    """The whole run drifts by up to one percent to either side."""
    drift = 0.01 * rng.standard_normal() * np.linspace(-1, 1, inferences)
    return independent(rng, inferences, layers) + drift[:, np.newaxis]


def wandering(rng: np.random.Generator, inferences: int, layers: int) -> np.ndarray:
    """The whole run wanders by one percent, slowly: a tenth of it is lost from inference to inference."""
    return independent(rng, inferences, layers) + alike(rng, inferences, 1, 0.9) / 2


def spiking(rng: np.random.Generator, inferences: int, layers: int) -> np.ndarray:
    """One value in fifty is up to twice as long."""
    spikes = rng.random((inferences, layers)) < 0.02
    return independent(rng, inferences, layers) + spikes * rng.random((inferences, layers))


def run(noise: Noise, seed: int, *, inferences: int, layers: int, slower: int | None = None) -> ModelRun:
    """Layers of 5 to 200 µs in whole ticks, the same ones for every seed; one may be slower by five percent."""
    rng = np.random.default_rng([seed, 0 if slower is None else 1 + slower])
    times = np.exp(np.random.default_rng(1).uniform(np.log(5), np.log(200), layers))
    if slower is not None:
        times[slower] *= SLOWER
    ticks = np.round(times * (1 + noise(rng, inferences, layers)) * TICKS_PER_US)
    names = tuple(LayerName(f"l{place}", f"T{place % 7}", "AA_CORE") for place in range(layers))
    return ModelRun("m", names, np.maximum(ticks, 1) / TICKS_PER_US, np.ones(ticks.shape, np.int64))


def share_of_alarms(noise: Noise, pairs: int, **sizes: int) -> float:
    """In how many pairs of runs without a change anything counts as one: layers, types or the whole."""
    alarms = 0
    for pair in range(pairs):
        (diff,) = compare([(run(noise, 2 * pair, **sizes), run(noise, 2 * pair + 1, **sizes))], Floor())
        alarms += any(change.is_significant for change in diff.all_changes())
    return alarms / pairs


def share_found(noise: Noise, pairs: int, *, inferences: int, layers: int) -> float:
    """In how many pairs a layer that is five percent slower is found, another one in each pair."""
    found = 0
    for pair in range(pairs):
        slower = pair * 7 % layers
        base = run(noise, 2 * pair, inferences=inferences, layers=layers)
        new = run(noise, 2 * pair + 1, inferences=inferences, layers=layers, slower=slower)
        (diff,) = compare([(base, new)], Floor())
        found += diff.changes[slower].is_significant
    return found / pairs
