"""The simulated NPU: one JOB in which one model is loaded, run and unloaded.

Blocking, and without a clock of its own.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from profagentd.errors import DaemonError
from profagentd.simulate.draw import (
    API_AICPU,
    API_EXECUTE,
    API_LOAD,
    API_UNLOAD,
    BYTES16,
    BYTES32,
    FREQUENCY_MHZ,
    Drawing,
    api_record,
    done_text,
    info_json,
    layer_info,
    load_counters,
    net_info,
    online_batch_num,
)
from profagentd.simulate.network import AICORE, AICPU, CompiledModel, chosen_facts, load_network, resized

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from profagentd.simulate.draw import InferenceDraw
    from profagentd.simulate.program import SimulatedProgram, SlowStage
    from profagentd.simulate.run import SimulationOptions


DIRECTORY_MODE, FILE_MODE = 0o755, 0o666  # the library's modes, before the umask

# File beside info.json that the real library never writes: every copy of the JOB stays recognizable as simulated.
MARKER = "simulated"

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_NAME_LETTERS = 29
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
_NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT))
_REWRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


class JobWriter:
    """Writer of a JOB directory. Each call opens, writes and closes one file, as the library does. Raises OSError.

    A full disk is no error: like the library it continues, and data without room are lost (the-format.md 1).
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lost_bytes = 0  # for want of room
        self._data = str(directory / "data") + os.sep

    @classmethod
    def create(cls, root: Path, rng: Random) -> JobWriter:
        """Make `JOB` + 29 letters and its data/ under `root`, with another name if the first is taken."""
        while True:
            directory = root / job_name(rng)
            try:
                directory.mkdir(mode=DIRECTORY_MODE)
            except FileExistsError:
                continue
            (directory / "data").mkdir(mode=DIRECTORY_MODE)
            return cls(directory)

    def rewrite_beside(self, name: str, content: bytes) -> None:
        """Write a small file in the JOB's own directory."""
        self._write(str(self.directory / name), _REWRITE, content)

    def rewrite(self, name: str, content: bytes) -> None:
        """Write a small file in data/: created or truncated, then written with one write."""
        self._write(self._data + name, _REWRITE, content)

    def append(self, name: str, content: bytes) -> None:
        """Append to a data file in data/, which is created even without content."""
        self._write(self._data + name, _APPEND, content)

    def _write(self, path: str, flags: int, content: bytes) -> None:
        try:
            descriptor = os.open(path, flags, FILE_MODE)
            try:
                while content:
                    content = content[os.write(descriptor, content) :]
            finally:
                os.close(descriptor)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            self.lost_bytes += len(content)


def job_name(rng: Random) -> str:
    """Return `JOB` and 29 letters A to Z."""
    return "JOB" + "".join(_LETTERS[int(rng.random() * len(_LETTERS))] for _ in range(_NAME_LETTERS))


STALL_EACH = 10  # each tenth sample finds a slow disk with --busy; invented


class Sampling:
    """Interval rule of one loaded model.

    The first inference is sampled. A later one is when `interval` > 0, so many ran since the last sample, and that
    sample is written. Each `STALL_EACH`th sample is being written while `busy` inferences run; a postponed sample is
    not queued, and the count restarts where it was taken.
    """

    def __init__(self, interval: int, busy: int = 0) -> None:
        self._interval = interval
        self._busy = busy
        self._samples = 0  # samples so far
        self._since = 0  # inferences since the last one

    def takes_next(self) -> bool:
        """Count one more inference; return True if it is sampled."""
        self._since += 1
        busy_now = 0 if self._samples % STALL_EACH else self._busy
        if self._samples and not (0 < self._interval <= self._since and busy_now <= self._since):
            return False
        self._samples += 1
        self._since = 0
        return True


RING_CALLS = 511  # the newest calls that survive between two flushes (the-format.md 3.3)

DEVICE_ID, STREAM_ID, MODEL_ID = 0, 3, 0

API = "acl_api"
# The manual's names of the files, which no known library uses (the-format.md 8).
_MANUAL_PREFIXES = {AICORE: "AAcore", AICPU: "AAcpu", API: "AclModule"}

CALL_BEFORE_US, CALL_AFTER_US = 15, 10  # an execute's time before and after the NPU; invented


