"""`info.json`: the NPU clock, and the sibling SoC that is refused."""

from __future__ import annotations

import json

import pytest

from profagent.errors import FormatError, UnsupportedBoardError
from profagent.formats.board_files import looks_like_hi3519, parse_acl_json, parse_info_json


@pytest.mark.parametrize(
    ("profiler", "interval"),
    [
        ('{"switch":"on"}', 0),
        ('{"interval":"7"}', 7),
        ('{"interval":" 9999",}', 9999),
        ('{\r\n\t"interval" : "0"\r\n}', 0),
        ('{"a":",}","interval":"1"}', 1),
    ],
)
def test_an_interval_is_read_as_the_runtime_does(profiler: str, interval: int) -> None:
    assert parse_acl_json(b'{"profiler":%s}' % profiler.encode(), "acl.json") == interval


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"[" * 100_000,
        b'{"profiler":"on"}',
        b'{"profiler":{"interval":5}}',
        b'{"profiler":{"interval":"10000"}}',
        b'{"profiler":{"interval":"5x"}}',
    ],
)
def test_a_file_that_tells_none_is_named(data: bytes) -> None:
    with pytest.raises(FormatError, match=r"^acl\.json: "):
        parse_acl_json(data, "acl.json")


FILE = "info.json.0"


def test_the_runtimes_own_text_is_read() -> None:
    assert parse_info_json(b'{"DeviceInfo": [{"aic_frequency": "700"}]}', FILE) == 700


@pytest.mark.parametrize(
    "text",
    [
        '{"DeviceInfo": [{"aic_frequency": 700}]}',
        '{"DeviceInfo": [{"aic_frequency": "700", "cores": 2}], "version": {"sdk": [1, "二"]}}',
        '{"Other": [], "DeviceInfo": [{"id": 0}, {"aic_frequency": "700"}]}\n',
        '{"magic_num": "5A5A", "DeviceInfo": [{"aic_frequency": "700"}]}',
    ],
)
def test_objects_beside_the_frequency_are_accepted(text: str) -> None:
    assert parse_info_json(text.encode(), FILE) == 700


@pytest.mark.parametrize(
    "value",
    [
        {"magic_num": "6A6A", "DeviceInfo": [{"aic_frequency": "594"}]},
        {"DeviceInfo": [{"aic_frequency": "594", "magic_num": "6A6A"}]},
        {"DeviceInfo": [{"aic_frequency": "500"}, {"magic_num": "6a6a"}]},
    ],
)
def test_a_hi3519_is_refused_by_name(value: dict[str, object]) -> None:
    with pytest.raises(UnsupportedBoardError, match="Hi3519DV500") as caught:
        parse_info_json(json.dumps(value).encode(), FILE)
    assert caught.value.exit_code == 2
    assert "SS928" in caught.value.hint


@pytest.mark.parametrize(
    "frequency",
    ['""', '"0"', "0", '"-700"', "-700", '"7e2"', "700.0", "true", "null", '"９"', '"99999999999"'],
)
def test_a_frequency_that_is_no_number_of_mhz_is_told(frequency: str) -> None:
    text = f'{{"DeviceInfo": [{{"aic_frequency": {frequency}}}]}}'.encode()
    with pytest.raises(FormatError, match="whole MHz") as caught:
        parse_info_json(text, FILE)
    assert caught.value.offset == text.index(b"aic_frequency")


@pytest.mark.parametrize("text", [b"{}", b"[]", b"700", b'"aic_frequency"', b'{"DeviceInfo": []}'])
def test_an_absent_frequency_is_told(text: bytes) -> None:
    with pytest.raises(FormatError, match="aic_frequency"):
        parse_info_json(text, FILE)


@pytest.mark.parametrize(
    "text", [b"", b'{"DeviceInfo": [{"aic_freq', b'{"a": "\xff"}', b"[" * 100_000, b"1" * 100_000], ids=range(5)
)
def test_what_is_no_json_is_told(text: bytes) -> None:
    with pytest.raises(FormatError):
        parse_info_json(text, FILE)


@pytest.mark.parametrize(
    ("names", "is_hi3519"),
    [
        (["info.json.0", "data/aicore.0.1.1", "data/aicore.0.1.1.done"], True),
        (["data/aicpu.0.4.6"], True),
        (["info.json.0"], False),
        ([], False),
        (["data/aicore.0.m.3.1.4.6.0"], False),
        (["data/aicore.0.1.1", "data/aicore.0.m.3.1.4.6.0"], False),
        (["aicore.0.1.1"], False),
        (["data/acl_api.0.1"], False),
    ],
)
def test_a_hi3519_job_is_recognised_by_data_files_without_a_model(names: list[str], is_hi3519: bool) -> None:
    assert looks_like_hi3519(names) == is_hi3519
