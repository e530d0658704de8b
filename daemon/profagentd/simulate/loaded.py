"""One model from its load to its unload, with what the profiling library keeps for it and writes. Blocking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagentd.simulate import encode
from profagentd.simulate.calls import CallRing
from profagentd.simulate.network import AICORE, AICPU, Network, batch_sizes

if TYPE_CHECKING:
    from profagentd.simulate.draw import InferenceDraw
    from profagentd.simulate.facts import Facts
    from profagentd.simulate.job import JobWriter
    from profagentd.simulate.sampling import Sampling

DEVICE_ID, STREAM_ID, MODEL_ID = 0, 3, 0

API = "acl_api"
_MANUAL_PREFIXES = {AICORE: "AAcore", AICPU: "AAcpu", API: "AclModule"}
"""What the manual calls the files; no library that was seen does (format page 8)."""

CALL_BEFORE_US, CALL_AFTER_US = 15, 10
"""What an execute takes before and after the NPU; invented."""


class LoadedModel:
    """Counts pictures and calls from its load on. Times are microseconds since the epoch; writing raises OSError."""

    def __init__(
        self, job: JobWriter, network: Network, pictures: int, sampling: Sampling, pid: int, facts: Facts
    ) -> None:
        self._job = job
        self._network = network
        self._pictures = pictures
        self._sampling = sampling
        self._calls = CallRing(pid, pid)
        self._pid = pid
        self._facts = facts
        self._picture_count = 0
        self._api_bytes = 0
        self._load_begin_us = 0

    def load(self, begin_us: int, end_us: int) -> None:
        """Write the model's .info files and keep the load's call."""
        name = f"{self._network.name}.{MODEL_ID}"
        self._job.rewrite(f"{name}.net.info", encode.net_info(self._network, self._facts["net-start"]))
        form = {"u32": encode.BYTES32, "u16": encode.BYTES16}[self._facts["item-form"]]
        layers = encode.layer_info(self._network, form=form, with_nul=self._facts["name-nul"] == "with")
        self._job.rewrite(f"{name}.layer.info", layers)
        self._calls.add(encode.API_LOAD, begin_us, end_us)
        self._load_begin_us = begin_us

    def execute(self, draw: InferenceDraw, begin_us: int) -> bool:
        """Run one inference; True when it was sampled, and so written."""
        start_us = begin_us + CALL_BEFORE_US
        is_sampled = self._sampling.takes_next()
        if is_sampled:
            self._flush_calls()
            self._write(draw, start_us)
        for segment_us, segment in draw.placed(start_us):
            if segment.unit == AICPU:
                self._calls.add(encode.API_AICPU, segment_us, segment_us + segment.duration_us)
        self._calls.add(encode.API_EXECUTE, begin_us, begin_us + call_us(draw))
        self._picture_count += self._pictures
        return is_sampled

    def unload(self, begin_us: int, end_us: int) -> None:
        """Write the calls that are left, and their .done."""
        self._calls.add(encode.API_UNLOAD, begin_us, end_us)
        self._flush_calls()
        span_us = (self._load_begin_us, end_us)
        self._job.rewrite(f"{self._api_log}.done", encode.api_done(self._api_bytes, span_us, self._pid, self._pid))

    @property
    def _api_log(self) -> str:
        return f"{self._prefix(API)}.{DEVICE_ID}.{self._network.name}.{MODEL_ID}"

    def _flush_calls(self) -> None:
        data = self._calls.flush()
        self._job.append(self._api_log, data)
        self._api_bytes += len(data)

    def _write(self, draw: InferenceDraw, start_us: int) -> None:
        """The segments one by one, then a .done for each unit that left records (format page, section 1)."""
        lengths = {AICORE: 0, AICPU: 0}
        spans_us: dict[str, tuple[int, int]] = {}
        for segment_us, segment in draw.placed(start_us):
            data = segment.bytes_at(segment_us)
            self._job.append(self._inference_log(segment.unit), data)
            lengths[segment.unit] += len(data)
            first_us = spans_us.get(segment.unit, (segment_us, 0))[0]
            spans_us[segment.unit] = (first_us, segment_us + segment.duration_us)
        if lengths[AICORE]:
            done = encode.aicore_done(lengths[AICORE], spans_us[AICORE], draw.cache, self._online_batch_num())
            self._job.rewrite(f"{self._inference_log(AICORE)}.done", done)
        if lengths[AICPU]:
            done = encode.aicpu_done(lengths[AICPU], spans_us[AICPU])
            self._job.rewrite(f"{self._inference_log(AICPU)}.done", done)

    def _inference_log(self, unit: str) -> str:
        network = self._network
        identity = f"{DEVICE_ID}.{network.name}.{STREAM_ID}.{MODEL_ID}"
        return f"{self._prefix(unit)}.{identity}.{network.batch_num}.{self._pictures}.{self._picture_count}"

    def _prefix(self, kind: str) -> str:
        return kind if self._facts["file-prefix"] == "library" else _MANUAL_PREFIXES[kind]

    def _online_batch_num(self) -> tuple[int, ...]:
        return batch_sizes(self._network.batch_num, self._pictures) if self._network.online_batch else ()


def call_us(draw: InferenceDraw) -> int:
    """How long the execute of this inference takes."""
    return CALL_BEFORE_US + draw.duration_us + CALL_AFTER_US
