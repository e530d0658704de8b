"""Whether a figure of an inference is known: what it is made of, and how much of that is here. Pure.

This is the one place that decides. Live lines, rows, statistics and exports ask it, so that they agree:

    final    all that the figure is made of is here: it is shown, and enters statistics
    pending  something of it has not come yet: the figure is N/A for now
    partial  something of it will never come (a loss, a capture that ended): the figure stays N/A

The runtime makes the data logs of both units before it writes a `.done` of the inference (format page 1), and boards
announce them in that order (board.proto). So where a `.done` has come and a unit has no log, it recorded nothing,
unless other inferences of the model have a log of it: a model runs on the same units each time.

A final figure is taken back in two cases, which the page about figures names:

    a unit's first log of a model is announced after an inference without one was final: its own log was lost. Nothing
    tells so earlier. A model's tables do not say on which unit a segment runs, and a program may record one unit alone;
    to wait for a log that need not exist would keep every figure of such a model pending until the JOB ends.

    a log with a final inference goes on, because its model was loaded again: its inferences are pending until the
    `.done` of the new load has come, which shows where that load begins.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from profagent.limits import REMEMBERED_PARTS

if TYPE_CHECKING:
    from collections.abc import Mapping

# Why nothing more is to come.
JOB_ENDED = "the JOB has ended, and no .done vouches for them"
CAPTURE_ENDED = "the capture ended before they had all come"


class FigureState(StrEnum):
    """What is known of a figure."""

    FINAL = "final"
    PENDING = "pending"
    PARTIAL = "partial"


class FigurePart(StrEnum):
    """What figures are made of: the records of the two units, the NPU's clock, the model's table of layers."""

    AICORE = "aicore"
    AICPU = "aicpu"
    CLOCK = "clock"
    LAYERS = "layers"


class Share(Enum):
    """How much of a part is here. Of one that is `NONE`, as of one that is `WHOLE`, nothing is missing."""

    NONE = 0
    WHOLE = 1
    COMING = 2
    MISSING = 3


class Has(NamedTuple):
    """How much of a part is here, and why not all of it."""

    share: Share
    why: str = ""


class Figure(StrEnum):
    """Figures of an inference: its records in ticks, their time, the time of its layers by name."""

    RECORDS = "records"
    TIME = "time"
    LAYERS = "layers"


# What must be there for which figure.
FIGURES: Mapping[Figure, tuple[FigurePart, ...]] = {
    Figure.RECORDS: (FigurePart.AICORE, FigurePart.AICPU),
    Figure.TIME: (FigurePart.AICORE, FigurePart.AICPU, FigurePart.CLOCK),
    Figure.LAYERS: (FigurePart.AICORE, FigurePart.AICPU, FigurePart.CLOCK, FigurePart.LAYERS),
}


class Verdict(NamedTuple):
    """The state of a figure, and why it is not final."""

    state: FigureState
    why: str | None = None


class UnitLog(NamedTuple):
    """What is known of an inference's log of one unit: how many inferences of it are whole.

    `is_complete`: the board vouches for all of it. `fault` is what is wrong with its end, `is_gone`: it is no longer on
    the board.
    """

    whole: int = 0
    is_complete: bool = False
    fault: str = ""
    is_gone: bool = False


@lru_cache(REMEMBERED_PARTS)  # most logs are as others are
def log_part(part: FigurePart, log: UnitLog | None, number: int, ended: str = "", *, is_used: bool = False) -> Has:
    """The records of the inference with this number in its log of one unit; None: the unit has no log.

    `ended` says why nothing more comes; it is empty while something may. `is_used`: other inferences of the model have
    records of this unit.
    """
    if log is None:
        if not is_used:
            return Has(Share.NONE)
        log, ended = UnitLog(), ended and "their log is missing, and other inferences of the model have one"
    if number < log.whole:
        return Has(Share.WHOLE)
    why = ended
    if log.is_gone:
        why = "their log was removed from the board before they had all come"
    elif log.fault and (log.is_complete or ended):
        why = log.fault
    return (
        Has(Share.MISSING, f"{part} records: {why}")
        if why
        else Has(Share.COMING, f"{part} records have not all come yet")
    )


@lru_cache(REMEMBERED_PARTS)
def clock_part(frequency_mhz: int | None, *, has_come: bool, ended: str = "") -> Has:
    """The NPU's clock; `has_come`: the file that should tell it is here."""
    if frequency_mhz is not None:
        return Has(Share.WHOLE)
    if has_come:
        return Has(Share.MISSING, "info.json does not tell the NPU's clock")
    if ended:
        return Has(Share.MISSING, "there is no info.json, which tells the NPU's clock")
    return Has(Share.COMING, "info.json, which tells the NPU's clock, has not come yet")


def state_of(figure: Figure, parts: Mapping[FigurePart, Has]) -> Verdict:
    """Whether a figure is known by its parts; a part that `parts` does not name is none."""
    # What ran on the CPU alone is timed by the CPU's clock.
    is_timed_by_cpu = parts.get(FigurePart.AICORE, Has(Share.NONE)).share is Share.NONE
    without = {FigurePart.CLOCK} if is_timed_by_cpu else {}
    needed = [parts[part] for part in FIGURES[figure] if part in parts and part not in without]
    for share, state in ((Share.MISSING, FigureState.PARTIAL), (Share.COMING, FigureState.PENDING)):
        why = [has.why for has in needed if has.share is share]
        if why:
            return Verdict(state, "; ".join(why))
    return Verdict(FigureState.FINAL)
