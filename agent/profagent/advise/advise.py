"""`advise`: the findings of rules about a session, with evidence and the most that each could save.

Rules read the views and five tables made for them: `layer_means`, `model_means`, `inference_times`, `step_times`, and
`npu_waits`. The figures in these are those of `stats`: final inferences without warm-up.
"""

from __future__ import annotations

import sqlite3
import time
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent.advise.rules import SEVERITIES
from profagent.formats.countermap import RATIOS
from profagent.ingest.source import views
from profagent.limits import LARGEST_RATIO, LONGEST_QUERY_S, READERS
from profagent.stats.figures import UNITS, UNKNOWN
from profagent.stats.stats import gathered
from profagent.store.database import fetched_named, fetched_one, readings, run_script
from profagent.store.npu_work import npu_work_of
from profagent.store.queries import LayerRow, Scope, find_session, jobs_of
from profagent.tables.provenance import likely_counters, provenance_of
from profagent.units import US_PER_MS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import aiosqlite
    from numpy.typing import NDArray

    from profagent.advise.rules import Language, Per, Rule
    from profagent.stats.session_figures import Coding, ModelInferences, SessionFigures
    from profagent.store.database import Running
    from profagent.store.queries import SessionRow

STEPS_BETWEEN_LOOKS = 100_000
# Separates the layers of a row that names several.
_BETWEEN_LAYERS = " | "
# Columns of a row that are left out of the evidence: the finding has them itself.
_NOT_EVIDENCE = ("model",)
LACKS: dict[str, str] = {
    "times": "the length of a tick is not known: the JOB has no info.json, or no layer was recorded",
    "counters": "no counter map says which word of a record is which counter",
    "calls": 'no single API call is known: "acl_api" of acl.json must be exactly "on"',
    "metrics": "no system metric was recorded",
}
# Reasons for another tool's results, of another device. LACKS has none for steps: an SS928 never has any, so its
# report does not mention their rules.
OTHER_DEVICE: dict[str, str] = {
    "times": "no kernel of these results has a duration",
    "counters": "these results have no shares of units: record them with aic_metrics=PipeUtilization",
    "calls": "these results tell sums of calls only: `profagent stats --by api`",
    "metrics": "these results have no metrics of a board",
    "steps": "these results tell no parts of steps: torch_npu and MindSpore write step_trace_time, msprof step_trace",
    "ss928": "it is about what an SS928's NPU computes, and these results are of another device",
}
# Tables that rules read beside the views; their comments are the documentation (tools/make_reference.py).
MEANS = f"""
-- Layers of the mean inference, in the network's order.
--   unit         `AA_CORE` or `AA_CPU`
--   layer_index  place of the layer in the network
--   us           time of the layer in the mean inference, `in_inference` of `stats`
--   share        part of the inference's time, in %
--   bound        what bounds it, the column `bound by` of `stats`
--   {RATIOS[0]}     the mean; behind it {", ".join(RATIOS[1:])}, as in `op_records`
--   model, segment, layer_name, layer_type
CREATE TEMP TABLE layer_means (model TEXT, unit TEXT, segment INTEGER, layer_index INTEGER, layer_name TEXT,
    layer_type TEXT, us REAL, share REAL, bound TEXT, {", ".join(f"{name} REAL" for name in RATIOS)});
-- Models.
--   inferences    number of inferences of which the means are
--   us            the mean inference, 100 % of the shares: its latency, or its layers if that is not known
--   npu_us        sum of its layers on the NPU
--   cpu_us        sum of its layers on the CPU
--   latency_from  `call` or `records`; NULL where the latency is not known
--   latencies     number of inferences whose latency is known; behind it `median_us`, `p95_us` and `max_us` of these
--   outside_us    mean time of a latency before the first begin and after the last end of the records
--   model
CREATE TEMP TABLE model_means (model TEXT, inferences INTEGER, us REAL, npu_us REAL, cpu_us REAL, latency_from TEXT,
    latencies INTEGER, median_us REAL, p95_us REAL, max_us REAL, outside_us REAL);
-- Inferences. After a flight recorder these are the kept ones, and a rule that reads them cannot tell.
--   latency_us  time for which the program waited
--   records_us  time from the first begin to the last end of its records, on both processors
--   layers_us   sum of its layers
--   model
CREATE TEMP TABLE inference_times (model TEXT, latency_us REAL, records_us REAL, layers_us REAL);
-- Steps of a training, of results of other Ascend tools.
--   step              name of the step, with its device where there are several
--   device            that device; NULL where there is one
--   us                time of the step
--   communication_us  time of communication that no computing hides; where that is not known, all of it
--   free_us           time in which the device neither computed nor communicated
--   preparing_us      time before its first operator, a part of `free_us`
--   data_us           time in which it waited for data
CREATE TEMP TABLE step_times (step TEXT, device TEXT, us REAL, communication_us REAL, free_us REAL, preparing_us REAL,
    data_us REAL);
-- Models that waited while the NPU worked for another model, process or call.
--   process      process of the model that waited
--   for_model    model that had the NPU meanwhile
--   for_process  its process; 0 where it is not known
--   waits        number of execute calls that waited
--   calls        number of all execute calls of the model
--   waited_us    sum of what they waited
--   calls_us     sum of what all of them took
--   model
CREATE TEMP TABLE npu_waits (model TEXT, process INTEGER, for_model TEXT, for_process INTEGER, waits INTEGER,
    calls INTEGER, waited_us REAL, calls_us REAL);
"""
_STEPS = """
WITH parts AS (
    SELECT json_extract(key, '$[0]') AS step, json_extract(key, '$[1]') AS part, total AS us
    FROM figure WHERE session = ? AND by = 'step'
)
INSERT INTO temp.step_times
SELECT step, CASE WHEN instr(step, ', device ') THEN substr(step, instr(step, ', device ') + 9) END,
       sum(us) FILTER (WHERE part = ''),
       coalesce(sum(us) FILTER (WHERE part = 'Communication(Not Overlapped)'),
                sum(us) FILTER (WHERE part = 'Communication')),
       sum(us) FILTER (WHERE part = 'Free'), sum(us) FILTER (WHERE part = 'Preparing'),
       sum(us) FILTER (WHERE part = 'Data Aug Bound')
FROM parts WHERE step LIKE 'step %' GROUP BY step HAVING sum(us) FILTER (WHERE part = '') > 0
"""
_STEP_US = "SELECT avg(us) FROM temp.step_times"
_LAYER = f"INSERT INTO temp.layer_means VALUES ({', '.join('?' * (9 + len(RATIOS)))})"  # noqa: S608 - marks
_MODEL = "INSERT INTO temp.model_means VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_WAIT = "INSERT INTO temp.npu_waits VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_INFERENCE = "INSERT INTO temp.inference_times VALUES (?, ?, ?, ?)"
_HAS_CALLS = (
    "SELECT EXISTS (SELECT 1 FROM part JOIN log USING (log) WHERE session = ? AND kind = 'acl_api' AND offset > 0)"
)
_HAS_COUNTERS = "SELECT EXISTS (SELECT 1 FROM {} WHERE session = ?)"

