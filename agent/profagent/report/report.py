"""The document of a report: everything its page shows.

It has the figures as `stats --json` has them, advice, timeline and comparison.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profagent import __version__
from profagent.advise.advise import Advice, advised, timed
from profagent.advise.report import PHRASES, advice_document, gain_text
from profagent.advise.rules import all_rules
from profagent.diff.diff import Operand, diff
from profagent.diff.report import changes_text, diff_document
from profagent.files import write_atomically
from profagent.formats.durations import WeightedDurations
from profagent.formats.inference_times import NOT_IN_ANY_LAYER
from profagent.ledger import REASONS, SEQUENCE_GAP
from profagent.limits import (
    MOST_EVIDENCE,
    MOST_HISTORY_INFERENCES,
    MOST_INCIDENT_ROWS,
    MOST_LEDGER_ROWS,
    MOST_POINTS,
    READERS,
    SPREAD_LAYERS,
)
from profagent.report.html_page import page
from profagent.report.texts import Texts, translated
from profagent.report.timeline import Timeline, series_of
from profagent.stats.document import model_document, model_lines, stats_document
from profagent.stats.figures import UNITS
from profagent.stats.frames import read_frames
from profagent.stats.session_figures import SessionFigures
from profagent.stats.slo import Judge, of_cleared
from profagent.stats.stats import BYS, answered, gathered, stats_of_cleared
from profagent.stats.trend import history
from profagent.store.coverage import coverage_of, why_incomplete
from profagent.store.database import fetched_named, fetched_one, readings
from profagent.store.incidents import incidents_of, recorder_of
from profagent.store.queries import Scope, find_session, jobs_of, ledger_of
from profagent.store.sampling import sampling_of
from profagent.store.sessions import is_cleared
from profagent.tables.incidents import incident_cells, recorder_lines
from profagent.tables.provenance import (
    caveats_of,
    coverage_line,
    covered_text,
    provenance_of,
    share_text,
)
from profagent.tables.table import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from profagent.advise.rules import Language, Rule
    from profagent.diff.diff import Diff
    from profagent.stats.session_figures import ModelFigures, ModelInferences, StatsBy
    from profagent.stats.stats import Stats
    from profagent.store.database import Running
    from profagent.store.queries import SessionRow
    from profagent.tables.slo import Judgement, Objective

BINS = 40
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_SESSION = "SELECT * FROM sessions WHERE session = ?"
# Nearly every file has records that the runtime left out: these are summed in one row.
_LEDGER_ROWS = f"""
SELECT grade, reason, detail, job, log, count FROM ledger WHERE session = :session AND reason <> '{SEQUENCE_GAP}'
UNION ALL
SELECT grade, reason, 'in ' || count(*) || iif(count(*) = 1, ' file', ' files'), NULL, NULL, sum(count) FROM ledger
WHERE session = :session AND reason = '{SEQUENCE_GAP}' GROUP BY grade
"""  # noqa: S608 - a reason
_LEDGER = f"{_LEDGER_ROWS} ORDER BY grade, reason, job, log LIMIT :most"
_ALL_LEDGER = f"SELECT count(*) FROM ({_LEDGER_ROWS})"  # noqa: S608 - the same
_CLEARED = "`profagent gc` deleted the session's records: its figures are here, what rests on records is not"
_UNPLACED = "Nothing of the session has a known place in time"


async def write_report(
    operand: Operand,
    file: Path,
    *,
    against: Operand | None = None,
    allowed: Collection[str] = (),
    rules: list[Rule] | None = None,
    language: Language = "en",
    objectives: Sequence[Objective] = (),
) -> dict[str, Any]:
    """Write the report of a session or a JOB, and return its document.

    Raises UsageError, StoreError, and ProfagentError if the file cannot be written.
    """
    assert operand.database is not None, "a report is of records, not of tables"
    chosen = all_rules(operand.database, operand.session) if rules is None else rules
    shown = await gather(operand, chosen, language, against, allowed, objectives)
    write_atomically(file, [page(shown).encode()])
    return shown


async def gather(
    operand: Operand,
    rules: Sequence[Rule],
    language: Language,
    against: Operand | None = None,
    allowed: Collection[str] = (),
    objectives: Sequence[Objective] = (),
) -> dict[str, Any]:
    """Return the document of a session, or of one of its JOBs; `against` is the base of a comparison.

    Rules of comparability whose codes are `allowed` block nothing; `objectives` are judged on the records that the
    figures are of. Raises UsageError, StoreError.
    """
    database = operand.database
    assert database is not None, "a report is of records, not of tables"
    compared = None if against is None else await diff(against, operand, allowed=allowed)
    async with readings(database, READERS) as readers:
        session = await find_session(readers[0], operand.session)
        scopes = [Scope(session, row) for row in await jobs_of(readers[0], session.session, operand.job)]
        about = await _about(readers[0], session, scopes[0].job.job if operand.job and scopes else None)
        incidents = await _incidents(readers[0], session.session)
        if await is_cleared(readers[0], session.session):
            read = _Read(
                {by: await stats_of_cleared(readers[0], session, by, job=operand.job, skip=None) for by in BYS},
                judgements=of_cleared(objectives),
            )
        else:
            read = await _read(readers, session, scopes, rules, language, Judge(objectives, scopes))
    # A JOB alone has no nights before it.
    trends = [] if operand.job else await history(database, session.session, most_inferences=MOST_HISTORY_INFERENCES)
    shown = {
        "profagent": __version__,
        "session": about,
        "simulated": session.simulated,
        "language": language,
        "slo": [each.document() for each in read.judgements],
        "slo_lines": [each.lines() for each in read.judgements],
        "incidents": incidents,
        **_shown(read, language, compared),
        "history": [
            {"charts": [*each.charts()], "lines": [*each.finding_lines()] or [*each.verdict_lines()]} for each in trends
        ],
    }
    return translated(shown, Texts.of_language(language))


class _Read(NamedTuple):
    """The figures of a session by each of BYS; the rest needs records, and is None if these were deleted."""

    answers: Mapping[StatsBy, Stats]
    judgements: Sequence[Judgement]
    timeline: Timeline | None = None
    figures: SessionFigures | None = None
    advice: Advice | None = None


async def _read(
    readers: Sequence[Running],
    session: SessionRow,
    scopes: Sequence[Scope],
    rules: Sequence[Rule],
    language: Language,
    judge: Judge,
) -> _Read:
    connection, timeline = readers[0], Timeline()
    provenance = [await provenance_of(connection, scope) for scope in scopes]
    seen = partial(timeline.add, connection, is_named=len(scopes) > 1)
    figures = await gathered(readers, scopes, BYS, seen=seen, judge=judge)
    await timeline.read(connection, session.session)
    frames = await read_frames(connection, session.session)
    answers = {by: await answered(connection, session, scopes, provenance, figures, by, frames) for by in BYS}
    is_timed = len(timed(scopes)) == len(scopes)
    means = figures if is_timed else await gathered(readers, timed(scopes), ("model",))
    advice = await advised(connection, session, means, provenance, rules, language)
    return _Read(answers, judge.judgements(frames), timeline, figures, advice)


def _shown(read: _Read, language: Language, compared: Diff | None) -> dict[str, Any]:
    answers, _, timeline, figures, advice = read
    documents: dict[str, dict[str, Any]] = {
        by: {**stats_document(answer, answer.rows, None)} for by, answer in answers.items()
    }
    # All answers are about the same JOBs: the page shows them once.
    jobs = [document.pop("jobs") for document in documents.values()][-1]
    ranked = _ranked(documents["layer"])
    return {
        "verdict": _verdict(advice, [row for row in ranked if row["layer"] != NOT_IN_ANY_LAYER], language, compared),
        "advice": None if advice is None else _advice(advice, language),
        "stats": documents,
        "models": _models(answers["model"].models),
        "ranked": ranked,
        "timeline": {**(timeline or Timeline()).document(), "nothing": _CLEARED if figures is None else _UNPLACED},
        "spreads": _spreads(SessionFigures(frozenset()) if figures is None else figures),
        "comparison": None if compared is None else diff_document(compared),
        "jobs": jobs,
        "caveats": [*([_CLEARED] if figures is None else []), *caveats_of(jobs)],
    }


async def _incidents(connection: Running, session: int) -> dict[str, Any]:
    """Return the session's incidents as rows of text; the first MOST_INCIDENT_ROWS of them."""
    found = await incidents_of(connection, session)
    lines = recorder_lines(await recorder_of(connection, session), found) if found else []
    return {"all": len(found), "rows": [*map(incident_cells, found[:MOST_INCIDENT_ROWS])], "lines": lines}


