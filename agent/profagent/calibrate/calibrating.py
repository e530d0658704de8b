"""Learning a counter map: the records of JOB directories beside the vendor's tables of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from profagent.calibrate.fitting import Evidence
from profagent.calibrate.map_text import map_text
from profagent.calibrate.named_file import read_vendor_table
from profagent.calibrate.table_name import said_inference
from profagent.calibrate.vendor_table import parse_vendor_table
from profagent.calibrate.verdict import find_counters
from profagent.errors import UsageError
from profagent.formats.countermap import COUNTER_NAMES
from profagent.formats.records import ticks_to_us
from profagent.ingest.job_records import JobRecords

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from profagent.calibrate.vendor_table import VendorTable
    from profagent.calibrate.verdict import Finding
    from profagent.formats.names import LogName
    from profagent.ingest.job_records import InferenceRecords


# Another inference of the same model looks like this, and a clock that ticks otherwise than is thought.
NAME_ONLY = "name, and their times differ"
NAME_AND_TIME = "name and time"

# So much of the smaller of the two must find its like, or the two are not of one inference.
LEAST_SHARE = 0.5
# Rows times records that are compared: a layer table has thousands of layers, not more.
MOST_PAIRS = 10_000_000
# Beyond the rounding of a time: the vendor's own arithmetic.
SLACK = 1e-6


@dataclass(frozen=True, slots=True)
class Matched:
    """Row `rows[i]` of the table is record `records[i]`; `by` says what told so."""

    rows: npt.NDArray[np.intp]
    records: npt.NDArray[np.intp]
    by: str


def match_rows(
    table: VendorTable, names: Sequence[str | None], time_us: npt.NDArray[np.float64] | None
) -> Matched | None:
    """Match a table with the records of one inference, given their layers' names and times; None where they differ.

    Both are in the order of execution, unless someone sorted the table: then only what names and times tell counts. A
    row that might be one of several records is left out.
    """
    if table.rows * len(names) > MOST_PAIRS:
        return None
    for by, alike in _ways(table, names, time_us):
        needed = max(LEAST_SHARE * min(alike.shape), 1)
        if min(alike.any(axis=0).sum(), alike.any(axis=1).sum()) < needed:
            continue
        places = [_certain_pairs(alike)]
        if by == NAME_AND_TIME:
            places.append(_only_pairs(alike))
        for rows, records in places:
            if len(rows) >= needed:
                return Matched(rows, records, by)
    return None


def _ways(
    table: VendorTable, names: Sequence[str | None], time_us: npt.NDArray[np.float64] | None
) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """What rows and records are told by, best first: an array (rows, records) that says which may be the same."""
    same_name = np.array(table.names, object)[:, None] == np.array(names, object)[None, :]
    has_names = any(table.names) and any(names)
    same_time = None
    if time_us is not None and not np.isnan(table.time_us.values).all():
        apart = np.abs(table.time_us.values[:, None] - time_us[None, :])
        same_time = apart <= table.time_us.half + SLACK * time_us[None, :]
    if has_names and same_time is not None:
        yield NAME_AND_TIME, same_name & same_time
    if same_time is not None:
        yield "time", same_time
    if has_names:
        yield ("name" if same_time is None else NAME_ONLY), same_name
    if same_time is None and table.rows == len(names):
        yield "sequence", np.eye(table.rows, dtype=np.bool_)


def _certain_pairs(alike: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Pairs of a longest common subsequence, without those that another such sequence pairs otherwise."""
    before, after = _lengths(alike), _lengths(alike[::-1, ::-1])[::-1, ::-1]
    on_longest = alike & (before[:-1, :-1] + 1 + after[1:, 1:] == before[-1, -1])
    return _only_pairs(on_longest)


