"""What a JOB tells of the facts that no public source tells, as findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.doctor.fact import Verdict
from profagent.doctor.finding import Section, bad, good, unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagent.doctor.fact import Answer
    from profagent.doctor.finding import Finding

__all__ = ["facts_section"]

_SIMULATED = " [simulated: it proves nothing about hardware]"
_SEND = "send it, for what depends on it is not read right: profagent kit -o evidence.tar.gz JOB"


def facts_section(job: str, answers: Sequence[Answer], *, is_simulated: bool) -> Section:
    """A finding for each fact."""
    mark = _SIMULATED if is_simulated else ""
    return Section(f"{job}: facts that nobody knows{mark}", tuple(map(_finding, answers)))


def _finding(answer: Answer) -> Finding:
    if answer.is_misread:
        return bad(answer.fact.name, str(answer), _SEND)
    return (good if answer.verdict is Verdict.CONFIRMS else unknown)(answer.fact.name, str(answer))