class LoadedModel:
    """Loaded model, which counts pictures and records calls. Times are µs since the epoch; writing raises OSError."""

    def __init__(
        self,
        job: JobWriter,
        network: CompiledModel,
        pictures: int,
        sampling: Sampling,
        pid: int,
        facts: Mapping[str, str],
    ) -> None:
        self._job = job
        self._network = network
        self._pictures = pictures
        self._sampling = sampling
        self._calls: deque[bytes] = deque(maxlen=RING_CALLS)  # ended calls that are not written yet
        self._pid = pid
        self._facts = facts
        self._picture_count = 0  # pictures since the load, which the names of logs contain
        self._api_bytes = 0  # length of the acl_api log, for its `.done`
        self._load_begin_us = 0

    def load(self, begin_us: int, end_us: int) -> None:
        """Write the model's .info files, and record the call."""
        name = f"{self._network.name}.{MODEL_ID}"
        self._job.rewrite(f"{name}.net.info", net_info(self._network, self._facts["net-start"]))
        form = {"u32": BYTES32, "u16": BYTES16}[self._facts["item-form"]]
        layers = layer_info(self._network, form=form, with_nul=self._facts["name-nul"] == "with")
        self._job.rewrite(f"{name}.layer.info", layers)
        self._record_call(API_LOAD, begin_us, end_us)
        self._load_begin_us = begin_us

    def execute(self, draw: InferenceDraw, begin_us: int, wait_us: int = 0) -> bool:
        """Run one inference, which waits so long for the NPU; return True if it was sampled, and so written."""
        start_us = begin_us + CALL_BEFORE_US + wait_us
        is_sampled = self._sampling.takes_next()
        if is_sampled:
            self._flush_calls()
            self._write(draw, start_us)
        for segment_us, segment in draw.placed(start_us):
            if segment.unit == AICPU:
                self._record_call(API_AICPU, segment_us, segment_us + segment.duration_us)
        self._record_call(API_EXECUTE, begin_us, begin_us + wait_us + call_us(draw))
        self._picture_count += self._pictures
        return is_sampled

    def unload(self, begin_us: int, end_us: int) -> None:
        """Write the remaining calls, and their .done."""
        self._record_call(API_UNLOAD, begin_us, end_us)
        self._flush_calls()
        span_us = (self._load_begin_us, end_us)
        self._job.rewrite(f"{self._api_log}.done", done_text(self._api_bytes, span_us, pid=self._pid, tid=self._pid))

    @property
    def _api_log(self) -> str:
        return f"{self._prefix(API)}.{DEVICE_ID}.{self._network.name}.{MODEL_ID}"

    def _record_call(self, api: int, begin_us: int, end_us: int) -> None:
        self._calls.append(api_record(api, begin_us, end_us, self._pid, self._pid))

    def _flush_calls(self) -> None:
        data = b"".join(self._calls)
        self._calls.clear()
        self._job.append(self._api_log, data)
        self._api_bytes += len(data)

    def _write(self, draw: InferenceDraw, start_us: int) -> None:
        lengths = {AICORE: 0, AICPU: 0}
        spans_us: dict[str, tuple[int, int]] = {}
        for segment_us, segment in draw.placed(start_us):
            data = segment.bytes_at(segment_us)
            self._job.append(self._inference_log(segment.unit), data)
            lengths[segment.unit] += len(data)
            first_us = spans_us.get(segment.unit, (segment_us, 0))[0]
            spans_us[segment.unit] = (first_us, segment_us + segment.duration_us)
        hits, misses = draw.cache
        if lengths[AICORE]:
            done = done_text(lengths[AICORE], spans_us[AICORE], cache_hit=hits, cache_mis=misses)
            done += online_batch_num(self._network.batch_sizes(self._pictures) if self._network.online_batch else ())
            self._job.rewrite(f"{self._inference_log(AICORE)}.done", done)
        if lengths[AICPU]:
            done = done_text(lengths[AICPU], spans_us[AICPU])
            self._job.rewrite(f"{self._inference_log(AICPU)}.done", done)

    def _inference_log(self, unit: str) -> str:
        network = self._network
        identity = f"{DEVICE_ID}.{network.name}.{STREAM_ID}.{MODEL_ID}"
        return f"{self._prefix(unit)}.{identity}.{network.batch_num}.{self._pictures}.{self._picture_count}"

    def _prefix(self, kind: str) -> str:
        return kind if self._facts["file-prefix"] == "library" else _MANUAL_PREFIXES[kind]


