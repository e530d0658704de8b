"""The command `profagent calibrate`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import tomlkit

from profagent.calibrate.fitting import CounterVerdict, Evidence, Fit, LearntCounter, find_counters
from profagent.calibrate.vendor_table import inference_of_name, parse_vendor_table, read_vendor_table
from profagent.cli import options
from profagent.cli.documents import print_document
from profagent.cli.progress import progress
from profagent.errors import ProfagentError, UsageError
from profagent.files import write_atomically
from profagent.formats.countermap import MAPPED_NAMES, SDK_NOT_SAID
from profagent.formats.records import ticks_to_us
from profagent.ingest.local import LocalJobFiles
from profagent.limits import MOST_NAMED, MOST_PAIRS
from profagent.tables.table import Cell, Column, printable, table_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from profagent.calibrate.fitting import LearntCounter
    from profagent.calibrate.vendor_table import VendorTable
    from profagent.ingest.local import InferenceRecords


# Another inference of the same model has the same names and other times; so has the right one if the clock is not the
# assumed one.
NAME_ONLY = "name, and their times differ"
NAME_AND_TIME = "name and time"

# Share of the smaller of table and inference that must match; with less, the table is of another inference.
LEAST_SHARE = 0.5
# Relative error of the vendor's own arithmetic, beyond the rounding of a time.
SLACK = 1e-6


@dataclass(frozen=True, slots=True)
class MatchedRows:
    """Pairs of rows and records: row `rows[i]` of the table is record `records[i]`. `by` names what they agree in."""

    rows: npt.NDArray[np.intp]
    records: npt.NDArray[np.intp]
    by: str


def match_rows(
    table: VendorTable, names: Sequence[str | None], time_us: npt.NDArray[np.float64] | None
) -> MatchedRows | None:
    """Match a table with the records of one inference, from the names and times of their layers; None if they differ.

    Both are in the order of execution. A row that could be one of several records is left out.
    """
    # The arrays below have a cell for each pair.
    if len(table.names) * len(names) > MOST_PAIRS:
        return None
    for by, alike in _comparisons(table, names, time_us):
        needed = max(LEAST_SHARE * min(alike.shape), 1)
        if min(alike.any(axis=0).sum(), alike.any(axis=1).sum()) < needed:
            continue
        rows, records = _certain_pairs(alike)
        if len(rows) >= needed:
            return MatchedRows(rows, records, by)
    return None


def _comparisons(
    table: VendorTable, names: Sequence[str | None], time_us: npt.NDArray[np.float64] | None
) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """Yield criteria, the best first, each with an array (rows, records) that is True where both may be the same."""
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
    if same_time is None and len(table.names) == len(names):
        yield "sequence", np.eye(len(table.names), dtype=np.bool_)


def _certain_pairs(alike: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the pairs of a longest common subsequence that every other longest one has, too."""
    before, after = _lengths(alike), _lengths(alike[::-1, ::-1])[::-1, ::-1]
    sure = alike & (before[:-1, :-1] + 1 + after[1:, 1:] == before[-1, -1])
    rows, records = (sure & (sure.sum(axis=0) == 1)[None, :] & (sure.sum(axis=1) == 1)[:, None]).nonzero()
    return rows, records


