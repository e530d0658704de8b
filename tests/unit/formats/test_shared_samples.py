"""The copied sample JOBs are the shared ones, byte for byte."""

from __future__ import annotations

from pathlib import Path

COPIED_JOBS = Path(__file__).resolve().parents[2] / "data" / "jobs"
SHARED_JOBS = Path(__file__).resolve().parents[4] / "shared" / "reference" / "jobs"
OWN_FILES = {"README.md", ".gitattributes"}


def files_of(root: Path) -> dict[str, bytes]:
    """Content of each file by its path, without the project's own."""
    files = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    return {path: content for path, content in files.items() if path not in OWN_FILES}


def test_the_copied_jobs_are_the_shared_ones() -> None:
    copied, shared = files_of(COPIED_JOBS), files_of(SHARED_JOBS)
    assert sorted(copied) == sorted(shared)
    assert [path for path in shared if copied[path] != shared[path]] == []