# Tables that have only the kept inferences after a flight recorder. The view of sessions counts all of them.
_OF_KEPT = frozenset({"inference", "segment", "aicore", "aicpu", "inference_times", "npu_waits"})
_SESSIONS_VIEW = "sessions"
_THINNED = "a flight recorder thinned inferences, and what this rule reads is left of the kept ones alone"

# Model, unit, segment, layer's name, layer's type.
_Key = tuple[str, str, int, str, str]


class RuleFinding(NamedTuple):
    """A rule's finding about one model, or about the session (`model` None).

    `gain_us` is the most that it could save in an inference, or in a step (`per`), `share` that in % of it; None if not
    known. `likely`: it rests on uncertain counters. `same_time` names earlier findings about some of the same layers:
    what both could save is the same time.
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
    same_time: list[str]
    per: Per = "inference"

    def layers(self) -> set[str]:
        """Return the names of the layers in the evidence."""
        named = (row.get("layer") or row.get("layers") or "" for row in self.evidence)
        return {layer for names in named for layer in names.split(_BETWEEN_LAYERS) if layer}


class UndecidedRule(NamedTuple):
    """A rule that cannot be judged, and the reason."""

    rule: str
    why: str


@dataclass(frozen=True, slots=True)
class Advice:
    """The findings, the largest possible gain first; the rules that found nothing; the rules that lack data."""

    session: int
    findings: list[RuleFinding]
    quiet: list[str]
    undecided: list[UndecidedRule]
    provenance: list[dict[str, Any]]

    @property
    def is_simulated(self) -> bool:
        """True if any of the figures are invented."""
        return any(each["simulated"] for each in self.provenance)


async def advise(
    database: Path, rules: Sequence[Rule], *, session: int | None = None, job: str | None = None, language: Language
) -> Advice:
    """Return the findings of rules about a session (None: the newest); about layers only of `job`, if given.

    Raises UsageError if there is no such session or JOB, its records were deleted, or the query or words of a rule
    fail, and StoreError.
    """
    async with readings(database, READERS) as readers:
        found = await find_session(readers[0], session)
        scopes = [Scope(found, row) for row in await jobs_of(readers[0], found.session, job)]
        provenance = [await provenance_of(readers[0], scope) for scope in scopes]
        figures = await gathered(readers, timed(scopes), ("model",))
        return await advised(readers[0], found, figures, provenance, rules, language)


def timed(scopes: Sequence[Scope]) -> list[Scope]:
    """Return the JOBs with a known length of a tick: rules need times."""
    return [scope for scope in scopes if scope.job.frequency_mhz]


async def advised(
    connection: Running,
    session: SessionRow,
    figures: SessionFigures,
    provenance: list[dict[str, Any]],
    rules: Sequence[Rule],
    language: Language,
) -> Advice:
    """Return the findings about a session whose records were read; the connection is read-only afterwards."""
    means = _Means(figures)
    await means.put_into(connection, session.session)
    (step_us,) = await fetched_one(connection, _STEP_US)
    is_other = any("imported_from" in each for each in provenance)
    about: dict[str, bool] = {"times": bool(means.models), "steps": step_us is not None}
    about |= {"ss928": not is_other, "other": is_other}
    there = await _there(connection, session, about)
    is_thinned = any(each["sampling"]["thinned"] for each in provenance)
    lacks = OTHER_DEVICE if is_other else LACKS
    whole_us = {each.model: each.parts.whole_us for each in means.models}
    runner = _Runner(connection, session.session, whole_us, step_us, language, bool(likely_counters(provenance)))
    findings: list[RuleFinding] = []
    quiet: list[str] = []
    undecided: list[UndecidedRule] = []
    for rule in rules:
        if lacking := [need for need in rule.all_needs if need not in there]:
            if lacking[0] in lacks:
                undecided.append(UndecidedRule(rule.id, lacks[lacking[0]]))
            continue
        if is_thinned and (rule.counters or _OF_KEPT & await runner.tables_of(rule)):
            undecided.append(UndecidedRule(rule.id, _THINNED))
            continue
        of_rule = await runner.findings(rule)
        findings += of_rule
        if unknown := await _unknown(connection, rule):
            undecided.append(UndecidedRule(rule.id, unknown))
        elif not of_rule:
            quiet.append(rule.id)
    return Advice(session.session, _ordered(findings), quiet, undecided, provenance)


def _ordered(findings: Sequence[RuleFinding]) -> list[RuleFinding]:
    ordered = sorted(
        findings, key=lambda each: (-(each.gain_us or 0.0), SEVERITIES.index(each.severity), each.rule, each.title)
    )
    found: list[RuleFinding] = []
    for each in ordered:
        alike = (other for other in found if other.gain_us and other.model == each.model)
        same = [other.rule for other in alike if other.layers() & each.layers()]
        found.append(each._replace(same_time=list(dict.fromkeys(same)) if each.gain_us else []))
    return found


async def _there(connection: aiosqlite.Connection, session: SessionRow, about: Mapping[str, bool]) -> set[str]:
    found = {need for need, has in about.items() if has}
    if session.counter_map is not None:
        found.add("counters")
    if (await fetched_one(connection, _HAS_CALLS, (session.session,)))[0]:
        found.add("calls")
    for view in views():
        if view.counters and (await fetched_one(connection, _HAS_COUNTERS.format(view.name), (session.session,)))[0]:
            found.add("metrics")
    return found


async def _unknown(connection: aiosqlite.Connection, rule: Rule) -> str:
    """Return a text on the layers whose counters a rule reads but are not known; its findings omit these."""
    if not rule.counters:
        return ""
    counts = [f"count(*) - count({name})" for name in rule.counters]
    query = f"SELECT count(*), {', '.join(counts)} FROM layer_means WHERE unit = 'AA_CORE'"  # noqa: S608 - our names
    layers, *unknown = await fetched_one(connection, query)
    names = [f"{name} ({count})" for name, count in zip(rule.counters, unknown, strict=True) if count]
    return f"of {layers} layers on the NPU these are not known: {', '.join(names)}" if names else ""


@dataclass(frozen=True, slots=True)
class _Runner:
    """Runs rules on a connection that has their tables."""

    connection: Running
    session: int
    model_us: Mapping[str, float]
    step_us: float | None
    language: Language
    is_likely: bool

    async def findings(self, rule: Rule) -> list[RuleFinding]:
        """Return a finding for each model in the rule's rows, and for each value of its column `each`."""
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

    async def tables_of(self, rule: Rule) -> set[str]:
        """Return the tables that a rule reads, also through views; none of a query that is wrong."""
        return await self.connection.run(partial(_tables_of, rule, self.session))

    def _finding(self, rule: Rule, model: str | None, rows: list[dict[str, Any]]) -> RuleFinding:
        gains = [row["gain_us"] for row in rows]
        gain_us = None if None in gains else float(sum(gains))
        # A row about one device has the step time of that device.
        step_us = rows[0].get("step_us", self.step_us)
        whole_us = step_us if rule.per == "step" else self.model_us.get(model or "")
        device = rows[0].get("device")
        share = gain_us / whole_us * 100 if gain_us is not None and whole_us else None
        values = {
            **rule.thresholds,
            **rows[0],
            "rows": len(rows),
            "s": "s" * (len(rows) != 1),
            "gain_us": gain_us,
            "gain_ms": None if gain_us is None else gain_us / US_PER_MS,
            "gain_share": share,
            "on_device": "" if device is None else f" (device {device})",
            f"{rule.per}_ms": whole_us and whole_us / US_PER_MS,
        }
        words = rule.words(self.language)
        title, text, advice = (rule.said(each, values) for each in (words.title, words.finding, words.advice))
        evidence = [{name: value for name, value in row.items() if name not in _NOT_EVIDENCE} for row in rows]
        is_likely = self.is_likely and bool(rule.counters)
        about = (rule.id, rule.severity, rule.kind, model)
        return RuleFinding(*about, title, text, advice, rule.manual, gain_us, share, is_likely, evidence, [], rule.per)