def call_us(draw: InferenceDraw) -> int:
    """Return the duration of this inference's execute in microseconds."""
    return CALL_BEFORE_US + draw.duration_us + CALL_AFTER_US


LOAD_US, UNLOAD_US = 20_000, 900  # durations of a load and an unload; invented

MAX_RUN_TIME_BATCHES = 8  # A .done holds no more of them (the-format.md 2.2)

MAX_RECORDS = 50_000  # of one inference; the drawn variants stay below 30 MB

_MAX_LAYER_IDS = 65_536
_LOWEST_PID, _PIDS = 1_000, 30_000


class Npu:
    """Simulated NPU that writes one JOB. Times are microseconds since the epoch; writing raises OSError.

    The same seed, options and times make the same bytes; JOB names come from `names`, or else from the seed as well.
    """

    def __init__(self, options: SimulationOptions, *, gaps: bool = True, names: Random | None = None) -> None:
        """Read the network and draw its inferences; nothing is written yet. Raises DaemonError."""
        self._options = options
        self._network = _network(options)
        self._rng = Random(f"profagentd {options.seed}")
        self._names = names or self._rng
        facts = chosen_facts(options.facts)
        drawing = Drawing(self._network, options.pictures, load_counters(), self._rng, facts, gaps=gaps)
        # Drawn once: at run time an inference only writes bytes that exist already.
        self._variants = drawing.variants()
        # The inference that comes every `slow_every[0]` inferences, None without.
        self._slow = drawing.stalled(options.slow_every[1]) if options.slow_every else None
        drawn = _LOWEST_PID + int(self._rng.random() * _PIDS)
        self._pid = options.board.pid if options.board else drawn
        self._next = self._variants[0]  # the next inference, whose duration is known before it runs
        self._job: JobWriter | None = None  # made by the first load
        self._model: LoadedModel | None = None  # while one is loaded
        self._program = _program(options, self._pid) if options.run else None
        self._board = options.board
        self._rival = Rival(options, gaps=gaps, names=self._names) if options.contend else None
        self._over_us = 0  # end of the latest execute
        # Counters for the summary: inferences, those recorded, and their aicore records.
        self.inferences = 0
        self.sampled = 0
        self.aicore_records = 0

    @property
    def directory(self) -> Path | None:
        """JOB directory, once there is one."""
        return self._job.directory if self._job else None

    @property
    def lost_bytes(self) -> int:
        """Bytes that were not written for want of room."""
        return self._job.lost_bytes if self._job else 0

    @property
    def next_call_us(self) -> int:
        """Duration of the next inference's execute."""
        return call_us(self._next) + (self._rival.wait_us if self._rival else 0)

    def load(self, begin_us: int) -> int:
        """Load the model, into a new JOB the first time; return the end of the load."""
        if self._job is None:
            self._job = self._new_job()
        options = self._options
        sampling = Sampling(options.interval, options.busy)
        facts = chosen_facts(options.facts)
        self._model = LoadedModel(self._job, self._network, options.pictures, sampling, self._pid, facts)
        self._model.load(begin_us, begin_us + LOAD_US)
        if self._program:
            self._program.start()
        if self._rival:
            self._rival.npu.load(begin_us)
        return begin_us + LOAD_US

    def infer(self, begin_us: int) -> int:
        """Run the next inference of the loaded model; return the end of its execute."""
        draw = self._next
        assert self._model is not None, "no model is loaded"
        self.inferences += 1
        wait_us = self._rival.run(begin_us, self._over_us) if self._rival else 0
        if self._model.execute(draw, begin_us, wait_us):
            self.sampled += 1
            self.aicore_records += draw.aicore_records
        self._next = self._variants[int(self._rng.random() * len(self._variants))]
        slow_every = self._options.slow_every
        if self._slow and slow_every and (self.inferences + 1) % slow_every[0] == 0:
            self._next = self._slow
        npu_us, end_us = begin_us + CALL_BEFORE_US + wait_us, begin_us + wait_us + call_us(draw)
        self._over_us = end_us
        if self._program:
            self._program.write_inference(draw, npu_us, (begin_us, end_us), MODEL_ID)
        if self._board:
            self._board.note_work(npu_us, npu_us + draw.duration_us)
        return end_us

    def unload(self, begin_us: int) -> int:
        """Unload the model, which finishes the JOB; return the end of the unload. Without a model nothing happens."""
        model, self._model = self._model, None
        if model is None:
            return begin_us
        if self._program:
            self._program.end()
        if self._rival:
            self._rival.npu.unload(begin_us)
        if self._board:
            self._board.note_idle(begin_us)
        model.unload(begin_us, begin_us + UNLOAD_US)
        return begin_us + UNLOAD_US

    def _new_job(self) -> JobWriter:
        job = JobWriter.create(self._options.root, self._names)
        job.rewrite_beside(MARKER, _marker(self._options, self._network).encode("utf-8"))
        job.rewrite_beside(f"info.json.{DEVICE_ID}", info_json(FREQUENCY_MHZ))
        return job


