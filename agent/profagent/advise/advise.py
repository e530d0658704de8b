"""`advise`: what the rules find in a session, with evidence and what it could bring at most.

Rules read the views and two tables that are made for them: `layer_means` and `model_means`. The figures of these are
those of `stats`: final inferences without warm-up.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent.advise.rules import SEVERITIES, Need
from profagent.cli.provenance import likely_counters, provenance_of
from profagent.formats.countermap import LARGEST_RATIO, RATIOS, bound_by, mean_ratios
from profagent.formats.records import US_PER_MS
from profagent.stats.figures import UNITS, UNKNOWN, left_out
from profagent.stats.stats import records_of, split
from profagent.store.database import fetched_named, fetched_one, readings
from profagent.store.queries import LayerRow, Scope, find_session, jobs_of
from profagent.store.series import READERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import aiosqlite
    from numpy.typing import NDArray

    from profagent.advise.rules import Language, Rule
    from profagent.stats.figures import JobRecords
    from profagent.store.queries import SessionRow
    from profagent.store.series import RecordSeries

# So long a query of a rule may take; SQLite asks after so many of its own steps.
LONGEST_QUERY_S = 30.0
STEPS_BETWEEN_LOOKS = 100_000
# What could bring less of an inference, in %, stands among what is of low severity.
LEAST_SHARE = 10.0
# Behind it stands what a rule judges by; before it, what it shows.
_CONDITION = re.compile(r"\b(?:WHERE|HAVING)\b", re.IGNORECASE)
# Of a row, what a finding says by itself.
_NOT_EVIDENCE = ("model",)
LACKS: dict[Need, str] = {
    "times": "nobody knows how long a tick takes: the JOB has no info.json, or no layer was recorded",
    "counters": "no counter map says which word of a record is which counter, or another tool's files have no counters",
    "calls": 'no single API call is known: "acl_api" of acl.json must be exactly "on"; other tools tell sums only',
    "metrics": "no system metric was recorded",
    "ss928": "it is about what an SS928's NPU computes, and these results are of another device",
}
# What the rules read beside the views; the comments are the documentation (tools/make_reference.py).
MEANS = f"""
-- Layers of the mean inference, in the network's order.
--   unit         `AA_CORE` or `AA_CPU`
--   layer_index  its place in the network
--   us           its time in the mean inference
--   share        of the inference's time, in %
--   bound        what bounds it, as `stats` tells
--   {RATIOS[0]}     the mean; behind it {", ".join(RATIOS[1:])}, as in `op_records`
--   model, segment, layer_name, layer_type
CREATE TEMP TABLE layer_means (model TEXT, unit TEXT, segment INTEGER, layer_index INTEGER, layer_name TEXT,
    layer_type TEXT, us REAL, share REAL, bound TEXT, {", ".join(f"{name} REAL" for name in RATIOS)});
-- Models.
--   inferences  how many the means are of
--   us          the mean inference: the sum of its layers
--   model, npu_us, cpu_us
CREATE TEMP TABLE model_means (model TEXT, inferences INTEGER, us REAL, npu_us REAL, cpu_us REAL);
"""
_LAYER = f"INSERT INTO temp.layer_means VALUES ({', '.join('?' * (9 + len(RATIOS)))})"  # noqa: S608 - marks
_MODEL = "INSERT INTO temp.model_means VALUES (?, ?, ?, ?, ?)"
_HAS_CALLS = (
    "SELECT EXISTS (SELECT 1 FROM part JOIN log USING (log) WHERE session = ? AND kind = 'acl_api' AND offset > 0)"
)
_HAS_METRICS = "SELECT EXISTS (SELECT 1 FROM metrics WHERE session = ?)"

# Model, unit, segment, layer's name, layer's type.
_Key = tuple[str, str, int, str, str]


class Finding(NamedTuple):
    """What a rule found in one model, or in the session (`model` None).

    `gain_us` is what it could bring at most in an inference, `share` that in % of the inference; None: not known.
    `likely`: it rests on counters that are not certain.
    """

    rule: str
    severity: str
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


class Untold(NamedTuple):
    """A rule of which nobody can tell, and why."""

    rule: str
    why: str


@dataclass(frozen=True, slots=True)
class Advice:
    """What the rules found, the gravest and largest first; what they did not find; and what cannot be told."""

    session: int
    findings: list[Finding]
    quiet: list[str]
    untold: list[Untold]
    provenance: list[dict[str, Any]]

    @property
    def is_simulated(self) -> bool:
        """Whether any of the figures are invented."""
        return any(each["simulated"] for each in self.provenance)


async def advise(
    database: Path, rules: Sequence[Rule], *, session: int | None = None, job: str | None = None, language: Language
) -> Advice:
    """What the rules say of a session (None: the newest), or of one of its JOBs as far as layers are concerned.

    Raises UsageError where there is no such session or JOB, its records were deleted, or a rule's query or words
    cannot be, and StoreError.
    """
    async with readings(database, READERS) as readers:
        connection = readers[0]
        found = await find_session(connection, session)
        scopes = [Scope(found, row) for row in await jobs_of(connection, found.session, job)]
        provenance = [await provenance_of(connection, scope) for scope in scopes]
        means = _Means()
        for scope in scopes:
            if scope.job.frequency_mhz:
                means.add(await records_of(readers, scope, in_us=True))
        await means.put_into(connection)
        there = await _there(connection, found, has_times=bool(means.inferences))
        if not any("told_by" in each for each in provenance):
            there.add("ss928")
        runner = _Runner(connection, found.session, means.model_us(), language, bool(likely_counters(provenance)))
        findings: list[Finding] = []
        quiet: list[str] = []
        untold: list[Untold] = []
        for rule in rules:
            if lacking := [LACKS[need] for need in rule.needs if need not in there]:
                untold.append(Untold(rule.id, lacking[0]))
                continue
            of_rule = await runner.findings(rule)
            findings += of_rule
            if unknown := await _unknown(connection, rule):
                untold.append(Untold(rule.id, unknown))
            elif not of_rule:
                quiet.append(rule.id)
    findings.sort(key=lambda each: (_rank(each), -(each.gain_us or 0.0), each.rule))
    return Advice(found.session, findings, quiet, untold, provenance)


def _rank(finding: Finding) -> int:
    """Its severity's place; what brings little is low."""
    place = SEVERITIES.index(finding.severity)
    is_little = finding.share is not None and finding.share < LEAST_SHARE
    return max(place, SEVERITIES.index("low")) if is_little else place