async def _about(connection: Running, session: SessionRow, job: int | None) -> dict[str, Any]:
    """Return the session's row with its ledger; losses and sampling are those of the JOB if one was chosen."""
    (row,) = await fetched_named(connection, _SESSION, (session.session,))
    chosen = {"session": session.session, "most": MOST_LEDGER_ROWS}
    ledger = await fetched_named(connection, _LEDGER, chosen)
    (ledger_rows,) = await fetched_one(connection, _ALL_LEDGER, chosen)
    sampling = await sampling_of(connection, session.session, job)
    coverage = await coverage_of(connection, session.session)
    # A newer daemon may write reasons that this version has no text for.
    meanings = {name: reason.text for name, reason in REASONS.items()}
    return {
        **row,
        "incomplete": await why_incomplete(connection, session.session),
        "covered": covered_text(coverage),
        "coverage": coverage_line(coverage),
        "losses": (await ledger_of(connection, session.session, job))["loss"],
        "sampled": share_text(sampling["sampled"], sampling["due"]),
        "ledger": [{**entry, "meaning": meanings.get(entry["reason"], UNKNOWN)} for entry in ledger],
        "ledger_rows": ledger_rows,
    }


def _advice(advice: Advice, language: Language) -> dict[str, Any]:
    found = advice_document(advice)
    del found["jobs"]
    for finding, written in zip(advice.findings, found["findings"], strict=True):
        written["gain"] = gain_text(finding, language)
        written["grade"] = PHRASES[language][finding.severity]
        written["all_rows"] = len(finding.evidence)
        written["evidence"] = finding.evidence[:MOST_EVIDENCE]
    return found


