"""`--fail-if`: what is read, what is refused where, and what holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profagent.diff.comparing import Change, Scope
from profagent.diff.diff import Condition, parse_condition
from profagent.errors import UsageError
from profagent.stats.figures import Figures


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("total.median>+3%", ("total", None, "median", ">", 3.0, "%")),
        ("layer.p95 >= +20.5 us", ("layer", None, "p95", ">=", 20.5, "us")),
        ("layer[a.b+c d].max<-1ms", ("layer", "a.b+c d", "max", "<", -1.0, "ms")),
        (" api [svp_acl_mdl_execute] . mean <= - 0.5 % ", ("api", "svp_acl_mdl_execute", "mean", "<=", -0.5, "%")),
        ("type[Conv].mad>+0%", ("type", "Conv", "mad", ">", 0.0, "%")),
        ("model.mean>-3%", ("model", None, "mean", ">", -3.0, "%")),
    ],
)
def test_conditions_are_read(text: str, condition: tuple[object, ...]) -> None:
    assert parse_condition(text) == Condition._make((text, *condition))


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "layers.median>+5%",
            "layer",
            "layer.middle>+5%",
            "layer.median+5%",
            "layer.median>5%",
            "layer.median>+%",
        ),
        *("layer.median>+5", "layer.median>+5s", "layer.median>+5% or", "layer[].median>+5%", "layer[x.median>+5%"),
        "total[x].median>+5%",
    ],
)
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no such condition"):
        parse_condition(text)


def _change(base: float, new: float, scope: Scope = "layer", name: str = "a", *, is_significant: bool = True) -> Change:
    one, other = (Figures(9, value, value, value, value, value, value) for value in (base, new))
    return Change(scope, name, one, other, 0.01, is_significant)


@pytest.mark.parametrize(
    ("text", "base", "new", "holds"),
    [
        ("layer.median>+5%", 100, 106, True),
        ("layer.median>+5%", 100, 105, False),
        ("layer.median>=+5%", 100, 105, True),
        ("layer.median<-5%", 100, 90, True),
        ("layer.median<-5%", 100, 110, False),
        ("layer.max>+5us", 100, 106, True),
        ("layer.max>+1ms", 100, 106, False),
        ("layer.max>+1ms", 100, 1200, True),
        ("layer[a].p95>+5%", 100, 106, True),
        ("layer[b].p95>+5%", 100, 106, False),
        ("type.p95>+5%", 100, 106, False),
        ("layer.median>+5%", 0, 106, False),
    ],
)
def test_what_holds(text: str, base: float, new: float, holds: bool) -> None:
    assert bool(parse_condition(text).failing([_change(base, new)])) is holds


def test_what_is_within_the_noise_never_does() -> None:
    assert parse_condition("layer.median>+5%").failing([_change(100, 200, is_significant=False)]) == []


@pytest.mark.parametrize(
    ("text", "base", "new", "p", "is_significant", "is_baseless"),
    [
        ("layer.mad>+3%", 0, 2, 0.01, True, True),
        ("layer.mad>+3%", 0, 2, None, False, True),
        ("layer.mad>+3%", 0, 2, 0.5, False, False),
        ("layer.mad>+3%", 0, 0, 0.01, True, False),
        ("layer.mad>+3%", 1, 2, 0.01, True, False),
        ("layer.mad>+3us", 0, 2, 0.01, True, False),
    ],
)
def test_nobody_can_tell_a_share_of_nothing(
    text: str, base: float, new: float, p: float | None, is_significant: bool, is_baseless: bool
) -> None:
    change = replace(_change(base, new, is_significant=is_significant), p=p)
    assert bool(parse_condition(text).baseless([change])) is is_baseless
