"""Rows of samples, and the tally of each model: kept up as files become known, in any order, without a scan."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from profagent.formats.loads import counts_of_loads
from profagent.formats.sampling import Figures, SampleTally, figures_of
from profagent.store.inferences import LARGEST_INTEGER

if TYPE_CHECKING:
    import sqlite3

    from profagent.formats.names import LogName

# The files of an inference come together.
REMEMBERED_SAMPLES = 256
REMEMBERED_MODELS = 64
_WRITE = (
    "INSERT OR REPLACE INTO sampling (model, input_pic_num, sampled, passed_over, interval, interval_from, due, late,"
    " never_came) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_IS_LOADED_AGAIN = "SELECT EXISTS (SELECT 1 FROM inference WHERE model = ? AND stretch > 0)"
_UNPLACED = (
    "SELECT EXISTS (SELECT 1 FROM sample s WHERE model = ? AND NOT EXISTS"
    " (SELECT 1 FROM inference i WHERE i.model = s.model AND i.current_pic_count = s.current_pic_count))"
)
_TIMES = (
    "SELECT current_pic_count, min(start_us) FROM inference WHERE model = ? AND current_pic_count <= ?"
    " GROUP BY current_pic_count, stretch"
    " ORDER BY current_pic_count, stretch"
)
# Where a sample may have been lost without its name, or may still be told, distances mean nothing.
_IS_UNSURE = (
    "SELECT EXISTS (SELECT 1 FROM job WHERE job = ?1 AND NOT caught_up)"
    " OR EXISTS (SELECT 1 FROM ledger_entry WHERE job = ?1 AND log IS NULL AND grade = 'loss')"
    " OR EXISTS (SELECT 1 FROM ledger_entry e LEFT JOIN kept_loss k USING (entry)"
    " WHERE e.job IS NULL AND e.log IS NULL AND e.grade = 'loss'"
    " AND e.session IN (SELECT session FROM session_job WHERE job = ?1)"
    " AND (k.job_name IS NULL OR k.job_name = (SELECT name FROM job WHERE job = ?1)))"
)


@dataclass(slots=True)
class _Model:
    """What is known of one model's samples; `changed` are distances whose count is to be written."""

    tally: SampleTally
    highest: int | None
    passed_over: int
    recent: OrderedDict[int, int] = field(default_factory=OrderedDict)
    changed: set[int] = field(default_factory=set)


class SampleRows:
    """The samples of one JOB. A model's figures are written by `flush`."""

    def __init__(self, connection: sqlite3.Connection, job: int) -> None:
        self._connection = connection
        self._job = job
        self._models: OrderedDict[int, _Model] = OrderedDict()
        self._touched: set[int] = set()

    def add(self, model: int, name: LogName) -> None:
        """A file of a sampled inference exists, or existed."""
        count, pictures = name.current_pic_count, name.input_pic_num or 0
        assert count is not None, "its name has a picture count"
        known = self._model(model)
        if known.recent.get(count) == pictures:
            return
        self._touched.add(model)
        if count > LARGEST_INTEGER:
            known.tally.pictures = 0
            return
        row = (model, count, pictures)
        if self._connection.execute("INSERT OR IGNORE INTO sample VALUES (?, ?, ?, 1)", row).rowcount:
            self._insert(model, known, count, pictures)
        elif self._connection.execute(
            "SELECT 1 FROM sample WHERE model = ? AND current_pic_count = ? AND input_pic_num <> ?", row
        ).fetchone():
            known.tally.pictures = 0
        known.recent[count] = pictures
        if len(known.recent) > REMEMBERED_SAMPLES:
            known.recent.popitem(last=False)

    def pass_over(self, model: int, name: LogName) -> None:
        """An inference is passed over on purpose."""
        changed = self._connection.execute(
            "UPDATE sample SET kept = 0 WHERE model = ? AND current_pic_count = ? AND kept",
            (model, min(name.current_pic_count or 0, LARGEST_INTEGER)),
        ).rowcount
        if changed:
            self._model(model).passed_over += 1
            self._touched.add(model)

    def touch(self, model: int) -> None:
        """Something else has changed on which a model's figures depend."""
        self._model(model)
        self._touched.add(model)

    def flush(self) -> None:
        """Write the figures of the models that were touched."""
        for model in self._touched:
            known = self._models[model]
            for gap in known.changed:
                self._write_gap(model, gap, known.tally.gaps.get(gap, 0))
            known.changed.clear()
            is_loaded_again = is_model_loaded_again(self._connection, model)
            # Which load a sample belongs to is found out when the JOB ends.
            tally = None if is_loaded_again else known.tally
            write_figures(self._connection, self._job, model, known.tally, known.passed_over, distances=tally)
        self._touched.clear()
        while len(self._models) > REMEMBERED_MODELS:
            self._models.popitem(last=False)

    def _insert(self, model: int, known: _Model, count: int, pictures: int) -> None:
        before, after = known.highest, None
        if before is not None and count < before:
            before, after = self._neighbours(model, count)
        known.tally.insert(before, count, after, pictures)
        known.highest = count if known.highest is None else max(known.highest, count)
        if before is not None:
            known.changed.add(count - before)
        if after is not None:
            known.changed.add(after - count)
        if before is not None and after is not None:
            known.changed.add(after - before)

    def _neighbours(self, model: int, count: int) -> tuple[int | None, int | None]:
        found: tuple[int | None, int | None] = self._connection.execute(
            "SELECT (SELECT max(current_pic_count) FROM sample WHERE model = ?1 AND current_pic_count < ?2),"
            " (SELECT min(current_pic_count) FROM sample WHERE model = ?1 AND current_pic_count > ?2)",
            (model, count),
        ).fetchone()
        return found

    def _write_gap(self, model: int, gap: int, count: int) -> None:
        if count:
            self._connection.execute("INSERT OR REPLACE INTO sample_gap VALUES (?, ?, ?)", (model, gap, count))
        else:
            self._connection.execute("DELETE FROM sample_gap WHERE model = ? AND pictures = ?", (model, gap))

    def _model(self, model: int) -> _Model:
        known = self._models.get(model)
        if known is None:
            tally, passed_over = stored_tally(self._connection, model)
            (highest,) = self._connection.execute(
                "SELECT max(current_pic_count) FROM sample WHERE model = ?", (model,)
            ).fetchone()
            known = self._models[model] = _Model(tally, highest, passed_over)
        self._models.move_to_end(model)
        return known


