"""Which samples of a model have come, and what was due between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.formats.sampling import NOT_LISTED
from profagent.ingest.changes import LogAdvanced, NamesAnnounced
from profagent.ingest.live_samples import LiveSamples
from tests.unit.store.rows import JOB, aicore

if TYPE_CHECKING:
    import pytest

MODEL = ("m", 0)


def path(count: int, end: str = "") -> str:
    return f"data/aicore.0.m.3.0.1.1.{count}{end}"


def seen(*counts: int, interval: int | None = 10, listed: bool = True) -> LiveSamples:
    samples = LiveSamples()
    samples.set_interval(JOB, interval)
    if listed:
        samples.list(JOB)
    for count in counts:
        samples.take(JOB, LogAdvanced(path(count), 1, 0))
        samples.take(JOB, LogAdvanced(path(count, ".done"), 1, 0))
    return samples


def test_figures_grow_with_the_files_that_come_in_any_order() -> None:
    samples = seen(0, 20, 43, 10)
    assert samples.of_model(JOB, MODEL) == {"sampled": 4, "due": 5}
    assert samples.in_all() == {
        "sampled": 4,
        "due": 5,
        "late": 1,
        "never_came": 1,
        "interval": 10,
        "interval_from": "acl.json",
        "why": None,
    }


def test_what_is_known_outlives_a_lost_link_until_files_come_in_any_order_again() -> None:
    samples = seen(0, 10, 30)
    samples.unlist()
    assert samples.of_model(JOB, MODEL) == {"sampled": 3, "due": 4}
    samples.take(JOB, LogAdvanced(path(50), 1, 0))
    assert samples.of_model(JOB, MODEL) == {"sampled": 4, "due": None}
    assert samples.in_all()["why"] == NOT_LISTED
    samples.list("another JOB")
    assert samples.in_all()["due"] is None
    samples.list(JOB)
    assert samples.of_model(JOB, MODEL) == {"sampled": 4, "due": 6}


def test_a_sample_that_is_announced_has_come_whichever_file_is_sent_first() -> None:
    samples = seen(0, 10)
    samples.take(JOB, NamesAnnounced([path(20)]))
    samples.take(JOB, LogAdvanced(path(30), 1, 0))
    assert samples.of_model(JOB, MODEL) == {"sampled": 4, "due": 4}


def test_what_was_passed_over_on_purpose_did_come() -> None:
    samples = seen()
    samples.pass_over(JOB, ("m", 0), [10, 20, 40])
    for count, figures in ((0, (1, 1)), (30, (4, 4)), (60, (6, 7))):
        samples.take(JOB, LogAdvanced(path(count), 1, 0))
        assert tuple(samples.of_model(JOB, MODEL).values()) == figures


def test_of_a_model_that_was_loaded_again_it_is_not_known_what_was_due() -> None:
    samples = seen(0, 10, 20)
    samples.take(JOB, aicore(path(0), range(1, 3), loads=range(2)))
    assert samples.of_model(JOB, MODEL) == {"sampled": 3, "due": None}
    assert samples.in_all()["due"] is None


def test_only_the_newest_samples_are_remembered_and_older_ones_are_not_counted_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("profagent.ingest.live_samples.REMEMBERED_SAMPLES", 100)
    samples = seen(*range(0, 1500, 10), 0, 10)
    assert samples.in_all()["sampled"] == samples.in_all()["due"] == 150


def test_figures_of_models_that_are_compared_no_longer_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profagent.ingest.live_samples.COMPARED_MODELS", 2)
    samples = seen()
    for model in "abcd":
        for count in (0, 20):
            samples.take(JOB, LogAdvanced(f"data/aicore.0.{model}.3.0.1.1.{count}", 1, 0))
    assert (samples.in_all()["sampled"], samples.in_all()["due"]) == (8, 12)
