"""Types of the documents about sessions: captures, imports, their lists, what left a workspace, exports."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from profagent.documents import (
    AlarmsDocument,
    CoverageDocument,
    KeptLossDocument,
    LedgerSums,
    NotFinal,
    ObjectiveDocument,
    ProvenanceDocument,
    SampledDocument,
)

Cell = str | int | float | None


class SessionDocument(TypedDict):
    """Session of a workspace; `jobs`, `inferences`, `losses` and `notes` are numbers of them."""

    session: int
    board: str
    hostname: str
    source: str
    address: str
    started_us: int
    ended_us: int | None
    simulated: bool
    daemon_version: str
    sdk_version: str
    counter_map: str | None
    counter_map_digest: str | None
    labels: str | None
    labels_by_key: dict[str, str]
    jobs: int
    inferences: int
    losses: int
    notes: int
    keeping: str | None
    sampled: int | None
    due: int | None
    passed_over: int | None
    cleared_us: int | None
    lake: str | None
    complete: bool
    incomplete: list[str]
    frequencies_mhz: list[int]
    events: dict[str, int]
    sampling: SampledDocument
    kept_losses: list[KeptLossDocument]
    implausible: list[str]
    coverage: CoverageDocument | None


class BaselineDocument(SessionDocument):
    """Session with the name under which others are compared with it."""

    name: str


class LedgerEntryDocument(TypedDict):
    """Entry of a ledger; `first` and `last` are bytes of the log, `text` and `remedy` None for a board's own reason."""

    session: int
    job: str | None
    log: str | None
    grade: Literal["loss", "note"]
    reason: str
    detail: str
    first: int | None
    last: int | None
    count: int
    text: str | None
    remedy: str | None


class IncidentDocument(TypedDict):
    """Incident of a flight recorder: what fired, and the window of which the inferences were `kept`.

    `value` and `bound` are those of the first rule, in `unit`: `us`, or empty for a metric's own. `culprit` is the
    layer with the largest excess over its median so far. Times are the board's.
    """

    number: int
    time_us: int
    rules: list[str]
    value: float | None
    bound: float | None
    unit: str
    model: str | None
    inference: int | None
    culprit: str | None
    excess_us: float | None
    begin_us: int
    end_us: int
    kept: bool
    inferences: int
    bytes: int


class ClearedDocument(TypedDict):
    """Answer of `gc`: sessions whose records went, those that stay and why; `bytes_after` is None for a dry run."""

    sessions: list[int]
    staying: dict[str, str]
    bytes_before: int
    bytes_after: int | None
    freed_bytes_estimated: int


class EarlierJob(TypedDict):
    """JOB of which a session fetched nothing, because an earlier session has it."""

    job: str
    session: int
    inferences: int


class SummaryDocument(TypedDict):
    """Summary of a session; `records` counts by unit, `not_copied` has the inferences left on the board by JOB."""

    session: int
    board: str
    hostname: str
    simulated: bool
    sdk_version: str
    counter_map: str | None
    counter_map_digest: str | None
    jobs: list[str]
    bytes: int
    records: dict[str, int]
    events: dict[str, int]
    sampling: SampledDocument
    earlier: list[EarlierJob]
    ledger: LedgerSums
    kept_losses: list[KeptLossDocument]
    implausible: list[str]
    complete: bool
    incomplete: list[str]
    coverage: CoverageDocument | None
    not_copied: dict[str, int | None]
    not_final: list[NotFinal]


class ImportedJobDocument(SummaryDocument):
    """Summary of an import, and the file that it filled."""

    database: str


class ImportedIntoDocument(ImportedJobDocument):
    """Summary of an import into a workspace, and the folder with the copied logs."""

    mirror: str


class CaptureDocument(SummaryDocument):
    """Summary of a capture, the folder with the copied logs, and the exit code that follows from what is missing."""

    mirror: str
    exit_code: int
    slo: NotRequired[list[AlarmsDocument]]


class RecordDocument(CaptureDocument):
    """Summary of a capture, and the file that it filled."""

    database: str


class OutcomeDocument(TypedDict):
    """Outcome of the capture of one of several boards; `session` is None if it was never reached.

    `exit_code` is that of `error`, or else that of the session.
    """

    address: str
    error: str | None
    complete: bool
    exit_code: int
    session: CaptureDocument | None


