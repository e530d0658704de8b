"""Kits of JOBs that the runtime library itself wrote: odd names, torn files, and the same answers without names."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from profagent.calibrate.kit_making import gather
from profagent.doctor.job_examining import job_facts
from profagent.errors import UsageError
from profagent.formats.names import parse_log_name
from tests.integration.board import SAMPLES

if TYPE_CHECKING:
    from profagent.doctor.finding import Mark, Section


def said(facts: Section) -> dict[str, tuple[Mark, str]]:
    """The answers without the numbers that they stand on."""
    return {each.check: (each.mark, each.evidence.rpartition(": ")[0]) for each in facts.findings}


def models(paths: Iterable[str]) -> set[str]:
    return {log.model for path in paths if (log := parse_log_name(path.removeprefix("job/"))) and log.model}


@pytest.mark.parametrize("is_anonymous", [False, True], ids=["named", "anonymous"])
@pytest.mark.parametrize("name", SAMPLES)
def test_a_kit_says_what_its_job_says_with_names_and_without(name: str, is_anonymous: bool, tmp_path: Path) -> None:
    job = SAMPLES[name]
    kit = gather(job, (), sdk="", is_anonymous=is_anonymous)
    with tarfile.open(fileobj=io.BytesIO(kit.archive())) as archive:
        archive.extractall(tmp_path, filter="data")
    assert said(job_facts(tmp_path / "evidence/job")) == said(job_facts(job))
    if is_anonymous:
        assert not models(str(path.relative_to(job)) for path in job.rglob("*")) & models(kit.files)


def test_a_table_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    job = SAMPLES["runtime-api"]
    with pytest.raises(UsageError, match="cannot read"):
        gather(job, [tmp_path / "none.csv"], sdk="", is_anonymous=False)
    large = tmp_path / "op_summary.csv"
    large.write_bytes(b"," * (3 << 20))
    with pytest.raises(UsageError, match="too large"):
        gather(job, [large], sdk="", is_anonymous=False)
    with pytest.raises(UsageError, match="too many"):
        gather(job, [large] * 65, sdk="", is_anonymous=False)
