"""Provenance of exported figures, and what is unverified about them: the metadata beside every export."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from profagent import __version__
from profagent.formats.durations import RESOLUTION
from profagent.formats.sampling import FROM_FILE
from profagent.ingest.source import is_job
from profagent.ledger import SEQUENCE_GAP
from profagent.limits import MOST_NAMED
from profagent.link.boards_file import BoardNames
from profagent.store.coverage import coverage_of, why_incomplete
from profagent.store.queries import implausible_of, kinds_of_records, ledger_of, not_final, recorded_losses_of
from profagent.store.sampling import sampling_of
from profagent.store.sessions import NO_BOARD
from profagent.tables.table import UNKNOWN, counted, printable, time_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from profagent.store.database import Running
    from profagent.store.queries import Scope


def session_title(about: Mapping[str, Any]) -> str:
    """Return `session 3 of euler`, or `session 3` for an import without a board."""
    board, hostname = about["board"], about["hostname"]
    of_board = "" if board == NO_BOARD else f" of {BoardNames.known().of(board, hostname)}"
    return f"session {about['session']}{of_board}"


def ledger_lines(ledger: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return a line for each reason: grade, reason, count."""
    return [f"{grade}: {reason} ({count})" for grade, reasons in ledger.items() for reason, count in reasons.items()]


_WHEN = "%Y-%m-%d %H:%M:%S UTC"


def recorded_loss_line(loss: Mapping[str, Any]) -> str:
    """Return a line for a loss that the board kept; unknown figures are N/A."""
    about = loss["job"] or "the board"
    logs, size = (UNKNOWN if loss[name] is None else loss[name] for name in ("lost_logs", "lost_bytes"))
    when = f"{time_text(loss['from_us'], _WHEN)} to {time_text(loss['to_us'], _WHEN)}"
    return f"loss: {about}: {loss['reason']}: {logs} logs, {size} bytes, {when}: {loss['detail']}"


def share_text(sampled: int, due: int | None) -> str:
    """Return `96 of 100 due`; N/A if both numbers are unknown, as for another tool's results."""
    if not sampled and due is None:
        return UNKNOWN
    return f"{sampled:,} of {UNKNOWN if due is None else format(due, ',')} due"


def events_line(events: Mapping[str, int]) -> str | None:
    """Return `1,200 ops, 30 ranges, 600 samples`, or None without events."""
    return ", ".join(f"{count:,} {what}" for what, count in events.items() if count) or None


def sampling_line(sampling: Mapping[str, Any]) -> str:
    """Return `captured 96 of 100 due (interval 10, from acl.json)`, late inferences, or why `due` is unknown."""
    interval = UNKNOWN if sampling["interval"] is None else sampling["interval"]
    origin = sampling["interval_from"]
    source = "" if origin is None else f", from {FROM_FILE}" if origin == FROM_FILE else f", {origin}"
    late = f"; {sampling['late']:,} late" if sampling["late"] else ""
    why = f"; {sampling['why']}" if sampling.get("why") else ""
    return f"captured {share_text(sampling['sampled'], sampling['due'])} (interval {interval}{source}){late}{why}"


def keeping_line(sampling: Mapping[str, Any]) -> str | None:
    """Return `kept 30 of 1,000 inferences (every 10)`, or None if none was passed over on purpose."""
    if sampling["keeping"] is None and not sampling["passed_over"]:
        return None
    # An earlier session may have passed over inferences that this one then did not copy.
    chosen = sampling["keeping"] or "by an earlier session"
    return f"kept {sampling['kept']:,} of {sampling['sampled']:,} inferences ({chosen})"