class TotalDocument(TypedDict):
    """Sums over the captures of several boards."""

    boards: int
    reached: int
    jobs: int
    bytes: int
    records: dict[str, int]
    ledger: LedgerSums
    complete: bool
    exit_code: int


class RecordBoardsDocument(TypedDict):
    """Answer of `record` for several boards."""

    boards: list[OutcomeDocument]
    total: TotalDocument
    database: str


class CauseDocument(TypedDict):
    """Likely cause of a program's failure, and its remedy."""

    text: str
    remedy: str


class CollectDocument(TypedDict):
    """Answer of `collect`; `status` is the program's exit status, None if the link to it was lost."""

    status: int | None
    exit_code: int
    jobs: list[str]
    causes: list[CauseDocument]
    session: RecordDocument | None


class ImportedDocument(TypedDict):
    """Source that was imported, or why it was not; `is_known` says that the workspace had it before."""

    path: str
    session: int | None
    error: str | None
    hint: str | None
    what: str
    rows: int
    kernels: int
    losses: int
    notes: int
    is_known: bool


class NotTakenDocument(TypedDict):
    """File that was not imported."""

    path: str
    why: str


class ImportDocument(TypedDict):
    """Answer of `import`."""

    sources: list[ImportedDocument]
    not_taken: list[NotTakenDocument]
    database: str


class RedecodedDocument(TypedDict):
    """Answer of `redecode`: the counter maps before and now, and the rows that were filled anew."""

    session: int
    counter_map_before: str | None
    counter_map: str | None
    counter_map_digest: str | None
    rows: int
    rows_without_bytes: int


class PushedDocument(TypedDict):
    """Session in a lake: its number here, its name there, and the rows that this call wrote by table."""

    number: int
    session: str
    rows: dict[str, int]
    was_there: bool


class SessionMetadata(TypedDict):
    """Facts about a session that stand in every exported file."""

    session: int
    board: str
    hostname: str
    jobs: list[str]
    simulated: bool
    complete: bool
    incomplete: list[str]
    ledger: LedgerSums
    not_final: list[NotFinal]


class ExportedMetadata(SessionMetadata):
    """Facts about a session, and the version that exported it."""

    profagent: str


class ClockOffset(TypedDict):
    """Distance of a board's clock from the host's: `offset_us` at the board's time `at_us`, growing by `drift`."""

    at_us: float
    offset_us: float
    drift: float
    uncertainty_us: float
    samples: int


class TracedSession(SessionMetadata):
    """Facts about a session in a trace; `clock_offset_us` is None where it is not known."""

    clock_offset_us: ClockOffset | None


class TraceMetadata(TypedDict):
    """Facts about a trace, whose times count from `origin_us`; `unplaced` records have no known start."""

    profagent: str
    origin_us: int
    clock: Literal["host", "board"]
    sessions: list[TracedSession]
    unplaced: int


class ExportedTraceDocument(TypedDict):
    """Trace that was written."""

    files: list[str]
    events: int
    metadata: TraceMetadata


class ExportedTablesDocument(TypedDict):
    """Files of a JOB that were written."""

    job: str
    directory: str
    files: list[str]
    simulated: bool
    ledger: LedgerSums
    not_final: list[NotFinal]
    unplaced: int


class ExportedSessionDocument(TypedDict):
    """File or folder that a session was written to; `rows` by table is None where a format does not count them.

    `also` has the other sessions that were written with it because they share a JOB.
    """

    path: str
    rows: dict[str, int] | None
    also: list[int]
    metadata: ExportedMetadata


class ShownTableDocument(TypedDict):
    """Table of a JOB, with the columns of the vendor's tool; unknown values are `N/A`."""

    table: str
    about: dict[str, Cell]
    rows: list[dict[str, Cell]]


class ShownJobDocument(ProvenanceDocument):
    """Tables of a JOB."""

    events: dict[str, int]
    known_inferences: int
    tables: list[ShownTableDocument]


class ReportDocument(TypedDict):
    """Page that was written, its verdict, and those on the objectives of `--slo`."""

    file: str
    verdict: str
    slo: NotRequired[list[ObjectiveDocument]]


