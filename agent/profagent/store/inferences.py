"""Rows of inferences, and where their segments stand in time."""

from __future__ import annotations

from collections import OrderedDict
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from profagent.formats.durations import ticks_to_us
from profagent.formats.placement import AicoreSegment, AicpuSegment, place

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from profagent.formats.names import LogName
    from profagent.ingest.changes import InferenceTimed

REMEMBERED_INFERENCES = 8192
# SQLite's own limit of variables in a statement is far above.
INFERENCES_PER_QUERY = 500
LARGEST_INTEGER = 2**63 - 1

_FIND = (
    "SELECT inference FROM inference WHERE model = ? AND current_pic_count = ? AND batch_num = ? AND input_pic_num = ?"
    " AND device_id = ? AND ifnull(stream_id, -1) = ? AND stretch = ?"
)
_OF_FILE = (
    "SELECT inference, stretch, whole, figures, why FROM inference WHERE model = ? AND current_pic_count = ?"
    " AND batch_num = ? AND input_pic_num = ? AND device_id = ? AND ifnull(stream_id, -1) = ?"
)
_TIMES = "start_us = ?, end_us = ?, cache_hit = ?, cache_miss = ?, online_batch_num = ?, complete = ?"
_UNTIMED = (None, None, None, None, None, 0)


def integer_to_sql(value: int) -> int | str:
    """An unsigned 64-bit number as SQLite can hold it: TEXT from 2^63 on."""
    return value if value <= LARGEST_INTEGER else str(value)


class InferenceRows:
    """The inferences of one JOB. Those that a batch touches are placed in time at its end."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._known: OrderedDict[tuple[Any, ...], int] = OrderedDict()
        self._touched: set[int] = set()

    def number(self, model: int, name: LogName, stretch: int, session: int) -> int:
        """The number of a file's inference; its row is made, as one of `session`, when there is none."""
        key = _key(model, name, stretch)
        inference = self._known.get(key)
        if inference is None:
            inference = self._known[key] = self._find(key) or self._add(key, name, session)
            if len(self._known) > REMEMBERED_INFERENCES:
                self._known.popitem(last=False)
        self._touched.add(inference)
        return inference

    def set_times(self, model: int, change: InferenceTimed) -> None:
        """Write what the `.done` says of one stretch, or take it back; nothing where no record speaks of it."""
        key = _key(model, change.name, change.stretch)
        inference = self._known.get(key) or self._find(key)
        if inference is None:
            return
        done = change.done
        values: tuple[Any, ...] = _UNTIMED
        if done is not None:
            online = ",".join(map(str, done.online_batch_num)) or None
            # 0 is what the runtime prints when it has no time.
            values = (done.start_us or None, done.end_us or None, done.cache_hit, done.cache_miss, online, 1)
        self._connection.execute(f"UPDATE inference SET {_TIMES} WHERE inference = ?", (*values, inference))  # noqa: S608
        self._touched.add(inference)

    def of_file(self, model: int, name: LogName) -> list[tuple[Any, ...]]:
        """The inferences in the files of that name: number, place in the file, and what was found of their figures."""
        return self._connection.execute(_OF_FILE, _key(model, name, 0)[:-1]).fetchall()

    def set_state(self, inference: int, state: Sequence[Any]) -> None:
        """Write whether all its records are here, the state of its figures, and why they are not final."""
        self._connection.execute(
            "UPDATE inference SET whole = ?, figures = ?, why = ? WHERE inference = ?", (*state, inference)
        )
        self._touched.add(inference)

    def touch_all(self, job: int) -> None:
        """Have every inference of the JOB placed anew."""
        self._touched.update(
            inference
            for (inference,) in self._connection.execute(
                "SELECT inference FROM inference JOIN model USING (model) WHERE job = ?", (job,)
            )
        )

    def let_go(self, inferences: Sequence[int], *, has_times: bool) -> None:
        """A log does not speak of these inferences any more; those of which no log does are removed.

        Unless `has_times`, what the log's `.done` said of them is void as well.
        """
        each = [(inference,) for inference in inferences]
        self._connection.executemany(
            "DELETE FROM inference WHERE inference = ?1 AND NOT EXISTS (SELECT 1 FROM segment WHERE inference = ?1)",
            each,
        )
        if not has_times:
            self._connection.executemany(
                f"UPDATE inference SET {_TIMES} WHERE inference = ?",  # noqa: S608 - constant text
                [(*_UNTIMED, inference) for inference in inferences],
            )
        self._known.clear()

    def place(self, frequency_mhz: int | None) -> None:
        """Set the start and end of the aicore segments of every touched inference, once the frequency is known."""
        if frequency_mhz is not None:
            touched = list(self._touched)
            for start in range(0, len(touched), INFERENCES_PER_QUERY):
                self._place(touched[start : start + INFERENCES_PER_QUERY], frequency_mhz)
        self._touched.clear()

    def _place(self, inferences: Sequence[int], frequency_mhz: int) -> None:
        segments = self._connection.execute(
            "SELECT segment, kind, net, ordinal, ticks, g.start_us, g.end_us, i.start_us, inference, whole"  # noqa: S608 - question marks only
            f" FROM segment g JOIN inference i USING (inference) WHERE inference IN ({','.join('?' * len(inferences))})"
            " ORDER BY inference, ordinal, segment",
            inferences,
        )
        self._connection.executemany(
            "UPDATE segment SET start_us = ?, end_us = ? WHERE segment = ?",
            [placed for _, each in groupby(segments, itemgetter(8)) for placed in _placed(list(each), frequency_mhz)],
        )

    def _find(self, key: tuple[Any, ...]) -> int | None:
        row = self._connection.execute(_FIND, key).fetchone()
        return None if row is None else int(row[0])

    def _add(self, key: tuple[Any, ...], name: LogName, session: int) -> int:
        model, pic_count, batch, pics, device, _, stretch = key
        cursor = self._connection.execute(
            "INSERT INTO inference (session, model, device_id, stream_id, batch_num, input_pic_num, current_pic_count,"
            " stretch, complete) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)",
            (session, model, device, name.stream, batch, pics, pic_count, stretch),
        )
        return int(cursor.lastrowid or 0)


def _placed(
    segments: Sequence[tuple[Any, ...]], frequency_mhz: int
) -> Iterator[tuple[float | None, float | None, int]]:
    """Start, end and number of each aicore segment of one inference."""
    aicore = [s for s in segments if s[1] == "aicore"]
    if not segments[0][9]:
        # A segment that has not come may stand before any of these.
        yield from ((None, None, segment[0]) for segment in aicore)
        return
    durations = [ticks_to_us(s[4], frequency_mhz) for s in aicore]
    starts = place(
        segments[0][7],
        [AicoreSegment(s[2], s[3], duration) for s, duration in zip(aicore, durations, strict=True)],
        [AicpuSegment(s[2], s[3], s[5], s[6]) for s in segments if s[1] == "aicpu"],
    )
    for start, duration, segment in zip(starts, durations, aicore, strict=True):
        yield start, None if start is None else start + duration, segment[0]


def _key(model: int, name: LogName, stretch: int) -> tuple[Any, ...]:
    assert name.current_pic_count is not None, "only files of an inference have records of segments"
    return (
        model,
        integer_to_sql(name.current_pic_count),
        name.batch_num or 0,
        name.input_pic_num or 0,
        name.device or 0,
        -1 if name.stream is None else name.stream,
        stretch,
    )
