"""The pretend NPU: one JOB in which one model is loaded, run and unloaded. Blocking, and without a clock of its own."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from profagentd.errors import DaemonError
from profagentd.simulate import encode
from profagentd.simulate.counters import load_counters
from profagentd.simulate.draw import FREQUENCY_MHZ, Drawing
from profagentd.simulate.facts import Facts
from profagentd.simulate.job import MARKER, JobWriter
from profagentd.simulate.loaded import DEVICE_ID, LoadedModel, call_us
from profagentd.simulate.model_file import load_network
from profagentd.simulate.network import Network, batch_sizes, resized
from profagentd.simulate.sampling import Sampling

if TYPE_CHECKING:
    from pathlib import Path

    from profagentd.simulate.options import SimulationOptions

LOAD_US, UNLOAD_US = 20_000, 900
"""How long a load and an unload take; invented."""

MAX_RUN_TIME_BATCHES = 8
"""A .done holds no more of them (format page 2.2)."""

MAX_RECORDS = 50_000
"""Of one inference; the drawn variants stay below 30 MB."""

_MAX_LAYER_IDS = 65_536
_LOWEST_PID, _PIDS = 1_000, 30_000


class Npu:
    """Writes one JOB. Times go in and come out in microseconds since the epoch; writing raises OSError.

    The same seed, options and times make the same bytes; JOB names come from `names`, else from the seed as well.
    """

    def __init__(self, options: SimulationOptions, *, gaps: bool = True, names: Random | None = None) -> None:
        """Read the network and draw its inferences; nothing is written yet. Raises DaemonError."""
        self._options = options
        self._network = _network(options)
        self._rng = Random(f"profagentd {options.seed}")
        self._names = names or self._rng
        facts = Facts(options.facts)
        drawing = Drawing(self._network, options.pictures, load_counters(), self._rng, facts, gaps=gaps)
        self._variants = drawing.variants()
        self._pid = _LOWEST_PID + int(self._rng.random() * _PIDS)
        self._next = self._variants[0]
        self._job: JobWriter | None = None
        self._model: LoadedModel | None = None
        self.inferences = 0
        self.sampled = 0
        self.aicore_records = 0

    @property
    def directory(self) -> Path | None:
        """The JOB directory, once there is one."""
        return self._job.directory if self._job else None

    @property
    def lost_bytes(self) -> int:
        """What was to be written and had no room."""
        return self._job.lost_bytes if self._job else 0

    @property
    def next_call_us(self) -> int:
        """How long the next inference's execute takes."""
        return call_us(self._next)

    def load(self, begin_us: int) -> int:
        """Load the model, into a new JOB the first time; when the load ends."""
        if self._job is None:
            self._job = self._new_job()
        options = self._options
        sampling = Sampling(options.interval, options.busy)
        facts = Facts(options.facts)
        self._model = LoadedModel(self._job, self._network, options.pictures, sampling, self._pid, facts)
        self._model.load(begin_us, begin_us + LOAD_US)
        return begin_us + LOAD_US

    def infer(self, begin_us: int) -> int:
        """Run the next inference of the loaded model; when its execute ends."""
        draw = self._next
        if self._model is None:
            raise AssertionError("no model is loaded")
        self.inferences += 1
        if self._model.execute(draw, begin_us):
            self.sampled += 1
            self.aicore_records += draw.aicore_records
        self._next = self._variants[int(self._rng.random() * len(self._variants))]
        return begin_us + call_us(draw)

    def unload(self, begin_us: int) -> int:
        """Unload the model, which finishes the JOB; when the unload ends. Nothing happens without a model."""
        model, self._model = self._model, None
        if model is None:
            return begin_us
        model.unload(begin_us, begin_us + UNLOAD_US)
        return begin_us + UNLOAD_US

    def _new_job(self) -> JobWriter:
        job = JobWriter.create(self._options.root, self._names)
        job.rewrite_beside(MARKER, _marker(self._options, self._network).encode("utf-8"))
        job.rewrite_beside(f"info.json.{DEVICE_ID}", encode.info_json(FREQUENCY_MHZ))
        return job


def _network(options: SimulationOptions) -> Network:
    network = load_network(options.model)
    if options.layers is not None:
        network = resized(network, options.layers)
    batches = len(batch_sizes(network.batch_num, options.pictures))
    if network.online_batch and batches > MAX_RUN_TIME_BATCHES:
        most = MAX_RUN_TIME_BATCHES * network.batch_num
        raise DaemonError(
            f"--pictures {options.pictures}: {network.name} would need {batches} run-time batches",
            hint=f"the library records at most {MAX_RUN_TIME_BATCHES}: give at most {most} pictures",
        )
    runs = [run for segment in network.segments for run in segment.runs]
    executed = sum(len(segment.runs) * segment.loops for segment in network.segments)
    outputs = sum(layer.outputs for run in runs for layer in run.layers)
    if executed * options.pictures > MAX_RECORDS or outputs > _MAX_LAYER_IDS:
        raise DaemonError(
            f"{network.name} with {len(runs)} runs and {options.pictures} pictures is too large to simulate",
            hint=f"stay below {MAX_RECORDS} records an inference: fewer --layers or --pictures",
        )
    return network


def _marker(options: SimulationOptions, network: Network) -> str:
    layers = f" --layers {options.layers}" if options.layers is not None else ""
    busy = f" --busy {options.busy}" if options.busy else ""
    facts = "".join(f" --fact {fact}" for fact in options.facts)
    return (
        f"made by profagentd --simulate --model {network.name}{layers} --rate {options.rate:g}"
        f" --interval {options.interval}{busy} --pictures {options.pictures} --seed {options.seed}{facts}\n"
    )
