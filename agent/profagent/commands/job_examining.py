"""What doctor looks at in a JOB directory of this machine, and in acl.json files."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from profagent.doctor.acl_json import LARGEST_BYTES, acl_json_section
from profagent.doctor.finding import Section
from profagent.doctor.job import Measured, job_clock, job_data, job_ticks, measure
from profagent.errors import FormatError, UsageError
from profagent.formats.done import parse_done
from profagent.formats.info_json import parse_info_json
from profagent.formats.names import LogKind, display_text, parse_log_name
from profagent.ingest.decode import DEVICE_INFO
from profagent.ingest.local import list_job
from profagent.ingest.states import DONE_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

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
