"""All that a JOB shows of the open facts, and its answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagent.hypotheses.info_files import ITEM_FORM, NAME_NUL, NET_START, check_forms, check_names, check_starts
from profagent.hypotheses.numbering import BATCH_NUMBER, LOOP_NUMBER, check_batches, check_loops
from profagent.hypotheses.prefixes import FILE_PREFIX, check_prefixes
from profagent.hypotheses.ticks import TICK_UNIT, check_ticks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagent.hypotheses.fact import Answer
    from profagent.hypotheses.numbering import Numbered
    from profagent.hypotheses.ticks import Timed

__all__ = ["FACTS", "Shown", "answers"]

FACTS = (TICK_UNIT, BATCH_NUMBER, LOOP_NUMBER, NAME_NUL, NET_START, ITEM_FORM, FILE_PREFIX)


@dataclass(frozen=True, slots=True)
class Shown:
    """What is looked at in a JOB: paths, `.info` files whole, and inferences that have a `.done`."""

    paths: Sequence[str]
    layer_infos: Sequence[bytes]
    net_infos: Sequence[bytes]
    timed: Sequence[Timed]
    numbered: Sequence[Numbered]


def answers(shown: Shown) -> list[Answer]:
    """The answer to each fact, in the order of FACTS."""
    return [
        check_ticks(shown.timed),
        check_batches(shown.numbered),
        check_loops(shown.numbered),
        check_names(shown.layer_infos),
        check_starts(shown.net_infos),
        check_forms(shown.layer_infos),
        check_prefixes(shown.paths),
    ]
