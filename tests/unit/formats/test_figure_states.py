"""Whether a figure of an inference is known: by what it is made of, and how much of that is here."""

from __future__ import annotations

import pytest

from profagent.formats.figure_states import (
    CAPTURE_ENDED,
    JOB_ENDED,
    Figure,
    FigureState,
    Has,
    Part,
    Share,
    UnitLog,
    Verdict,
    clock_part,
    log_part,
    state_of,
)

FINAL, PENDING, PARTIAL = FigureState.FINAL, FigureState.PENDING, FigureState.PARTIAL
WHOLE = dict.fromkeys(Part, Has(Share.WHOLE))


def states(parts: dict[Part, Has]) -> tuple[FigureState, ...]:
    """Of the records, their time, and the time of layers by name."""
    return tuple(state_of(figure, parts).state for figure in (Figure.RECORDS, Figure.TIME, Figure.LAYERS))


@pytest.mark.parametrize(
    ("part", "share", "expected"),
    [
        (Part.AICORE, Share.NONE, (FINAL, FINAL, FINAL)),
        (Part.AICORE, Share.WHOLE, (FINAL, FINAL, FINAL)),
        (Part.AICORE, Share.COMING, (PENDING, PENDING, PENDING)),
        (Part.AICORE, Share.MISSING, (PARTIAL, PARTIAL, PARTIAL)),
        (Part.AICPU, Share.NONE, (FINAL, FINAL, FINAL)),
        (Part.AICPU, Share.WHOLE, (FINAL, FINAL, FINAL)),
        (Part.AICPU, Share.COMING, (PENDING, PENDING, PENDING)),
        (Part.AICPU, Share.MISSING, (PARTIAL, PARTIAL, PARTIAL)),
        (Part.CLOCK, Share.NONE, (FINAL, FINAL, FINAL)),
        (Part.CLOCK, Share.WHOLE, (FINAL, FINAL, FINAL)),
        (Part.CLOCK, Share.COMING, (FINAL, PENDING, PENDING)),
        (Part.CLOCK, Share.MISSING, (FINAL, PARTIAL, PARTIAL)),
        (Part.LAYERS, Share.NONE, (FINAL, FINAL, FINAL)),
        (Part.LAYERS, Share.WHOLE, (FINAL, FINAL, FINAL)),
        (Part.LAYERS, Share.COMING, (FINAL, FINAL, PENDING)),
        (Part.LAYERS, Share.MISSING, (FINAL, FINAL, PARTIAL)),
    ],
)
def test_a_figure_is_known_when_every_part_of_it_is(
    part: Part, share: Share, expected: tuple[FigureState, ...]
) -> None:
    assert states({**WHOLE, part: Has(share, "because")}) == expected


@pytest.mark.parametrize("share", Share)
def test_what_ran_on_the_cpu_alone_needs_no_clock(share: Share) -> None:
    on_cpu = {Part.AICORE: Has(Share.NONE), Part.AICPU: Has(Share.WHOLE), Part.CLOCK: Has(share, "no clock")}
    assert states(on_cpu) == (FINAL, FINAL, FINAL)
    del on_cpu[Part.AICORE]
    assert states(on_cpu) == (FINAL, FINAL, FINAL)


def test_what_will_never_come_counts_before_what_has_not_come_yet() -> None:
    parts = {**WHOLE, Part.AICPU: Has(Share.COMING, "not yet"), Part.CLOCK: Has(Share.MISSING, "never")}
    assert state_of(Figure.TIME, parts) == Verdict(PARTIAL, "never")


@pytest.mark.parametrize(
    ("log", "ended", "share", "why"),
    [
        (None, "", Share.NONE, ""),
        (None, JOB_ENDED, Share.NONE, ""),
        (UnitLog(), "", Share.COMING, "aicpu records have not all come yet"),
        (UnitLog(), JOB_ENDED, Share.MISSING, f"aicpu records: {JOB_ENDED}"),
        (UnitLog(), CAPTURE_ENDED, Share.MISSING, f"aicpu records: {CAPTURE_ENDED}"),
        (UnitLog(whole=1), "", Share.COMING, "aicpu records have not all come yet"),
        (UnitLog(whole=2), "", Share.WHOLE, ""),
        (UnitLog(whole=2), JOB_ENDED, Share.WHOLE, ""),
        (UnitLog(whole=2, is_gone=True), "", Share.WHOLE, ""),
        (UnitLog(whole=2, is_complete=True, fault="torn"), "", Share.WHOLE, ""),
        (
            UnitLog(whole=1, is_gone=True),
            "",
            Share.MISSING,
            "aicpu records: their log was removed from the board before they had all come",
        ),
        (UnitLog(whole=1, fault="torn"), "", Share.COMING, "aicpu records have not all come yet"),
        (UnitLog(whole=1, is_complete=True, fault="torn"), "", Share.MISSING, "aicpu records: torn"),
        (UnitLog(whole=1, fault="torn"), JOB_ENDED, Share.MISSING, "aicpu records: torn"),
        # The board vouched for an earlier end: another inference is on its way.
        (UnitLog(whole=1, is_complete=True), "", Share.COMING, "aicpu records have not all come yet"),
    ],
)
def test_records_of_the_second_inference_in_a_log(log: UnitLog | None, ended: str, share: Share, why: str) -> None:
    assert log_part(Part.AICPU, log, 1, ended) == Has(share, why)


@pytest.mark.parametrize(
    ("mhz", "has_come", "ended", "share", "why"),
    [
        (700, True, "", Share.WHOLE, ""),
        (700, False, JOB_ENDED, Share.WHOLE, ""),
        (None, False, "", Share.COMING, "info.json, which tells the NPU's clock, has not come yet"),
        (None, False, JOB_ENDED, Share.MISSING, "there is no info.json, which tells the NPU's clock"),
        (None, True, "", Share.MISSING, "info.json does not tell the NPU's clock"),
        (None, True, JOB_ENDED, Share.MISSING, "info.json does not tell the NPU's clock"),
    ],
)
def test_the_clock(mhz: int | None, has_come: bool, ended: str, share: Share, why: str) -> None:
    assert clock_part(mhz, has_come=has_come, ended=ended) == Has(share, why)
