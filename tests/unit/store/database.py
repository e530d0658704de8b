"""Fills a database with plain INSERTs: one board, and what a test names."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from importlib import resources
from itertools import count
from typing import TYPE_CHECKING, Any

from profagent.ingest.source import schemas
from profagent.store import counters, marks, thinning
from profagent.store.database import SCHEMA_VERSION

if TYPE_CHECKING:
    from pathlib import Path

JOB = "JOBABCDEFGHIJKLMNOPQRSTUVWXYZABC"
START_US = 1_700_000_000_000_000
COUNTERS = (
    *("mac_busy", "mac_ppen", "vec_busy", "vec_ppen", "dstr", "dtrans", "dld", "wld"),
    *("ddr_read_bytes", "ddr_write_bytes"),
)


class DatabaseBuilder:
    """Writes rows as it is told; every method gives the row's number."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._db = sqlite3.connect(file, isolation_level=None)
        own = resources.files("profagent.store").joinpath("schema.sql").read_text("utf-8")
        for script in (own, *schemas(), counters.SCHEMA, marks.SCHEMA, thinning.SCHEMA):
            self._db.executescript(script)
        self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        self._db.execute("BEGIN")
        self._ordinals = count()
        self.insert("board", identity="0ddba11", hostname="euler", model="SS928")

    def close(self) -> Path:
        """Commit; gives the file."""
        with closing(self._db):
            self._db.execute("COMMIT")
        return self.file

    def insert(self, table: str, **values: Any) -> int:
        columns, places = ", ".join(values), ", ".join("?" * len(values))
        cursor = self._db.execute(f"INSERT INTO {table} ({columns}) VALUES ({places})", tuple(values.values()))
        return int(cursor.lastrowid or 0)

    def session(self, **values: Any) -> int:
        defaults = {
            "board": 1,
            "source": "import",
            "address": "somewhere",
            "started_us": START_US,
            "simulated": 0,
            "daemon_version": "0.2.0",
            "sdk_version": "",
        }
        return self.insert("session", **{**defaults, **values})

    def job(self, *sessions: int, name: str = JOB, frequency_mhz: int | None = 700, family: str | None = None) -> int:
        clock = {"frequency_mhz": frequency_mhz, "family": family}
        job = self.insert("job", board=1, name=name, directory=f"/root/{name}", state="finished", **clock)
        for session in sessions:
            self.insert("session_job", session=session, job=job)
        return job

    def model(self, job: int, name: str = "yolo", model_id: int = 0, layers: tuple[str, ...] = ()) -> int:
        model = self.insert("model", job=job, name=name, model_id=model_id)
        for index, layer in enumerate(layers):
            values = {"segment": 0, "layer_id": 10 + index, "name": layer, "type": layer.rstrip("0123456789")}
            self.insert("layer", model=model, layer_index=index, **values)
        return model

    def inference(self, session: int, model: int, pic: int | str = 0, **values: Any) -> int:
        defaults = {
            "device_id": 0,
            "stream_id": 3,
            "batch_num": 1,
            "input_pic_num": 1,
            "load": 0,
            "complete": 1,
            "whole": 1,
            "figures": "final",
            "cache_hit": 75,
            "cache_miss": 25,
            "start_us": START_US,
        }
        row = {**defaults, **values}
        row.setdefault("end_us", None if row["start_us"] is None else row["start_us"] + 1000)
        return self.insert("inference", session=session, model=model, current_pic_count=pic, **row)

    def log(self, job: int, model: int, kind: str, path: str | bytes, size: int = 1) -> int:
        values = {"generation": 1, "offset": size, "complete": 1}
        return self.insert("log", job=job, model=model, kind=kind, path=path, shown_path=path, **values)

    def part(self, session: int, log: int, first_record: int = 0) -> int:
        return self.insert("part", session=session, log=log, first_record=first_record)

    def new_part(self, session: int, model: int, kind: str) -> int:
        """A part of a log of its own."""
        (job,) = self._db.execute("SELECT job FROM model WHERE model = ?", (model,)).fetchone()
        return self.part(session, self.log(job, model, kind, f"data/{kind}.{next(self._ordinals)}"))

    def segment(
        self,
        inference: int,
        part: int,
        kind: str,
        ticks: int = 0,
        *,
        start_us: float | None = None,
        end_us: float | None = None,
        net: int = 0,
    ) -> int:
        (log,) = self._db.execute("SELECT log FROM part WHERE part = ?", (part,)).fetchone()
        values = {"ordinal": next(self._ordinals), "net": net, "start_us": start_us, "end_us": end_us, "ticks": ticks}
        return self.insert("segment", log=log, inference=inference, kind=kind, **values)

    def aicore(
        self,
        inference: int,
        part: int,
        ticks: list[int],
        *,
        start_us: float | None = START_US,
        net: int = 0,
        first: int = 0,
        layers: list[int | None] | None = None,
        counters: list[tuple[float | None, ...]] | None = None,
    ) -> int:
        """A segment's records; record i has sequence number and layer i unless told otherwise."""
        segment = self.segment(inference, part, "aicore", sum(ticks), start_us=start_us, net=net)
        for i, value in enumerate(ticks):
            row = {"sequence": i, "layer_index": i if layers is None else layers[i], "ticks": value}
            known = dict(zip(COUNTERS, counters[i], strict=True)) if counters else {}
            key = (part << 24) + first + i
            self.insert("aicore", record=key, segment=segment, ticks_before=sum(ticks[:i]), **row, **known)
        return segment

    def aicpu(self, inference: int, part: int, times: list[tuple[int, int]], layers: list[int | None]) -> int:
        """A segment's records from (begin, end), in µs from START_US."""
        span = START_US + times[0][0], START_US + times[-1][1]
        segment = self.segment(inference, part, "aicpu", start_us=span[0], end_us=span[1])
        for i, ((begin, end), layer) in enumerate(zip(times, layers, strict=True)):
            row = {"begin_us": START_US + begin, "end_us": START_US + end, "layer_index": layer}
            self.insert("aicpu", record=(part << 24) + i, segment=segment, sequence=i, **row)
        return segment

    def calls(self, part: int, calls: list[tuple[int, int | None, int]], pid: int = 500, tid: int = 501) -> None:
        """API calls from (api, begin, end), in µs from START_US; begin None for a call with unknown begin."""
        for i, (api, begin, end) in enumerate(calls):
            begin_us = 0 if begin is None else START_US + begin
            row = {"begin_us": begin_us, "end_us": START_US + end, "pid": pid, "tid": tid}
            self.insert("api", record=(part << 24) + i, api=api, **row)

    def kept_loss(self, session: int, **values: Any) -> None:
        """A loss that the board's daemon keeps, with its entry in the ledger."""
        entry = {"origin": "board", "grade": "loss", "reason": "deleted-undelivered", "detail": "made room", "count": 9}
        number = self.insert("ledger_entry", session=session, **entry)
        self.insert("kept_loss", board=1, id=f"{number:016x}", entry=number, **values)

    def ledger(self, session: int, grade: str, reason: str, count: int = 1, job: int | None = None) -> None:
        values = {"origin": "content", "detail": "", "count": count}
        self.insert("ledger_entry", session=session, job=job, grade=grade, reason=reason, **values)