def thinned_lines(sampling: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the figures of a session are in which a flight recorder has thinned inferences."""
    if thinned := sampling["thinned"]:
        yield (
            f"figures are of all inferences, with the warm-up: those of {thinned:,} are histograms, whose percentiles"
            f" and MAD are within {RESOLUTION:.1%}, all else is exact"
        )
        yield "timelines, exported rows, counters (bound by) and the NPU's part of calls are of the kept ones alone"


def sampling_lines(sampling: Mapping[str, Any]) -> list[str]:
    """Return the lines about sampling and keeping that have something to say."""
    keeping = keeping_line(sampling)
    return [sampling_line(sampling), *([] if keeping is None else [keeping])]


_GAPS = {
    "connecting": "connecting from {at}",
    "away": "link lost at {at}",
    "silent": "the board silent from {at}",
    "behind": "behind from {at}",
    "paused": "paused for a full disk at {at}",
    "not-run": "no `record` ran from {at}",
}
_AT = "%H:%M:%S UTC"
# Shorter gaps, as that of connecting, count in the sum and are not named.
NAMED_GAP_US = 500_000


def coverage_line(coverage: Mapping[str, Any] | None) -> str | None:
    """Return `covered 5.0 of 12.0 s; link lost at 16:30:26 UTC (7.0 s)`, or None without a recorded coverage."""
    if coverage is None:
        return None
    gaps = named_gaps(coverage)
    # Gaps of the board are named before gaps of one JOB, and long ones before short ones.
    first = sorted(gaps, key=lambda gap: (gap["job"] is not None, gap["from_us"] - gap["to_us"]))[:MOST_NAMED]
    # The chosen gaps are named in the order of time.
    named = [_gap_text(gap) for gap in gaps if gap in first]
    if more := len(gaps) - len(named) + coverage["more_gaps"]:
        named.append(counted(more, "more gap"))
    return "; ".join([f"covered {covered_text(coverage)}", *named])


def named_gaps(coverage: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the gaps that are long enough to be named."""
    return [gap for gap in coverage["gaps"] if gap["to_us"] - gap["from_us"] >= NAMED_GAP_US]


def covered_text(coverage: Mapping[str, Any] | None) -> str:
    """Return `5.0 of 12.0 s`, or `-` without a recorded coverage."""
    if coverage is None:
        return "-"
    return f"{coverage['covered_us'] / 1e6:,.1f} of {coverage['total_us'] / 1e6:,.1f} s"


def _gap_text(gap: Mapping[str, Any]) -> str:
    job = f"{gap['job']} " if gap["job"] else ""
    what = _GAPS[gap["standing"]].format(at=time_text(gap["from_us"], _AT))
    return f"{job}{what} ({(gap['to_us'] - gap['from_us']) / 1e6:,.1f} s)"


UNVERIFIED = (
    "file names, columns and choices follow the vendor's manual of 2025-09; not compared with the vendor's tool",
    "times of aicore records are ticks x 100 / MHz, the runtime library's formula; no board's tick was measured",
    "an aicore segment is placed after the one before it; the board does not store when a layer began",
)
_OF_SESSION = ("session", "source", "board", "hostname", "simulated", "daemon_version", "sdk_version")
# Provenance of figures that come from another tool's files.
IMPORTED = {
    "imported_from": "another tool",
    "unverified": ["times are those that another tool wrote for another Ascend device; nothing here was measured"],
}
NO_PIPES = (
    "the PMU columns are N/A: the other tool's files have no shares of pipes; it records them with PipeUtilization of"
    " aic_metrics, and as MindSpore's and PyTorch's profilers with Level1"
)
SIMULATED_MARK = "  *** simulated: these figures are invented ***"
# Beginning of the caveat that says what is missing.
INCOMPLETE = "INCOMPLETE: "
SIMULATED = "simulated: the figures are invented, no NPU was measured"


async def provenance_of(connection: Running, scope: Scope) -> dict[str, Any]:
    """Return the provenance of a JOB in a session as values for JSON: sampling, missing data, unverified assumptions.

    Kept losses are those of the whole session: a loss of the board without a consumer may concern any of its JOBs.
    """
    session, job = scope
    likely = session.counter_map_likely.split(",") if session.counter_map_likely else []
    is_imported = job.family is not None
    return {
        "profagent": __version__,
        **{name: getattr(session, name) for name in _OF_SESSION},
        "board_model": session.board_model or None,
        "job": job.name,
        "job_state": job.state,
        "recorded": await kinds_of_records(connection, job.job),
        "frequency_mhz": job.clock_mhz,
        "counter_map": session.counter_map,
        "counter_map_digest": session.counter_map_digest,
        "likely_counters": likely,
        "coverage": await coverage_of(connection, session.session),
        "incomplete": await why_incomplete(connection, session.session),
        "sampling": await sampling_of(connection, session.session, job.job),
        "ledger": await ledger_of(connection, session.session, job.job),
        "kept_losses": await recorded_losses_of(connection, session.session),
        "implausible": await implausible_of(connection, session.session, job.job),
        "not_final": await not_final(connection, session.session, job.job),
        "pmu": NO_PIPES if is_imported and session.counter_map is None else _pmu_remark(session.counter_map, likely),
        "unverified": [*([SIMULATED] if session.simulated else []), *UNVERIFIED],
        **(IMPORTED if is_imported else {}),
    }


def provenance_lines(provenance: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines on missing data of the session, its coverage, a JOB's sampling, its losses and notes."""
    # Losses have lines of their own below.
    if why := [each for each in provenance["incomplete"] if not each.startswith("loss: ")]:
        yield printable(f"{INCOMPLETE}{'; '.join(why)}")
    if line := coverage_line(provenance["coverage"]):
        yield line
    if "imported_from" not in provenance:
        yield from sampling_lines(provenance["sampling"])
        yield from thinned_lines(provenance["sampling"])
    yield from map(printable, not_final_lines(provenance["not_final"]))
    if not provenance["ledger"]["loss"]:
        yield "loss: none"
    for grade, reasons in provenance["ledger"].items():
        for reason, count in reasons.items():
            if reason != SEQUENCE_GAP:
                yield f"{grade}: {printable(reason)} x {count}"
    yield from (printable(recorded_loss_line(loss)) for loss in provenance["kept_losses"])
    yield from map(printable, provenance["implausible"])
    if left_out := provenance["ledger"]["note"].get(SEQUENCE_GAP):
        yield f"the runtime left out {counted(left_out, 'record')} of layers ({SEQUENCE_GAP}, see `profagent ledger`)"


def caveats_of(jobs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the lines to read before the figures of JOBs are trusted, each once."""
    lines: dict[str, None] = {}
    for job in jobs:
        about = f"{job['job']}: " if len(jobs) > 1 else ""
        lines.update(dict.fromkeys(job["unverified"]))
        lines[job["pmu"]] = None
        lines.update({f"{about}{line}": None for line in provenance_lines(job)})
    return list(lines)


def caveat_rank(line: str) -> int:
    """Return the place of a caveat among others: missing data, invented figures, others, what is true of all captures.

    A joined caveat names its sessions before the text.
    """
    if INCOMPLETE in line:
        return 0
    if SIMULATED in line:
        return 1
    return 3 if line.endswith(UNVERIFIED) else 2


def not_final_lines(not_final: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each reason why inferences of a JOB are in no figure."""
    for each in not_final:
        yield f"not final: {counted(each['inferences'], 'inference')} ({each['figures']}): {each['why']}"


def likely_counters(provenance: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the counters of which the map of any JOB is not certain."""
    return sorted({name for job in provenance for name in job.get("likely_counters", ())})


def doubt_line(likely: Sequence[str]) -> str:
    """Return the meaning of the `?` beside figures."""
    return f"the counter map is not certain of {', '.join(likely)}: a ? marks what rests on it"


def _pmu_remark(counter_map: str | None, likely: Sequence[str]) -> str:
    if counter_map is None:
        return (
            "the PMU columns are N/A: no counter map says which word of a record is which counter;"
            " the words are kept in the mirror, and a map found later fills them in"
        )
    doubt = f", and it is not certain of {', '.join(likely)}" if likely else ""
    return f"the PMU columns were read with the counter map '{counter_map}'; what it does not name is N/A{doubt}"


def _nothing_new(job: Mapping[str, Any]) -> str:
    there = f"{job['inferences']:,} inferences are" if is_job(job["job"]) else "it is"
    return f"{job['job']}: nothing new: {there} there from session {job['session']}"


def summary_lines(summary: dict[str, Any]) -> list[str]:
    """Return a session's summary for people."""
    records = ", ".join(f"{count} {unit}" for unit, count in summary["records"].items())
    ledger = ledger_lines(summary["ledger"])
    mark = " [simulated]" if summary["simulated"] else ""
    return [
        printable(f"{session_title(summary)}{mark}: {_verdict(summary)}"),
        f"  JOBs:     {' '.join(summary['jobs']) or 'none'}",
        f"  records:  {records}; {summary['bytes']} bytes",
        *(f"  sources:  {line}" for line in [events_line(summary["events"])] if line),
        *(f"  coverage: {line}" for line in [coverage_line(summary["coverage"])] if line),
        f"  sampling: {'; '.join(sampling_lines(summary['sampling']))}",
        *(f"  {_nothing_new(job)}" for job in summary["earlier"]),
        f"  ledger:   {'; '.join(ledger) or 'empty'}",
        *(f"  {printable(line)}" for line in not_final_lines(summary["not_final"])),
        *(f"  {printable(recorded_loss_line(loss))}" for loss in summary["kept_losses"]),
        *(f"  {printable(line)}" for line in summary["implausible"]),
        f"  database: {summary['database']}",
        f"  mirror:   {summary['mirror']}",
    ]


def several_lines(summary: dict[str, Any]) -> list[str]:
    """Return the summary of several boards for people: each board, and the total."""
    lines: list[str] = []
    for outcome in summary["boards"]:
        lines.append(f"{outcome['address']}: {outcome['error'] or 'fine'}")
        if outcome["session"] is not None:
            lines += summary_lines({**outcome["session"], "database": summary["database"]})
    total = summary["total"]
    records = ", ".join(f"{count} {unit}" for unit, count in total["records"].items()) or "no records"
    reached = f"{total['reached']} of {counted(total['boards'], 'board')} reached"
    return [
        *lines,
        f"total: {_verdict(total)}; {reached}; {counted(total['jobs'], 'JOB')}; {records}; {total['bytes']} bytes",
    ]


def _verdict(summary: Mapping[str, Any]) -> str:
    if summary["complete"]:
        return "complete"
    why = "; ".join(summary.get("incomplete", ()))
    return printable(f"INCOMPLETE: {why}" if why else "INCOMPLETE")


def not_copied_text(count: int | None, job: str) -> str:
    """Return the number of a JOB's inferences that were not copied; None is unknown."""
    if not is_job(job):
        return f"a part of {job} not copied"
    return f"{'some inferences' if count is None else counted(count, 'inference')} of {job} not copied"
