"""Incidents of a flight recorder as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.tables.table import Cell, Column, counted, time_text
from profagent.units import US_PER_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagent.documents.captures import IncidentDocument
    from profagent.store.incidents import Incident

NOT_KEPT = "not kept: the budget of the day was spent"


def value_text(value: float | None, unit: str) -> str:
    """Return a value of an incident with its unit, in ms where it is a time."""
    if value is None:
        return "-"
    return f"{value / US_PER_MS:,.3f} ms" if unit == "us" else f"{value:g}"


def incident_line(incident: Incident) -> str:
    """Return one line: when, what fired, its value and bound, and what was slow."""
    parts = [f"incident {incident.number} at {time_text(incident.time_us, '%H:%M:%S.%f')[:-3]}: {incident.rule}"]
    if incident.value is not None:
        parts.append(f"{value_text(incident.value, incident.unit)}, bound {value_text(incident.bound, incident.unit)}")
    if incident.culprit is not None:
        parts.append(f"{incident.culprit} took {value_text(incident.excess_us, 'us')} longer than usual")
    if incident.model is not None:
        parts[0] += f" ({incident.model})"
    return "; ".join([*parts, *([] if incident.kept else [NOT_KEPT])])


INCIDENT_COLUMNS = tuple(
    map(Column, ("incident", "time (UTC)", "rule", "value", "bound", "model", "culprit", "excess", "kept"))
)


def incident_cells(incident: Incident) -> tuple[Cell, ...]:
    """Return an incident as a row of INCIDENT_COLUMNS."""
    return (
        incident.number,
        time_text(incident.time_us, "%Y-%m-%d %H:%M:%S.%f")[:-3],
        incident.rule,
        value_text(incident.value, incident.unit),
        value_text(incident.bound, incident.unit),
        incident.model or "-",
        incident.culprit or "-",
        value_text(incident.excess_us, "us"),
        counted(incident.inferences, "inference") if incident.kept else f"none of {incident.inferences:,} (budget)",
    )


def incident_document(incident: Incident) -> IncidentDocument:
    """Return an incident as `incidents --json` prints it."""
    return {
        "number": incident.number,
        "time_us": incident.time_us,
        "rules": incident.rules,
        "value": incident.value,
        "bound": incident.bound,
        "unit": incident.unit,
        "model": incident.model,
        "inference": incident.inference,
        "culprit": incident.culprit,
        "excess_us": incident.excess_us,
        "begin_us": incident.begin_us,
        "end_us": incident.end_us,
        "kept": bool(incident.kept),
        "inferences": incident.inferences,
        "bytes": incident.bytes,
    }


def recorder_lines(recorder: tuple[str, int] | None, incidents: Sequence[Incident]) -> list[str]:
    """Return what to know about the incidents of a session: its rules, and what these passed over.

    `recorder` is that of `recorder_of`.
    """
    if recorder is None:
        return ["the session has no flight recorder: `record --keep-when` makes one"]
    rules, cooled_down = recorder
    unkept = [each for each in incidents if not each.kept]
    found = [f"{counted(len(incidents), 'incident')} ({rules})"]
    if cooled_down:
        found.append(f"{counted(cooled_down, 'value')} beyond a bound made no incident: the rule had just fired")
    if unkept:
        count = sum(each.inferences for each in unkept)
        found.append(f"{counted(count, 'inference')} of {counted(len(unkept), 'incident')} not kept by budget")
    return found
