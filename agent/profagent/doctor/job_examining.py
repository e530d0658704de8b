"""What doctor looks at in a JOB directory of this machine, and in acl.json files."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from profagent.doctor.acl_json import LARGEST_BYTES, acl_json_section
from profagent.doctor.facts import Shown, answers, facts_section
from profagent.doctor.finding import Section
from profagent.doctor.job import Measured, job_clock, job_data, job_ticks, measure
from profagent.doctor.numbering import Numbered
from profagent.doctor.ticks import Timed
from profagent.errors import FormatError, UsageError
from profagent.formats.board_files import parse_info_json
from profagent.formats.done import parse_done
from profagent.formats.names import LogKind, display_text, parse_log_name
from profagent.formats.records import AICORE_DTYPE, AICPU_DTYPE, view_records
from profagent.ingest.decode import DEVICE_INFO
from profagent.ingest.job_records import JobRecords
from profagent.ingest.joins import small_file
from profagent.ingest.local import list_job
from profagent.ingest.states import DONE_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from profagent.formats.done import Done
    from profagent.formats.names import LogName
    from profagent.formats.records import Records


# Inferences that are looked at, evenly spread, and the largest log of one.
INFERENCES = 200
LARGEST_FACT_BYTES = 16 << 20
LARGEST_CPU_BYTES = 1 << 20
# Of .info files in all, of each kind.
MOST_INFO_BYTES = 4 << 20
# Records of one inference, and of all, beyond which numbers are not looked at.
MOST_RECORDS, ALL_RECORDS = 50_000, 1_000_000
# Nets of one inference.
MOST_NETS = 64


def job_facts(directory: Path, about: str = "") -> Section:
    """The answer to each fact; the JOB is called `about`, else by its path. Raises UsageError for no JOB."""
    job = JobRecords(directory)
    shown = display_text(about or str(directory))
    return facts_section(shown, answers(_shown(job)), is_simulated=job.is_simulated)


def _shown(job: JobRecords) -> Shown:
    inferences = [_Inference(job, path, name, done) for path, name, done in _with_done(job)]
    frequency_mhz = job.frequency_mhz
    timed = [each.timed(frequency_mhz) for each in inferences] if frequency_mhz else []
    numbered = list(_first(numbers for each in inferences for numbers in each.numbered()))
    return Shown(job.paths, _infos(job, LogKind.LAYER_INFO), _infos(job, LogKind.NET_INFO), timed, numbered)


def _infos(job: JobRecords, kind: LogKind) -> list[bytes]:
    infos, room = [], MOST_INFO_BYTES
    for path in job.paths:
        # Of hundreds of thousands of names few are worth reading.
        name = parse_log_name(path) if path.endswith(".info") else None
        if name is None or name.kind is not kind:
            continue
        data = small_file(job, path) or b""
        if len(data) <= room:
            room -= len(data)
            infos.append(data)
    return infos


def _first(nets: Iterable[Numbered]) -> Iterator[Numbered]:
    """As many as are looked at."""
    room = ALL_RECORDS
    for each in nets:
        room -= each.records
        if room >= 0:
            yield each


def _with_done(job: JobRecords) -> Iterator[tuple[str, LogName, Done]]:
    logs = job.inferences
    for path, name in logs[:: max(1, -(-len(logs) // INFERENCES))]:
        data = small_file(job, path + DONE_SUFFIX)
        try:
            done = parse_done(data or b"", LogKind.AICORE, path + DONE_SUFFIX)
        except FormatError:
            continue
        yield path, name, done


class _Inference:
    """The part of a log that its `.done` is about: the last, where the model was loaded again (format page 2.2)."""

    def __init__(self, job: JobRecords, path: str, name: LogName, done: Done) -> None:
        self._job = job
        self._path = path
        self._name = name
        self._done = done
        data = job.read(path, LARGEST_FACT_BYTES + 1) or b""
        is_whole = 0 < done.file_len <= len(data) <= LARGEST_FACT_BYTES
        self._records: Records = view_records(data[-done.file_len :] if is_whole else b"", AICORE_DTYPE)

    def timed(self, frequency_mhz: int) -> Timed:
        """Its time from the first launch to the end, without the CPU's segments that were recorded between."""
        cpu_us = self._cpu_us()
        has_several_nets = len(np.unique(self._records["net"])) > 1
        ticks = self._records["ticks"]
        return Timed(
            ticks=int(ticks.sum(dtype="u8")),
            longest=int(ticks.max(initial=0)),
            window_us=self._done.end_us - self._done.start_us - cpu_us,
            frequency_mhz=frequency_mhz,
            may_have_cpu_part=has_several_nets and not cpu_us,
            model=f"{self._name.model}.{self._name.model_id} {self._name.input_pic_num}",
        )

    def numbered(self) -> Iterator[Numbered]:
        """The numbers of each net whose layers are known."""
        join, sizes = self._job.join(self._name), self._sizes()
        for net in np.unique(self._records["net"])[:MOST_NETS].tolist():
            shape = None if join is None else join.shape(net)
            if shape is not None and sizes and len(shape.is_batch) * sum(sizes) <= MOST_RECORDS:
                sequence = self._records["sequence"][self._records["net"] == net].tolist()
                yield Numbered(self._path, tuple(sequence), shape.is_batch, sizes, shape.max_loop)

    def _sizes(self) -> tuple[int, ...]:
        """Pictures in each batch run; empty where they are not known, or too many."""
        batch, pictures = self._name.batch_num or 0, self._name.input_pic_num or 0
        if self._done.online_batch_num:
            return self._done.online_batch_num
        if not 0 < batch <= MOST_RECORDS or pictures > MOST_RECORDS:
            return ()
        full, rest = divmod(pictures, batch)
        return (batch,) * full + ((rest,) if rest else ())

    def _cpu_us(self) -> int:
        done, cpu_log = self._done, self._job.cpu_log(self._path)
        if cpu_log is None:
            return 0
        records = view_records(self._job.read(cpu_log, LARGEST_CPU_BYTES) or b"", AICPU_DTYPE)
        spans = set(zip(records["segment_start_us"].tolist(), records["segment_end_us"].tolist(), strict=True))
        return sum(end - start for start, end in spans if done.start_us <= start <= end <= done.end_us)