def _tables_of(rule: Rule, session: int, connection: sqlite3.Connection) -> set[str]:
    found: set[str] = set()

    def note(action: int, table: str | None, _column: str | None, _database: str | None, view: str | None) -> int:
        if action == sqlite3.SQLITE_READ and table is not None and view != _SESSIONS_VIEW:
            found.add(table)
        return sqlite3.SQLITE_OK

    connection.set_authorizer(note)
    try:
        connection.execute(f"EXPLAIN {rule.sql}", {"session": session, **rule.thresholds}).fetchall()
    except sqlite3.Error:
        return set()
    finally:
        connection.set_authorizer(None)
    return found


class _Means:
    """The mean inference of each model, as rows of the rules' tables."""

    def __init__(self, figures: SessionFigures) -> None:
        self.models = figures.models()
        self._figures = figures
        self._times = {each.model: each for each in figures.inference_times()}
        # By model, unit, segment, name and type: the mean time in an inference, in µs.
        self._sums: dict[_Key, float] = defaultdict(float)
        # By the same key, the lowest index among the layers, which gives the rows the order of the network.
        self._places: dict[_Key, int] = {}
        for coding, us in figures.columns():
            key = _key(coding)
            self._sums[key] += us
            self._places[key] = min(coding.column.layer, self._places.get(key, coding.column.layer))
        self._ratios = figures.ratios(_key)

    async def put_into(self, connection: Running, session: int) -> None:
        """Create and fill the rules' tables, then make the connection read-only: rules are the user's SQL."""
        await connection.run(partial(run_script, script=MEANS))
        await connection.execute(_STEPS, (session,))
        await connection.executemany(_LAYER, [*self._layer_rows()])
        await connection.executemany(_MODEL, [*self._model_rows()])
        for each in self._times.values():
            # SQLite stores NaN as NULL.
            await connection.executemany(_INFERENCE, [(each.model, *row) for row in each.times.tolist()])
        await connection.executemany(_WAIT, (await npu_work_of(connection, session)).contention())
        await connection.execute("PRAGMA query_only = ON")

    def _layer_rows(self) -> Iterator[tuple[Any, ...]]:
        models = {each.model: each for each in self.models}
        for key, us in self._sums.items():
            model, unit, segment, name, kind = key
            ratios = self._known_ratios(key)
            bound = None if ratios is None else self._figures.bound_of(ratios)
            shown: list[float | None] = [None] * len(RATIOS) if ratios is None else _known(ratios)
            share = models[model].parts.share(us)
            yield (model, unit, segment, self._places[key], name, kind, us, share, bound, *shown)

    def _model_rows(self) -> Iterator[tuple[Any, ...]]:
        for each in self.models:
            of_units = (sum(us for key, us in self._sums.items() if key[:2] == (each.model, unit)) for unit in UNITS)
            about = (each.latency.number, each.latency.median, each.latency.p95, each.latency.max)
            outside_us = _outside_us(self._times[each.model])
            yield (each.model, each.inferences, each.parts.whole_us, *of_units, each.latency_from, *about, outside_us)

    def _known_ratios(self, key: _Key) -> NDArray[np.float64] | None:
        means = self._ratios.get(key)
        if means is None:
            return None
        with np.errstate(invalid="ignore"):
            is_share = np.isnan(means) | ((means >= 0) & (means <= LARGEST_RATIO))
        return means if is_share.all() else None


def _outside_us(found: ModelInferences) -> float | None:
    """Return the mean time of a latency that lies outside of its records."""
    rest = found.times[:, 0] - found.times[:, 1]
    number, total = int((~np.isnan(rest)).sum()), float(np.nansum(rest))
    if found.latency is not None and found.whole is not None:
        thinned_us = found.latency.total / found.latency.number - found.whole.total / found.whole.number
        number, total = number + found.latency.number, total + thinned_us * found.latency.number
    return total / number if number else None


def _known(ratios: NDArray[np.float64]) -> list[float | None]:
    return [None if np.isnan(ratio) else ratio for ratio in ratios.tolist()]


def _key(coding: Coding) -> _Key:
    named = coding.layer or LayerRow(0, UNKNOWN, UNKNOWN)
    return (coding.model, coding.column.unit, coding.column.net, named.name, named.type)