def stored_tally(connection: sqlite3.Connection, model: int) -> tuple[SampleTally, int]:
    """A model's tally as it is stored, and how many of its samples were passed over."""
    row = connection.execute("SELECT input_pic_num, passed_over FROM sampling WHERE model = ?", (model,)).fetchone()
    if row is None:
        return SampleTally(), 0
    # What is stored may count each load's samples; a tally counts names.
    ((sampled,),) = connection.execute("SELECT count(*) FROM sample WHERE model = ?", (model,))
    gaps = connection.execute("SELECT pictures, count FROM sample_gap WHERE model = ?", (model,))
    return SampleTally(sampled, row[0], Counter(dict(gaps.fetchall()))), row[1]


def is_model_loaded_again(connection: sqlite3.Connection, model: int) -> bool:
    """Whether rows show that a model's picture counts began anew."""
    ((is_loaded_again,),) = connection.execute(_IS_LOADED_AGAIN, (model,))
    return bool(is_loaded_again)


def samples_of_loads(connection: sqlite3.Connection, model: int) -> list[list[int]] | None:
    """The picture counts of each load's samples; None where they cannot be told. It reads every inference of the model.

    A sample without rows, as one that was passed over on purpose, belongs to nobody knows which.
    """
    ((is_any_unplaced,),) = connection.execute(_UNPLACED, (model,))
    if is_any_unplaced:
        return None
    times: dict[int, list[int | None]] = {}
    for count, start_us in connection.execute(_TIMES, (model, LARGEST_INTEGER)):
        times.setdefault(count, []).append(start_us)
    return counts_of_loads(times)


def write_figures(
    connection: sqlite3.Connection,
    job: int,
    model: int,
    tally: SampleTally,
    passed_over: int,
    *,
    distances: SampleTally | None,
) -> Figures:
    """Write how well a model was sampled, as far as it is known.

    `distances`: the tally whose distances between samples mean something; None where there is none.
    """
    (told,) = connection.execute("SELECT interval FROM job WHERE job = ?", (job,)).fetchone()
    (is_unsure,) = connection.execute(_IS_UNSURE, (job,)).fetchone()
    if is_unsure or distances is None:
        figures = figures_of((distances or tally).sampled, None, told)
    else:
        figures = distances.figures(told)
    interval, origin, sampled, due, late, never_came = figures
    row = (model, tally.pictures, sampled, passed_over, interval, origin, due, late, never_came)
    connection.execute(_WRITE, row)
    return figures
