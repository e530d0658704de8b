"""Pages of inferences."""

from __future__ import annotations

import pytest

from profagent.store.placed import RECORDS_PER_PAGE, PagePlan, SpanRow

SPAN = SpanRow(0, 1, 0, 1, "yolo", 0, None, 0, None, None)


@pytest.mark.parametrize(("share", "following"), [(0.7, 60), (1.0, 60), (1.4, 60), (2.0, 30), (0.5, 120), (0.0, 2000)])
def test_a_page_s_size_stays_while_it_is_about_right(share: float, following: int) -> None:
    assert PagePlan([SPAN] * 60, [], []).inferences_next(round(RECORDS_PER_PAGE * share)) == following
