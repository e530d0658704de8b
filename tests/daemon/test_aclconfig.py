"""What an acl.json tells, case by case as the runtime library was seen to take it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from profagentd.sources.acl_json import AclConfig, NotUsable, parse_acl_config

ON = '"switch":"on","output":"/out","aic_metrics":"ArithmeticUtilization","aicpu":"on","acl_api":"on"'

# The case's name in the observation, its file, and the interval that the runtime started with; None: no JOB from it.
SEEN: list[tuple[str, str, str | None]] = [
    ("all on, no interval", f"{{{ON}}}", ""),
    ('interval "0"', f'{{{ON},"interval":"0"}}', "0"),
    ('interval "9999"', f'{{{ON},"interval":"9999"}}', "9999"),
    ('interval " 7"', f'{{{ON},"interval":" 7"}}', " 7"),
    ("interval number 5", f'{{{ON},"interval":5}}', None),
    ("nested unknown object", f'{{{ON},"deep":{{"deeper":{{"a":"b"}}}}}}', ""),
    ("array value", f'{{{ON},"list":["a","b"]}}', ""),
    ('switch "off"', '{"switch":"off","output":"/out","aicpu":"on"}', None),
    ('switch "ON"', '{"switch":"ON","output":"/out","aicpu":"on"}', None),
    ("no switch", '{"output":"/out","aicpu":"on"}', None),
    ("no output", '{"switch":"on","aicpu":"on"}', None),
    ("empty object", "{}", None),
    ("pretty printed, tabs, CRLF", f'{{\r\n\t{ON},\r\n\t"interval" : "3"\r\n}}', "3"),
    ("trailing comma", f'{{{ON},"interval":"4",}}', "4"),
]


@pytest.mark.parametrize(("case", "profiler", "interval"), SEEN)
def test_the_runtimes_cases(case: str, profiler: str, interval: str | None) -> None:
    data = b'{"profiler":%s}' % profiler.encode()
    if interval is None:
        with pytest.raises(NotUsable):
            parse_acl_config(data)
    else:
        assert parse_acl_config(data) == AclConfig("/out", interval, "on", "on", "ArithmeticUtilization"), case


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no JSON"),
        (b'{"profiler":{"switch":"on"', "no JSON"),
        (b'\xef\xbb\xbf{"profiler":{"switch":"on","output":"/out"}}', "no JSON"),
        (b'\xff{"profiler":{}}', "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b'{"profiler":{"switch":"on","output":"/out"},"x":true}', "no string"),
        (rb'{"profiler":{"switch":"on","output":"/out\u0000"}}', "no text has"),
        (rb'{"profiler":{"switch":"on","output":"/\ud800"}}', "no text has"),
        (rb'{"profiler":{"switch":"on","output":"/out","interval":"\udfff"}}', "no text has"),
        (b'{"profiler":{"switch":"on","output":"/out"},"x":[{"y":null}]}', "no string"),
        (b'{"dump":{"mode":"on"}}', "no profiler"),
        (b'["profiler"]', "no profiler"),
        (b'{"profiler":"on"}', "no profiler"),
    ],
)
def test_a_file_that_began_no_job_says_why(data: bytes, why: str) -> None:
    with pytest.raises(NotUsable, match=why):
        parse_acl_config(data)


def test_either_spelling_is_read_and_the_runtimes_own_goes_first() -> None:
    profiler = '"switch":"on","output":"/out","aacpu":"off","aac_metrics":"X"'
    assert parse_acl_config(b'{"profiler":{%s}}' % profiler.encode()) == AclConfig("/out", "", "off", "", "X")
    both = profiler + ',"aicpu":"on","aic_metrics":"Y"'
    assert parse_acl_config(b'{"profiler":{%s}}' % both.encode()) == AclConfig("/out", "", "on", "", "Y")


def test_an_output_leads_to_the_directory_that_holds_the_job(tmp_path: Path) -> None:
    real = tmp_path / "profiling"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    (tmp_path / "src").mkdir()
    starts = [os.fsencode(tmp_path / "src"), os.fsencode(tmp_path)]
    holder = os.fsencode(real.resolve())
    for output in (str(real), str(real) + "/", str(tmp_path / "link"), "profiling", "./profiling/", "../profiling"):
        assert AclConfig(output).leads_to(holder, starts), output
    for output in (str(tmp_path), "src", ".", "profiling/deeper", "/nowhere"):
        assert not AclConfig(output).leads_to(holder, starts), output
