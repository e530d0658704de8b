"""Checks of a lake: the required behaviour of its file system or store, tested below its address, and its tables."""

from __future__ import annotations

import shutil
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.fs import DeltaStorageHandler

from profagent.cli.lakes import PACKAGES
from profagent.doctor.finding import Section, bad, good, unknown
from profagent.doctor.host import LEAST_FREE_BYTES
from profagent.errors import LakeError
from profagent.lake.lake import Lake, reason_of
from profagent.lake.push import TABLES
from profagent.limits import LAKE_FILES_PER_DAY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from profagent.doctor.finding import Finding

WRITERS = 4
BYTES_PER_GB = 1e9


def lake_section(address: str) -> Section:
    """Return the findings about a lake; files that the checks write are removed."""
    lake = Lake(address)
    findings = [good("packages", ", ".join(f"{name} {version(name)}" for name in PACKAGES))]
    if "://" not in address and not Path(address).is_dir():
        findings.append(bad("address", f"there is no folder {lake.address}"))
    else:
        findings += [*_space(lake), *_commits(lake), *_tables(lake)]
    return Section(f"lake {lake.address}", tuple(findings))


def _space(lake: Lake) -> Iterator[Finding]:
    if "://" in lake.address:
        return
    free = shutil.disk_usage(lake.address).free
    seen = f"{free / BYTES_PER_GB:.1f} GB are free in {lake.address}"
    is_enough = free >= LEAST_FREE_BYTES
    yield good("lake-space", seen) if is_enough else bad("lake-space", seen)


def _commits(lake: Lake) -> Iterator[Finding]:
    scratch = f"doctor-{uuid.uuid4()}"
    uri, rows = lake.uri(scratch), pa.table({"writer": pa.array([0], pa.int64())})
    try:
        DeltaTable.create(uri, rows.schema)
        handles = [DeltaTable(uri) for _ in range(WRITERS)]
        with ThreadPoolExecutor(WRITERS) as pool:
            won = sum(pool.map(lambda handle: _committed(handle, rows), handles))
        table = DeltaTable(uri)
        there = len(table.file_uris())
        seen = f"of {WRITERS} commits of one version {won} came; {there} are there"
        is_good = (won, table.version(), there) == (1, 1, 1)
        yield good("commit", seen) if is_good else bad("commit", seen)
    except (DeltaError, OSError) as error:
        yield bad("commit", f"cannot write: {reason_of(error)}", "check address, permissions and credentials")
    finally:
        with suppress(DeltaError, OSError):
            if "://" in lake.address:
                DeltaStorageHandler(lake.address).delete_dir(scratch)
            else:
                shutil.rmtree(uri)
    if "://" not in lake.address:
        yield _hard_links(Path(uri))


def _committed(table: DeltaTable, rows: pa.Table) -> bool:
    try:
        write_deltalake(table, rows, mode="append", commit_properties=CommitProperties(max_commit_retries=0))
    except CommitFailedError:
        return False
    return True


def _hard_links(scratch: Path) -> Finding:
    """Check that hard links can be made, and once only.

    A commit is a hard link; without links it is a copy, by which two hosts may overwrite each other's commits.
    """
    other = scratch.with_suffix(".link")
    try:
        scratch.touch()
        other.hardlink_to(scratch)
        with suppress(FileExistsError):
            other.hardlink_to(scratch)
            return bad("hard-links", "a link took the place of another", "take another file system")
        return good("hard-links", "they can be made, each once")
    except OSError as error:
        return bad("hard-links", f"cannot be made: {error.strerror}")
    finally:
        for each in (scratch, other):
            each.unlink(missing_ok=True)


def _tables(lake: Lake) -> Iterator[Finding]:
    found, crowded = 0, []
    for name in TABLES:
        try:
            table = lake.opened(name)
        except LakeError as error:
            # If one table is out of reach, so are the others: one finding is enough.
            yield bad("table", str(error), error.hint)
            return
        if table is not None:
            found += 1
            files = table.file_uris()
            if len(files) > LAKE_FILES_PER_DAY * len({file.rpartition("/")[0] for file in files}):
                crowded.append(f"{name} {len(files)}")
    if found:
        yield good("tables", f"{found} of {len(TABLES)} can be read")
    else:
        yield unknown("tables", "there are none yet")
    if crowded:
        remedy = f"profagent fleet compact --lake {lake.address}"
        yield unknown("files", f"many small ones: {', '.join(crowded)}", remedy)
