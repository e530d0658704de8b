"""Which records a segment leaves, and the sequence number of each (format page 3.1). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagentd.simulate.network import run_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from profagentd.simulate.facts import Facts


def numbered_order(
    is_batch: Sequence[bool], sizes: Sequence[int], loops: int, facts: Facts
) -> list[tuple[int, int, int]]:
    """The runs of a segment as they are executed: (index, pictures it works on, sequence number)."""
    one_pass = [(*record, number) for record, number in _one_pass(is_batch, sizes, facts["batch-number"])]
    further = len(one_pass) if facts["loop-number"] == "on" else 0
    return [(index, pictures, number + each * further) for each in range(loops) for index, pictures, number in one_pass]


def _one_pass(is_batch: Sequence[bool], sizes: Sequence[int], way: str) -> list[tuple[tuple[int, int], int]]:
    if way == "once":
        order = [(index, size) for size in sizes for index in range(len(is_batch))]
        return [(record, number) for number, record in enumerate(order)]
    batches = [run_order(is_batch, [size]) for size in sizes]
    if way == "on":
        return [(record, number) for number, record in enumerate(record for batch in batches for record in batch)]
    if way == "each-batch":
        return [(record, number) for batch in batches for number, record in enumerate(batch)]
    return [(record, record[0]) for batch in batches for record in batch]
