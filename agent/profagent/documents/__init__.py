"""Types of the documents that commands print with `--json`; their JSON Schemas are generated from these types.

Times are in µs unless the document names another unit; times of day are µs since 1970. None is 'not known'. A change of
a type is a change of its documents: they get another version in `profagent.cli.documents`. The types repeat fields of
the product's classes, because these change with the product, and a published document does not.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from profagent.codes import IssueFamily, Severity  # noqa: TC001 - msgspec reads the types


class FailureDocument(TypedDict):
    """Failure of a command: the message, its stable code, what to do next, and the exit code."""

    error: str
    code: str
    hint: str
    exit_code: int


class IssueCodeDocument(TypedDict):
    """Issue code: `exit_code` is that of commands whose result depends on it, 0 where it changes none.

    `otherwise` says when an entry of the ledger has the other severity.
    """

    family: IssueFamily
    code: str
    severity: Severity
    text: str
    remedy: str
    exit_code: int
    otherwise: str


class GapDocument(TypedDict):
    """Interval in which a capture did not follow the board, or one JOB."""

    standing: Literal["connecting", "away", "silent", "behind", "paused", "not-run"]
    job: str | None
    from_us: int
    to_us: int
    detail: str


class CoverageDocument(TypedDict):
    """Time that a capture covered, and its longest gaps; `more_gaps` counts the others."""

    covered_us: int
    total_us: int
    gaps: list[GapDocument]
    more_gaps: int


class SamplingFigures(TypedDict):
    """Sampling of inferences by the runtime; None where that is not known, for the reason `why`."""

    sampled: int
    due: int | None
    late: int | None
    never_came: int | None
    interval: int | None
    interval_from: str | None
    why: str | None


class SampledDocument(SamplingFigures):
    """How completely the runtime sampled inferences; None where that is not known, for the reason `why`.

    Of those that were `passed_over` on purpose, a flight recorder kept the figures of the `thinned` ones.
    """

    keeping: str | None
    kept: int
    passed_over: int
    thinned: int


class LedgerSums(TypedDict):
    """Sums of the ledger's counts by reason."""

    loss: dict[str, int]
    note: dict[str, int]


class KeptLossDocument(TypedDict):
    """Loss that the board kept for the next capture."""

    job: str | None
    reason: str
    detail: str
    lost_logs: int | None
    lost_bytes: int | None
    from_us: int | None
    to_us: int | None


class NotFinal(TypedDict):
    """Number of inferences that are in no figure, by state and reason."""

    figures: str
    why: str | None
    inferences: int


class ProvenanceDocument(TypedDict):
    """Origin of the figures of a JOB, and everything that is missing or not verified about them."""

    profagent: str
    session: int
    source: str
    board: str
    board_model: str | None
    hostname: str
    simulated: bool
    daemon_version: str
    sdk_version: str
    job: str
    job_state: str
    recorded: list[str]
    frequency_mhz: int | None
    counter_map: str | None
    counter_map_digest: str | None
    likely_counters: list[str]
    coverage: CoverageDocument | None
    incomplete: list[str]
    sampling: SampledDocument
    ledger: LedgerSums
    kept_losses: list[KeptLossDocument]
    implausible: list[str]
    not_final: list[NotFinal]
    pmu: str
    unverified: list[str]
    imported_from: NotRequired[str]


class DurationsDocument(TypedDict):
    """Figures of durations; `mad` is the median absolute deviation, not scaled."""

    number: int
    total: float | None
    mean: float | None
    median: float | None
    mad: float | None
    p95: float | None
    p99: float | None
    max: float | None


class ModelDocument(TypedDict):
    """Latency of a model's inferences, the sum of their layers, and the time that no layer explains."""

    model: str
    inferences: int
    latency: DurationsDocument
    latency_from: str | None
    per_second: float | None
    gap_us: float | None
    layers: DurationsDocument
    layers_unit: Literal["us", "ticks"]
    recorded: int | None
    of_layers: int | None
    lacking: int
    device: str | None
    devices: int
    not_in_any_layer: float | None
    whole: float | None


