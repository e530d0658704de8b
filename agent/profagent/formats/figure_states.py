"""State of an inference's figures: the parts of each figure, and how much of them is here. Pure.

This is the one place that decides. Live lines, rows, statistics and exports ask it, so that they agree:

    final    all parts of the figure are here: it is shown, and enters statistics
    pending  a part has not come yet: the figure is N/A for now
    partial  a part will never come (a loss, a capture that ended): the figure stays N/A

The runtime creates the data logs of both units before it writes a `.done` of the inference (the-format.md 1), and
boards announce them in that order (board.proto). So if a `.done` has come and a unit has no log, the unit recorded
nothing, unless other inferences of the model have a log of it: a model runs on the same units each time.

A final figure is taken back in two cases, which the page about figures names:

    a unit's first log of a model is announced after an inference without one was final: then that inference's own log
    was lost. Nothing shows it earlier. A model's tables do not say on which unit a segment runs, and a program may
    record one unit alone; waiting for a log that need not exist would keep every figure of such a model pending until
    the JOB ends.

    a log with a final inference grows, because its model was loaded again: its inferences are pending until the `.done`
    of the new load has come, which shows where that load begins.
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
    """Knowledge of a figure."""

    FINAL = "final"
    PENDING = "pending"
    PARTIAL = "partial"


class FigurePart(StrEnum):
    """Parts of figures: the records of the two units, the NPU's clock, the model's table of layers."""

    AICORE = "aicore"
    AICPU = "aicpu"
    CLOCK = "clock"
    LAYERS = "layers"


class Share(Enum):
    """Share of a part that is here. Nothing is missing of a part that is `NONE` or `WHOLE`."""

    NONE = 0
    WHOLE = 1
    COMING = 2
    MISSING = 3


class Has(NamedTuple):
    """Share of a part that is here, and the reason why it is not all."""

    share: Share
    why: str = ""


class Figure(StrEnum):
    """Figures of an inference: its records in ticks, their time, and the time of its layers by name."""

    RECORDS = "records"
    TIME = "time"
    LAYERS = "layers"


# Parts that each figure needs.
FIGURES: Mapping[Figure, tuple[FigurePart, ...]] = {
    Figure.RECORDS: (FigurePart.AICORE, FigurePart.AICPU),
    Figure.TIME: (FigurePart.AICORE, FigurePart.AICPU, FigurePart.CLOCK),
    Figure.LAYERS: (FigurePart.AICORE, FigurePart.AICPU, FigurePart.CLOCK, FigurePart.LAYERS),
}


class Verdict(NamedTuple):
    """State of a figure, and the reason why it is not final."""

    state: FigureState
    why: str | None = None


class UnitLog(NamedTuple):
    """Facts about an inference's log of one unit; `whole` is the number of complete inferences in it.

    `is_complete`: the board has confirmed all of the log. `fault` is what is wrong with its end. `is_gone`: the log is
    no longer on the board.
    """

    whole: int = 0
    is_complete: bool = False
    fault: str = ""
    is_gone: bool = False


# Cached, because most logs are in the same state as others.
@lru_cache(REMEMBERED_PARTS)
def log_part(part: FigurePart, log: UnitLog | None, number: int, ended: str = "", *, is_used: bool = False) -> Has:
    """Return how many records of an inference are here, by its number in the log of one unit; None means no log.

    `ended` is the reason why nothing more comes, empty while something may. `is_used`: other inferences of the model
    have records of this unit.
    """
    if log is None:
        if not is_used:
            return Has(Share.NONE)
        log, ended = UnitLog(), ended and "their log is missing, and other inferences of the model have one"
    # Before any reason: records that are all here stay known, whatever happened to the log afterwards.
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
    """Return the state of the NPU's clock; `has_come`: the file that should have it is here."""
    if frequency_mhz is not None:
        return Has(Share.WHOLE)
    if has_come:
        return Has(Share.MISSING, "info.json does not tell the NPU's clock")
    if ended:
        return Has(Share.MISSING, "there is no info.json, which tells the NPU's clock")
    return Has(Share.COMING, "info.json, which tells the NPU's clock, has not come yet")


def state_of(figure: Figure, parts: Mapping[FigurePart, Has]) -> Verdict:
    """Return the state of a figure by its parts; a part that `parts` lacks counts as `NONE`."""
    # An inference on the CPU alone is timed by the CPU's clock.
    is_timed_by_cpu = parts.get(FigurePart.AICORE, Has(Share.NONE)).share is Share.NONE
    without = {FigurePart.CLOCK} if is_timed_by_cpu else {}
    needed = [parts[part] for part in FIGURES[figure] if part in parts and part not in without]
    for share, state in ((Share.MISSING, FigureState.PARTIAL), (Share.COMING, FigureState.PENDING)):
        why = [has.why for has in needed if has.share is share]
        if why:
            return Verdict(state, "; ".join(why))
    return Verdict(FigureState.FINAL)
