"""Rows of inferences and their segments, and where the segments stand in time."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from profagent.formats.durations import ticks_to_us
from profagent.formats.placement import AicoreSegment, AicpuSegment, place

if TYPE_CHECKING:
    import sqlite3

    from profagent.formats.names import LogName
    from profagent.ingest.changes import InferenceTimed

REMEMBERED_INFERENCES = 8192
LARGEST_INTEGER = 2**63 - 1

_OF_FILE = (
    "model = ? AND current_pic_count = ? AND batch_num = ? AND input_pic_num = ? AND device_id = ?"
    " AND ifnull(stream_id, -1) = ?"
)


def integer_to_sql(value: int) -> int | str:
    """An unsigned 64-bit number as SQLite can hold it: TEXT from 2^63 on."""
    return value if value <= LARGEST_INTEGER else str(value)


def _key(model: int, name: LogName) -> tuple[int | str, ...]:
    assert name.current_pic_count is not None, "only files of an inference have records of segments"
    return (
        model,
        integer_to_sql(name.current_pic_count),
        name.batch_num or 0,
        name.input_pic_num or 0,
        name.device or 0,
        -1 if name.stream is None else name.stream,
    )


class InferenceRows:
    """The inferences of one JOB. Those that a batch touches are placed in time at its end."""

    def __init__(self, connection: sqlite3.Connection, session: int) -> None:
        self._connection = connection
        self._session = session
        self._known: OrderedDict[tuple[Any, ...], int] = OrderedDict()
        self._touched: set[int] = set()

    def number(self, model: int, name: LogName, stretch: int) -> int:
        """The number of a file's inference; its row is made when there is none."""
        key = (*_key(model, name), stretch)
        inference = self._known.get(key)
        if inference is None:
            inference = self._known[key] = self._find(key) or self._add(key, name)
            if len(self._known) > REMEMBERED_INFERENCES:
                self._known.popitem(last=False)
        self._touched.add(inference)
        return inference

    def set_times(self, model: int, change: InferenceTimed) -> None:
        """Write what the `.done` says of one stretch, or take it back."""
        inference = self.number(model, change.name, change.stretch)
        done = change.done
        values: tuple[Any, ...] = (None,) * 5
        if done is not None:
            online = ",".join(map(str, done.online_batch_num)) or None
            # 0 is what the runtime prints when it has no time.
            values = (done.start_us or None, done.end_us or None, done.cache_hit, done.cache_miss, online)
        self._connection.execute(
            "UPDATE inference SET start_us = ?, end_us = ?, cache_hit = ?, cache_miss = ?, online_batch_num = ?,"
            " complete = ? WHERE inference = ?",
            (*values, int(done is not None), inference),
        )

    def touch_all(self, job: int) -> None:
        """Have every inference of the JOB placed anew."""
        self._touched.update(
            inference
            for (inference,) in self._connection.execute(
                "SELECT inference FROM inference JOIN model USING (model) WHERE job = ?", (job,)
            )
        )

    def delete(self, model: int, name: LogName) -> None:
        """Forget the segments of one file, and inferences that no file speaks of any more."""
        of_file = f"SELECT inference FROM inference WHERE {_OF_FILE}"  # noqa: S608 - constant text
        key = _key(model, name)
        self._connection.execute(
            f"DELETE FROM segment WHERE kind = ? AND inference IN ({of_file})",  # noqa: S608 - constant text
            (name.kind.value, *key),
        )
        self._connection.execute(
            f"DELETE FROM inference WHERE inference IN ({of_file})"  # noqa: S608 - constant text
            " AND NOT EXISTS (SELECT 1 FROM segment WHERE segment.inference = inference.inference)",
            key,
        )
        self._known.clear()

    def place(self, frequency_mhz: int | None) -> None:
        """Set the start and end of the aicore segments of every touched inference, once the frequency is known."""
        if frequency_mhz is not None:
            for inference in self._touched:
                self._place(inference, frequency_mhz)
        self._touched.clear()

    def _place(self, inference: int, frequency_mhz: int) -> None:
        row = self._connection.execute("SELECT start_us FROM inference WHERE inference = ?", (inference,)).fetchone()
        if row is None:
            return
        segments = self._connection.execute(
            "SELECT segment, kind, net, ordinal, ticks, start_us, end_us FROM segment WHERE inference = ?"
            " ORDER BY kind, ordinal",
            (inference,),
        ).fetchall()
        aicore = [s for s in segments if s[1] == "aicore"]
        durations = [ticks_to_us(s[4], frequency_mhz) for s in aicore]
        starts = place(
            row[0],
            [AicoreSegment(s[2], s[3], duration) for s, duration in zip(aicore, durations, strict=True)],
            [AicpuSegment(s[2], s[3], s[5], s[6]) for s in segments if s[1] == "aicpu"],
        )
        self._connection.executemany(
            "UPDATE segment SET start_us = ?, end_us = ? WHERE segment = ?",
            [
                (start, None if start is None else start + duration, segment[0])
                for start, duration, segment in zip(starts, durations, aicore, strict=True)
            ],
        )

    def _find(self, key: tuple[Any, ...]) -> int | None:
        row = self._connection.execute(
            f"SELECT inference FROM inference WHERE {_OF_FILE} AND stretch = ?",  # noqa: S608 - constant text
            key,
        ).fetchone()
        return None if row is None else int(row[0])

    def _add(self, key: tuple[Any, ...], name: LogName) -> int:
        model, pic_count, batch, pics, device, _, stretch = key
        cursor = self._connection.execute(
            "INSERT INTO inference (session, model, device_id, stream_id, batch_num, input_pic_num, current_pic_count,"
            " stretch, complete) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)",
            (self._session, model, device, name.stream, batch, pics, pic_count, stretch),
        )
        return int(cursor.lastrowid or 0)