def _lengths(alike: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
    """Return at [i, j] the length of the longest common subsequence of the first i rows and the first j records."""
    lengths = np.zeros((alike.shape[0] + 1, alike.shape[1] + 1), dtype=np.int32)
    for row, may_match in enumerate(alike):
        best = np.maximum(lengths[row, 1:], lengths[row, :-1] + may_match)
        lengths[row + 1, 1:] = np.maximum.accumulate(best)
    return lengths


DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class _TableMatch:
    """Table with the inference that it is of, and the pairs of its rows and records."""

    table: VendorTable
    job: Path
    inference: InferenceRecords
    matched: MatchedRows

    @property
    def bytes(self) -> npt.NDArray[np.uint8]:
        """Bytes of all records of the inference, shape (records, 256)."""
        words = np.ascontiguousarray(self.inference.records["words"], dtype="<u4")
        return words.view(np.uint8).reshape(len(words), -1)

    @property
    def closeness(self) -> tuple[bool, int]:
        """Sort key: first True if times do not contradict the match, then the number of matched rows."""
        return (self.matched.by != NAME_ONLY, len(self.matched.rows))

    @property
    def coverage(self) -> dict[str, Any]:
        """Use of the table: the number of matched rows, the inference, and the criterion."""
        return {
            "file": self.table.file,
            "job": self.job.name,
            "log": f"{self.inference.log.model} at picture {self.inference.log.current_pic_count}",
            "rows": len(self.table.names),
            "matched": len(self.matched.rows),
            "by": self.matched.by,
        }

    def evidence(self, counter: str) -> Evidence | None:
        """Return the evidence for a counter, or None if the table has no such column."""
        column = self.table.columns.get(counter)
        if column is None:
            return None
        ticks = self.inference.records["ticks"][self.matched.records].astype(np.float64)
        values = column.values[self.matched.rows]
        evidence = Evidence(self.bytes[self.matched.records], ticks, values, np.full(len(values), column.half))
        return evidence.chosen(~np.isnan(values) & (ticks > 0))


@dataclass(frozen=True, slots=True)
class Calibration:
    """Learnt counters with their sources; `digest` covers the matched records and the table's values for them."""

    findings: list[LearntCounter]
    coverage: list[dict[str, Any]]
    digest: str
    is_simulated: bool

    def map_text(self, name: str, sdk: str) -> str:
        """Return the counter map as TOML, which formats/countermap.py reads."""
        source = f"{sum(each['matched'] for each in self.coverage)} matched rows of {len(self.coverage)} vendor tables"
        document = tomlkit.document()
        meaning = "value = number * scale / denominator; ticks = word 0x04, cycles = 100 * ticks, none = 1"
        document.add(tomlkit.comment(meaning))
        document.add(tomlkit.nl())
        document.update({"name": name, "sdk": sdk, "simulated": self.is_simulated, "digest": self.digest})
        counters = tomlkit.table(is_super_table=True)
        for finding in self.findings:
            if finding.fit is not None:
                counters.add(finding.counter, _table(finding, finding.fit, source))
        document.add("counters", counters)
        return tomlkit.dumps(document)


def calibrate(jobs: Sequence[Path], tables: Sequence[Path]) -> Calibration:
    """Fit all counters to all tables together. Raises UsageError, FormatError."""
    sources = [(job, LocalJobFiles(job)) for job in jobs]
    pairs: list[_TableMatch] = []
    with progress("match", "tables") as shown:
        for table in tables:
            shown(len(pairs), len(tables))
            pairs.append(_pair(parse_vendor_table(read_vendor_table(table), str(table)), sources))
    evidence = {}
    # The digest covers contents only: the same evidence gives the same digest under any file names.
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for pair in pairs:
        digest.update(pair.bytes[pair.matched.records].tobytes())
        for name, column in pair.table.columns.items():
            digest.update(name.encode() + column.values[pair.matched.rows].tobytes())
    for name in MAPPED_NAMES:
        parts = [part for pair in pairs if (part := pair.evidence(name)) is not None]
        if parts:
            columns = zip(*((part.records, part.ticks, part.values, part.half) for part in parts), strict=True)
            evidence[name] = Evidence(*(np.concatenate(column) for column in columns))
    with progress("fit", "counters") as shown:
        findings = find_counters(evidence, np.concatenate([pair.bytes for pair in pairs]), shown)
    is_simulated = any(job.is_simulated for _, job in sources)
    return Calibration(findings, [pair.coverage for pair in pairs], digest.hexdigest(), is_simulated)


def _pair(table: VendorTable, jobs: Sequence[tuple[Path, LocalJobFiles]]) -> _TableMatch:
    """Return the only inference that a table matches best. Raises UsageError if there is none, or several."""
    found = [*_matching(table, jobs, is_named=True)]
    # A file may have been renamed: other inferences count only where their times agree.
    if not any(pair.closeness[0] for pair in found):
        found += [pair for pair in _matching(table, jobs, is_named=False) if not found or pair.closeness[0]]
    most = max((pair.closeness for pair in found), default=(False, 0))
    best = [pair for pair in found if pair.closeness == most]
    if not best:
        raise UsageError(
            f"{table.file} is a table of none of these JOBs: neither layers nor times agree",
            hint="name the JOB directory that the vendor's tool exported the table from",
        )
    if len(best) > 1:
        where = ", ".join(f"{pair.coverage['log']} of {pair.job.name}" for pair in best[:3])
        raise UsageError(
            f"{table.file} agrees as well with {len(best)} inferences: {where}",
            hint="keep the name that the vendor's tool gave the file: it tells the inference",
        )
    return best[0]


def _matching(
    table: VendorTable, jobs: Sequence[tuple[Path, LocalJobFiles]], *, is_named: bool
) -> Iterator[_TableMatch]:
    wanted = inference_of_name(table.file)
    for job, source in jobs:
        for path, log in source.inferences:
            if (wanted == (log.model_id, log.batch_num, log.input_pic_num, log.current_pic_count)) is not is_named:
                continue
            for inference in source.of(path, log):
                mhz = source.frequency_mhz
                time_us = None if mhz is None else ticks_to_us(inference.records["ticks"], mhz)
                matched = match_rows(table, inference.layer_names, time_us)
                if matched is not None:
                    yield _TableMatch(table, job, inference, matched)


def fit_text(fit: Fit) -> str:
    """Return a short text of where a number is: `0x10 u32 / cycles`."""
    scale = "" if fit.scale == 1 else f" * {fit.scale:g}"
    return f"{fit.offset:#04x} {fit.type}{scale}" + ("" if fit.denominator == "none" else f" / {fit.denominator}")


def _table(finding: LearntCounter, fit: Fit, source: str) -> tomlkit.items.Table:
    table = tomlkit.table()
    offset = tomlkit.items.Integer(fit.offset, tomlkit.items.Trivia(), f"{fit.offset:#04x}")
    table.update({"offset": offset, "type": fit.type, "scale": fit.scale, "denominator": fit.denominator})
    table["unit"] = "bytes" if finding.counter.endswith("_bytes") else "fraction"
    table["verdict"] = finding.verdict.value
    doubt = f"; to settle it: {finding.advice}" if finding.verdict is CounterVerdict.LIKELY else ""
    table["evidence"] = f"{fit.agreeing} of {finding.rows} rows of {source}{doubt}"
    return table


COLUMNS = tuple(map(Column, ("counter", "verdict", "where", "rows", "agree", "rivals", "what would settle it")))
*_, NOT_SAID = SDK_NOT_SAID


@click.command("calibrate")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB…", type=options.FOLDER)
@click.option(
    "--vendor-summary",
    "tables",
    multiple=True,
    required=True,
    type=options.FILE,
    metavar="CSV",
    help="The vendor's op_summary of one of these JOBs; may be repeated.",
)
@click.option("-o", "--output", type=options.OUTPUT_FILE, metavar="MAP", help="Write the counter map to this file.")
@click.option("--name", metavar="NAME", help="The map's name; without it the name of the file.")
@click.option("--sdk", default=NOT_SAID, metavar="VERSION", help="The SDK whose runtime wrote the JOBs.")
@options.as_json
@options.quiet
def command(
    *, jobs: tuple[Path, ...], tables: tuple[Path, ...], output: Path | None, name: str | None, sdk: str, as_json: bool
) -> None:
    """Learn which word of a record is which PMU counter, from JOBs and the vendor's tables of these JOBs.

    A counter is put into the map only if exactly one word gives the vendor's values. For any other counter the
    command says which data would decide.

    Example: profagent calibrate JOB… --vendor-summary op_summary_0.m.0.1.1.0.0.1000.700.csv -o map.toml
    Example: profagent calibrate JOB… --vendor-summary op_summary_0.m.0.1.1.0.0.1000.700.csv --json
    """
    learnt = calibrate(jobs, tables)
    if as_json:
        document = {"tables": learnt.coverage, "simulated": learnt.is_simulated, "digest": learnt.digest}
        print_document("calibrate", {**document, "counters": learnt.findings})
    else:
        _print_calibration(learnt)
    # The table of counters is printed before the error, because it says what would settle each.
    if not any(finding.fit for finding in learnt.findings):
        raise ProfagentError(
            "no counter was identified", hint="the last column says which measurement would decide each"
        )
    if output is not None:
        write_atomically(output, [learnt.map_text(name or output.stem, sdk).encode()])
        if not as_json:
            click.echo(f"wrote {output}: use it with --counter-map {output}")


def _print_calibration(learnt: Calibration) -> None:
    for each in learnt.coverage:
        found = "{matched} of {rows} rows are records of {job}, {log}, by {by}".format(**each)
        click.echo(printable(f"{each['file']}: {found}"))
    if learnt.is_simulated:
        click.echo("*** simulated: what is learnt here is invented ***")
    click.echo()
    for line in table_lines(COLUMNS, [_row(finding) for finding in learnt.findings]):
        click.echo(line)


def _row(finding: LearntCounter) -> tuple[Cell, ...]:
    where = fit_text(finding.fit) if finding.fit else "-"
    shown = ", ".join(map(fit_text, finding.rivals[:MOST_NAMED]))
    rivals = shown + (f" and {more} more" if (more := len(finding.rivals) - MOST_NAMED) > 0 else "")
    agreeing = finding.fit.agreeing if finding.fit else "-"
    return (finding.counter, finding.verdict.value, where, finding.rows, agreeing, rivals or "-", finding.advice or "-")
