"""JOBs of a session without layers: why, in doctor's words."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from profagent.doctor.job import why_no_layers
from profagent.store.clearing import is_cleared
from profagent.store.queries import find_session, has_records, jobs_of, log_sizes, open_reader

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Unrecorded", "unrecorded_jobs"]


class Unrecorded(NamedTuple):
    """A JOB without layers; `is_empty`: nor has it any other record."""

    job: str
    why: str
    remedy: str
    is_empty: bool


def unrecorded_jobs(database: Path, session: int | None, job: str | None) -> tuple[list[Unrecorded], bool]:
    """The session's JOBs without layers, or the one that is named, and whether no JOB has any record. StoreError.

    `session` None is the newest. Of one whose records `gc` deleted nothing is told.
    """
    with open_reader(database) as connection:
        number = find_session(connection, session).session
        if is_cleared(connection, number):
            return [], False
        jobs = jobs_of(connection, number, job)
        found = [
            Unrecorded(
                each.name,
                *why_no_layers(log_sizes(connection, each.job)),
                is_empty=not has_records(connection, each.job, "aicpu", "acl_api"),
            )
            for each in jobs
            if not has_records(connection, each.job, "aicore")
        ]
    return found, len(found) == len(jobs) and all(each.is_empty for each in found)