class LeftOutDocument(TypedDict):
    """Inferences of a model that are left out as warm-up, or by `--skip`."""

    model: str
    inferences: int
    left_out: int


class FrameDocument(TypedDict):
    """Frames of one process: latency and age at their ends in µs, pace, and numbers that are missing.

    The program left out the `missing` numbers; of the `lost` ones nobody knows, as marks were lost there. In the
    `undivided` frames some call has no records.
    """

    process: int
    joined_by: Literal["number", "spans", "calls"]
    frames: int
    latency: DurationsDocument
    age: DurationsDocument
    per_second: float | None
    missing: int
    lost: int
    undivided: int


class JudgedDocument(TypedDict):
    """Verdict on an objective for one model, layer, stage or program; `value` has the unit of the bound.

    `exceeded` of `count` values are not within the bound, a `share` from 0 to 1; both are None where histograms do not
    tell. `guilty` is the part that explains `guilty_share` of what these take more than usual; None if no single part
    does.
    """

    name: str
    verdict: Literal["holds", "exceeded", "unknown"]
    value: float | None
    count: int
    exceeded: int | None
    share: float | None
    guilty: str | None
    guilty_share: float | None
    why: str


class ObjectiveDocument(TypedDict):
    """Verdict on an objective of `--slo`, the most severe of its cases."""

    objective: str
    verdict: Literal["holds", "exceeded", "unknown"]
    bound: float
    unit: Literal["us", "1/s"]
    cases: list[JudgedDocument]


class AlarmsDocument(TypedDict):
    """Alarms of an objective in a capture: how many began, and whether one was on at the end.

    `alarms` is None if the objective was never decided: nothing of it came that is known while it comes.
    """

    objective: str
    name: str
    alarms: int | None
    on: bool


class StatsDocument(TypedDict):
    """Answer of `stats`: rows, largest first, whose keys and their units are in `units`."""

    by: Literal["layer", "type", "model", "device", "segment", "aicpu", "api", "step", "frame"]
    unit: Literal["us", "ticks"]
    units: dict[str, str]
    simulated: bool
    rows: list[dict[str, str | int | float | None]]
    all_rows: int
    models: list[ModelDocument]
    likely: list[str]
    skip: int | None
    left_out: list[LeftOutDocument]
    jobs: list[ProvenanceDocument]
    frames: NotRequired[list[FrameDocument]]
    slo: NotRequired[list[ObjectiveDocument]]


class DifferenceDocument(TypedDict):
    """Fact in which two runs differ, and the figures that are therefore not compared."""

    code: str
    grade: Literal["blocking", "blocks layers", "blocks a metric", "informative"]
    blocks: list[str]
    model: str | None
    base: str | None
    new: str | None
    text: str
    allowed: bool


class ComparabilityDocument(TypedDict):
    """Verdict of the rules of comparability."""

    verdict: Literal["comparable", "in part", "not comparable"]
    differences: list[DifferenceDocument]


class TimesDocument(TypedDict):
    """Records of a layer in an inference of each run, where these numbers differ."""

    base: float
    new: float


class MovedDocument(TypedDict):
    """Counter that moved: a share of the layer's time, or bytes."""

    counter: str
    base: float
    new: float


class ChangeDocument(TypedDict):
    """Figures of one thing in both runs, and the change of the medians; `p` is adjusted for all comparisons.

    Where a flight recorder has thinned a run, `p` is None, and so is what its histograms do not tell.
    """

    scope: Literal["latency", "layers", "layer", "type", "api"]
    name: str
    base: DurationsDocument
    new: DurationsDocument
    difference: float | None
    percent: float | None
    p: float | None
    significant: bool
    times: TimesDocument | None
    counters: list[MovedDocument]


class LayerDocument(TypedDict):
    """Name of a layer; `unit` is the processor that ran it."""

    name: str
    type: str
    unit: str


