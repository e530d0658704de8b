"""Types of the events that `watch --json` prints, one a line; `event` tells them apart."""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from msgspec import UNSET, Struct, UnsetType

from profagent.documents import SamplingFigures


class Counted(TypedDict):
    """Number of an inference's entries in the ledger with this reason."""

    grade: Literal["loss", "note"]
    reason: str
    count: int


class _Event(Struct, tag_field="event", kw_only=True):
    # Address or name of the board, where several boards are watched.
    board: str | UnsetType = UNSET
    simulated: bool


class _JobEvent(_Event, kw_only=True):
    job: str


class _ModelEvent(_JobEvent, kw_only=True):
    model: str
    model_id: int
    device_id: int
    stream_id: int | None
    batch_num: int
    input_pic_num: int
    current_pic_count: int
    # Counters in use whose meaning is likely, but not certain.
    likely: list[str] | UnsetType = UNSET


class SlowestLayer(Struct, kw_only=True):
    """Layer among the slowest of an inference; `share` is its part of the latency, from 0 to 1."""

    layer_name: str | None
    layer_type: str | None
    unit: Literal["aicore", "aicpu"]
    duration_us: float
    share: float | None
    bound_by: str | UnsetType | None = UNSET


class InferenceEvent(_ModelEvent, tag="inference", kw_only=True):
    """Inference whose figures are known, or are not known for the reason `why`."""

    start_us: int | None
    end_us: int | None
    latency_us: float | None
    latency_from: str | None
    layers_us: float | None
    aicpu_us: float | None
    slowest: list[SlowestLayer]
    recorded: int | None
    of_layers: int | None
    records: int
    figures: str
    why: str | None
    ledger: list[Counted]
    sampled: int
    due: int | None


class RecordEvent(_ModelEvent, tag="record", kw_only=True):
    """Record of a layer; `counters` are shares of its time and bytes, by name."""

    unit: Literal["aicore", "aicpu"]
    segment: int
    sequence: int
    layer_name: str | None
    layer_type: str | None
    duration_us: float | None
    counters: dict[str, float | None]
    bound_by: str | UnsetType | None = UNSET


class CallEvent(_JobEvent, tag="call", kw_only=True):
    """API call of the program."""

    model: str
    model_id: int
    name: str
    begin_us: int | None
    end_us: int
    duration_us: int | None
    pid: int
    tid: int


class LedgerEvent(_JobEvent, tag="ledger", kw_only=True):
    """Entry of the ledger; `first` and `last` are bytes of the log."""

    log: str | None
    grade: Literal["loss", "note"]
    reason: str
    detail: str
    first: int | None
    last: int | None
    count: int


class KeptLossEvent(_Event, tag="kept_loss", kw_only=True):
    """Loss that the board kept for this capture."""

    job: str | None
    reason: str
    detail: str
    lost_logs: int | None
    lost_bytes: int | None
    from_us: int | None
    to_us: int | None


class JobEvent(_JobEvent, tag="job", kw_only=True):
    """State of a JOB that has changed."""

    state: str


class OpsRate(TypedDict):
    """Operators of a source, and their rate."""

    source: str
    count: int
    per_s: float | None


class SpanMean(TypedDict):
    """Spans of one name, and their mean time."""

    name: str
    count: int
    mean_us: float


class BoardEvent(_Event, tag="board", kw_only=True):
    """State of the board: NPU and daemon in %, temperature in °C, and what came since the event before."""

    time_us: int
    npu_utilization: float | None
    temperature: float | None
    daemon_cpu: float | None
    ops: list[OpsRate]
    spans: list[SpanMean]
    mark_count: int


class ObjectiveEvent(_Event, tag="slo", kw_only=True):
    """Alarm of an objective that began, or ended (`alarm` false); `value` is in `unit`, `share` from 0 to 1."""

    objective: str
    name: str
    alarm: bool
    value: float | None
    unit: Literal["us", "1/s"]
    share: float | None
    guilty: str | None
    text: str


class WatchedSampling(SamplingFigures):
    """Sampling of all models; of a session, also the choice that its capture made."""

    keeping: NotRequired[str | None]
    kept: NotRequired[int]
    passed_over: NotRequired[int]
    thinned: NotRequired[int]


class SummaryEvent(_Event, tag="summary", kw_only=True):
    """Totals at the end; with --save, the session and its workspace."""

    inferences: int
    records: dict[str, int]
    sampling: WatchedSampling
    ledger: dict[str, int]
    left_out_records: int
    error: str | UnsetType = UNSET
    exit_code: int | UnsetType = UNSET
    reached: bool | UnsetType = UNSET
    session: int | UnsetType = UNSET
    workspace: str | UnsetType = UNSET


WatchEvent = (
    InferenceEvent
    | RecordEvent
    | CallEvent
    | LedgerEvent
    | KeptLossEvent
    | JobEvent
    | BoardEvent
    | ObjectiveEvent
    | SummaryEvent
)
