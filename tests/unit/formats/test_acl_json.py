"""The interval of an acl.json."""

from __future__ import annotations

import pytest

from profagent.errors import FormatError
from profagent.formats.board_files import parse_acl_json


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
