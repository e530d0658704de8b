"""Sessions of a board as nights of a series: medians of each model and layer, means of metrics, and facts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from profagent.ingest.metrics import METRIC_MEANS
from profagent.ingest.metrics import SOURCE as METRICS
from profagent.stats.stats import stats
from profagent.store.database import fetched, reading
from profagent.store.queries import jobs_of
from profagent.store.sampling import sampling_of
from profagent.store.sessions import fits
from profagent.store.summary import all_sessions
from profagent.tables.comparability import facts_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from profagent.stats.figures import DurationFigures
    from profagent.stats.session_figures import ModelFigures
    from profagent.store.database import Running
    from profagent.store.sessions import Condition
    from profagent.tables.comparability import Facts, Topology

# Labels that name the session itself: they differ between any two sessions and explain no change.
OWN_LABELS = ("nightly", "baseline", "content")
# The fact that is compared as a number.
TEMPERATURE = "temperature"
_PICTURES = (
    "SELECT DISTINCT batch_num, input_pic_num FROM inference i JOIN model m USING (model)"
    " WHERE i.session = ? AND m.name = ?"
)
_TOPOLOGY = (
    "SELECT DISTINCT l.layer_index, l.name, l.type FROM session_job JOIN model m USING (job) JOIN layer l USING (model)"
    " WHERE session = ? AND m.name = ? ORDER BY l.layer_index"
)
# Columns that are compared, beside the labels, between the sessions at a change of level.
_FACTS = ("sdk_version", "daemon_version", "counter_map", "keeping", "simulated")
_DIGEST = 6


@dataclass(frozen=True, slots=True)
class NightModel:
    """One model in a session: its time (its latency, else the sum of its layers), layers, and facts of the model.

    `layers` has the figures in `layers_unit` by name, type and processor.
    """

    time: str
    unit: str
    figures: DurationFigures
    layers: Mapping[tuple[str, ...], DurationFigures]
    layers_unit: str
    pictures: frozenset[tuple[int, int]]
    topology: Topology

    @property
    def layer_text(self) -> str:
        """Number of layers, and a digest of their names and types."""
        digest = hashlib.sha256(repr([*self.topology]).encode()).hexdigest()[:_DIGEST]
        return f"{len(self.topology)} ({digest})" if self.topology else ""


@dataclass(frozen=True, slots=True)
class NightSession:
    """One session: its row, facts for people and facts for the rules of comparability, models, and means of metrics."""

    row: Mapping[str, Any]
    facts: Mapping[str, str]
    run: Facts
    models: Mapping[str, NightModel]
    metrics: Mapping[tuple[str, str], float] = field(default_factory=dict)


async def sessions_of(database: Path, conditions: Sequence[Condition], since_us: int | None) -> list[dict[str, Any]]:
    """Return the rows of sessions that fit all conditions and began since a time, the oldest first."""
    async with reading(database) as connection:
        found = [
            each
            for each in await all_sessions(connection)
            if fits(each, conditions) and (since_us is None or each["started_us"] >= since_us)
        ]
    return sorted(found, key=lambda each: (each["started_us"], each["session"]))


async def night_of(database: Path, row: Mapping[str, Any]) -> NightSession:
    """Return the night of a session. Raises StoreError."""
    answer = await stats(database, session=row["session"], by="layer")
    layers: dict[str, dict[tuple[str, ...], DurationFigures]] = {}
    for each in answer.rows:
        if each.figures.median is not None:
            name, *layer = each.key
            layers.setdefault(name, {})[tuple(layer)] = each.figures
    async with reading(database) as connection:
        models = {
            each.model: await _model(connection, row["session"], each, layers.get(each.model, {}), answer.unit)
            for each in answer.models
        }
        metrics = await _metrics(connection, row["session"])
        facts = await _facts(connection, row, metrics)
    return NightSession(row, facts, facts_of(answer.provenance), models, metrics)


async def _model(
    connection: Running,
    session: int,
    model: ModelFigures,
    layers: Mapping[tuple[str, ...], DurationFigures],
    unit: str,
) -> NightModel:
    pictures = frozenset(await fetched(connection, _PICTURES, (session, model.model)))
    topology = [(name, kind) for _, name, kind in await fetched(connection, _TOPOLOGY, (session, model.model))]
    time, figures, of_time = f"latency from {model.latency_from}", model.latency, "us"
    if model.latency_from is None:
        time, figures, of_time = "layers", model.layers, model.layers_unit
    return NightModel(time, of_time, figures, layers, unit, pictures, topology)


async def _metrics(connection: Running, session: int) -> dict[tuple[str, str], float]:
    found = await fetched(connection, METRIC_MEANS, (session,))
    return {(name, unit): mean for name, unit, mean in found if any(part in name for part in METRICS.prominent)}


async def _facts(
    connection: Running, row: Mapping[str, Any], metrics: Mapping[tuple[str, str], float]
) -> dict[str, str]:
    clocks = {job.clock_mhz for job in await jobs_of(connection, row["session"])}
    frequencies = {str(clock) for clock in clocks if clock}
    known = {name: str(row[name]) for name in _FACTS if row[name]}
    interval = (await sampling_of(connection, row["session"]))["interval"]
    if interval is not None:
        known["interval"] = str(interval)
    temperature = METRICS.headlines[TEMPERATURE].known({name: mean for (name, _), mean in metrics.items()})
    if temperature is not None:
        known[TEMPERATURE] = f"{temperature:.1f}"
    labels = {f"label {key}": value for key, value in row["labels_by_key"].items() if key not in OWN_LABELS}
    return {**known, "frequency_mhz": "+".join(sorted(frequencies)), **labels}
