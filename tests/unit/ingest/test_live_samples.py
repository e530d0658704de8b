"""What someone who watches hears of samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.ingest.changes import LogAdvanced
from profagent.ingest.live import LiveSamples
from tests.unit.store.rows import JOB, aicore, name_of

if TYPE_CHECKING:
    import pytest


def path(count: int, end: str = "") -> str:
    return f"data/aicore.0.m.3.0.1.1.{count}{end}"


def seen(*counts: int, interval: int | None = 10, listed: bool = True) -> LiveSamples:
    samples = LiveSamples()
    samples.tell(JOB, interval)
    if listed:
        samples.list(JOB)
    for count in counts:
        samples.take(JOB, LogAdvanced(path(count), 1, 0))
        samples.take(JOB, LogAdvanced(path(count, ".done"), 1, 0))
    return samples


def test_figures_grow_with_the_files_that_come_in_any_order() -> None:
    samples = seen(0, 20, 43, 10)
    assert samples.of_model(JOB, name_of(path(0))) == {"sampled": 4, "due": 5}
    assert samples.in_all() == {
        "sampled": 4,
        "due": 5,
        "late": 1,
        "never_came": 1,
        "interval": 10,
        "interval_from": "acl.json",
    }


def test_of_a_model_that_was_loaded_again_it_is_not_known_what_was_due() -> None:
    samples = seen(0, 10, 20)
    samples.take(JOB, aicore(path(0), range(1, 3), loads=range(2)))
    assert samples.of_model(JOB, name_of(path(0))) == {"sampled": 3, "due": None}
    assert samples.in_all()["due"] is None


def test_only_the_newest_samples_are_remembered_and_older_ones_are_not_counted_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("profagent.ingest.live.REMEMBERED_SAMPLES", 100)
    samples = seen(*range(0, 1500, 10), 0, 10)
    assert samples.in_all()["sampled"] == samples.in_all()["due"] == 150


def test_figures_of_models_that_are_compared_no_longer_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profagent.ingest.live.REMEMBERED_MODELS", 2)
    samples = seen()
    for model in "abcd":
        for count in (0, 20):
            samples.take(JOB, LogAdvanced(f"data/aicore.0.{model}.3.0.1.1.{count}", 1, 0))
    assert (samples.in_all()["sampled"], samples.in_all()["due"]) == (8, 12)