class LackingLayer(LayerDocument):
    """Layer whose record some inferences lack."""

    inferences: int


class LackingDocument(TypedDict):
    """Inferences that lack a record which most have."""

    inferences: int
    layers: list[LackingLayer]


class MatchDocument(TypedDict):
    """Layers of both runs that belong together; `change` is None where one run lacks them."""

    what: str
    base: list[LayerDocument]
    new: list[LayerDocument]
    change: ChangeDocument | None
    bounds: NotRequired[list[str | None]]


class ModelDiffDocument(TypedDict):
    """Comparison of a model; `latency` is None where it is not compared or not known."""

    model: str
    base_inferences: int
    new_inferences: int
    latency: ChangeDocument | None
    latency_from: str | None
    sum_of_layers: ChangeDocument
    layers: list[MatchDocument]
    types: list[ChangeDocument]
    base_lacking: LackingDocument
    new_lacking: LackingDocument


class ConditionDocument(TypedDict):
    """Condition of `--fail-if`: the changes for which it holds, or why it cannot be judged."""

    condition: str
    holds: bool
    cannot_tell: str | None
    changes: list[ChangeDocument]


class ComparedRunDocument(TypedDict):
    """Run that was compared; tables op_summary have the metadata that stands beside them."""

    called: str
    simulated: bool
    jobs: list[dict[str, Any]]


class OnlyDocument(TypedDict):
    """Model that only one of the runs has."""

    side: str
    model: str


class ComparedObjective(TypedDict):
    """Verdicts on an objective, of both runs."""

    base: ObjectiveDocument
    new: ObjectiveDocument


class DiffDocument(TypedDict):
    """Answer of `diff`."""

    comparability: ComparabilityDocument
    verdict: str
    can_tell: bool
    complete: bool
    conditions: list[ConditionDocument]
    remarks: list[str]
    likely: list[str]
    base: ComparedRunDocument
    new: ComparedRunDocument
    models: list[ModelDiffDocument]
    only: list[OnlyDocument]
    calls: list[ChangeDocument]
    slo: NotRequired[list[ComparedObjective]]


class PairedDocument(TypedDict):
    """Difference between sides A and B, paired by rounds: `percent` is A relative to B, `low` to `high` its interval.

    `a` and `b` are medians over the rounds; `p` is adjusted for all comparisons, None with too few rounds.
    """

    scope: Literal["latency", "layers", "layer", "type", "api"]
    name: str
    a: float | None
    b: float | None
    percent: float | None
    low: float | None
    high: float | None
    p: float | None
    significant: bool
    times: TimesDocument | None


class PairedMatchDocument(TypedDict):
    """Layers of both sides that belong together; `change` is None where one side lacks them."""

    what: str
    a: list[LayerDocument]
    b: list[LayerDocument]
    change: PairedDocument | None


class PairedModelDocument(TypedDict):
    """Comparison of a model; `drift_percent` is the common change from the first round to the last."""

    model: str
    latency: PairedDocument | None
    latency_from: str | None
    sum_of_layers: PairedDocument
    layers: list[PairedMatchDocument]
    drift_percent: float | None


class AbSideDocument(TypedDict):
    """Side of the comparison: its program, the program's arguments, and its sessions, one for each round."""

    program: str
    arguments: list[str]
    sessions: list[int]
    simulated: bool


class TemperatureDocument(TypedDict):
    """Chip temperatures in °C, before the first run and after the last."""

    begin: float | None
    end: float | None


class AbDocument(TypedDict):
    """Answer of `ab`; `stopped` is the reason why there are fewer rounds than wanted."""

    comparability: ComparabilityDocument
    verdict: str
    can_tell: bool
    slower: bool
    complete: bool
    incomplete: list[str]
    label: str
    rounds: int
    wanted: int
    stopped: str | None
    confidence: float
    temperature: TemperatureDocument
    a: AbSideDocument
    b: AbSideDocument
    models: list[PairedModelDocument]