async def _there(connection: aiosqlite.Connection, session: SessionRow, *, has_times: bool) -> set[Need]:
    """What the session has of what rules need."""
    found: set[Need] = {"times"} if has_times else set()
    if session.counter_map is not None:
        found.add("counters")
    if (await fetched_one(connection, _HAS_CALLS, (session.session,)))[0]:
        found.add("calls")
    if (await fetched_one(connection, _HAS_METRICS, (session.session,)))[0]:
        found.add("metrics")
    return found


async def _unknown(connection: aiosqlite.Connection, rule: Rule) -> str:
    """Of how many layers the counters that a rule judges by are not known: what it says is of the others."""
    condition = _CONDITION.split(rule.sql, 1)[-1]
    read = [name for name in (*RATIOS, "bound") if re.search(rf"\b{name}\b", condition)]
    if "counters" not in rule.needs or not read:
        return ""
    counts = [f"count(*) - count({name})" for name in read]
    query = f"SELECT count(*), {', '.join(counts)} FROM layer_means WHERE unit = 'AA_CORE'"  # noqa: S608 - our names
    layers, *unknown = await fetched_one(connection, query)
    names = [f"{name} ({count})" for name, count in zip(read, unknown, strict=True) if count]
    return f"of {layers} layers on the NPU these are not known: {', '.join(names)}" if names else ""


@dataclass(frozen=True, slots=True)
class _Runner:
    """Runs rules on a connection that has the tables made for them."""

    connection: aiosqlite.Connection
    session: int
    model_us: Mapping[str, float]
    language: Language
    is_likely: bool

    async def findings(self, rule: Rule) -> list[Finding]:
        """A finding for each model that the rule's rows name, and each value of what it tells apart."""
        begun_s = time.monotonic()
        await self.connection.set_progress_handler(
            lambda: time.monotonic() - begun_s > LONGEST_QUERY_S, STEPS_BETWEEN_LOOKS
        )
        try:
            named = {"session": self.session, **rule.thresholds}
            rows = await fetched_named(self.connection, rule.sql, named)
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            is_late = time.monotonic() - begun_s > LONGEST_QUERY_S
            why = f"it takes more than {LONGEST_QUERY_S:g} s" if is_late else str(error)
            raise rule.wrong(f"sql: {why}") from error
        if not all(isinstance(row.get("gain_us", ""), int | float | None) for row in rows):
            raise rule.wrong("sql: each row needs a number gain_us; write NULL AS gain_us where it is not known")
        by_model: dict[tuple[str | None, Any], list[dict[str, Any]]] = defaultdict(list)
        for row in rows:
            by_model[row.get("model"), row.get(rule.each)].append(row)
        return [self._finding(rule, model, found) for (model, _), found in by_model.items()]

    def _finding(self, rule: Rule, model: str | None, rows: list[dict[str, Any]]) -> Finding:
        gains = [row["gain_us"] for row in rows]
        gain_us = None if None in gains else float(sum(gains))
        whole_us = self.model_us.get(model or "")
        share = gain_us / whole_us * 100 if gain_us is not None and whole_us else None
        values = {
            **rule.thresholds,
            **rows[0],
            "rows": len(rows),
            "s": "s" * (len(rows) != 1),
            "gain_us": gain_us,
            "gain_ms": None if gain_us is None else gain_us / US_PER_MS,
            "gain_share": share,
            "inference_ms": whole_us and whole_us / US_PER_MS,
        }
        words = rule.words(self.language)
        title, text, advice = (rule.said(each, values) for each in (words.title, words.finding, words.advice))
        evidence = [{name: value for name, value in row.items() if name not in _NOT_EVIDENCE} for row in rows]
        is_likely = self.is_likely and "counters" in rule.needs
        about = (rule.id, rule.severity, rule.kind, model)
        return Finding(*about, title, text, advice, rule.manual, gain_us, share, is_likely, evidence)


