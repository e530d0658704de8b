"""Wrong arguments of the API: each is refused as a usage error, before anything is done."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import profagent

if TYPE_CHECKING:
    from collections.abc import Callable

# Callers without a type checker.
API: Any = profagent


def _recorded(**options: Any) -> Callable[[profagent.Session], Any]:
    return lambda _: API.record("euler", **options)


WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "another grouping": (lambda session: session.stats(by="colour"), "by cannot be 'colour'"),
    "a negative skip": (lambda session: session.stats(skip=-1), "-1 inferences cannot be left out"),
    "a negative skip of a comparison": (lambda session: API.diff(session, session, skip=-1), "-1 inferences"),
    "another unit": (lambda session: session.records("gpu"), "unit cannot be 'gpu'"),
    "a text of columns": (lambda session: session.records(columns="ticks"), "columns cannot be 'ticks'"),
    "no query": (lambda session: session.sql(3), "query cannot be 3"),
    "a number, compared": (lambda session: API.diff(session, 2), "new cannot be 2"),
    "a number, as the base of a report": (lambda session: session.report("r.html", against=1), "against cannot be 1"),
    "a text of codes": (lambda session: API.diff(session, session, allow="model"), "allow cannot be 'model'"),
    "another code": (lambda session: API.diff(session, session, allow=["colour"]), "'colour' is not the code"),
    "a text of conditions": (lambda session: API.diff(session, session, fail_if="x"), "fail_if cannot be 'x'"),
    "half a floor": (lambda session: API.diff(session, session, floor=(1,)), "floor cannot be"),
    "no rules there": (lambda session: session.advise(rules=["/nope"]), "/nope"),
    "a text of rules": (lambda session: session.advise(rules="/nope"), "rules cannot be '/nope'"),
    "another language": (lambda session: session.advise(language="de"), "language cannot be 'de'"),
    "no series": (lambda _: API.level_changes(["a"]), "finite numbers"),
    "no path": (lambda _: API.open(3), "path cannot be 3"),
    "every 0th": (_recorded(every=0), "every 0"),
    "a duration in words": (_recorded(for_s="3s"), "for_s cannot be '3s'"),
    "a negative duration": (_recorded(for_s=-1), "for_s is -1"),
    "no duration": (_recorded(for_s=float("nan")), "for_s is nan"),
    "no inferences": (_recorded(inferences=0), "inferences is 0"),
    "a label without a key": (_recorded(labels={"": "1"}), "is not a label"),
    "a key with a sign": (_recorded(labels={"a=b": "1"}), "is not a label"),
    "a number as a label": (_recorded(labels={"build": 1}), "labels cannot be"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument_is_a_usage_error_with_a_hint(case: str, lab: Path) -> None:
    asks, said = WRONG[case]
    with pytest.raises(profagent.UsageError, match=said) as found:
        asks(profagent.open(lab).session(1))
    assert found.value.hint


def test_numbers_of_numpy_and_paths_as_texts_are_taken(lab: Path) -> None:
    session = API.open(str(lab)).session(np.int64(2))
    assert session.stats("model", skip=np.int64(3)).table["count"] == [17]
    assert session.advise(rules=(str(lab), Path(lab))).document["session"] == 2