# Logs whose ticks are looked at, evenly spread, and the largest one: a JOB may have millions, of a few kB each.
LOGS = 200
LARGEST_LOG_BYTES = 64 << 20
# As the daemon looks for it: beside the JOB, and one level above.
USUAL_NAMES = ("acl.json", "src/acl.json")


def job_sections(directory: Path) -> list[Section]:
    """What is found in a JOB, and in each acl.json that lies in a usual place. Raises UsageError for no JOB."""
    listing = list_job(directory)
    files = dict(_sizes(directory, listing.files))
    mark = " [simulated]" if listing.is_simulated else ""
    frequency_mhz, error = _frequency(directory, files)
    logs = _layer_logs(files)
    measured = list(_measured(directory, _spread(logs), files, frequency_mhz)) if frequency_mhz else []
    findings = (*job_data(files), job_clock(frequency_mhz, error), job_ticks(measured, len(logs)))
    return [Section(f"{display_text(str(directory))}{mark}", findings), *map(acl_json_file, _usual_acl_json(directory))]


def acl_json_file(path: Path) -> Section:
    """What is found in an acl.json of this machine. Raises UsageError."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}", hint="name an acl.json that is on this host"
        ) from error
    return acl_json_section(display_text(str(path)), data)


def _sizes(directory: Path, paths: Sequence[str]) -> Iterator[tuple[str, int]]:
    for path in paths:
        with suppress(OSError):  # it may just have gone: the JOB may be at work
            yield path, (directory / path).stat().st_size


def _frequency(directory: Path, files: Mapping[str, int]) -> tuple[int | None, str]:
    if DEVICE_INFO not in files:
        return None, ""
    try:
        return parse_info_json((directory / DEVICE_INFO).read_bytes(), DEVICE_INFO).frequency_mhz, ""
    except (FormatError, OSError) as error:
        return None, str(error)


def _layer_logs(files: Mapping[str, int]) -> list[str]:
    """Logs of layers that have a `.done`."""
    names = ((path, parse_log_name(path)) for path in files if f"{path}{DONE_SUFFIX}" in files)
    return sorted(path for path, name in names if name is not None and name.kind is LogKind.AICORE)


def _spread(logs: Sequence[str]) -> list[str]:
    step = max(1, -(-len(logs) // LOGS))
    return list(logs[::step])


def _measured(directory: Path, logs: Sequence[str], files: Mapping[str, int], frequency_mhz: int) -> Iterator[Measured]:
    with_cpu = {name.inference for path in files if (name := parse_log_name(path)) and name.kind is LogKind.AICPU}
    for path in logs:
        name = parse_log_name(path)
        if name is None or files[path] > LARGEST_LOG_BYTES:
            continue
        try:
            done = parse_done((directory / f"{path}{DONE_SUFFIX}").read_bytes(), name.kind, path)
            data = (directory / path).read_bytes()
        except (FormatError, OSError):
            continue  # the ledger of an import names it
        found = measure(path, data, done, frequency_mhz, has_cpu_part=name.inference in with_cpu)
        if found is not None:
            yield found


def _usual_acl_json(job: Path) -> Iterator[Path]:
    holder = job.resolve().parent
    for directory in (holder, holder.parent):
        for name in USUAL_NAMES:
            if (directory / name).is_file():
                yield directory / name