def _only_pairs(alike: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Pairs of which neither is alike to another, in whatever order."""
    rows, records = (alike & (alike.sum(axis=0) == 1)[None, :] & (alike.sum(axis=1) == 1)[:, None]).nonzero()
    return rows, records


def _lengths(alike: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
    """The length of the longest common subsequence of the first i rows and the first j records, at [i, j]."""
    lengths = np.zeros((alike.shape[0] + 1, alike.shape[1] + 1), dtype=np.int32)
    for row, may_match in enumerate(alike):
        best = np.maximum(lengths[row, 1:], lengths[row, :-1] + may_match)
        lengths[row + 1, 1:] = np.maximum.accumulate(best)
    return lengths


LARGEST_TABLE_BYTES = 64 << 20
DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Coverage:
    """How a table was used: which rows were told to be which records, and by what; `matched` of `rows`."""

    file: str
    job: str
    log: str
    rows: int
    matched: int
    by: str


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was learnt, and from what; `digest` is of the matched records and what the tables say of them."""

    findings: list[Finding]
    coverage: list[Coverage]
    digest: str
    is_simulated: bool

    @property
    def found(self) -> int:
        """How many counters have a place, certain or likely."""
        return sum(finding.fit is not None for finding in self.findings)

    def map_text(self, name: str, sdk: str) -> str:
        """The counter map's TOML."""
        rows = sum(each.matched for each in self.coverage)
        source = f"{rows} matched rows of {len(self.coverage)} vendor tables"
        return map_text(
            self.findings, name=name, sdk=sdk, simulated=self.is_simulated, digest=self.digest, source=source
        )


@dataclass(frozen=True, slots=True)
class _Pair:
    """A table, the inference that it is of, and which of its rows are which records."""

    table: VendorTable
    job: Path
    inference: InferenceRecords
    matched: Matched


def calibrate(jobs: Sequence[Path], tables: Sequence[Path]) -> Calibration:
    """Fit all counters to all tables at once. Raises UsageError, FormatError."""
    sources = [(job, JobRecords(job)) for job in jobs]
    pairs = [_pair(_read(table), sources) for table in tables]
    evidence = {name: each for name in COUNTER_NAMES if (each := _evidence(name, pairs)) is not None}
    records = np.concatenate([_bytes_of(pair.inference) for pair in pairs])
    findings = [_compared(finding, pairs) for finding in find_counters(evidence, records)]
    coverage = [
        Coverage(
            pair.table.file,
            pair.job.name,
            _log_text(pair.inference.log),
            pair.table.rows,
            len(pair.matched.rows),
            pair.matched.by,
        )
        for pair in pairs
    ]
    return Calibration(findings, coverage, _digest(pairs), any(job.is_simulated for _, job in sources))


def _read(path: Path) -> VendorTable:
    return parse_vendor_table(read_vendor_table(path, LARGEST_TABLE_BYTES), str(path))


def _pair(table: VendorTable, jobs: Sequence[tuple[Path, JobRecords]]) -> _Pair:
    """Find the one inference that a table is of. Raises UsageError where there is none, or not only one."""
    found = [*_matching(table, jobs, is_named=True)]
    if not any(_is_timed(pair) for pair in found):
        found += [pair for pair in _matching(table, jobs, is_named=False) if not found or _is_timed(pair)]
    most = max(map(_closeness, found), default=(False, 0))
    best = [pair for pair in found if _closeness(pair) == most]
    if not best:
        raise UsageError(
            f"{table.file} is a table of none of these JOBs: neither layers nor times agree",
            hint="name the JOB directory that the vendor's tool exported the table from",
        )
    if len(best) > 1:
        where = ", ".join(f"{pair.job.name} at picture {pair.inference.log.current_pic_count}" for pair in best[:3])
        raise UsageError(
            f"{table.file} agrees as well with {len(best)} inferences: {where}",
            hint="keep the name that the vendor's tool gave the file: it tells the inference",
        )
    return best[0]


def _closeness(pair: _Pair) -> tuple[bool, int]:
    return (_is_timed(pair), len(pair.matched.rows))


def _is_timed(pair: _Pair) -> bool:
    """Whether nothing speaks for another inference: a file may have been given another's name."""
    return pair.matched.by != NAME_ONLY


def _matching(table: VendorTable, jobs: Sequence[tuple[Path, JobRecords]], *, is_named: bool) -> Iterator[_Pair]:
    """The inferences with such rows, among those that the file's name speaks of, or among the others."""
    wanted = said_inference(table.file)
    for job, source in jobs:
        logs = [(path, log) for path, log in source.inferences if (wanted == _numbers(log)) is is_named]
        for inference in (each for path, log in logs for each in source.of(path, log)):
            time_us = None
            if source.frequency_mhz is not None:
                time_us = ticks_to_us(inference.records["ticks"], source.frequency_mhz)
            matched = match_rows(table, inference.layer_names, time_us)
            if matched is not None:
                yield _Pair(table, job, inference, matched)


def _numbers(log: LogName) -> tuple[int | None, ...]:
    return (log.model_id, log.batch_num, log.input_pic_num, log.current_pic_count)


def _evidence(counter: str, pairs: Sequence[_Pair]) -> Evidence | None:
    """What all tables together say of a counter; None where none has its column."""
    parts = [part for pair in pairs if (part := _part(counter, pair)) is not None]
    if not parts:
        return None
    columns = zip(*((part.records, part.ticks, part.values, part.half) for part in parts), strict=True)
    return Evidence(*(np.concatenate(column) for column in columns))


def _compared(finding: Finding, pairs: Sequence[_Pair]) -> Finding:
    """Where no number gives all tables, say of how many one gives each alone: those are not under one map."""
    if finding.fit is not None or finding.rivals or len(pairs) < 2:
        return finding
    alone = [
        find_counters({finding.counter: part}, _bytes_of(pair.inference))[0]
        for pair in pairs
        if (part := _part(finding.counter, pair)) is not None
    ]
    if not (agreeing := sum(each.fit is not None for each in alone)):
        return finding
    advice = f"tables of one SDK: {agreeing} of {len(alone)} have a number each, and not the same"
    return replace(finding, advice=advice)


def _part(counter: str, pair: _Pair) -> Evidence | None:
    column = pair.table.columns.get(counter)
    if column is None:
        return None
    records = _bytes_of(pair.inference)[pair.matched.records]
    ticks = pair.inference.records["ticks"][pair.matched.records].astype(np.float64)
    values = column.values[pair.matched.rows]
    evidence = Evidence(records, ticks, values, np.full(len(values), column.half))
    return evidence.chosen(~np.isnan(values) & (ticks > 0))


def _bytes_of(inference: InferenceRecords) -> npt.NDArray[np.uint8]:
    words = np.ascontiguousarray(inference.records["words"], dtype="<u4")
    return words.view(np.uint8).reshape(len(words), -1)


def _digest(pairs: Sequence[_Pair]) -> str:
    """A digest of what was learnt from, whatever the files are called: the same evidence gives the same."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for pair in pairs:
        digest.update(_bytes_of(pair.inference)[pair.matched.records].tobytes())
        for name, column in pair.table.columns.items():
            digest.update(name.encode() + column.values[pair.matched.rows].tobytes())
    return digest.hexdigest()


def _log_text(log: LogName) -> str:
    return f"{log.model} at picture {log.current_pic_count}"
