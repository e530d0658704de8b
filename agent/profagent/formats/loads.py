"""Which load of a model each of its samples belongs to, where it was loaded again under its name in one JOB. Pure.

Each load counts its pictures from 0, and its first inference is always sampled (format page 2.3); what two loads have
sampled at one picture count stands in one file, one after the other. So the file of picture 0 has a part for each load,
and when that part began tells which load an inference of another file belongs to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["counts_of_loads"]


def counts_of_loads(times: Mapping[int, Sequence[int | None]]) -> list[list[int]] | None:
    """The picture counts of each load's samples, rising; None where that cannot be told.

    `times`: by picture count, when each inference in the file of that name began, in order, in microseconds of the
    board's clock; None is not known.
    """
    begins = times.get(0)
    if begins is None:
        return None
    loads: list[list[int]] = [[] for _ in begins]
    newest: list[int] = [0 for _ in begins]
    for count in sorted(times):
        numbers = _numbers(times[count], begins)
        if numbers is None:
            return None
        for number, time in zip(numbers, times[count], strict=True):
            if time is not None and time < newest[number]:
                return None  # the board's clock was set
            newest[number] = time or newest[number]
            loads[number].append(count)
    return loads


def _numbers(times: Sequence[int | None], begins: Sequence[int | None]) -> list[int] | None:
    """The loads of one file's inferences, each later than the one before; None where they cannot be told."""
    if len(times) == len(begins):
        return list(range(len(begins)))
    numbers: list[int] = []
    for time in times:
        number = None if time is None else _number(time, begins)
        if number is None or (numbers and number <= numbers[-1]):
            return None
        numbers.append(number)
    return numbers


def _number(time: int, begins: Sequence[int | None]) -> int | None:
    """The last load that had begun; None where the next may have, too."""
    begun = (number for number, begin in enumerate(begins) if begin is not None and begin <= time)
    number = max(begun, default=0)
    is_sure = number + 1 == len(begins) or begins[number + 1] is not None
    return number if is_sure else None