class Rival:
    """Second process, whose model occupies the NPU when a share of the inferences begin; it writes a JOB of its own."""

    def __init__(self, options: SimulationOptions, *, gaps: bool, names: Random) -> None:
        name, _, share = (options.contend or "").partition("@")
        self._share = float(share or SHARE)
        self._rng = Random(f"rival {options.seed}")
        alone = replace(options, model=name, layers=None, contend=None, slow=(), run=None, board=None)
        self.npu = Npu(replace(alone, seed=options.seed + 1), gaps=gaps, names=names)
        # How long before the next inference it begins, and how long that one waits; 0 for none.
        self._lead_us = self.wait_us = 0
        self._draw()

    def run(self, begin_us: int, free_us: int) -> int:
        """Run beside an inference that begins now; return how long that waits. The NPU is idle since `free_us`."""
        lead_us, wait_us = self._lead_us, self.wait_us
        if not wait_us or begin_us - lead_us < free_us:
            wait_us = 0
        else:
            self.npu.infer(begin_us - lead_us)
        self._draw()
        return wait_us

    def _draw(self) -> None:
        busy_us = self.npu.next_call_us - CALL_BEFORE_US - CALL_AFTER_US
        self._lead_us = round(self._rng.random() * busy_us)
        self.wait_us = busy_us - self._lead_us if self._rng.random() < self._share else 0


SHARE = 0.5  # of the inferences meet the second process, unless told otherwise


def _program(options: SimulationOptions, pid: int) -> SimulatedProgram:
    from profagentd.simulate.program import FrameSteps, SimulatedProgram  # noqa: PLC0415 - of no use on a board

    assert options.run is not None
    return SimulatedProgram(options.run, pid, FrameSteps(options.seed, slow_stages(options.slow)))


def slow_stages(texts: tuple[str, ...]) -> list[SlowStage]:
    """Return the stages of texts such as `preprocess=2@0.1`. Raises DaemonError for anything else."""
    if not texts:
        return []
    from profagentd.simulate.program import STAGES, SlowStage  # noqa: PLC0415 - of no use on a board

    found = []
    for text in texts:
        name, _, rest = text.partition("=")
        factor, _, share = rest.partition("@")
        try:
            slow = SlowStage(name, float(factor), float(share or 1))
        except ValueError:
            slow = SlowStage("", 0, 0)
        if slow.name not in STAGES or not (1 <= slow.factor <= MAX_FACTOR and 0 < slow.share <= 1):
            hint = f"--slow-stage is NAME=FACTOR[@SHARE], such as preprocess=2@0.1; NAME is {', '.join(STAGES)}"
            raise DaemonError(f"--slow-stage {text}: not understood", hint=hint)
        found.append(slow)
    return found


MAX_FACTOR = 1000.0  # of a slow stage


def _network(options: SimulationOptions) -> CompiledModel:
    network = load_network(options.model)
    if options.layers is not None:
        network = resized(network, options.layers)
    batches = len(network.batch_sizes(options.pictures))
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


def _marker(options: SimulationOptions, network: CompiledModel) -> str:
    layers = f" --layers {options.layers}" if options.layers is not None else ""
    busy = f" --busy {options.busy}" if options.busy else ""
    facts = "".join(f" --fact {fact}" for fact in options.facts)
    facts += f" --contend {options.contend}" if options.contend else ""
    facts += "".join(f" --slow-stage {each}" for each in options.slow)
    facts += f" --time-lapse {options.time_lapse:g}" if options.time_lapse != 1 else ""
    return (
        f"made by profagentd --simulate --model {network.name}{layers} --rate {options.rate:g}"
        f" --interval {options.interval}{busy} --pictures {options.pictures} --seed {options.seed}{facts}\n"
    )
