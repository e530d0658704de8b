"""The comparison with the shared sample JOBs is collected where they stand beside the clone, and only there."""

from __future__ import annotations

from pathlib import Path

SHARED_JOBS = Path(__file__).resolve().parents[4] / "shared" / "reference" / "jobs"

collect_ignore = [] if SHARED_JOBS.is_dir() else ["test_shared_samples.py"]