def _models(models: Sequence[ModelFigures]) -> list[dict[str, Any]]:
    times = [each.parts.whole_us * each.inferences for each in models]
    all_time = sum(times) or 1.0
    return [
        {**model_document(each), "weight": time / all_time, "about": list(model_lines(each))}
        for each, time in zip(models, times, strict=True)
    ]


def _ranked(layers: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = [{**row, "bound by": "CPU"} if row["unit"] == UNITS[1] else row for row in layers["rows"]]
    return sorted(rows, key=lambda row: -(row["in_inference"] or 0.0))


def _verdict(
    advice: Advice | None, layers: Sequence[Mapping[str, Any]], language: Language, compared: Diff | None
) -> str:
    first, texts = _first(advice, layers, language), Texts.of_language(language)
    if compared is None:
        return first
    return texts.text("{first}. {changes}", first=first, changes=texts.line(changes_text(compared)))


def _first(advice: Advice | None, layers: Sequence[Mapping[str, Any]], language: Language) -> str:
    grave = [each for each in (advice.findings if advice else []) if each.severity != "info"]
    if grave:
        model = f"{grave[0].model}: " if grave[0].model else ""
        return f"{model}{grave[0].title}; {gain_text(grave[0], language)}"
    texts = Texts.of_language(language)
    if not layers:
        return texts.text("No layer was recorded")
    rules = "No rule found what to change ({count} lack data to tell). "
    longest = "The layer that takes the most time is {layer} ({share} %), bound by: {bound}"
    share, bound = _number(layers[0]["share"]), layers[0]["bound by"] or UNKNOWN
    return (texts.text(rules, count=len(advice.undecided)) if advice else "") + texts.text(
        longest, layer=layers[0]["layer"], share=share, bound=texts.text(bound)
    )


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f}"


def _spreads(figures: SessionFigures) -> dict[str, Any]:
    unit, inferences = figures.unit("layer"), [*figures.inference_times()]
    layers = {
        key: WeightedDurations.of(*found).quantiles(QUANTILES)
        for key, found in figures.longest("layer", SPREAD_LAYERS).items()
    }
    return {
        "unit": unit,
        "points": MOST_POINTS,
        "inferences": [_spread(each, unit) for each in inferences],
        "layers": [
            {
                "name": key[1] if len(inferences) == 1 else " ".join(key[:2]),
                "quantiles": [round(each, 3) for each in quantiles],
            }
            for key, quantiles in layers.items()
        ],
    }


def _spread(found: ModelInferences, unit: str) -> dict[str, Any]:
    latencies, _, layers = found.times.T
    times = latencies[~np.isnan(latencies)]
    has_latency = len(times) > 0 or found.latency is not None
    if not has_latency:
        times = layers
    # The course has the kept inferences alone, the histogram all of them.
    values, weights = WeightedDurations.of(times, found.latency)
    number = int(weights.sum())
    counts, edges = np.histogram(values, bins=min(BINS, max(1, number)), weights=weights)
    return {
        "name": found.model,
        "what": "Latency" if has_latency else "Sum of the layers",
        "unit": "us" if has_latency else unit,
        "count": len(times),
        "all": number,
        "edges": [round(edge, 3) for edge in edges.tolist()],
        "counts": counts.tolist(),
        "course": list(series_of(times, MOST_POINTS)),
    }
