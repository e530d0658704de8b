"""Rules of a flight recorder and the distributions that they compare with."""

from __future__ import annotations

import numpy as np
import pytest

from profagent.errors import UsageError
from profagent.formats.durations import RESOLUTION, Distribution
from profagent.formats.incident_rules import IncidentRule, KeepWhen, RuleState


def distribution(*values: float) -> Distribution:
    found = Distribution()
    found.add(np.array(values))
    return found


@pytest.mark.parametrize(
    ("text", "subject", "name", "bound"),
    [
        ("latency > 20ms", "latency", "", 20_000.0),
        ("latency[yolo] > 2 * 350us", "latency", "yolo", 700.0),
        ("layer[conv1] < 0.5s", "layer", "conv1", 500_000.0),
        ("metric[npu.temperature] > 95", "metric", "npu.temperature", 95.0),
    ],
)
def test_a_rule_has_a_subject_a_name_and_a_bound(text: str, subject: str, name: str, bound: float) -> None:
    rule = IncidentRule.parse(text)
    assert (rule.subject, rule.name, rule.bound(None), rule.text) == (subject, name, bound, text)
    assert rule.is_met(bound * 0.9, bound) is rule.is_below


def test_a_quantile_needs_a_past() -> None:
    rule = IncidentRule.parse("latency > 1.5 * p99")
    assert rule.bound(None) is None
    assert rule.bound(distribution(*range(1, 200))) is None
    assert rule.bound(distribution(*range(1, 1001))) == pytest.approx(1.5 * 990, rel=RESOLUTION)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("latency > 20", "no unit"),
        ("layer > 3ms", "which layer"),
        ("metric[x] > p99", "compared with a number"),
        ("loss[x]", "no name"),
        ("latency 1.5 * p99", "not a rule"),
        ("warmth > 3", "not a rule"),
    ],
)
def test_a_text_without_a_clear_meaning_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        IncidentRule.parse(text)


def test_a_rule_fires_again_when_its_value_has_left_the_bound_and_the_cool_down_is_over() -> None:
    rule, state = IncidentRule.parse("latency > 10us"), RuleState()
    fired = [
        time
        for time, value in enumerate([9, 11, 12, 9.9, 12, 9, 12, 9, 12, 9, 12])
        if state.fires(rule, value, 10, time, 7)
    ]
    # 9.9 is within the hysteresis; the values at 6 and 10 come within the cool-down of 7.
    assert (fired, state.passed_over) == ([1, 8], 2)


def test_a_choice_is_shown_with_its_rules_window_and_budget() -> None:
    rules = (IncidentRule.parse("loss"), IncidentRule.parse("latency > p99"))
    assert str(KeepWhen(rules, 500_000, 200 * 2**20, 0)) == "when loss or latency > p99, 0.5 s around, 200 MiB a day"


def test_a_distribution_keeps_sums_exactly_and_quantiles_within_its_resolution() -> None:
    values = np.exp(np.random.default_rng(3).normal(6, 1.5, 5_000))
    whole, parts = Distribution(), [Distribution(), Distribution()]
    for part, some in zip(parts, np.array_split(values, 2), strict=True):
        part.add(np.append(some, np.nan))
        packed = Distribution.unpacked((part.number, part.total, part.squares, part.least, part.most), part.packed())
        whole.merge(packed)
    assert (whole.number, whole.least, whole.most) == (5_000, values.min(), values.max())
    assert (whole.total, whole.squares) == pytest.approx((values.sum(), (values**2).sum()))
    for share in (0.0, 0.01, 0.5, 0.95, 0.999, 1.0):
        assert whole.quantile(share) == pytest.approx(np.quantile(values, share, method="lower"), rel=RESOLUTION * 1.01)
    assert np.isnan(Distribution().quantile(0.5))
