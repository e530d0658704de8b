"""Notes about samples that came late or never, and how well a session or one of its JOBs was sampled."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from profagent.formats.sampling import FROM_FILE, Figures, SampleTally, figures_of, gap_of, sum_of, tally_of
from profagent.ingest import reasons
from profagent.store.samples import is_model_loaded_again, samples_of_loads, stored_tally, write_figures
from profagent.store.transaction import transaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Sequence

# Of each reason and model; one more entry counts the rest, and the view `sample_gaps` has each of them.
MOST_NOTES = 1_000
NAMED_PICTURES = 4
_INSERT = (
    "INSERT INTO ledger_entry (session, job, origin, grade, reason, detail, count)"
    " VALUES (?, ?, 'sampling', 'note', ?, ?, ?)"
)
_GAPS = (
    "SELECT current_pic_count, current_pic_count - lag(current_pic_count) OVER (ORDER BY current_pic_count)"
    " FROM sample WHERE model = ?"
)

# Other sessions fetched a part of it, or nobody has: of samples before its own the names are known.
_IS_PART = (
    "SELECT EXISTS (SELECT 1 FROM inference WHERE model = ?1 AND session <> ?2) OR EXISTS"
    " (SELECT 1 FROM sample WHERE model = ?1 AND kept AND current_pic_count <"
    " (SELECT min(current_pic_count) FROM inference WHERE model = ?1))"
)
# What is not copied yet is known by its name, too.
_IS_OPEN = (
    "SELECT NOT caught_up AND EXISTS (SELECT 1 FROM inference WHERE model = ?1 AND session = ?2)"
    " FROM model JOIN job USING (job) WHERE model = ?1"
)
_OF_SESSION = (
    "SELECT current_pic_count, kept, coalesce(is_own, NOT (kept AND ?3)) FROM sample LEFT JOIN"
    " (SELECT current_pic_count, max(session = ?2) AS is_own FROM inference WHERE model = ?1 GROUP BY 1)"
    " USING (current_pic_count) WHERE model = ?1 AND current_pic_count BETWEEN"
    " (SELECT min(current_pic_count) FROM inference WHERE model = ?1 AND session = ?2) AND"
    " (SELECT max(current_pic_count) FROM inference WHERE model = ?1 AND session = ?2) ORDER BY current_pic_count"
)

_Note = tuple[str, str, int]
# The model, and which load of it where there are several; a sample's picture count; pictures since the one before.
_Gap = tuple[str, int, int]


def note_samples(connection: sqlite3.Connection, session: int, board: int, job: str) -> None:
    """Bring the figures of a JOB's models up to date, and the notes of its ledger with them.

    It reads every sample of a model where some came late or never, so it is for a JOB that has ended.
    """
    models = connection.execute(
        "SELECT job, model, m.name || '.' || model_id FROM sampling JOIN model m USING (model) JOIN job j USING (job)"
        " WHERE board = ? AND j.name = ?",
        (board, job),
    ).fetchall()
    if not models:
        return
    number = models[0][0]
    with transaction(connection):
        wanted = list(_notes(connection, number, [(model, name) for _, model, name in models]))
        if wanted != _told(connection, number):
            connection.execute(
                "DELETE FROM ledger_entry WHERE job = ? AND log IS NULL AND origin = 'sampling'", (number,)
            )
            connection.executemany(_INSERT, [(session, number, *note) for note in wanted])


def sampling_of(connection: sqlite3.Connection, session: int, job: int | None = None) -> dict[str, Any]:
    """How well the JOBs that a session fetched, or one of them, were sampled, and what was kept of it.

    Of a model that other sessions fetched as well it is what lies between the session's first and last inference.
    """
    rows = connection.execute(
        "SELECT model, interval, interval_from, sampled, due, late, never_came, passed_over FROM fetched_jobs"
        " JOIN model USING (job) JOIN sampling USING (model) WHERE session = ?1 AND (?2 IS NULL OR job = ?2)"
        " ORDER BY model",
        (session, job),
    ).fetchall()
    (keeping,) = connection.execute("SELECT keeping FROM session WHERE session = ?", (session,)).fetchone()
    shares = [_share_of(connection, session, row[0], Figures._make(row[1:7]), row[7]) for row in rows]
    figures = sum_of(share for share, _ in shares)
    passed_over = sum(passed for _, passed in shares)
    return {
        "sampled": figures.sampled,
        "due": figures.due,
        "late": figures.late,
        "never_came": figures.never_came,
        "interval": figures.interval,
        "interval_from": figures.origin,
        "keeping": keeping,
        "kept": figures.sampled - passed_over,
        "passed_over": passed_over,
    }


def _share_of(
    connection: sqlite3.Connection, session: int, model: int, figures: Figures, passed_over: int
) -> tuple[Figures, int]:
    """What of a model's samples is a session's, and how many of these were passed over."""
    (is_open,) = connection.execute(_IS_OPEN, (model, session)).fetchone()
    (is_part,) = connection.execute(_IS_PART, (model, session)).fetchone()
    if not (is_open or is_part):
        return figures, passed_over
    rows = connection.execute(_OF_SESSION, (model, session, is_open)).fetchall()
    passed_over = sum(not kept for _, kept, _ in rows)
    of_others = sum(not is_own for _, _, is_own in rows)
    sampled = len(rows) - of_others
    if figures.due is None or is_model_loaded_again(connection, model):
        return figures_of(sampled, None, figures.interval)._replace(origin=figures.origin), passed_over
    (pictures,) = connection.execute("SELECT input_pic_num FROM sampling WHERE model = ?", (model,)).fetchone()
    share = tally_of([[count for count, _, _ in rows]], pictures or 0).figures(figures.interval)
    due = None if share.due is None else share.due - of_others
    return share._replace(sampled=sampled, due=due, origin=figures.origin), passed_over


def _told(connection: sqlite3.Connection, job: int) -> list[_Note]:
    return connection.execute(
        "SELECT reason, detail, count FROM ledger_entry WHERE job = ? AND log IS NULL AND origin = 'sampling'"
        " ORDER BY entry",
        (job,),
    ).fetchall()


def _notes(connection: sqlite3.Connection, job: int, models: list[tuple[int, str]]) -> Iterator[_Note]:
    for model, name in models:
        tally, passed_over = stored_tally(connection, model)
        samples = _named_gaps(connection, model, name)
        distances: SampleTally | None = tally
        if is_model_loaded_again(connection, model):
            loads = samples_of_loads(connection, model)
            samples = _gaps_of_loads(loads or (), name)
            distances = None if loads is None else tally_of(loads, tally.pictures or 0)
        figures = write_figures(connection, job, model, tally, passed_over, distances=distances)
        if figures.interval is not None and (figures.late or figures.never_came):
            yield from _of_model(samples, name, figures, tally.pictures or 1)
        elif distances is not None and figures.origin == FROM_FILE and distances.figures(figures.interval).due is None:
            detail = f"{name}: its picture counts do not fit the interval {figures.interval} of its acl.json"
            yield reasons.INTERVAL_MISMATCH, detail, 1


def _named_gaps(connection: sqlite3.Connection, model: int, name: str) -> Iterator[_Gap]:
    for count, distance in connection.execute(_GAPS, (model,)):
        if distance is not None:
            yield name, count, distance


def _gaps_of_loads(loads: Sequence[Sequence[int]], name: str) -> Iterator[_Gap]:
    for number, counts in enumerate(loads, 1):
        for before, count in pairwise(counts):
            yield f"{name}, load {number}", count, count - before


def _of_model(samples: Iterable[_Gap], model: str, figures: Figures, pictures: int) -> Iterator[_Note]:
    assert figures.interval is not None, "without an interval nothing is late"
    late = missing = missing_told = 0
    for name, count, distance in samples:
        gap = gap_of(distance // pictures, figures.interval)
        if gap is None:
            continue
        if gap.late_by:
            late += 1
            if late <= MOST_NOTES:
                yield (
                    reasons.SAMPLE_LATE,
                    f"{name}: the sample at picture {count} came {gap.late_by} inferences late",
                    1,
                )
        if gap.never_came:
            missing += 1
            if missing <= MOST_NOTES:
                missing_told += gap.never_came
                yield (
                    reasons.SAMPLE_NEVER_CAME,
                    f"{name}: {_missed(count - distance, gap.never_came, figures, pictures)}",
                    gap.never_came,
                )
    if late > MOST_NOTES:
        yield reasons.SAMPLE_LATE, f"{model}: {late - MOST_NOTES} more samples came late", late - MOST_NOTES
    if missing > MOST_NOTES:
        rest = (figures.never_came or 0) - missing_told
        yield reasons.SAMPLE_NEVER_CAME, f"{model}: {rest} more samples that were due never came", rest


def _missed(before: int, missing: int, figures: Figures, pictures: int) -> str:
    """Which samples did not come after the one at picture `before`."""
    step = (figures.interval or 0) * pictures
    named = ", ".join(str(before + step * number) for number in range(1, min(missing, NAMED_PICTURES) + 1))
    rest = f" and {missing - NAMED_PICTURES} more, up to {before + step * missing}" if missing > NAMED_PICTURES else ""
    return f"due at picture {named}{rest}, never came"
