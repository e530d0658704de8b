"""What a recording came to, for people."""

from __future__ import annotations

from typing import Any

from profagent.cli.provenance import kept_loss_line, ledger_lines, not_final_lines, sampling_lines
from profagent.cli.table import printable


def summary_lines(summary: dict[str, Any]) -> list[str]:
    """A session's summary for people."""
    records = ", ".join(f"{count} {unit}" for unit, count in summary["records"].items())
    ledger = ledger_lines(summary["ledger"])
    mark = " [simulated]" if summary["simulated"] else ""
    return [
        f"session {summary['session']} of {summary['board']}{mark}: {_verdict(summary)}",
        f"  JOBs:     {' '.join(summary['jobs']) or 'none'}",
        f"  records:  {records}; {summary['bytes']} bytes",
        f"  sampling: {'; '.join(sampling_lines(summary['sampling']))}",
        *(f"  {_nothing_new(job)}" for job in summary["earlier"]),
        f"  ledger:   {'; '.join(ledger) or 'empty'}",
        *(f"  {printable(line)}" for line in not_final_lines(summary["not_final"])),
        *(f"  {printable(kept_loss_line(loss))}" for loss in summary["kept_losses"]),
        *(f"  {printable(line)}" for line in summary["implausible"]),
        f"  database: {summary['database']}",
        f"  mirror:   {summary['mirror']}",
    ]


def _nothing_new(job: dict[str, Any]) -> str:
    return f"{job['job']}: nothing new: {job['inferences']:,} inferences are there from session {job['session']}"


def several_lines(summary: dict[str, Any]) -> list[str]:
    """The summary of several boards for people: each, and their sum."""
    lines: list[str] = []
    for session in summary["sessions"]:
        lines.append(f"{session['address']}: {session['error'] or 'fine'}")
        if session["session"] is not None:
            lines += summary_lines({**session, "database": summary["database"]})
    total = summary["total"]
    records = ", ".join(f"{count} {unit}" for unit, count in total["records"].items()) or "no records"
    reached = f"{total['reached']} of {total['boards']} boards reached"
    return [*lines, f"total: {_verdict(total)}; {reached}; {total['jobs']} JOBs; {records}; {total['bytes']} bytes"]


def _verdict(summary: dict[str, Any]) -> str:
    if summary.get("not_copied"):
        left = (not_copied_text(count, job) for job, count in summary["not_copied"].items())
        return f"stopped early: {'; '.join(left)}"
    return "complete" if summary["complete"] else "INCOMPLETE"


def not_copied_text(left: int | None, job: str) -> str:
    """How many inferences of a JOB were left behind; None: not known."""
    return f"{'some inferences' if left is None else inferences_text(left)} of {job} not copied"


def inferences_text(count: int) -> str:
    """So many inferences."""
    return "1 inference" if count == 1 else f"{count:,} inferences"
