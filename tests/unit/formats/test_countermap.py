"""Counter maps: what they may say, and what a counter is worth."""

from __future__ import annotations

from importlib import resources

import pytest

from profagent.errors import FormatError
from profagent.formats.countermap import CounterMap, RecordPlace, Tally, implausible_text, parse_counter_map
from profagent.formats.figure_states import (
    CAPTURE_ENDED,
    JOB_ENDED,
    Figure,
    FigurePart,
    FigureState,
    Has,
    Share,
    UnitLog,
    Verdict,
    clock_part,
    log_part,
    state_of,
)
from profagent.formats.records import AICORE_DTYPE, view_records
from tests.encoders import aicore_record


def test_it_is_told_with_its_numbers() -> None:
    tally = Tally(900, 12, RecordPlace(3, "data/aicore.x", 5), 1.7349)
    assert implausible_text("mac_ppen <= mac_busy", tally) == (
        "mac_ppen is above mac_busy in 12 of 900 records, at worst 1.735; first record 5 of data/aicore.x"
    )
    assert "120.0 GB/s, and 20 can be" in implausible_text("ddr_read_bytes rate", tally._replace(worst=120e9), 20e9)
    assert implausible_text("ticks <= .done", tally).endswith(
        "12 of 900 inferences, at worst 1.735 times; first data/aicore.x"
    )


HEAD = 'name = "test"\nsdk = "2023"\nsimulated = false\n'
FILE = "maps/test.toml"


def counter_text(name: str = "mac_busy", **changed: str) -> str:
    """A counter's table, with TOML values changed or, where empty, left out."""
    unit = '"bytes"' if name.endswith("_bytes") else '"fraction"'
    values = {
        "offset": "0x08",
        "type": '"u32"',
        "scale": "1.0",
        "denominator": '"none"',
        "unit": unit,
        "verdict": '"certain"',
        "evidence": '"a test"',
        **changed,
    }
    return "\n".join([f"[counters.{name}]", *(f"{key} = {value}" for key, value in values.items() if value), ""])


def map_of(*counters: str) -> CounterMap:
    """A map with these tables."""
    return parse_counter_map(HEAD + "[counters]\n" + "".join(counters), FILE)


def value_of(record: bytes, name: str = "mac_busy", **changed: str) -> float:
    """One counter of one record."""
    (value,) = map_of(counter_text(name, **changed)).apply(view_records(record, AICORE_DTYPE))[name]
    return float(value)


@pytest.mark.parametrize(
    ("counter_type", "value"), [('"u16"', 0x3344), ('"u32"', 0x11223344), ('"u64"', 0x5566778811223344)]
)
def test_a_counter_is_an_unsigned_integer_of_its_size(counter_type: str, value: int) -> None:
    record = aicore_record(0, 1, 0, {0x20: 0x11223344, 0x24: 0x55667788})
    assert value_of(record, offset="0x20", type=counter_type) == float(value)


