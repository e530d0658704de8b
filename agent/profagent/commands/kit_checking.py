"""`kit check`: a kit read back without trust, and what it settles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from profagent.commands.calibrating import calibrate
from profagent.commands.job_facts import job_facts
from profagent.commands.named_file import read_named_file
from profagent.errors import FormatError, ProfagentError
from profagent.evidence.archive import JOB, LARGEST_ARCHIVE_BYTES, MANIFEST, VENDOR, unpacked
from profagent.evidence.manifest import faults, parse_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from profagent.commands.calibrating import Calibration
    from profagent.doctor.finding import Section
    from profagent.evidence.manifest import Manifest

__all__ = ["Checked", "check_kit"]

_HINT = "name a .tar.gz that `profagent kit` made"


@dataclass(frozen=True, slots=True)
class Checked:
    """A kit that is what its manifest says; `why` there is no `calibration` is empty when there is one."""

    manifest: Manifest
    facts: Section
    calibration: Calibration | None
    why: str


def check_kit(file: Path) -> Checked:
    """Read a kit, and run the checks of facts, and the calibration where a vendor's table is in it.

    Raises UsageError for a file that is refused, FormatError for one that is no kit, and ProfagentError for one whose
    files are not those of its manifest.
    """
    files = unpacked(read_named_file(file, LARGEST_ARCHIVE_BYTES, "a kit", hint=_HINT), str(file))
    manifest = parse_manifest(files.get(MANIFEST, b""))
    wrong = list(faults(manifest, files))
    if wrong:
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise ProfagentError(f"{file} was changed: {wrong[0]}{more}", hint="ask for it again; do not learn from it")
    if not any(name.startswith(f"{JOB}/") for name in files):
        raise FormatError(str(file), 0, "files of a JOB", "none", hint="ask for a kit of a JOB that is finished")
    with TemporaryDirectory(prefix="profagent-kit-") as folder:
        return _settled(Path(folder), manifest, files)


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Names are those of a kit: one file in one of its folders."""
    try:
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    except OSError as error:
        raise ProfagentError(f"cannot write to {folder}: {error.strerror}", hint="make room there") from error


def _settled(folder: Path, manifest: Manifest, files: Mapping[str, bytes]) -> Checked:
    _write(folder, files)
    job = folder / JOB
    facts = job_facts(job, manifest.job or JOB)
    tables = [folder / name for name in sorted(files) if name.startswith(f"{VENDOR}/")]
    if not tables:
        return Checked(manifest, facts, None, "no vendor table is in it")
    try:
        learnt = calibrate([job], tables)
    except ProfagentError as error:
        return Checked(manifest, facts, None, str(error).replace(f"{folder}/", ""))
    coverage = [replace(each, file=Path(each.file).name, job=manifest.job or JOB) for each in learnt.coverage]
    return Checked(manifest, facts, replace(learnt, coverage=coverage), "")
