"""The simulated board's counter map and what is packed by it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from profagentd.simulate.encode import MAP_FILE, load_counters, pack_words

AGENT_COPY = Path(__file__).parents[2] / "agent" / "profagent" / "formats" / "maps" / "simulated.toml"


def test_the_agent_has_the_same_map_byte_for_byte() -> None:
    assert AGENT_COPY.read_bytes() == MAP_FILE.read_bytes()


def test_every_counter_of_the_records_has_its_own_words_in_the_hardware_range() -> None:
    taken: list[int] = []
    for counter in load_counters():
        taken += range(counter.offset, counter.offset + struct.calcsize(counter.form))
    assert len(load_counters()) == 10
    assert len(taken) == len(set(taken))
    assert min(taken) >= 0x08
    assert max(taken) <= 0x73


def test_values_come_back_by_the_maps_rule() -> None:
    values = {
        "mac_busy": 0.75, "mac_ppen": 0.5, "vec_busy": 0.25, "vec_ppen": 0.125, "dstr": 0.4, "dtrans": 0.1,
        "dld": 0.5, "wld": 0.25, "ddr_read_bytes": 5_000_000_001.0, "ddr_write_bytes": 6_400.0,
    }  # fmt: skip
    words = bytes(8) + pack_words(load_counters(), values, 2_000, bytes(244))
    assert struct.unpack_from("<IIII", words, 0x08) == (150_000, 100_000, 50_000, 25_000)
    assert struct.unpack_from("<II", words, 0x18) == (80_000, 20_000)
    assert struct.unpack_from("<HH", words, 0x20) == (32_768, 16_384)
    assert struct.unpack_from("<Q", words, 0x28) == (5_000_000_001,)
    assert struct.unpack_from("<I", words, 0x30) == (100,)


@pytest.mark.parametrize("name", ["dld", "wld"])
def test_a_value_beyond_its_type_becomes_the_largest_word(name: str) -> None:
    (counter,) = (counter for counter in load_counters() if counter.name == name)
    words = bytearray(244)
    counter.pack_into(words, 1.0, 10)
    assert struct.unpack_from("<H", words, counter.offset - 8) == (65_535,)


def test_bytes_beside_the_counters_stay() -> None:
    words = pack_words(load_counters(), {counter.name: 0.0 for counter in load_counters()}, 1, b"\xaa" * 244)
    assert words[0x34 - 8 :] == b"\xaa" * (0xFC - 0x34)
