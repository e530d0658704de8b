"""`stats` over the JOBs of a session."""

from __future__ import annotations

import pytest

from profagent.errors import UsageError
from profagent.stats.stats import stats
from tests.unit.store.database import START_US, DatabaseBuilder


def _job(builder: DatabaseBuilder, session: int, name: str, inferences: int, **values: int | None) -> int:
    """Inferences of two layers, 1 and 2 µs, the first ten times as long; the second layer has one on the CPU."""
    job = builder.job(session, name=name, **values)
    model = builder.model(job, layers=("conv0", "pool0"))
    for pic in range(inferences):
        inference = builder.inference(session, model, pic, start_us=START_US + 100 * pic)
        slow = 10 if pic == 0 else 1
        builder.aicore(inference, builder.new_part(session, model, "aicore"), [7 * slow, 14 * slow])
        builder.aicpu(inference, builder.new_part(session, model, "aicpu"), [(30, 34)], [1])
    return job


async def test_jobs_of_a_session_are_answered_together_and_their_warm_ups_left_out(builder: DatabaseBuilder) -> None:
    session = builder.session()
    for name in ("JOBA", "JOBB"):
        _job(builder, session, name, 20)
    found = await stats(builder.close())
    assert [row.key[1] for row in found.rows] == ["pool0", "conv0"]
    assert [row.figures.number for row in found.rows] == [38, 38]
    assert [row.figures.median for row in found.rows] == pytest.approx([2.0, 1.0])
    assert [row.share for row in found.rows] == pytest.approx([200 / 3, 100 / 3])
    assert [tuple(each) for each in found.left_out] == [("yolo", 40, 2)]
    assert [each["job"] for each in found.provenance] == ["JOBA", "JOBB"]
    assert found.unit == "us"


async def test_without_a_frequency_durations_are_ticks(builder: DatabaseBuilder) -> None:
    session = builder.session()
    _job(builder, session, "JOBA", 2)
    _job(builder, session, "JOBB", 2, frequency_mhz=None)
    file = builder.close()
    found = await stats(file, by="type", skip=1)
    assert (found.unit, [row.figures.median for row in found.rows]) == ("ticks", [14.0, 7.0])
    assert (await stats(file, by="model", skip=1)).rows[0].figures.median == 21.0
    cpu = await stats(file, by="aicpu")
    assert (cpu.unit, cpu.rows[0].figures.median) == ("us", 4.0)


async def test_a_session_or_job_that_there_is_not_is_refused(builder: DatabaseBuilder) -> None:
    builder.job(builder.session())
    file = builder.close()
    assert (await stats(file)).rows == []
    with pytest.raises(UsageError):
        await stats(file, session=9)
    with pytest.raises(UsageError):
        await stats(file, job="JOBZ")