class _Means:
    """The mean inference of each model, over the JOBs that are added."""

    def __init__(self) -> None:
        self.inferences: dict[str, int] = defaultdict(int)
        self._sums: dict[_Key, float] = defaultdict(float)
        self._places: dict[_Key, int] = {}
        self._counters: dict[_Key, list[tuple[NDArray[np.float64], NDArray[np.float64]]]] = defaultdict(list)
        self._bound: Callable[[NDArray[np.float64]], str | None] = bound_by

    def add(self, job: JobRecords) -> None:
        """Take a JOB in, without its warm-up."""
        keeps, _ = left_out(job, None)
        for inference, is_kept in zip(job.series.inferences, keeps.tolist(), strict=True):
            self.inferences[inference.model_name] += is_kept
        us = job.us_per_tick or 1.0
        for unit, records, factor in ((UNITS[0], job.series.aicore, us), (UNITS[1], job.series.aicpu, 1.0)):
            for key, place, durations in _by_layer(job, keeps, records, unit, records.duration * factor):
                self._sums[key] += float(durations.sum())
                self._places[key] = min(place, self._places.get(key, place))
        counters, self._bound = job.series.counters, job.bound
        if counters is not None:
            numbers = np.arange(len(counters.values))
            for key, _, found in _by_layer(job, keeps, counters.records, UNITS[0], numbers):
                ratios = counters.values[found, : len(RATIOS)]
                self._counters[key].append((ratios, counters.records.duration[found]))

    async def put_into(self, connection: aiosqlite.Connection) -> None:
        """Make the rules' tables; from then on nothing can be written."""
        await connection.executescript(MEANS)
        await connection.executemany(_LAYER, [*self._layer_rows()])
        await connection.executemany(_MODEL, [*self._model_rows()])
        await connection.execute("PRAGMA query_only = ON")

    def model_us(self) -> dict[str, float]:
        """The mean time of an inference of each model."""
        return {model: self._unit_us(model, *UNITS) for model, count in self.inferences.items() if count}

    def _layer_rows(self) -> Iterator[tuple[Any, ...]]:
        model_us = self.model_us()
        for key, total in self._sums.items():
            model, unit, segment, name, kind = key
            us = total / self.inferences[model]
            ratios = self._ratios(key)
            bound = None if ratios is None else self._bound(ratios)
            shown: list[float | None] = [None] * len(RATIOS) if ratios is None else _known(ratios)
            share = us / model_us[model] * 100 if model_us[model] else None
            yield (model, unit, segment, self._places[key], name, kind, us, share, bound, *shown)

    def _model_rows(self) -> Iterator[tuple[Any, ...]]:
        for model, us in self.model_us().items():
            npu_us = self._unit_us(model, UNITS[0])
            yield (model, self.inferences[model], us, npu_us, us - npu_us)

    def _unit_us(self, model: str, *units: str) -> float:
        sums = (total for key, total in self._sums.items() if key[0] == model and key[1] in units)
        return sum(sums) / self.inferences[model]

    def _ratios(self, key: _Key) -> NDArray[np.float64] | None:
        """Means weighted by time; None without counters, or where one cannot be a share."""
        if key not in self._counters:
            return None
        ratios, ticks = (np.concatenate(column) for column in zip(*self._counters[key], strict=True))
        means = mean_ratios(ratios, ticks)
        with np.errstate(invalid="ignore"):
            is_share = np.isnan(means) | ((means >= 0) & (means <= LARGEST_RATIO))
        return means if is_share.all() else None


def _known(ratios: NDArray[np.float64]) -> list[float | None]:
    return [None if np.isnan(ratio) else ratio for ratio in ratios.tolist()]


def _by_layer(
    job: JobRecords, keeps: NDArray[np.bool_], records: RecordSeries, unit: str, values: NDArray[Any]
) -> Iterator[tuple[_Key, int, NDArray[Any]]]:
    """The values of kept inferences by layer and segment, with the layer's place."""
    models = np.array([each.model for each in job.series.inferences], np.int64)
    kept = keeps[records.inference]
    width, height = int(records.layer.max(initial=-1)) + 2, int(records.net.max(initial=-1)) + 1
    codes = (models[records.inference] * height + records.net) * width + records.layer + 1
    names = {each.model: each.model_name for each in job.series.inferences}
    for code, found in split(codes[kept], values[kept]):
        rest, layer = divmod(code, width)
        model, segment = divmod(rest, height)
        named = job.layers[model].get(layer - 1, LayerRow(0, UNKNOWN, UNKNOWN))
        yield (names[model], unit, segment, named.name, named.type), layer - 1, found