class TrendPointDocument(TypedDict):
    """Session of a trend: median and MAD of `count` durations in `unit`; `apart` says why it is not compared."""

    session: int
    started_us: int
    count: int
    median: float
    mad: float | None
    unit: Literal["us", "ticks"]
    time: str
    losses: int
    facts: dict[str, str]
    apart: str


class TrendCauseDocument(TypedDict):
    """Candidate for the cause of a change of level: a fact that changed at `session`."""

    fact: str
    before: str
    after: str
    session: int


class TrendChangeDocument(TypedDict):
    """Change of level: its first session, both levels, half the width of the 95 % interval of their difference."""

    kind: Literal["latency", "layer", "metric"]
    name: str
    unit: str
    session: int
    started_us: int
    before: float
    after: float
    uncertainty: float
    causes: list[TrendCauseDocument]


class TrendSeriesDocument(TypedDict):
    """Values of a layer or metric, one for each session of the trend; null where none can be compared."""

    kind: Literal["latency", "layer", "metric"]
    name: str
    unit: str
    values: list[float | None]


class TrendDocument(TypedDict):
    """Sessions of a board, oldest first, and the changes of level among them: of `layer`, or of all if it is null.

    `series` has the layers and metrics that changed.
    """

    board: str
    hostname: str
    model: str
    layer: str | None
    nights: list[TrendPointDocument]
    changes: list[TrendChangeDocument]
    series: list[TrendSeriesDocument]


class AdviceFindingDocument(TypedDict):
    """Finding of a rule; `gain_us` is the most that it could save in an inference or step (`per`), `share` its %."""

    rule: str
    severity: Literal["high", "medium", "low", "info"]
    kind: str
    model: str | None
    title: str
    finding: str
    advice: str
    manual: str
    gain_us: float | None
    share: float | None
    likely: bool
    evidence: list[dict[str, Any]]
    same_time: list[str]
    per: Literal["inference", "step"]


class UndecidedRuleDocument(TypedDict):
    """Rule that could not be judged."""

    rule: str
    why: str


class AdviceDocument(TypedDict):
    """Answer of `advise`; `nothing_found` are rules that found nothing."""

    session: int
    simulated: bool
    findings: list[AdviceFindingDocument]
    nothing_found: list[str]
    cannot_tell: list[UndecidedRuleDocument]
    jobs: list[ProvenanceDocument]


class SlowerDocument(TypedDict):
    """Quantity for which a condition held; `percent` is None if the base is 0."""

    condition: str
    what: str
    percent: float | None


class NightComparedDocument(TypedDict):
    """Comparison of a night with a baseline or an earlier night; `problem` says why there was none."""

    against: str
    session: int | None
    slower: list[SlowerDocument]
    differences: list[str]
    can_tell: bool
    problem: str
    undecided: list[str]
    is_missing: bool


class NightBoardDocument(TypedDict):
    """Result of a board's night."""

    board: str
    session: int | None
    attempts: int
    problems: list[str]
    compared: list[NightComparedDocument]
    coverage: CoverageDocument | None
    trends: list[TrendDocument]
    simulated: bool
    verdict: Literal["good", "undecided", "incomplete", "away", "failed", "slower", "exceeded"]
    seconds: float
    slo: list[ObjectiveDocument]


class NightDocument(TypedDict):
    """Results of all boards of a night; `run` is its begin by the host's clock."""

    run: str
    verdict: Literal["good", "undecided", "incomplete", "away", "failed", "slower", "exceeded"]
    headlines: list[str]
    boards: list[NightBoardDocument]
    remarks: list[str]


class FleetChangeDocument(TypedDict):
    """Layer, or a model's inferences (`layer` None), that changed on `boards`; times are in `measure`."""

    model: str
    layer: str | None
    type: str | None
    unit: str | None
    measure: str
    what: str
    base: float
    new: float
    percent: float | None
    p: float
    where: str
    since: str | None
    boards: list[str]


class FleetDiffDocument(TypedDict):
    """Answer of `fleet diff`: nights of both sides, and changes, the slower first."""

    base: list[str]
    new: list[str]
    boards: int
    changes: list[FleetChangeDocument]
    apart: list[str]