@pytest.mark.parametrize(("denominator", "value"), [('"ticks"', 0.25), ('"cycles"', 0.0025), ('"none"', 50.0)])
def test_a_ratio_is_over_the_layers_ticks_or_cycles(denominator: str, value: float) -> None:
    record = aicore_record(0, 200, 0, {8: 100})
    assert value_of(record, scale="0.5", denominator=denominator) == pytest.approx(value)


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"offset": '"8"'}, "Expected `int`, got `str` - at `$.counters[...].offset`"),
        ({"offset": ""}, "missing required field `offset`"),
        ({"type": '"i32"'}, "type"),
        ({"scale": "nan"}, "a scale is above 0"),
        ({"scale": "inf"}, "a scale is above 0"),
        ({"scale": "-1.0"}, "a scale is above 0"),
        ({"scale": "1" + "0" * 400}, "scale"),
        ({"denominator": '"seconds"'}, "denominator"),
        ({"unit": '"bytes"'}, "the unit of mac_busy is fraction"),
        ({"verdict": '"not found"'}, "verdict"),
        ({"ofset": "8"}, "ofset"),
    ],
)
def test_a_key_that_cannot_be_is_told(changed: dict[str, str], found: str) -> None:
    with pytest.raises(FormatError) as caught:
        map_of(counter_text("dstr"), counter_text("mac_busy", **changed))
    assert found in caught.value.found
    assert caught.value.file == FILE


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("name = ", "Invalid value"),
        ("x = " + "[" * 100_000, ""),
        ("x = " + "9" * 100_000, ""),
        (HEAD, "missing required field `counters`"),
        (HEAD.replace("false", '"no"') + "[counters]\n", "$.simulated"),
        (HEAD + 'author = "me"\n[counters]\n', "author"),
        (HEAD + "counters = {mac_busy = 1}\n", "$.counters"),
        (HEAD + counter_text("cube_busy"), "'cube_busy' is not a counter; the counters are mac_busy"),
    ],
    ids=range(8),
)
def test_a_map_that_cannot_be_is_told(text: str, found: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_counter_map(text, FILE)
    assert found in caught.value.found


def test_maps_that_come_with_profagent_are_whole() -> None:
    maps = [file for file in resources.files("profagent.formats").joinpath("maps").iterdir() if ".toml" in file.name]
    assert maps
    for file in maps:
        assert parse_counter_map(file.read_text("utf-8"), file.name).counters


# Whether a figure of an inference is known: by what it is made of, and how much of that is here

FINAL, PENDING, PARTIAL = FigureState.FINAL, FigureState.PENDING, FigureState.PARTIAL
WHOLE = dict.fromkeys(FigurePart, Has(Share.WHOLE))


def states(parts: dict[FigurePart, Has]) -> tuple[FigureState, ...]:
    """Of the records, their time, and the time of layers by name."""
    return tuple(state_of(figure, parts).state for figure in (Figure.RECORDS, Figure.TIME, Figure.LAYERS))


@pytest.mark.parametrize(
    ("part", "share", "expected"),
    [
        (FigurePart.AICORE, Share.NONE, (FINAL, FINAL, FINAL)),
        (FigurePart.AICORE, Share.WHOLE, (FINAL, FINAL, FINAL)),
        (FigurePart.AICORE, Share.COMING, (PENDING, PENDING, PENDING)),
        (FigurePart.AICORE, Share.MISSING, (PARTIAL, PARTIAL, PARTIAL)),
        (FigurePart.AICPU, Share.NONE, (FINAL, FINAL, FINAL)),
        (FigurePart.AICPU, Share.WHOLE, (FINAL, FINAL, FINAL)),
        (FigurePart.AICPU, Share.COMING, (PENDING, PENDING, PENDING)),
        (FigurePart.AICPU, Share.MISSING, (PARTIAL, PARTIAL, PARTIAL)),
        (FigurePart.CLOCK, Share.NONE, (FINAL, FINAL, FINAL)),
        (FigurePart.CLOCK, Share.WHOLE, (FINAL, FINAL, FINAL)),
        (FigurePart.CLOCK, Share.COMING, (FINAL, PENDING, PENDING)),
        (FigurePart.CLOCK, Share.MISSING, (FINAL, PARTIAL, PARTIAL)),
        (FigurePart.LAYERS, Share.NONE, (FINAL, FINAL, FINAL)),
        (FigurePart.LAYERS, Share.WHOLE, (FINAL, FINAL, FINAL)),
        (FigurePart.LAYERS, Share.COMING, (FINAL, FINAL, PENDING)),
        (FigurePart.LAYERS, Share.MISSING, (FINAL, FINAL, PARTIAL)),
    ],
)
def test_a_figure_is_known_when_every_part_of_it_is(
    part: FigurePart, share: Share, expected: tuple[FigureState, ...]
) -> None:
    assert states({**WHOLE, part: Has(share, "because")}) == expected


@pytest.mark.parametrize("share", Share)
def test_what_ran_on_the_cpu_alone_needs_no_clock(share: Share) -> None:
    on_cpu = {
        FigurePart.AICORE: Has(Share.NONE),
        FigurePart.AICPU: Has(Share.WHOLE),
        FigurePart.CLOCK: Has(share, "no clock"),
    }
    assert states(on_cpu) == (FINAL, FINAL, FINAL)
    del on_cpu[FigurePart.AICORE]
    assert states(on_cpu) == (FINAL, FINAL, FINAL)


def test_what_will_never_come_counts_before_what_has_not_come_yet() -> None:
    parts = {**WHOLE, FigurePart.AICPU: Has(Share.COMING, "not yet"), FigurePart.CLOCK: Has(Share.MISSING, "never")}
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
    assert log_part(FigurePart.AICPU, log, 1, ended) == Has(share, why)


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
