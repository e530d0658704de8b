"""Counter maps: what they may say, and what a counter is worth."""

from __future__ import annotations

from importlib import resources

import pytest

from profagent.errors import FormatError
from profagent.formats.countermap import (
    CounterMap,
    Place,
    Tally,
    implausible_text,
    parse_counter_map,
)
from profagent.formats.records import AICORE_DTYPE, view_records
from tests.encoders import aicore_record


def test_it_is_told_with_its_numbers() -> None:
    tally = Tally(900, 12, Place(3, "data/aicore.x", 5), 1.7349)
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
        (HEAD + counter_text("cube_busy"), "'cube_busy' is no counter among mac_busy"),
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
